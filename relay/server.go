package relay

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"sync"
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
	pumps  sync.WaitGroup

	mu        sync.Mutex
	closing   bool
	closed    chan struct{}
	listeners map[transport.Listener]struct{}
	ports     map[*Port]struct{}
	wg        sync.WaitGroup // ports, Serves, the purge; added to under mu while not closing
	purge     *time.Timer
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
		s.ctx, s.cancel = context.WithCancel(context.Background())
		s.router.init()
		s.closed = make(chan struct{})
		s.listeners = make(map[transport.Listener]struct{})
		s.ports = make(map[*Port]struct{})
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
	if s.closing {
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
		select {
		case <-s.closed:
			return ErrServerClosed
		default:
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
// returns at once. After Close it closes them with 1001.
func (s *Server) Speak(d Dialect) transport.Handler {
	s.init()
	sp := &speaker{d, s.limits.forDialect(d)}
	return transport.HandlerFunc(func(c transport.Conn) {
		if p := s.open(c, sp); p != nil {
			go p.read()
		}
	})
}

// ServeConn speaks d with one connection and returns when that has ended, with
// the reason: nil when the peer went. The end of ctx ends the connection.
func (s *Server) ServeConn(ctx context.Context, c transport.Conn, d Dialect) error {
	s.init()
	p := s.open(c, &speaker{d, s.limits.forDialect(d)})
	if p == nil {
		return ErrServerClosed
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

// open sets up a port for a connection; nil when the server is closing or the
// dialect refused.
func (s *Server) open(c transport.Conn, sp *speaker) *Port {
	if s.add() != nil {
		_ = c.Close(transport.CloseGoingAway, CodeGoingAway.String())
		return nil
	}
	p := &Port{s: s, conn: c, speaker: sp, started: time.Now(), ended: make(chan struct{})}
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

	if err := p.begin(); err != nil {
		p.end(err)
		s.wg.Done()
		return nil
	}
	s.mu.Lock()
	s.ports[p] = struct{}{}
	closing := s.closing
	s.mu.Unlock()
	if closing {
		p.fail(&Refusal{Code: CodeGoingAway})
	}
	return p
}

// begin lets the dialect begin.
func (p *Port) begin() (err error) {
	p.loop.Lock()
	defer p.loop.Unlock()
	p.session, err = p.speaker.dialect.NewSession(p)
	if err != nil {
		return err
	}
	if !p.ready {
		p.readyTime = time.AfterFunc(p.speaker.limits.ReadyTimeout, func() {
			p.end(&Refusal{Code: CodeNotAuthenticated, Reason: "not ready in time"})
		})
	}
	return nil
}

// forget ends the accounting for a port, last.
func (s *Server) forget(p *Port) {
	s.mu.Lock()
	delete(s.ports, p)
	s.mu.Unlock()
	s.wg.Done()
}

// Shutdown takes no new connections and ends those that are there: what is
// queued for them is written, or stored when ctx ends before that. It returns
// nil, or ctx's error when there was no time to write everything. It may be
// called more than once and without any listener.
func (s *Server) Shutdown(ctx context.Context) error {
	s.init()
	for _, p := range s.beginClose() {
		go p.endWithin(ctx, &Refusal{Code: CodeGoingAway, Reason: "the relay is going away"})
	}
	s.finishClose()
	return ctx.Err()
}

// Close ends all connections without waiting for what is queued: it is stored
// where there is an inbox. It returns when everything the server started has
// ended.
func (s *Server) Close() error {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_ = s.Shutdown(ctx)
	return nil
}

func (s *Server) beginClose() (ports []*Port) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closing {
		s.closing = true
		close(s.closed)
	}
	if s.purge != nil && s.purge.Stop() {
		s.purge = nil
	}
	for l := range s.listeners {
		_ = l.Close()
	}
	for p := range s.ports {
		ports = append(ports, p)
	}
	return ports
}

func (s *Server) finishClose() {
	s.wg.Wait()
	s.pumps.Wait()
	s.cancel()
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
	s.log.Debug("connection ended", "dialect", p.speaker.dialect.Name(),
		"remote", p.conn.RemoteAddr(), "code", r.Code, "err", r)
}
