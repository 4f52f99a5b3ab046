package relay

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sotto-relay/sotto/inbox"
	"github.com/sotto-relay/sotto/transport"
	"github.com/sotto-relay/sotto/transport/pipe"
	"golang.org/x/time/rate"
)

// State is the small store for what has to outlive a restart beside messages.
type State = inbox.State

// ErrServerClosed is returned after Shutdown or Close.
var ErrServerClosed = errors.New("relay: server closed")

// A Server relays messages between the connections it is given. The zero value
// works: it relays between live connections and stores nothing. Fields are set
// before the first use and not changed afterwards. All methods may be called
// concurrently.
type Server struct {
	// Inbox keeps messages for those who are away. Nil: they are refused. The
	// server does not close it.
	Inbox inbox.Store

	// State keeps what dialects know of keys. Nil: a bounded store in memory.
	State State

	// Limits bound what connections can take. The zero value has safe defaults.
	Limits Limits

	// Policy decides what sessions may do. The zero value allows everything.
	Policy Policy

	// Trace watches. Nil: nobody does.
	Trace *Trace

	// Logger gets what operators should know, and never application data. Nil:
	// slog.Default().
	Logger *slog.Logger

	once   sync.Once
	log    *slog.Logger
	limits Limits // with defaults
	start  time.Time
	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	router router
	count  counters
	lastID atomic.Uint64 // of a connection
	tier   atomic.Int32  // a Tier
	memory int64         // that the process may use, in bytes
	pumps  sync.WaitGroup

	mu        sync.Mutex
	closing   bool
	draining  bool
	closed    chan struct{}
	listeners map[transport.Listener]struct{}
	ports     map[*Port]struct{}
	unready   int              // ports that are not ready yet
	gates     map[string]*gate // by dialect
	blocked   blocklist
	wg        sync.WaitGroup // ports, Serves, timers; added to under mu while not closing
	purge     *time.Timer
	monitor   *time.Timer
	delay     time.Duration // of the monitor, when it came last
}

// init sets up what the zero value lacks. It starts nothing.
func (s *Server) init() {
	s.once.Do(func() {
		s.log = s.Logger
		if s.log == nil {
			s.log = slog.Default()
		}
		if s.State == nil {
			s.State = inbox.NewMemoryState(nil)
		}
		s.limits = s.Limits.withDefaults()
		s.start = time.Now()
		s.memory = memoryLimit()
		s.ctx, s.cancel = context.WithCancel(context.Background())
		s.router.init()
		s.closed = make(chan struct{})
		s.listeners = make(map[transport.Listener]struct{})
		s.ports = make(map[*Port]struct{})
		s.gates = make(map[string]*gate)
		s.blocked = make(blocklist)
		if s.Inbox != nil {
			if n, _, err := s.Inbox.Totals(s.ctx); err == nil {
				s.count.found.Store(int64(n))
				s.count.stored.Store(int64(n))
			}
		}
	})
}

// now is the time since the start of the server, in nanoseconds: wall time at the
// start plus the monotonic clock, so a clock that jumps does no harm.
func (s *Server) now() int64 { return time.Since(s.start).Nanoseconds() }

// add counts something that Shutdown and Close wait for.
func (s *Server) add() error {
	s.init()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing {
		return ErrServerClosed
	}
	s.wg.Add(1)
	if s.purge == nil && s.Inbox != nil {
		s.purge = time.AfterFunc(s.limits.PurgeInterval, s.purgeInbox)
	}
	if s.monitor == nil {
		s.watchLoad()
	}
	return nil
}

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
	sp := &speaker{dialect: d, limits: s.limits.forDialect(d)}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.gates[d.Name()] == nil {
		s.gates[d.Name()] = newGate(&sp.limits)
	}
	sp.gate = s.gates[d.Name()]
	return sp
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
		s: s, conn: c, speaker: sp, id: s.lastID.Add(1), opened: time.Now(),
		source: Source(c.RemoteAddr()), token: presented(c), ended: make(chan struct{}),
	}
	if r := s.turn(sp, p.source, sp.gate.enter); r != nil {
		return nil, s.turned(p, r)
	}
	if s.add() != nil {
		sp.gate.leave(p.source)
		return nil, s.turned(p, &Refusal{Code: CodeGoingAway})
	}
	p.out.change.L = &p.out.mu
	p.ctx, p.cancel = context.WithCancel(s.ctx)
	l := &sp.limits
	if l.MessageRate > 0 {
		p.perMsg = rate.NewLimiter(rate.Limit(l.MessageRate), l.MessageBurst)
	}
	if l.ByteRate > 0 {
		p.perByte = rate.NewLimiter(rate.Limit(l.ByteRate), l.ByteBurst)
	}
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

// Drain takes no new connections and ends those that are there, in their
// dialect's words for "going away": what is queued for them is written, or
// stored when ctx ends before that. It returns nil when all has been written,
// else ctx's error. It may be called more than once, and without any listener.
func (s *Server) Drain(ctx context.Context) error {
	s.init()
	s.mu.Lock()
	s.draining = true
	for l := range s.listeners {
		_ = l.Close()
	}
	s.mu.Unlock()
	ports := s.allPorts()
	for _, p := range ports {
		go func() {
			p.awaitAcks(ctx)
			p.endWithin(ctx, &Refusal{Code: CodeGoingAway, Reason: "the relay is going away"})
		}()
	}
	for _, p := range ports {
		<-p.ended
	}
	return ctx.Err()
}

// Shutdown drains, then closes the server: it returns when everything that the
// server started has ended.
func (s *Server) Shutdown(ctx context.Context) error {
	err := s.Drain(ctx)
	s.mu.Lock()
	if !s.closing {
		s.closing = true
		close(s.closed)
	}
	for _, t := range []*time.Timer{s.purge, s.monitor} {
		if t != nil {
			t.Stop()
		}
	}
	s.mu.Unlock()
	s.wg.Wait()
	s.pumps.Wait()
	s.cancel()
	return err
}

// Close is Shutdown without time: what is queued is stored where there is an
// inbox.
func (s *Server) Close() error {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_ = s.Shutdown(ctx)
	return nil
}

// purgeInbox removes what has expired, in batches, then sets the timer again.
func (s *Server) purgeInbox() {
	const batch = 1000
	if s.add() != nil {
		return
	}
	defer s.wg.Done()
	for s.ctx.Err() == nil {
		n, err := s.Inbox.Purge(s.ctx, batch, nil)
		s.count.expired.Add(int64(n))
		s.count.stored.Add(-int64(n))
		if err != nil {
			s.log.Error("inbox: purge", "err", err)
		}
		if n < batch {
			break
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closing {
		s.purge = time.AfterFunc(s.limits.PurgeInterval, s.purgeInbox)
	}
}

// logEnd logs the end of a connection, at a level that a stranger cannot flood.
func (s *Server) logEnd(p *Port, r *Refusal) {
	s.count.ended.add(r.Code)
	s.watch(func(t *Trace) {
		if t.Closed != nil {
			t.Closed(p.Info(), r)
		}
	})
	s.log.Debug("connection ended", "dialect", p.speaker.dialect.Name(),
		"remote", p.conn.RemoteAddr(), "code", r.Code, "err", r)
}
