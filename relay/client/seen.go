package client

import (
	"crypto/sha256"
	"time"

	"github.com/sotto-relay/sotto/frame"
)

// rememberTime is for how long a letter is remembered: 7 days in which its sender
// tries and 7 in an inbox (spec native.md, "Delivery").
const rememberTime = 14 * 24 * time.Hour

// A letterKey is what repeats of a letter have in common.
type letterKey struct {
	sender [32]byte
	id     [16]byte
}

// keyOf returns the key of a letter in a frame. ok is false if it has none.
//
// The signature of ENCRYPTED_DATA does not cover the id, which may be missing
// too; but its ciphertext has a random nonce, so that it never is the same again.
func keyOf(f *frame.Brep) (k letterKey, ok bool) {
	k.sender, k.id = f.Sender, f.ID
	if f.Type == frame.TypeEncryptedData {
		sum := sha256.Sum256(f.Payload)
		copy(k.id[:], sum[:])
	}
	return k, k.id != [16]byte{}
}

// seen remembers the latest letters, bounded in number and time.
type seen struct {
	max   int
	keys  map[letterKey]struct{}
	order []sighting // the oldest first
}

type sighting struct {
	key letterKey
	at  time.Time
	in  *record // nil: in no store
}

func newSeen(max int) *seen { return &seen{max: max, keys: make(map[letterKey]struct{})} }

// has says whether a letter is remembered.
func (s *seen) has(k letterKey) bool {
	for len(s.order) > 0 && time.Since(s.order[0].at) >= rememberTime {
		s.forget()
	}
	_, ok := s.keys[k]
	return ok
}

// note remembers a letter for which has does not hold.
func (s *seen) note(k letterKey, at time.Time, in *record) {
	if len(s.order) == s.max {
		s.forget()
	}
	s.keys[k] = struct{}{}
	s.order = append(s.order, sighting{k, at, in})
}

// forget forgets the oldest. The room before it goes when append makes more.
func (s *seen) forget() {
	delete(s.keys, s.order[0].key)
	s.order[0].in.forget()
	s.order = s.order[1:]
}
