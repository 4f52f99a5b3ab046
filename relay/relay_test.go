package relay

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sotto-relay/sotto/inbox"
	"github.com/sotto-relay/sotto/transport"
	"github.com/sotto-relay/sotto/transport/pipe"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestLive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, &Server{}, words{})
		alice, bob := b.as("alice"), b.as("bob")
		alice.say("send bob hello")
		bob.expect("alice hello")
		alice.say("send bob")
		bob.expect("alice ")
		alice.say("send alice me")
		alice.expect("alice me")
		alice.say("send carol lost")
		alice.expect("no not-here")
		require.NoError(t, b.Close())
		st := b.balance()
		assert.Equal(t, uint64(3), st.Delivered)
		assert.Equal(t, uint64(1), st.Refused)
	})
}

func TestAbsent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, &Server{Inbox: memory()}, words{})
		alice := b.as("alice")
		for _, w := range []string{"one", "two", "three"} {
			alice.say("send bob %s", w)
			alice.expect("stored")
		}
		alice.say("once bob four")
		alice.expect("no not-here")
		assert.Equal(t, int64(3), b.balance().Held)
		bob := b.as("bob")
		bob.expect("alice one", "alice two", "alice three")
		synctest.Wait()
		assert.Zero(t, b.balance().Held)
		alice.say("send bob live")
		bob.expect("alice live")
		_ = bob.Close(1000, "")
		synctest.Wait()
		b.as("bob").silent()
	})
}

// A misfit stays in the inbox for a session that can take it; what comes later
// passes it.
func TestMisfit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, &Server{Inbox: memory()}, words{})
		alice := b.as("alice")
		alice.say("send bob !early")
		alice.expect("stored")
		old := b.dial(0)
		old.say("form 9")
		old.say("claim bob")
		old.expect("welcome")
		alice.say("send bob !late")
		alice.expect("stored")
		alice.say("send bob plain")
		old.expect("alice plain")
		_ = old.Close(1000, "")
		synctest.Wait()
		b.as("bob").expect("alice !early", "alice !late")
		synctest.Wait()
		assert.Zero(t, b.balance().Held)
	})
}

func TestTakeover(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, &Server{Inbox: memory()}, words{})
		alice := b.as("alice")
		older := b.dial(4)
		older.say("claim bob")
		older.expect("welcome")
		for i := range 20 { // four fit into the pipe, the others wait
			alice.say("send bob %d", i)
		}
		synctest.Wait()
		newer := b.as("bob")
		got, code := older.rest()
		assert.Equal(t, uint16(transport.ClosePolicy), code)
		for len(got) < 20 {
			got = append(got, newer.hear())
		}
		for i, m := range got {
			require.Equal(t, "alice "+itoa(i), m)
		}
		alice.say("send bob last")
		newer.expect("alice last")
		synctest.Wait()
		st := b.balance()
		assert.Equal(t, uint64(21), st.Delivered)

		weak := b.dial(0)
		weak.say("weak bob")
		said, code := weak.rest()
		assert.Equal(t, []string{"bye denied"}, said)
		assert.Equal(t, uint16(transport.ClosePolicy), code)
		alice.say("send bob still")
		newer.expect("alice still")
	})
}

// The last words reach a session that is replaced and has read everything.
func TestReplacedIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, &Server{Inbox: memory()}, words{})
		older := b.as("bob")
		b.as("bob")
		said, code := older.rest()
		assert.Equal(t, []string{"bye replaced"}, said)
		assert.Equal(t, uint16(transport.ClosePolicy), code)
	})
}

// A reader that stops costs nobody else anything, and loses nothing.
func TestFrozenReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 5000
		b := newBench(t, &Server{Inbox: memory(), Limits: Limits{OutboxMessages: 16, FlushBytes: 1000}}, words{})
		alice, carol, dave := b.as("alice"), b.as("carol"), b.as("dave")
		frozen := b.dial(3)
		frozen.say("claim bob")
		frozen.expect("welcome")
		for i := range n {
			alice.say("send bob %d", i)
			carol.say("send dave %d", i)
			dave.expect("carol " + itoa(i))
		}
		synctest.Wait()
		st := b.balance()
		assert.Greater(t, st.Held, int64(n-100))
		time.Sleep(20 * time.Second) // frozen, but not for as long as a write may take
		for i := range n {
			frozen.expect("alice " + itoa(i))
		}
		synctest.Wait()
		alice.say("send bob live")
		frozen.expect("alice live")
		synctest.Wait()
		st = b.balance()
		assert.Zero(t, st.Held)
		assert.Zero(t, st.Dropped)
	})
}

func TestSlowReaderIsCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, &Server{Inbox: memory()}, words{})
		alice := b.as("alice")
		frozen := b.dial(1)
		frozen.say("claim bob")
		frozen.expect("welcome")
		for i := range 10 {
			alice.say("send bob %d", i)
		}
		start := time.Now()
		time.Sleep(29 * time.Second)
		synctest.Wait()
		assert.Equal(t, 2, b.Stats().Sessions)
		time.Sleep(5 * time.Second)
		synctest.Wait()
		assert.Equal(t, 1, b.Stats().Sessions)
		bob := b.as("bob")
		for i := 1; i < 10; i++ { // the first was in the pipe
			bob.expect("alice " + itoa(i))
		}
		assert.Less(t, time.Since(start), time.Minute)
		synctest.Wait()
		b.balance()
	})
}

func TestReadiness(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, &Server{}, words{limits: DialectLimits{ReadyTimeout: 10 * time.Second, UnreadyBytes: 20, MessageBytes: 40}})
		idle := b.dial(0)
		start := time.Now()
		said, code := idle.rest()
		assert.Equal(t, 10*time.Second, time.Since(start))
		assert.Equal(t, []string{"bye not-authenticated"}, said)
		assert.Equal(t, uint16(transport.CloseTryLater), code)

		big := b.dial(0)
		big.say("%030d", 1)
		_, code = big.rest()
		assert.Equal(t, uint16(transport.CloseTooLarge), code)

		ready := b.as("alice")
		ready.say("%030d", 1)
		ready.expect("what?")
		time.Sleep(time.Minute)
		ready.say("x")
		ready.expect("what?")
		ready.say("%050d", 1)
		_, code = ready.rest()
		assert.Equal(t, uint16(transport.CloseTooLarge), code)
	})
}

func TestRate(t *testing.T) {
	for name, c := range map[string]struct {
		limits DialectLimits
		server Limits
		sent   int // answered before the connection is closed
	}{
		"messages":  {limits: DialectLimits{MessageRate: 1, MessageBurst: 5}, sent: 5},
		"bytes":     {limits: DialectLimits{ByteRate: 1, ByteBurst: 10}, sent: 5},
		"override":  {DialectLimits{MessageRate: 1, MessageBurst: 5}, Limits{Dialects: map[string]DialectLimits{"words": {MessageBurst: 7}}}, 7},
		"unmetered": {DialectLimits{MessageRate: 1, MessageBurst: 5}, MaxLimits(), 30},
		"both":      {DialectLimits{MessageRate: 1, MessageBurst: 5}, Limits{Unmetered: true, Dialects: map[string]DialectLimits{"words": {MessageRate: 1}}}, 5},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, &Server{Limits: c.server}, words{limits: c.limits})
				p := b.dial(0)
				for range 30 {
					_, _ = p.Write(transport.Text, [][]byte{[]byte("ab")})
				}
				for range c.sent {
					p.expect("what?")
				}
				if c.sent == 30 {
					return
				}
				said, code := p.rest()
				assert.Equal(t, []string{"bye rate-limited"}, said)
				assert.Equal(t, uint16(transport.ClosePolicy), code)
			})
		})
	}
}

func TestErrorsKeepDetails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, &Server{}, words{})
		p := b.as("alice")
		p.say("panic")
		said, code := p.rest()
		assert.Equal(t, []string{"bye internal"}, said)
		assert.Equal(t, uint16(transport.CloseInternal), code)
		assert.NotContains(t, strings.Join(said, ""), "secret")
	})
}

func TestAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, &Server{}, words{})
		p := b.as("alice")
		p.say("after")
		start := time.Now()
		p.expect("later")
		assert.Equal(t, time.Second, time.Since(start))
		p.say("after")
		p.say("quit")
		said, _ := p.rest()
		assert.Equal(t, []string{"bye denied"}, said)
		time.Sleep(time.Minute)
	})
}

func TestExpiry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, &Server{Inbox: memory()}, words{limits: DialectLimits{InboxTTL: time.Hour}})
		alice := b.as("alice")
		alice.say("send bob one")
		alice.expect("stored")
		time.Sleep(50 * time.Minute)
		alice.say("send bob two")
		alice.expect("stored")
		time.Sleep(11 * time.Minute)
		b.as("bob").expect("alice two")
		synctest.Wait()
		st := b.balance()
		assert.Equal(t, uint64(1), st.Expired)
		assert.Equal(t, uint64(1), st.Delivered)
	})
}

func TestQuota(t *testing.T) {
	for name, c := range map[string]struct {
		limits DialectLimits
		answer string
		bob    []string
	}{
		"refuse":     {DialectLimits{InboxMessages: 2}, "no inbox-full", []string{"alice 0", "alice 1"}},
		"drop":       {DialectLimits{InboxMessages: 2, DropOldest: true}, "stored", []string{"alice 1", "alice 2"}},
		"per sender": {DialectLimits{InboxPerSender: 2}, "no quota", []string{"alice 0", "alice 1"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, &Server{Inbox: memory()}, words{limits: c.limits})
				alice := b.as("alice")
				for i := range 3 {
					alice.say("send bob %d", i)
				}
				alice.expect("stored", "stored", c.answer)
				b.balance()
				b.as("bob").expect(c.bob...)
				synctest.Wait()
				b.balance()
			})
		})
	}
}

func TestShutdown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, &Server{Inbox: memory()}, words{})
		alice := b.as("alice")
		slow, frozen := b.dial(2), b.dial(2)
		for name, p := range map[string]peer{"slow": slow, "frozen": frozen} {
			p.say("claim %s", name)
			p.expect("welcome")
			for i := range 10 {
				alice.say("send %s %d", name, i)
			}
		}
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		done := make(chan error, 1)
		go func() { done <- b.Shutdown(ctx) }()
		for i := range 10 {
			time.Sleep(500 * time.Millisecond)
			slow.expect("alice " + itoa(i))
		}
		slow.expect("bye going-away")
		_, code := slow.rest()
		assert.Equal(t, uint16(transport.CloseGoingAway), code)
		assert.ErrorIs(t, <-done, context.DeadlineExceeded)
		st := b.balance()
		assert.Equal(t, int64(8), st.Held, "what the frozen one did not take is stored")

		assert.NoError(t, b.Shutdown(t.Context()))
		assert.NoError(t, b.Close())
		l := pipe.Listen()
		assert.ErrorIs(t, b.Serve(l, words{}), ErrServerClosed)
		_, err := l.Dial(t.Context())
		assert.Error(t, err, "Serve after Close closes the listener")
		late := b.dial(0)
		_, code = late.rest()
		assert.Equal(t, uint16(transport.CloseGoingAway), code)
	})
}

func TestShutdownOfNothing(t *testing.T) {
	assert.NoError(t, new(Server).Shutdown(t.Context()))
	var s Server
	assert.NoError(t, s.Close())
	assert.NoError(t, s.Close())
}

// TestZeroServer: every method works on a server that has nothing and was not used yet.
func TestZeroServer(t *testing.T) {
	a := Address{Realm: RealmJSON, Name: "bob"}
	for name, call := range map[string]func(*Server) any{
		"Block":    func(s *Server) any { return s.Block(netip.MustParsePrefix("192.0.2.1/32"), time.Second) },
		"Deliver":  func(s *Server) any { o, _ := s.Deliver(t.Context(), words{}, &Message{To: a}); return int(o.Status) },
		"Drain":    func(s *Server) any { return s.Drain(t.Context()) },
		"Flush":    func(s *Server) any { s.Flush(a); return 0 },
		"Kick":     func(s *Server) any { return s.Kick(Match{Address: a}, nil) },
		"Load":     func(s *Server) any { return int(s.Load()) },
		"Online":   func(s *Server) any { return s.Online(a) },
		"Remove":   func(s *Server) any { n, err := s.Remove(t.Context(), a, 1); require.NoError(t, err); return n },
		"Sessions": func(s *Server) any { return len(slices.Collect(s.Sessions())) },
		"Stats":    func(s *Server) any { return s.Stats().Held },
		"Tell":     func(s *Server) any { s.Tell(a, Notice{}); return 0 },
		"Waiting":  func(s *Server) any { return s.Waiting(a) },
		"Watch":    func(s *Server) any { c, cancel := s.Watch(a); cancel(); return len(c) },
	} {
		t.Run(name, func(t *testing.T) {
			s := new(Server)
			assert.Zero(t, call(s))
			assert.NoError(t, s.Close())
		})
	}
}

func TestServe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, &Server{}, words{})
		l := pipe.Listen()
		done := make(chan error, 1)
		go func() { done <- b.Serve(l, words{}) }()
		c, err := l.Dial(t.Context())
		require.NoError(t, err)
		p := peer{t, c}
		p.say("claim alice")
		p.expect("welcome")
		require.NoError(t, b.Close())
		assert.ErrorIs(t, <-done, ErrServerClosed)
		_, code := p.rest()
		assert.Equal(t, uint16(transport.CloseGoingAway), code)
	})
}

func TestServeConn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, &Server{}, words{})
		ctx, cancel := context.WithCancel(t.Context())
		client, server := pipe.New()
		done := make(chan error, 1)
		go func() { done <- b.ServeConn(ctx, server, words{}) }()
		p := peer{t, client}
		p.say("claim alice")
		p.expect("welcome")
		cancel()
		assert.ErrorIs(t, <-done, context.Canceled)
		_, code := p.rest()
		assert.Equal(t, uint16(transport.CloseGoingAway), code)

		client, server = pipe.New()
		go func() { done <- b.ServeConn(t.Context(), server, words{}) }()
		_ = client.Close(1000, "")
		assert.NoError(t, <-done)
	})
}

// A dialect that fails to begin, after it has claimed, leaves nothing behind.
func TestNoSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, &Server{Inbox: memory()}, broken{})
		p := b.dial(0)
		said, code := p.rest()
		assert.Empty(t, said)
		assert.Equal(t, uint16(transport.CloseInternal), code)
		synctest.Wait()
		assert.Zero(t, leftSeats(b.Server))
		assert.Zero(t, b.Stats().Sessions)
	})
}

type broken struct{ words }

func (broken) NewSession(p *Port) (Session, error) {
	_ = p.Claim(Claim{Address: Address{Realm: 1, Name: "broken"}})
	return nil, errors.New("cannot begin")
}

func TestDial(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, &Server{}, words{})
		p := peer{t, b.Dial(words{})}
		p.say("x")
		p.expect("what?")
	})
}

func TestPending(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		store := &lateStore{Store: memory(), late: func() { <-gate }}
		b := newBench(t, &Server{Inbox: store}, words{})
		alice := b.as("alice")
		alice.say("send bob one")
		synctest.Wait()
		bob := b.as("bob")
		alice.say("send bob two") // must not overtake what is still being stored
		synctest.Wait()
		close(gate)
		alice.expect("settled none", "settled none")
		bob.expect("alice one", "alice two")
		synctest.Wait()
		b.balance()
	})
}

// A lateStore ends its puts late: when late returns.
type lateStore struct {
	inbox.Store
	late func()

	mu   sync.Mutex
	last chan struct{}
}

func (s *lateStore) Put(ctx context.Context, e *inbox.Entry, q inbox.Quota, done func(inbox.Result)) {
	c := *e
	c.Data = append([]byte(nil), e.Data...)
	s.mu.Lock()
	defer s.mu.Unlock()
	before, mine := s.last, make(chan struct{})
	s.last = mine
	go func() {
		defer close(mine)
		s.late()
		if before != nil {
			<-before
		}
		s.Store.Put(ctx, &c, q, done)
	}()
}

func itoa(i int) string {
	const digits = "0123456789"
	if i < 10 {
		return digits[i : i+1]
	}
	return itoa(i/10) + itoa(i%10)
}

// Last words that cannot be written hold nothing up.
func TestShutdownOfTheGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, &Server{Inbox: memory()}, words{})
		client, server := pipe.New()
		b.Speak(b.d).HandleConn(mute{server})
		p := peer{t, client}
		p.say("claim alice")
		synctest.Wait()
		start := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		_ = b.Shutdown(ctx)
		assert.Zero(t, time.Since(start))
	})
}

// A mute Conn cannot be written to, and does not notice when reading.
type mute struct{ transport.Conn }

func (mute) Write(transport.Kind, [][]byte) (int, error)    { return 0, errors.New("broken") }
func (mute) TryWrite(transport.Kind, [][]byte) (int, error) { return 0, errors.New("broken") }

// What is none of the medium's counts as malformed.
func TestMalformedStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, &Server{}, words{})
		client, server := pipe.New()
		b.Speak(b.d).HandleConn(garbled{server})
		said, code := peer{t, client}.rest()
		assert.Equal(t, []string{"bye malformed"}, said)
		assert.Equal(t, uint16(transport.CloseProtocol), code)
		synctest.Wait()
		assert.Equal(t, uint64(1), b.Stats().Ended["malformed"])
	})
}

type garbled struct{ transport.Conn }

func (garbled) Read() (transport.Kind, []byte, error) {
	return 0, nil, errors.Join(errors.New("GET / HTTP/1.1"), transport.ErrMalformed)
}
