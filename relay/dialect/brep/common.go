package brep

import (
	"errors"

	"github.com/sotto-relay/sotto/crypto"
	"github.com/sotto-relay/sotto/inbox"
	"github.com/sotto-relay/sotto/internal/striped"
	"github.com/sotto-relay/sotto/relay"
)

// A common is what the sessions of a server have in common. It is shared under
// their realm, and so is told of messages whose sender is away.
type common struct {
	memory *memory
	blocks blocks
	locks  striped.Mutexes // by key
}

var _ relay.Follower = (*common)(nil)

func newCommon() any { return &common{memory: newMemory()} }

// lock has one session at a time change what the state store keeps for a key.
func (c *common) lock(key crypto.PublicKey) (unlock func()) {
	return c.locks.Lock(string(key[:]))
}

// kept returns what a peer may know of an error of the stores, which it is counted
// as.
func (s *session) kept(err error) error {
	var r *relay.Refusal
	switch {
	case errors.As(err, &r):
		return err
	case errors.Is(err, inbox.ErrStorageFull):
		return &relay.Refusal{Code: relay.CodeStorageFull, Err: err}
	}
	s.stateFailed(err)
	return &relay.Refusal{Code: relay.CodeInternal, Err: err}
}
