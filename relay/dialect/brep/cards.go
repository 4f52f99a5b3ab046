package brep

import (
	"context"
	"encoding/base64"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/sotto-relay/sotto/crypto"
	"github.com/sotto-relay/sotto/frame"
)

// The cards of clients (spec native.md, "Sealing") are kept in the state store:
//
//	bucket  "brep-cards"
//	key     the identity, 32 bytes
//	value   when the card ends: u64 big-endian, seconds since 1970 ‖ the card
//
// Past the bound those that end first go first.
const cardsBucket = "brep-cards"

const (
	maxCards  = 200_000 // some 300 MB
	keptCards = maxCards - 20*trimEvery

	// clockSkew is how far a client's clock may be ahead of ours.
	clockSkew = 10 * time.Minute
)

// putCard keeps a card of the session's identity, unless one with a higher serial
// is there.
func (s *session) putCard(ctx context.Context, q *request) error {
	card, err := q.card()
	now := time.Now()
	switch {
	case err != nil:
		return err
	case card.Identity() != s.key:
		return errCardOwner
	case card.NotAfter().Before(now), card.NotBefore().After(now.Add(clockSkew)):
		return errCardTime
	}
	defer s.common.lock(s.key)()
	state, key := s.port.State(), string(s.key[:])
	value, known, err := state.Get(ctx, cardsBucket, key)
	if err != nil {
		return s.kept(err)
	}
	if _, b := decodeCard(value); b != nil {
		old, err := crypto.ParseCard(b)
		switch {
		case err != nil:
		case old.KeyID() == card.KeyID():
			return s.done(q)
		case old.Serial() >= card.Serial():
			return errCardSerial
		}
	}
	err = state.Put(ctx, cardsBucket, key, append(encodeTime(card.NotAfter()), card.Bytes()...))
	if err == nil && !known && rand.IntN(trimEvery) == 0 {
		err = trim(ctx, state, cardsBucket, keptCards)
	}
	if err != nil {
		return s.kept(err)
	}
	return s.done(q)
}

// decodeCard returns when a card that was kept ends, and the card, nil if there is
// none.
func decodeCard(value []byte) (ends time.Time, card []byte) {
	if len(value) < stateTimeSize {
		return time.Time{}, nil
	}
	return decodeTime(value), value[stateTimeSize:]
}

// card returns the field "card", a verified one.
func (q *request) card() (*crypto.Card, error) {
	text, err := q.text("card")
	if err != nil {
		return nil, err
	}
	b, err := base64.StdEncoding.DecodeString(text)
	if err != nil || base64.StdEncoding.EncodeToString(b) != text {
		return nil, errCard
	}
	card, err := crypto.ParseCard(b)
	switch {
	case errors.Is(err, crypto.ErrSignature):
		return nil, errCardSignature
	case err != nil:
		return nil, errCard
	}
	return card, nil
}

// getCard returns the card of anybody.
func (s *session) getCard(ctx context.Context, q *request) error {
	key, err := q.key()
	if err != nil {
		return err
	}
	value, _, err := s.port.State().Get(ctx, cardsBucket, string(key[:]))
	if err != nil {
		return s.kept(err)
	}
	ends, card := decodeCard(value)
	if card == nil || ends.Before(time.Now()) {
		return errNoCard
	}
	s.respond(q, frame.AppendCard(nil, base64.StdEncoding.EncodeToString(card)))
	return nil
}
