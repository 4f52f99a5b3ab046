package relaytest

import (
	"bytes"
	"context"
	"fmt"
	"runtime/debug"
	"testing"
	"time"

	"github.com/sotto-relay/sotto/relay"
	"github.com/sotto-relay/sotto/transport"
)

// A guard is a dialect that is watched. Failures are reported and kept from the
// server.
type guard struct {
	relay.Dialect
	t *testing.T
}

func (g *guard) NewSession(p *relay.Port) (s relay.Session, err error) {
	defer g.watch("NewSession", nil, &err)()
	inner, err := g.Dialect.NewSession(p)
	if err != nil {
		return nil, err
	}
	return &guardedSession{inner, g}, nil
}

func (g *guard) Render(buf []byte, form uint8, m *relay.Message) (transport.Kind, []byte, error) {
	before, data := len(buf), bytes.Clone(m.Data)
	prefix := bytes.Clone(buf)
	k, out, err := g.Dialect.Render(buf, form, m)
	if err == nil && (len(out) < before || !bytes.Equal(out[:before], prefix)) {
		g.t.Errorf("Render changed what was in the buffer")
		return 0, prefix, relay.ErrUnfit
	}
	if !bytes.Equal(m.Data, data) {
		g.t.Errorf("Render changed the message")
	}
	return k, out, err
}

// watch returns what is to be deferred around a call of the dialect's: it reports
// a call that waits, and makes an error of one that panics.
func (g *guard) watch(method string, msg []byte, err *error) func() {
	start := time.Now()
	stuck := time.AfterFunc(time.Minute, func() {
		g.t.Errorf("%s has not returned for a minute", method)
	})
	return func() {
		stuck.Stop()
		if v := recover(); v != nil {
			g.t.Errorf("%s panicked: %v\nmessage: %x\n%s", method, v, msg, debug.Stack())
			*err = &relay.Refusal{Code: relay.CodeInternal, Err: fmt.Errorf("panic: %v", v)}
		}
		// The clock of a bubble stands as long as anybody in it has something to do.
		if d := time.Since(start); d > 0 {
			g.t.Errorf("%s waited for something (%v)", method, d)
		}
	}
}

// A guardedSession forwards what a session may implement besides, with what the
// server does for one that does not.
type guardedSession struct {
	relay.Session
	g *guard
}

// Receive gives the session a message that is overwritten afterwards, as the
// buffers of media are.
func (s *guardedSession) Receive(ctx context.Context, k transport.Kind, msg []byte) (err error) {
	own := bytes.Clone(msg)
	defer s.g.watch("Receive", msg, &err)()
	err = s.Session.Receive(ctx, k, own)
	for i := range own {
		own[i] = 0xA5
	}
	return err
}

func (s *guardedSession) Excess(r *relay.Refusal, msg []byte) (err error) {
	m, ok := s.Session.(relay.Metered)
	if !ok {
		return r
	}
	defer s.g.watch("Excess", msg, &err)()
	return m.Excess(r, msg)
}

func (s *guardedSession) Answers(msg []byte) bool {
	a, ok := s.Session.(relay.Answering)
	return ok && a.Answers(msg)
}

func (s *guardedSession) Settled(r relay.Receipt) {
	if st, ok := s.Session.(relay.Settler); ok {
		var err error
		defer s.g.watch("Settled", nil, &err)()
		st.Settled(r)
	}
}

func (s *guardedSession) Close(reason error) {
	var err error
	defer s.g.watch("Close", nil, &err)()
	s.Session.Close(reason)
}
