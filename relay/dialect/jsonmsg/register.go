package jsonmsg

import (
	"context"

	"github.com/sotto-relay/sotto/crypto"
	"github.com/sotto-relay/sotto/frame"
	"github.com/sotto-relay/sotto/relay"
	"github.com/sotto-relay/sotto/transport"
)

// A registration is the wish of a peer for an address, and later what the session
// is.
type registration struct {
	addr  string
	key   crypto.X25519Key
	keyed bool   // there is a key
	token string // for the policy

	complete bool // it is what the session is, and the name is bound
	doubtful bool // it binds no name

	// What the holder of the key has to send before this takes effect; nil: nothing.
	// He has then shown that it is his.
	secret []byte
}

// alias says whether the address is a name that is bound to a key.
func (r *registration) alias() bool { return r.keyed && !crypto.IsAddress(r.addr) }

// register takes a registration. One that is refused changes nothing.
func (s *session) register(ctx context.Context, w *work) error {
	r, err := w.registration(s.dialect.NameBytes)
	if err != nil {
		return err
	}
	prove, err := w.flag("prove")
	if err != nil {
		return err
	}
	if err := s.mayHave(ctx, r); err != nil {
		return err
	}
	required, err := s.needsProof(ctx, r)
	switch {
	case err != nil:
		return err
	case r.keyed && (required || prove) && s.dialect.Identity != nil && s.datagram == nil:
		return s.challenge(w, r)
	case required:
		return errProof // there are no proofs here
	}
	if s.datagram != nil {
		return s.registerDatagram(r)
	}
	if err := s.complete(ctx, r); err != nil {
		return err
	}
	s.forget() // what waited for a proof
	return nil
}

// registration reads one. It shares nothing with the message.
func (w *work) registration(nameBytes int) (*registration, error) {
	r := new(registration)
	addr, err := w.opaque("addr")
	if err != nil {
		return nil, err
	}
	pubkey, err := w.opaque("pubkey")
	if err != nil {
		return nil, err
	}
	token, err := w.opaque("auth")
	if err != nil {
		return nil, err
	}
	r.addr, r.token = string(w.in.Text(addr)), string(w.in.Text(token))
	if pubkey != nil {
		r.keyed = true
		if r.key, err = crypto.ParseX25519Key(borrow(w.in.Text(pubkey))); err != nil {
			return nil, errInvalidPubkey
		}
	}
	switch {
	case addr != nil && !frame.IsName(r.addr, nameBytes):
		return nil, errInvalidAddr
	case addr == nil && !r.keyed:
		return nil, errNeither
	case addr == nil:
		r.addr = r.key.Address()
	case crypto.IsAddress(r.addr) && (!r.keyed || r.key.Address() != r.addr):
		return nil, errNeedsKey
	}
	return r, nil
}

// complete makes the session what r says.
func (s *session) complete(ctx context.Context, r *registration) error {
	undo, err := s.record(ctx, r)
	if err != nil {
		return err
	}
	c := s.claim(r)
	c.Confirm = func(queued int) { s.reply(frame.AppendRegistered(nil, r.addr, "", queued)) }
	if err := s.port.Claim(c); err != nil {
		undo()
		return err
	}
	s.became(r)
	return nil
}

// claim returns the claim for what r says. It counts as of now, whenever the
// connection began.
func (s *session) claim(r *registration) relay.Claim {
	return relay.Claim{
		Address: address(r.addr), Kind: transport.Text, Token: r.token,
		InUse: s.dialect.InUse, Latest: true,
	}
}

// became notes who the session is.
func (s *session) became(r *registration) {
	if s.daily != nil {
		s.daily()
		s.daily = nil
	}
	r.token, r.complete = "", true
	s.own = r
	s.useNames()
}

// forget drops a registration that waits for something.
func (s *session) forget() {
	s.pending = nil
	if s.late != nil {
		s.late()
		s.late = nil
	}
}
