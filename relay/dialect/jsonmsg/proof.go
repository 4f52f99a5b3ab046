package jsonmsg

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
	"time"

	"github.com/sotto-relay/sotto/crypto"
	"github.com/sotto-relay/sotto/frame"
)

// Proof of possession (spec json.md, "register"): the relay seals a secret to the
// key, in a box that also says what it is for and which relay made it, so that the
// peer opens none for somebody else. The plaintext has 84 bytes.
//
//	label 20 ‖ the relay's key 32 ‖ secret 32
const proofLabel = "sotto json proof v1\x00"

const proofSecretSize = 32

// proofTime is how long a peer has to answer a challenge.
const proofTime = 10 * time.Second

// challenge has the peer prove that it holds the key of r.
func (s *session) challenge(w *work, r *registration) error {
	secret := make([]byte, proofSecretSize)
	if _, err := rand.Read(secret); err != nil {
		return err
	}
	relay := s.dialect.Identity.Public()
	plain := append(append([]byte(proofLabel), relay[:]...), secret...)
	once, err := crypto.GenerateX25519()
	if err != nil {
		return err
	}
	nonce, box, err := crypto.SealBox(once, r.key, plain)
	if err != nil {
		return errInvalidPubkey // to which nothing can be sealed
	}
	s.forget()
	r.secret, s.pending = secret, r
	s.late = s.port.After(proofTime, func() {
		s.pending = nil
		s.port.End(errProofEnds)
	})
	w.out = frame.AppendChallenge(w.out[:0], relay, once.Public(), nonce, box)
	s.reply(w.out)
	return nil
}

// proof takes the answer to a challenge.
func (s *session) proof(ctx context.Context, w *work) error {
	r := s.pending
	switch {
	case r == nil || r.secret == nil:
		if s.own == nil {
			return errNotRegistered
		}
		return errProof // nobody asked
	}
	text, err := w.text("proof")
	if err != nil {
		return err
	}
	s.forget()
	want := base64.StdEncoding.EncodeToString(r.secret)
	if subtle.ConstantTimeCompare([]byte(text), []byte(want)) != 1 {
		return errProofEnds
	}
	return s.complete(ctx, r)
}
