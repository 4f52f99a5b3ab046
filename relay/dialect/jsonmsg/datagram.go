package jsonmsg

import (
	"bytes"
	"cmp"
	"context"
	"errors"

	"github.com/sotto-relay/sotto/frame"
	"github.com/sotto-relay/sotto/relay"
)

// Sessions in datagrams (spec json.md, "UDP"). The transport finds the session of
// a datagram by its from_addr and token, and checks them: a datagram that is
// Received is either a register from the session's source, which anybody can
// forge, or has a right pair. Until a token has come back from where it was sent,
// little is sent there, and nobody loses an address to it.

// amplify is how many bytes an unproven peer may be sent for each of its own.
const amplify = 3

// heard notes what a datagram shows of the peer, before it is handled, and says
// whether it is to be.
func (s *session) heard(ctx context.Context, w *work, register bool) (on bool, err error) {
	if !s.proven {
		s.port.Credit(amplify * w.size)
	}
	proven := s.datagram.Proven()
	switch {
	case register:
		return true, nil
	case !proven:
		// It moved to another IP address, or had when this was sent.
		if s.proven {
			s.proven = false
			s.port.Unproven(amplify * w.size)
		}
		if r := cmp.Or(s.own, s.pending); r != nil {
			s.renew(r)
		}
	case !s.proven:
		s.proven = true
		s.port.Prove()
	}
	from := string(w.in.Text(w.in.Get("from_addr")))
	if r := s.waiting(from); proven && r != nil {
		return s.takeEffect(ctx, r)
	}
	if s.own != nil && from != s.own.addr {
		s.port.Ignored("token of a registration that came to nothing")
		return false, nil
	}
	return true, nil
}

// waiting returns the registration of an address that has not had its token back yet,
// nil if there is none: the newest one, or that of the address that the session was
// given at once.
func (s *session) waiting(addr string) *registration {
	for _, r := range [...]*registration{s.pending, s.own} {
		if r != nil && r.addr == addr && !r.complete {
			return r
		}
	}
	return nil
}

// renew confirms a registration with a new token.
func (s *session) renew(r *registration) {
	out := frame.AppendRegistered(nil, r.addr, s.datagram.Renew(r.addr), s.port.Queued(address(r.addr)))
	if !s.greeted {
		s.greeted = true
		s.port.Credit(len(out)) // the first one does not count
	}
	s.reply(out)
}

// registerDatagram takes a registration. An address that is free is the session's
// at once, within its credit. One that is in use, or another than the session has,
// waits for the token.
func (s *session) registerDatagram(r *registration) error {
	// Of two registrations that wait, one may be forged, and a token will not tell
	// which: neither key gets the name, nor does one of which nothing is left to
	// compare with.
	if p := s.waiting(r.addr); p != nil && (p.doubtful || p.keyed != r.keyed || p.key != r.key) {
		p.doubtful, r.doubtful = true, true
	}
	if p := s.pending; p != nil && p.addr != r.addr {
		r.doubtful = true
	}
	if s.own != nil && s.own.addr == r.addr {
		s.renew(s.own)
		return nil
	}
	if s.own == nil && s.dialect.InUse != relay.Share {
		c := s.claim(r)
		c.InUse = relay.Reject
		err := s.port.Claim(c)
		switch {
		case err == nil:
			s.own = r
		case !errors.Is(err, relay.ErrInUse) || s.dialect.InUse == relay.Reject:
			return err
		}
	}
	s.pending = r
	s.renew(r)
	return nil
}

// takeEffect completes a registration whose token has come back, and says whether
// the session goes on with it.
func (s *session) takeEffect(ctx context.Context, r *registration) (on bool, err error) {
	if s.pending == r {
		s.pending = nil
	}
	undo, err := s.record(ctx, r)
	if err == nil && s.own != r {
		if err = s.port.Claim(s.claim(r)); err != nil {
			undo()
		}
	}
	switch {
	case err == nil:
		s.became(r)
		return true, nil
	case s.own == r:
		// It has had the address all the while, and may not keep it.
		s.port.End(err)
		return false, nil
	}
	return false, err
}

// Demux says what a datagram is, for transport/udp: open is one that may begin a
// session; any other belongs to a session if it has a name and a token. It may be
// called concurrently and keeps nothing; name and token may be parts of the
// datagram.
func Demux(datagram []byte) (open bool, name, token []byte) {
	w := newWork()
	defer w.free()
	if w.read(datagram) != nil {
		return false, nil, nil
	}
	if isVerb(w, "register") {
		return true, nil, nil
	}
	from, with := w.in.Get("from_addr"), w.in.Get("token")
	return false, own(w.in.Text(from), from), own(w.in.Text(with), with)
}

// own returns what a string says, cloned if it is not a part of the message.
func own(text []byte, v frame.Value) []byte {
	if bytes.IndexByte(v, '\\') >= 0 {
		return bytes.Clone(text)
	}
	return text
}

func isVerb(w *work, verb string) bool { return string(w.in.Text(w.in.Get("t"))) == verb }

// Answer returns a function that answers datagrams of no session, for
// transport/udp: those that ask for capabilities with the short form, others with
// nothing. load is [relay.Server.Load]. It may be called concurrently.
func Answer(load func() relay.Tier) func(datagram []byte) []byte {
	return func(datagram []byte) []byte {
		w := newWork()
		defer w.free()
		if w.read(datagram) != nil || !isVerb(w, "capabilities") {
			return nil
		}
		return frame.AppendLoadTier(nil, load().String())
	}
}
