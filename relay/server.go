package relay

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sotto-relay/sotto/inbox"
	"github.com/sotto-relay/sotto/transport"
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

	// State keeps what dialects know of keys, and the retained values of topics.
	// Nil: a bounded store in memory.
	State State

	// Limits bound what connections can take. The zero value has safe defaults.
	Limits Limits

	// Mesh brings messages to recipients that are connected to other relays. Nil:
	// they are stored or refused.
	Mesh Forwarder

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
	games  games
	topics topics
	shared sync.Map // of dialects: key to value
	levels levels
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
		kept := s.State
		if kept == nil {
			s.State = inbox.NewMemoryState(nil)
		}
		s.limits = s.Limits.WithDefaults()
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
		s.topics.init(s, kept)
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
	if s.Mesh != nil {
		s.Mesh.Stop()
	}
	s.router.moves.stop()
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
		var gone []*inbox.Entry
		n, err := s.Inbox.Purge(s.ctx, batch, func(e *inbox.Entry) { gone = append(gone, e) })
		s.tellSenders(gone, NoticeExpired)
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
