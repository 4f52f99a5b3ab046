package adversary

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sotto-relay/sotto/frame"
	"github.com/sotto-relay/sotto/internal/race"
	"github.com/sotto-relay/sotto/relay/dialect/brep"
	"github.com/sotto-relay/sotto/transport/ws"
)

// A site is a relay on a loopback socket.
type site struct {
	*rig
	addr string
}

func newSite(t testing.TB) *site {
	t.Helper()
	r := newRig(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	serve(t, l, r.server.Speak(r.dialect))
	return &site{r, l.Addr().String()}
}

// dial connects from an address of 127.0.0.0/8, each of which is a source.
func (s *site) dial(ctx context.Context, from net.IP) (net.Conn, error) {
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: from}}
	return d.DialContext(ctx, "tcp", s.addr)
}

// evilSource is where attackers come from, and honestSource the others.
func evilSource(i int) net.IP { return net.IPv4(127, 0, 66, byte(1+i/900)) }

var honestSource = net.IPv4(127, 0, 0, 1)

// needLoopback skips where 127.0.0.0/8 is not all local, as on some systems.
func needLoopback(t *testing.T) {
	t.Helper()
	l, err := net.Listen("tcp", net.JoinHostPort(evilSource(0).String(), "0"))
	if err != nil {
		t.Skip("one loopback address only")
	}
	l.Close()
}

func (s *site) client(n byte) *brep.Client {
	s.t.Helper()
	dial := ws.Dialer("ws://"+s.addr+"/", &ws.DialOptions{Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return s.dial(ctx, honestSource)
	}})
	c, err := dial(context.Background())
	require.NoError(s.t, err)
	client := connect(s.t, c, identity(s.t, n))
	s.t.Cleanup(func() { _ = client.Close() })
	return client
}

// raw connects an attacker.
func (s *site) raw(i int) *raw {
	s.t.Helper()
	c, err := s.dial(context.Background(), evilSource(i))
	require.NoError(s.t, err)
	s.t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	return &raw{c, s.t}
}

// What a stranger can have the relay hold for a connection is some KiB, whatever
// he has announced; and it is given back.
func TestMemoryOfStrangers(t *testing.T) {
	needLoopback(t)
	login := (&frame.Brep{Type: frame.TypeHandshake, Payload: make([]byte, 904)}).Append(nil)
	require.Len(t, login, 1024, "the most that a stranger may send")
	for name, attack := range map[string]func(*raw){
		"half a header":   func(r *raw) { _, _ = io.WriteString(r, upgrade[:60]) },
		"never answers":   func(r *raw) { r.upgrade() },
		"half an answer":  func(r *raw) { _, _ = r.upgrade().Write(wsFrame(wsBinary, login)[:1023]) },
		"many fragments":  func(r *raw) { _, _ = r.upgrade().Write(append(wsFrame(0x02, login[:1000]), wsHeader(0, 24)...)) },
		"a skipped giant": func(r *raw) { _, _ = r.upgrade().Write(append(wsHeader(wsBinary, 4096), make([]byte, 4000)...)) },
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t)
			n := size(200, 2000)
			first := s.raw(0) // what exists once
			attack(first)
			time.Sleep(20 * time.Millisecond)
			goroutines, before := runtime.NumGoroutine(), heap()
			conns := make([]*raw, n)
			for i := range conns {
				conns[i] = s.raw(i)
				attack(conns[i])
				time.Sleep(2 * time.Millisecond) // within the rate
			}
			time.Sleep(50 * time.Millisecond)
			each := (heap() - before) / int64(n)
			t.Logf("%d bytes and %.1f goroutines a connection, both ends", each, float64(runtime.NumGoroutine()-goroutines)/float64(n))
			assert.Less(t, each, int64(40<<10))
			for _, c := range conns {
				c.Close()
			}
			conns = nil
			// All but what pools keep.
			assert.Eventually(t, func() bool {
				return runtime.NumGoroutine() < goroutines+10 && heap()-before < int64(n)*12<<10
			}, 10*time.Second, 100*time.Millisecond, "what they held comes back")
		})
	}
}

// latency returns the round trips between two clients in a time.
func latency(t *testing.T, a, b *brep.Client, d time.Duration) (rtt []time.Duration) {
	t.Helper()
	key := identity(t, bob).Public()
	var payload [8]byte
	for start := time.Now(); time.Since(start) < d; time.Sleep(5 * time.Millisecond) {
		sent := time.Now()
		binary.BigEndian.PutUint64(payload[:], uint64(sent.UnixNano()))
		exchange(t, a, b, key, string(payload[:]))
		rtt = append(rtt, time.Since(sent))
	}
	slices.Sort(rtt)
	return rtt
}

func percentile(sorted []time.Duration, p int) time.Duration { return sorted[(len(sorted)-1)*p/100] }

// What honest clients wait for one another, without and with attackers, in one
// run. Attackers and relay share the machine, so the bound is generous: it shows
// that nobody waits for a deadline of somebody else's.
func TestLatencyUnderAttack(t *testing.T) {
	if race.Enabled {
		t.Skip("it measures time")
	}
	needLoopback(t)
	measure := time.Duration(size(700, 10_000)) * time.Millisecond
	for name, attack := range map[string]func(s *site, ctx context.Context){
		"bad signatures": badSignatures,
		"slow loris":     func(s *site, ctx context.Context) { loris(s, ctx, size(200, 2000)) },
		"pings":          pings,
		"connections":    connections,
		"slow readers":   slowReaders,
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t)
			a, b := s.client(alice), s.client(bob)
			latency(t, a, b, measure/10) // to warm up
			calm := latency(t, a, b, measure)
			ctx, stop := context.WithCancel(t.Context())
			var wg sync.WaitGroup
			for range 2 {
				wg.Go(func() { attack(s, ctx) })
			}
			time.Sleep(measure / 7)
			storm := latency(t, a, b, measure)
			stop()
			wg.Wait()
			t.Logf("round trip, p50 and p99: %v %v; under attack %v %v; the relay: %d connections",
				percentile(calm, 50), percentile(calm, 99), percentile(storm, 50), percentile(storm, 99), s.server.Stats().Sessions)
			assert.Less(t, percentile(storm, 99), max(50*percentile(calm, 99), 500*time.Millisecond))
		})
	}
}

// each calls attack with one connection after the other until ctx ends, and
// closes it then.
func each(s *site, ctx context.Context, attack func(*raw)) {
	for i := 0; ctx.Err() == nil; i++ {
		c, err := s.dial(ctx, evilSource(i%1800))
		if err != nil {
			continue
		}
		_ = c.SetDeadline(time.Now().Add(time.Second))
		attack(&raw{c, s.t})
		_ = c.Close()
	}
}

func badSignatures(s *site, ctx context.Context) {
	f := (&frame.Brep{Type: frame.TypeHandshake, Sender: identity(s.t, mallory).Public(), Signature: [64]byte{1}}).Append(nil)
	each(s, ctx, func(r *raw) {
		if challenge, err := r.challenge(); err == nil {
			key := identity(s.t, honestRelay).Public()
			payload := slices.Concat(challenge, make([]byte, 32), key[:], []byte{0})
			frame := append(f[:frame.BrepHeaderSize:frame.BrepHeaderSize], payload...)
			binary.BigEndian.PutUint32(frame[4:], uint32(len(payload)))
			_, _ = r.Write(wsFrame(wsBinary, frame))
			r.closed()
		}
	})
}

var errNoUpgrade = errors.New("no upgrade")

// challenge asks for a WebSocket and returns the challenge, if there is one.
func (r *raw) challenge() ([]byte, error) {
	if _, err := io.WriteString(r, upgrade); err != nil {
		return nil, err
	}
	var head []byte
	for b := make([]byte, 1); len(head) < 4 || string(head[len(head)-4:]) != "\r\n\r\n"; {
		if _, err := io.ReadFull(r, b); err != nil {
			return nil, err
		}
		head = append(head, b[0])
	}
	kind, msg, err := r.serverFrame()
	if err != nil || kind != wsBinary {
		return nil, errNoUpgrade
	}
	return msg[frame.BrepHeaderSize:], nil
}

func connections(s *site, ctx context.Context) { each(s, ctx, func(*raw) {}) }

func pings(s *site, ctx context.Context) {
	var many []byte
	for range 50 {
		many = append(many, wsFrame(wsPing, make([]byte, 100))...)
	}
	each(s, ctx, func(r *raw) {
		if _, err := r.challenge(); err != nil {
			return
		}
		for ctx.Err() == nil {
			if _, err := r.Write(many); err != nil {
				return
			}
		}
	})
}

// loris opens connections that stop half way, and waits.
func loris(s *site, ctx context.Context, n int) {
	for i := range n / 2 {
		c, err := s.dial(ctx, evilSource(i))
		if err != nil {
			break
		}
		defer c.Close()
		_, _ = io.WriteString(c, upgrade[:i%len(upgrade)])
	}
	<-ctx.Done()
}

// slowReaders log in, write to themselves, and never read.
func slowReaders(s *site, ctx context.Context) {
	id := identity(s.t, mallory)
	each(s, ctx, func(r *raw) {
		challenge, err := r.challenge()
		if err != nil {
			return
		}
		a := &answer{challenge: challenge, relay: identity(s.t, honestRelay).Public()}
		_, _ = r.Write(wsFrame(wsBinary, a.signedBy(id).Append(nil)))
		f := dataFrame(id.Public(), string(make([]byte, 16<<10)))
		f.Sender = id.Public()
		msg := wsFrame(wsBinary, f.Append(nil))
		for ctx.Err() == nil {
			if _, err := r.Write(msg); err != nil {
				return
			}
		}
	})
}
