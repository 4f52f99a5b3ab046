package client

import (
	"time"

	"github.com/sotto-relay/sotto/crypto"
)

// A Pending is a message that is sent again after a reconnect, since the relay, or
// the recipient, does not have it for good (see the package comment).
type Pending struct {
	ID     [16]byte
	To     crypto.PublicKey // zero: a publication
	Made   time.Time        // by Send
	Size   int              // of the frame, in bytes
	Status Status           // the highest receipt so far, or Queued
}

// Pending returns the messages that are pending, in the order in which they are
// sent: all of which Send has returned, and those that it waits for.
func (c *Client) Pending() []Pending { return c.out.list() }

// Cancel takes a pending message back: it is not sent any more, and its Send returns
// ErrCancelled or Trace.Settled is told so, unless they have a receipt already. It may
// have arrived, or be on its way. False: there is none with this id.
func (c *Client) Cancel(id [16]byte) bool {
	return c.out.failIf(id, func(p *pending) bool { return p.ready }, ErrCancelled)
}
