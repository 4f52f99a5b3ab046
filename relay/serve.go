package relay

import (
	"context"
	"errors"
	"net"
	"time"

	"github.com/sotto-relay/sotto/transport"
	"github.com/sotto-relay/sotto/transport/pipe"
	"golang.org/x/time/rate"
)

// How connections come to a Server: from listeners, handlers and the program itself,
// up to the session that its dialect begins.

// Serve accepts connections from l and speaks d with them, until l fails or the
// server closes; then it closes l and returns the error, ErrServerClosed in the
// second case.
func (s *Server) Serve(l transport.Listener, d Dialect) error {
	if err := s.add(); err != nil {
		_ = l.Close()
		return err
	}
	defer s.wg.Done()
	s.mu.Lock()
	if s.closing || s.draining {
		s.mu.Unlock()
		_ = l.Close()
		return ErrServerClosed
	}
	s.listeners[l] = struct{}{}
	s.mu.Unlock()
	defer func() {
		_ = l.Close()
		s.mu.Lock()
		delete(s.listeners, l)
		s.mu.Unlock()
	}()
	h := s.Speak(d)
	var pause time.Duration
	for {
		c, err := l.Accept()
		if err == nil {
			pause = 0
			h.HandleConn(c)
			continue
		}
		s.mu.Lock()
		over := s.closing || s.draining
		s.mu.Unlock()
		if over {
			return ErrServerClosed
		}
		var ne net.Error
		if !errors.As(err, &ne) || !ne.Timeout() && !isTemporary(err) {
			return err
		}
		pause = min(max(2*pause, 5*time.Millisecond), time.Second)
		s.log.Warn("accept failed; trying again", "err", err, "in", pause)
		select {
		case <-time.After(pause):
		case <-s.closed:
		}
	}
}

// isTemporary knows errors such as "too many open files", which pass.
func isTemporary(err error) bool {
	var t interface{ Temporary() bool }
	return errors.As(err, &t) && t.Temporary()
}

// Speak returns a handler that speaks d with the connections it is given. It
// returns at once, and is a [transport.Admitter]. After Close it closes them
// with 1001.
func (s *Server) Speak(d Dialect) transport.Handler {
	return &handler{s, s.speaker(d)}
}

func (s *Server) speaker(d Dialect) *speaker {
	s.init()
	l := s.limits.ForDialect(d)
	sp := &speaker{
		dialect: d, limits: l,
		outbox: outboxLimits{messages: l.OutboxMessages, bytes: l.OutboxBytes, control: l.ControlBytes},
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	sp.gate, sp.datagrams = s.gate(d.Name(), &sp.limits), s.gate(d.Name()+" in datagrams", &sp.limits)
	return sp
}

// gate returns the gate with a name. The caller holds s.mu.
func (s *Server) gate(name string, l *DialectLimits) *gate {
	g := s.gates[name]
	if g == nil {
		g = newGate(l)
		s.gates[name] = g
	}
	return g
}

type handler struct {
	s       *Server
	speaker *speaker
}

func (h *handler) HandleConn(c transport.Conn) {
	if p, err := h.s.open(c, h.speaker); err == nil {
		go p.read()
	}
}

// ServeConn speaks d with one connection and returns when that has ended, with
// the reason: nil when the peer went, ErrServerClosed when the server had closed
// before, a *Refusal when it turned the connection away. The end of ctx ends the
// connection.
func (s *Server) ServeConn(ctx context.Context, c transport.Conn, d Dialect) error {
	p, err := s.open(c, s.speaker(d))
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { p.end(&Refusal{Code: CodeGoingAway, Err: ctx.Err()}) })()
	go p.read()
	<-p.ended
	if errors.Is(p.err, errPeerGone) {
		return nil
	}
	return p.err
}

// Dial connects the embedding program as a client of d, in memory.
func (s *Server) Dial(d Dialect) transport.Conn {
	client, server := pipe.New()
	s.Speak(d).HandleConn(server)
	return client
}

// open sets up a port for a connection, unless it is turned away.
func (s *Server) open(c transport.Conn, sp *speaker) (*Port, error) {
	p := &Port{
		s: s, conn: c, began: sp, speaker: sp, id: s.lastID.Add(1), opened: time.Now(),
		source: Source(c.RemoteAddr()), token: presented(c), ended: make(chan struct{}),
	}
	if p.gate = sp.gate; c.Value(transport.DatagramKey) != nil {
		p.gate = sp.datagrams
	}
	if r := s.turn(p.source, p.gate.enter); r != nil {
		return nil, s.turned(p, r)
	}
	if s.add() != nil {
		p.gate.leave(p.source)
		return nil, s.turned(p, &Refusal{Code: CodeGoingAway})
	}
	p.out.most = &sp.outbox
	p.out.change.L = &p.out.mu
	p.ctx, p.cancel = context.WithCancel(s.ctx)
	l := &sp.limits
	p.meter()
	if b, ok := c.(transport.Batcher); ok {
		b.SetDry(p.endBatch)
	}
	c.SetReadLimit(l.UnreadyBytes)
	p.late = time.AfterFunc(l.ReadyTimeout, func() {
		// 1013, not 1008: it may be the network that was slow, and then trying again
		// is right.
		p.end(&Refusal{Code: CodeNotAuthenticated, Close: transport.CloseTryLater, Reason: "not ready in time"})
	})
	s.mu.Lock()
	s.ports[p] = struct{}{}
	s.unready++
	closing := s.closing || s.draining
	s.mu.Unlock()
	s.watch(func(t *Trace) {
		if t.Opened != nil {
			t.Opened(p.Info())
		}
	})
	if closing {
		p.fail(&Refusal{Code: CodeGoingAway})
	}
	return p, nil
}

// meter sets the rates of the dialect.
func (p *Port) meter() {
	p.perMsg, p.perByte = nil, nil
	if l := &p.speaker.limits; l.MessageRate > 0 {
		p.perMsg = rate.NewLimiter(rate.Limit(l.MessageRate), l.MessageBurst)
	}
	if l := &p.speaker.limits; l.ByteRate > 0 {
		p.perByte = rate.NewLimiter(rate.Limit(l.ByteRate), l.ByteBurst)
	}
}

// turned turns a connection away, and returns the error for that.
func (s *Server) turned(p *Port, r *Refusal) error {
	s.count.turned.add(r.Code)
	_ = p.conn.Close(r.closeCode(), r.Sentence())
	s.watch(func(t *Trace) {
		if t.Turned != nil {
			t.Turned(p.Info(), r)
		}
	})
	if r.Code == CodeGoingAway {
		return ErrServerClosed
	}
	return r
}

func (s *Server) unreadyDone() {
	s.mu.Lock()
	s.unready--
	s.mu.Unlock()
}

// begin asks the policy, then lets the dialect begin.
func (p *Port) begin() error {
	if hook := p.s.Policy.Connect; hook != nil {
		if err := p.ask(func(ctx context.Context) error { return hook(ctx, p.Info()) }); err != nil {
			return err
		}
	}
	p.loop.Lock()
	defer p.loop.Unlock()
	if p.closed {
		return errPeerGone
	}
	session, err := p.speaker.dialect.NewSession(p)
	if err != nil {
		return err
	}
	p.session = session
	return nil
}
