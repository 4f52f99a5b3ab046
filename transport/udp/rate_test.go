package udp

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestSourceRate: the 51st datagram in a second is not looked at.
func TestSourceRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		looked := 0
		r := newRig(t, Options{Demux: func(b []byte) (bool, []byte, []byte) { looked++; return demux(b) }})
		alice, token := r.proven(aliceAt, "alice")
		time.Sleep(time.Second)
		looked = 0
		flood := func(n int, from ...netip.AddrPort) int {
			before := looked
			for i := range n {
				r.net.Send(from[i%len(from)], relayAt, []byte("x"))
			}
			synctest.Wait()
			return looked - before
		}
		assert.Equal(t, 50, flood(80, eveAt))
		assert.EqualValues(t, 30, r.l.Stats().Limited)
		assert.Zero(t, flood(5, port(eveAt, 1), port(eveAt, 2)), "its other ports")
		assert.Equal(t, 1, flood(1, bobAt))
		r.say(aliceAt, pair("alice", token, "fine"))
		assert.NotEmpty(t, r.read(alice))
		time.Sleep(100 * time.Millisecond)
		assert.Equal(t, 5, flood(10, eveAt))

		// An IPv6 host has all of its /64.
		var hosts []netip.AddrPort
		for i := range 60 {
			hosts = append(hosts, mustParse(fmt.Sprintf("[2001:db8::%x:1]:1", i+1)))
		}
		assert.Equal(t, 50, flood(60, hosts...))
		assert.Equal(t, 1, flood(1, mustParse("[2001:db8:0:1::1]:1")))
	})
}

// TestGuessing has a million tokens be tried.
func TestGuessing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tried := 0
		l := NewListener(nil, &Options{Demux: func(b []byte) (bool, []byte, []byte) { tried++; return demux(b) }})
		defer l.fail(nil)
		s := new(tape)
		l.receive(s, aliceAt, []byte("open"), 0)
		(<-l.backlog).Renew("alice")
		guess := []byte(pair("alice", strings.Repeat("0", 32), ""))
		tried = 0
		for i := range 1_000_000 {
			l.receive(s, eveAt, guess, time.Duration(i)*10*time.Microsecond) // 10 s
		}
		assert.Equal(t, 549, tried) // 50 at once, and one each 20 ms for 10 s that end before the 500th
		assert.Empty(t, s.sent)
	})
}

// TestBucket compares with the obvious: tokens that are added one by one.
func TestBucket(t *testing.T) {
	for _, rate := range []int{1, 3, 50, 1000, 1_000_000} {
		r := rand.New(rand.NewPCG(uint64(rate), 0))
		var b bucket
		each := time.Second / time.Duration(rate)
		tokens, added, now := rate, time.Duration(0), time.Duration(0)
		for range 2000 {
			now += time.Duration(r.Int64N(int64(4 * each)))
			for ; added+each <= now; added += each {
				tokens++
			}
			if tokens >= rate {
				tokens, added = rate, now
			}
			n := r.IntN(4)
			if got := b.take(n, now, rate, time.Second); !assert.Equal(t, min(n, tokens), got) {
				return
			}
			tokens -= min(n, tokens)
			if back := min(n, 1); back > 0 && n <= tokens && r.IntN(10) == 0 {
				b.giveBack(back, rate)
				tokens += back
			}
			if wait := b.wait(now, rate, time.Second); tokens == 0 {
				assert.Zero(t, b.take(1, now+wait-1, rate, time.Second))
				after := b
				assert.Equal(t, 1, after.take(1, now+wait, rate, time.Second))
			}
		}
	}
}

// TestSources compares the two tables with buckets that are never forgotten.
func TestSources(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	s := newSources(5)
	all := make(map[netip.Addr]*bucket)
	now := time.Duration(0)
	for range 100_000 {
		now += time.Duration(r.Int64N(int64(10 * time.Millisecond)))
		if r.IntN(1000) == 0 {
			now += time.Duration(r.Int64N(int64(3 * time.Second)))
		}
		a := netip.AddrFrom4([4]byte{10, 0, 0, byte(r.IntN(20))})
		if all[a] == nil {
			all[a] = new(bucket)
		}
		require.Equal(t, all[a].take(1, now, 5, time.Second) == 1, s.allow(a, now))
	}
}

// TestManySources: the tables are bounded, and when they are full those who are in
// them are metered, and others are not turned away.
func TestManySources(t *testing.T) {
	s := newSources(50)
	known := netip.MustParseAddr("192.0.2.1")
	for range 50 {
		require.True(t, s.allow(known, 0))
	}
	for i := range 3 * mostSources {
		require.True(t, s.allow(netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}), 0))
	}
	assert.Len(t, s.now, mostSources)
	assert.False(t, s.allow(known, 0))
	assert.True(t, s.allow(known, time.Second))
	assert.Len(t, s.now, 1)
}

func TestSourceKey(t *testing.T) {
	for _, test := range []struct {
		a, b string
		same bool
	}{
		{"10.0.0.1", "10.0.0.1", true}, {"10.0.0.1", "10.0.0.2", false}, {"10.0.0.1", "11.0.0.1", false},
		{"2001:db8::1", "2001:db8::ffff:1", true}, {"2001:db8::1", "2001:db8:0:1::1", false},
		{"2001:db8::1", "2002:db8::1", false}, {"fe80::1%eth0", "fe80::1%eth1", true},
	} {
		same := sourceKey(netip.MustParseAddr(test.a)) == sourceKey(netip.MustParseAddr(test.b))
		assert.Equal(t, test.same, same, "%s, %s", test.a, test.b)
	}
	assert.NotPanics(t, func() { sourceKey(netip.Addr{}) })
}

// TestQueue compares with a list.
func TestQueue(t *testing.T) {
	const most = 50
	r := rand.New(rand.NewPCG(1, 2))
	q := new(queue)
	for range 100 {
		var list [][]byte
		cost, bound := 0, 1000
		for range r.IntN(20) {
			b := bytes.Repeat([]byte{byte(r.IntN(256))}, r.IntN(2*most))
			cost += overhead
			if len(b) <= most {
				cost += len(b)
			}
			require.Equal(t, cost <= bound, q.push(b, most, bound))
			if cost > bound {
				break
			}
			list = append(list, b)
		}
		for _, want := range list {
			require.False(t, q.empty())
			b, n := q.pop(most)
			require.Len(t, want, n)
			if n > most {
				require.Nil(t, b)
				continue
			}
			require.Equal(t, string(want), string(b))
			require.Equal(t, n, cap(b))
		}
		require.True(t, q.empty())
		q.reset()
		require.Zero(t, q.cost)
	}
}
