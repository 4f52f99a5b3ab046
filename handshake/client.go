package handshake

import (
	"io"

	"github.com/sotto-relay/sotto/crypto"
	"github.com/sotto-relay/sotto/frame"
)

// A ClientConfig is what a client brings to a handshake. It must not change
// while Clients use it.
type ClientConfig struct {
	Identity *crypto.Identity // required
	Rand     io.Reader        // of nonces; nil: crypto/rand. Its failure is an error

	// Expect is the key that the relay must have, pinned or seen before (see
	// [Expect]). Nil accepts any. A relay that is expected to have a key is never
	// spoken to in v1.
	Expect *crypto.PublicKey
	// AllowLegacy allows v1, in which the relay proves nothing and has us sign 32
	// bytes of its choice.
	AllowLegacy bool
}

// A Relay is whom a Client or a Dialler has reached.
type Relay struct {
	Key      crypto.PublicKey // zero in v1, where none is proved
	Version  int              // 1 or 2
	Features uint32           // FeatureDurable and others

	// FirstContact says that Key was proved and that none was expected: this is
	// the time to remember it, and to tell the user.
	FirstContact bool
}

// A Client is a client's side of a connection. It takes the relay's challenge
// and confirmation.
type Client struct {
	cfg      *ClientConfig
	exchange *exchange // our v2 answer
	v1       bool      // we gave a v1 answer
	relay    *Relay    // set at the end
}

// NewClient returns a Client for one connection.
func NewClient(cfg *ClientConfig) *Client { return &Client{cfg: cfg} }

// Relay returns whom the connection leads to, once the handshake is done.
func (c *Client) Relay() (r Relay, ok bool) {
	if c.relay == nil {
		return Relay{}, false
	}
	return *c.relay, true
}

// Receive takes a frame that came in and returns the one to send, or nil. Errors
// are of type *Error, and change nothing.
func (c *Client) Receive(f *frame.Brep) (reply *frame.Brep, err error) {
	if err := checkTurn(f, c.relay != nil); err != nil {
		return nil, err
	}
	switch {
	case c.v1:
		return nil, c.receiveConfirmV1(f)
	case c.exchange != nil:
		return nil, c.receiveConfirm(f)
	default:
		return c.receiveChallenge(f)
	}
}

func (c *Client) receiveChallenge(f *frame.Brep) (*frame.Brep, error) {
	random, err := openChallenge(f)
	if err != nil {
		return nil, err
	}
	relay := crypto.PublicKey(f.Sender)
	if relay == (crypto.PublicKey{}) {
		if !c.cfg.AllowLegacy || c.cfg.Expect != nil {
			return nil, &Error{frame.CodeDenied, ErrLegacyRelay}
		}
		c.v1 = true
		return &frame.Brep{
			Type:      frame.TypeHandshake,
			Sender:    c.cfg.Identity.Public(),
			Signature: c.cfg.Identity.Sign(random[:]),
			Payload:   random[:],
		}, nil
	}
	if err := checkExpected(c.cfg.Expect, relay); err != nil {
		return nil, err
	}
	x, err := newExchange(c.cfg.Identity, c.cfg.Rand, relay, random, RoleClient)
	if err != nil {
		return nil, err
	}
	c.exchange = x
	return x.answer(c.cfg.Identity), nil
}

func (c *Client) receiveConfirmV1(f *frame.Brep) error {
	if !isConfirmV1(f) {
		return refuse(frame.CodeMalformed, "not a confirmation")
	}
	c.relay = &Relay{Version: 1}
	return nil
}

func (c *Client) receiveConfirm(f *frame.Brep) error {
	features, err := c.exchange.openConfirm(f)
	if err != nil {
		return err
	}
	c.relay = &Relay{
		Key:          c.exchange.relay,
		Version:      2,
		Features:     features,
		FirstContact: c.cfg.Expect == nil,
	}
	return nil
}
