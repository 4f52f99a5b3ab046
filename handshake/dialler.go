package handshake

import (
	"io"

	"github.com/sotto-relay/sotto/crypto"
	"github.com/sotto-relay/sotto/frame"
)

// A DiallerConfig is what a relay brings to a connection that it opens to
// another relay. It must not change while Diallers use it.
type DiallerConfig struct {
	Identity *crypto.Identity // the relay's; required
	Rand     io.Reader        // of challenges and nonces; nil: crypto/rand. Its failure is an error
	Features uint32           // sent in the confirmation

	// Expect is the key that the other relay must have, pinned or seen before
	// (see [Expect]). Nil accepts any but our own.
	Expect *crypto.PublicKey
}

// A Dialler is a relay's side of a connection that it opened to another relay.
// It speaks v2 only.
//
// It sends its Challenge and takes the other relay's challenge, answer and
// confirmation.
type Dialler struct {
	cfg       *DiallerConfig
	challenge challenge
	exchange  *exchange // our answer
	verified  bool      // the relay's answer to our challenge
	relay     *Relay    // set at the end
}

// NewDialler returns a Dialler for one connection. It fails when randomness
// does.
func NewDialler(cfg *DiallerConfig) (*Dialler, error) {
	c, err := newRandom(cfg.Rand)
	if err != nil {
		return nil, err
	}
	return &Dialler{cfg: cfg, challenge: c}, nil
}

// Challenge returns the frame to send before any other.
func (d *Dialler) Challenge() *frame.Brep { return d.challenge.frame(d.cfg.Identity.Public()) }

// Relay returns whom the connection leads to, once the handshake is done.
func (d *Dialler) Relay() (r Relay, ok bool) {
	if d.relay == nil {
		return Relay{}, false
	}
	return *d.relay, true
}

// Receive takes a frame that came in and returns the one to send, or nil. Errors
// are of type *Error, and change nothing.
func (d *Dialler) Receive(f *frame.Brep) (reply *frame.Brep, err error) {
	if err := checkTurn(f, d.relay != nil); err != nil {
		return nil, err
	}
	switch {
	case d.verified:
		return nil, d.receiveConfirm(f)
	case d.exchange != nil:
		return d.receiveAnswer(f)
	default:
		return d.receiveChallenge(f)
	}
}

func (d *Dialler) receiveChallenge(f *frame.Brep) (*frame.Brep, error) {
	c, err := openChallenge(f)
	if err != nil {
		return nil, err
	}
	relay := crypto.PublicKey(f.Sender)
	switch {
	case relay == crypto.PublicKey{}:
		return nil, &Error{frame.CodeDenied, ErrLegacyRelay}
	case relay == d.cfg.Identity.Public():
		return nil, &Error{frame.CodeDenied, ErrSelf}
	case c == d.challenge:
		return nil, refuse(frame.CodeDenied, "our own challenge came back")
	}
	if err := checkExpected(d.cfg.Expect, relay); err != nil {
		return nil, err
	}
	x, err := newExchange(d.cfg.Identity, d.cfg.Rand, relay, c, RoleDialler)
	if err != nil {
		return nil, err
	}
	d.exchange = x
	return x.answer(d.cfg.Identity), nil
}

// receiveAnswer takes the other relay's answer to our challenge.
func (d *Dialler) receiveAnswer(f *frame.Brep) (*frame.Brep, error) {
	x, err := openAnswer(f, d.cfg.Identity.Public(), d.challenge, RoleAcceptor)
	if err != nil {
		return nil, err
	}
	if x.client != d.exchange.relay {
		return nil, refuse(frame.CodeNotAuthenticated, "challenge and answer of the relay have different keys")
	}
	d.verified = true
	return x.confirm(d.cfg.Identity, d.cfg.Features), nil
}

func (d *Dialler) receiveConfirm(f *frame.Brep) error {
	features, err := d.exchange.openConfirm(f)
	if err != nil {
		return err
	}
	d.relay = &Relay{
		Key:          d.exchange.relay,
		Version:      2,
		Features:     features,
		FirstContact: d.cfg.Expect == nil,
	}
	return nil
}
