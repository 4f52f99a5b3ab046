package handshake

import (
	"io"

	"github.com/sotto-relay/sotto/crypto"
	"github.com/sotto-relay/sotto/frame"
)

// An AcceptorConfig is how a relay treats the connections that it accepts. It
// may be shared by any number of Acceptors and must not change while they use
// it; the functions are then called concurrently.
type AcceptorConfig struct {
	Identity *crypto.Identity // the relay's; required
	Rand     io.Reader        // of challenges and nonces; nil: crypto/rand. Its failure is an error
	Features uint32           // sent in confirmations

	// RequireV2 refuses v1 clients.
	RequireV2 bool
	// AllowV1 says whether a key may log in with v1: not if it ever did with v2.
	// It is asked about keys that have proved themselves. Nil allows all.
	AllowV1 func(crypto.PublicKey) bool
	// AdmitRelay says whether to link with the relay that has this key, which is
	// claimed and not proved at that point. Nil refuses all: the mesh is off.
	AdmitRelay func(crypto.PublicKey) bool
}

// A Peer is whom an Acceptor let in.
type Peer struct {
	Key     crypto.PublicKey
	Role    Role // RoleClient or RoleDialler
	Version int  // 1 or 2. What v1 proves, a hostile relay in between could have passed on

	// Features of a relay that dialled, known when the handshake is done.
	Features uint32
}

// An Acceptor is the relay's side of a connection that it accepted.
//
// It sends its Challenge and takes the answer of a client, after which it is
// done, or the challenge, the answer and the confirmation of a relay.
type Acceptor struct {
	cfg       *AcceptorConfig
	challenge challenge
	link      *exchange // our answer to the challenge of a relay; nil for a client
	peer      *Peer     // set when the peer's answer has been verified
	done      bool
}

// NewAcceptor returns an Acceptor for one connection. It fails when randomness
// does.
func NewAcceptor(cfg *AcceptorConfig) (*Acceptor, error) {
	c, err := newRandom(cfg.Rand)
	if err != nil {
		return nil, err
	}
	return &Acceptor{cfg: cfg, challenge: c}, nil
}

// Challenge returns the frame to send before any other.
func (a *Acceptor) Challenge() *frame.Brep { return a.challenge.frame(a.cfg.Identity.Public()) }

// Peer returns whom the connection belongs to, once their answer has been
// verified: that is when Receive returns the confirmation, before it is sent.
func (a *Acceptor) Peer() (p Peer, ok bool) {
	if a.peer == nil {
		return Peer{}, false
	}
	return *a.peer, true
}

// Done reports whether no message is owed by the peer any more. With a client
// that is as soon as there is a Peer.
func (a *Acceptor) Done() bool { return a.done }

// Receive takes a frame that came in and returns the one to send, or nil. Errors
// are of type *Error, and change nothing.
func (a *Acceptor) Receive(f *frame.Brep) (reply *frame.Brep, err error) {
	if err := checkTurn(f, a.done); err != nil {
		return nil, err
	}
	switch {
	case a.peer != nil:
		return nil, a.receiveConfirm(f)
	case a.link != nil:
		return a.receiveDialler(f)
	case isChallenge(f):
		return a.receiveChallenge(f)
	case len(f.Payload) == challengeSize:
		return a.receiveV1(f)
	default:
		return a.receiveClient(f)
	}
}

// receiveClient takes the v2 answer of a client.
func (a *Acceptor) receiveClient(f *frame.Brep) (*frame.Brep, error) {
	x, err := openAnswer(f, a.cfg.Identity.Public(), a.challenge, RoleClient)
	if err != nil {
		return nil, err
	}
	a.peer = &Peer{Key: x.client, Role: RoleClient, Version: 2}
	a.done = true
	return x.confirm(a.cfg.Identity, a.cfg.Features), nil
}

// receiveV1 takes the v1 answer of a client.
func (a *Acceptor) receiveV1(f *frame.Brep) (*frame.Brep, error) {
	key := crypto.PublicKey(f.Sender)
	switch {
	case a.cfg.RequireV2:
		return nil, refuse(frame.CodeDenied, "v1 is not accepted here")
	case challenge(f.Payload) != a.challenge:
		return nil, refuse(frame.CodeNotAuthenticated, "the answer is to another challenge")
	case crypto.Verify(key, f.Payload, &f.Signature) != nil:
		return nil, refuse(frame.CodeBadSignature, "the answer is not signed by its sender")
	case a.cfg.AllowV1 != nil && !a.cfg.AllowV1(key):
		return nil, refuse(frame.CodeDenied, "v1 is not accepted from this key")
	}
	a.peer = &Peer{Key: key, Role: RoleClient, Version: 1}
	a.done = true
	return &frame.Brep{
		Type:    frame.TypeHandshake,
		Sender:  a.cfg.Identity.Public(),
		Payload: []byte{1},
	}, nil
}

// receiveChallenge takes the challenge by which a relay that dialled makes
// itself known, and answers it.
func (a *Acceptor) receiveChallenge(f *frame.Brep) (*frame.Brep, error) {
	c, err := openChallenge(f)
	if err != nil {
		return nil, err
	}
	relay := crypto.PublicKey(f.Sender)
	switch {
	case relay == a.cfg.Identity.Public():
		return nil, &Error{frame.CodeDenied, ErrSelf}
	case c == a.challenge:
		return nil, refuse(frame.CodeDenied, "our own challenge came back")
	}
	x, err := newExchange(a.cfg.Identity, a.cfg.Rand, relay, c, RoleAcceptor)
	if err != nil {
		return nil, err
	}
	if a.cfg.AdmitRelay == nil || !a.cfg.AdmitRelay(relay) {
		return nil, refuse(frame.CodeDenied, "no link with this relay")
	}
	a.link = x
	return x.answer(a.cfg.Identity), nil
}

// receiveDialler takes the answer of a relay whose challenge we answered.
func (a *Acceptor) receiveDialler(f *frame.Brep) (*frame.Brep, error) {
	x, err := openAnswer(f, a.cfg.Identity.Public(), a.challenge, RoleDialler)
	if err != nil {
		return nil, err
	}
	if x.client != a.link.relay {
		return nil, refuse(frame.CodeNotAuthenticated, "challenge and answer of the relay have different keys")
	}
	a.peer = &Peer{Key: x.client, Role: RoleDialler, Version: 2}
	return x.confirm(a.cfg.Identity, a.cfg.Features), nil
}

// receiveConfirm takes the confirmation of a relay whose challenge we answered.
func (a *Acceptor) receiveConfirm(f *frame.Brep) error {
	features, err := a.link.openConfirm(f)
	if err != nil {
		return err
	}
	a.peer.Features = features
	a.done = true
	return nil
}
