package relay

import (
	"math/rand/v2"
	"net"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sotto-relay/sotto/transport"
	"github.com/sotto-relay/sotto/transport/pipe"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestSource(t *testing.T) {
	for in, want := range map[string]string{
		"192.0.2.7:80":           "192.0.2.7/32",
		"[::ffff:192.0.2.7]:80":  "192.0.2.7/32",
		"[2001:db8:1:2:3::4]:80": "2001:db8:1:2::/64",
		"[fe80::1%eth0]:80":      "fe80::/64",
	} {
		a, err := netip.ParseAddrPort(in)
		require.NoError(t, err)
		for _, addr := range []net.Addr{net.TCPAddrFromAddrPort(a), net.UDPAddrFromAddrPort(a), textAddr(in)} {
			assert.Equal(t, want, Source(addr).String(), "%T %s", addr, in)
		}
	}
	for _, a := range []net.Addr{nil, pipe.Addr{}, &net.UnixAddr{Name: "/x"}} {
		assert.False(t, Source(a).IsValid())
	}
}

type textAddr string

func (textAddr) Network() string  { return "text" }
func (a textAddr) String() string { return string(a) }

// A flooder leaves the others their share of new connections.
func TestGateIsFair(t *testing.T) {
	g := newGate(&DialectLimits{ConnectRate: 30, SourceConnections: 1 << 20})
	flooder := netip.MustParsePrefix("192.0.2.1/32")
	now := time.Unix(1, 0)
	var tried, admitted, flooded int
	for range 20_000 { // 20 s, a flood of 1,000 a second, and 5 others that connect once a second each
		now = now.Add(time.Millisecond)
		if g.enter(flooder, now) == nil {
			flooded++
		}
		if rand.IntN(200) == 0 {
			tried++
			src := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(rand.IntN(5))}), 32)
			if g.enter(src, now) == nil {
				admitted++
			}
		}
	}
	t.Logf("others: %d of %d; flooder: %d", admitted, tried, flooded)
	assert.GreaterOrEqual(t, float64(admitted), 0.95*float64(tried))
	assert.Less(t, flooded, 30*22)
	assert.LessOrEqual(t, len(g.recent), recentMost+1)
}

func TestGateSource(t *testing.T) {
	g := newGate(&DialectLimits{SourceConnections: 2, ConnectRate: unlimited})
	a, b := netip.MustParsePrefix("192.0.2.1/32"), netip.MustParsePrefix("192.0.2.2/32")
	now := time.Now()
	assert.Nil(t, g.enter(a, now))
	assert.Nil(t, g.enter(a, now))
	r := g.enter(a, now)
	require.NotNil(t, r)
	assert.Equal(t, CodeOverloaded, r.Code)
	assert.NotZero(t, r.RetryAfter)
	assert.NotNil(t, g.peek(a, now))
	assert.Nil(t, g.enter(b, now))
	g.leave(a)
	assert.Nil(t, g.enter(a, now), "a slot that is freed can be used at once")
	g.leave(a)
	g.leave(a)
	g.leave(b)
	assert.Empty(t, g.open)
	for range 10 {
		assert.Nil(t, g.enter(netip.Prefix{}, now), "no source, no limit of one")
	}
}

// from is a Conn with an address.
type from struct {
	transport.Conn
	addr net.Addr
}

func (c from) RemoteAddr() net.Addr { return c.addr }

func TestBlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, &Server{}, words{})
		dial := func(ip string) peer {
			client, server := pipe.New()
			b.Speak(b.d).HandleConn(from{server, &net.TCPAddr{IP: net.ParseIP(ip), Port: 1}})
			return peer{t, client}
		}
		in, out := dial("192.0.2.9"), dial("198.51.100.1")
		for name, p := range map[string]peer{"in": in, "out": out} {
			p.say("claim %s", name)
			p.expect("welcome")
		}
		net24 := netip.MustParsePrefix("192.0.2.0/24")
		assert.Equal(t, 1, b.Block(net24, time.Hour))
		_, code := in.rest()
		assert.Equal(t, uint16(transport.ClosePolicy), code)
		_, code = dial("192.0.2.77").rest()
		assert.Equal(t, uint16(transport.ClosePolicy), code)
		a, ok := b.Speak(b.d).(transport.Admitter)
		require.True(t, ok)
		assert.Error(t, a.Admit(&net.TCPAddr{IP: net.ParseIP("192.0.2.77")}))
		assert.NoError(t, a.Admit(&net.TCPAddr{IP: net.ParseIP("198.51.100.1")}))
		out.say("x")
		out.expect("what?")
		time.Sleep(2 * time.Hour)
		assert.NoError(t, a.Admit(&net.TCPAddr{IP: net.ParseIP("192.0.2.77")}))
		mapped := netip.MustParsePrefix("::ffff:192.0.2.0/120")
		b.Block(mapped, time.Hour)
		assert.Error(t, a.Admit(&net.TCPAddr{IP: net.ParseIP("192.0.2.77")}))
		b.Block(net24, 0)
		assert.NoError(t, a.Admit(&net.TCPAddr{IP: net.ParseIP("192.0.2.77")}))
	})
}

// What connections that are not ready can pin together is bounded.
func TestUnready(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, &Server{Limits: Limits{Unready: 3}}, words{})
		ready := b.as("alice")
		var idle []peer
		for range 3 {
			idle = append(idle, b.dial(0))
		}
		_, code := b.dial(0).rest()
		assert.Equal(t, uint16(transport.CloseTryLater), code)
		ready.say("x")
		ready.expect("what?")
		_ = idle[0].Close(1000, "")
		synctest.Wait()
		b.as("bob")
		time.Sleep(time.Minute) // the idle ones are gone
		for range 3 {
			b.dial(0)
		}
		synctest.Wait()
		assert.Equal(t, 5, b.Stats().Sessions)
	})
}

func TestTiers(t *testing.T) {
	for _, c := range []struct {
		now    Tier
		memory float64
		delay  time.Duration
		want   Tier
	}{
		{Normal, 0.5, 0, Normal},
		{Normal, 0.74, 0, Normal},
		{Normal, 0.75, 0, Degraded},
		{Degraded, 0.72, 0, Degraded},
		{Degraded, 0.69, 0, Normal},
		{Degraded, 0.90, 0, Overloaded},
		{Normal, 0.95, 0, Overloaded},
		{Overloaded, 0.86, 0, Overloaded},
		{Overloaded, 0.84, 0, Degraded},
		{Overloaded, 0.1, 0, Normal},
		{Normal, 0.1, 100 * time.Millisecond, Degraded},
		{Degraded, 0.1, 60 * time.Millisecond, Degraded},
		{Degraded, 0.1, 40 * time.Millisecond, Normal},
		{Normal, 0.1, time.Second, Overloaded},
		{Overloaded, 0.1, 600 * time.Millisecond, Overloaded},
	} {
		assert.Equal(t, c.want, nextTier(c.now, c.memory, c.delay), "%+v", c)
	}
	assert.Positive(t, memoryUsed())
	assert.Less(t, int64(memoryUsed()), memoryLimit())
}

func TestOverloaded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, &Server{}, words{})
		alice := b.as("alice")
		b.setTier(Overloaded, 0.95, 0)
		bob := b.dial(0)
		bob.say("claim bob")
		said, code := bob.rest()
		assert.Equal(t, []string{"bye overloaded"}, said)
		assert.Equal(t, uint16(transport.CloseTryLater), code)
		alice.say("send alice x")
		alice.expect("alice x")
		time.Sleep(3 * time.Second) // the load is looked at again
		assert.Equal(t, Normal, b.Load())
		b.as("bob")
	})
}

// Drain ends sessions and takes no new ones; the server is not closed.
func TestDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, &Server{Inbox: memory()}, words{})
		l := pipe.Listen()
		served := make(chan error, 1)
		go func() { served <- b.Serve(l, words{}) }()
		alice := b.as("alice")
		require.NoError(t, b.Drain(t.Context()))
		assert.ErrorIs(t, <-served, ErrServerClosed)
		said, code := alice.rest()
		assert.Equal(t, []string{"bye going-away"}, said)
		assert.Equal(t, uint16(transport.CloseGoingAway), code)
		_, code = b.dial(0).rest()
		assert.Equal(t, uint16(transport.CloseGoingAway), code)
		require.NoError(t, b.Drain(t.Context()))
		b.balance()
	})
}
