package blind

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sotto-relay/sotto/relay"
	"github.com/sotto-relay/sotto/transport"
)

// TestLimits: those of the spec, where a server does not override them.
func TestLimits(t *testing.T) {
	all := relay.Limits{}.WithDefaults()
	l := all.ForDialect(Dialect{})
	assert.Equal(t, 100_000, all.Aliases)
	assert.Equal(t, []int{1 + 1<<20, 4096, 64, 400, 16 << 20}, []int{l.MessageBytes, l.Groups, l.Aliases, l.MessageBurst, l.ByteBurst})
	assert.Equal(t, []float64{200, 4 << 20}, []float64{l.MessageRate, l.ByteRate})
}

// TestSize: a frame of 1 MiB is carried. One that is longer, up to four times, is
// skipped and counted, and beyond that the connection is closed with 1009.
func TestSize(t *testing.T) {
	const most = 1 << 20
	frameOf := func(size int) string {
		empty := len(message("x ")) - 1
		return "x " + strings.Repeat("c", size-empty)
	}
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		a, s := r.as("a"), r.as("s")
		a.say(subscribe("x"))
		synctest.Wait()
		s.say(frameOf(most))
		assert.Equal(t, frameOf(most), a.hear())
		s.say(frameOf(most + 1))
		s.say(frameOf(4 * most))
		s.say("x two")
		assert.Equal(t, "x two", a.hear())
		assert.Equal(t, map[string]uint64{"too large": 2}, r.ignored())
		s.say(frameOf(4*most + 10))
		_, code := s.rest()
		assert.Equal(t, uint16(transport.CloseTooLarge), code)
		a.silent()
	})
}

// TestRate: 200 messages a second, 400 at once, and 4 MiB a second, 16 MiB at
// once; what is over is dropped and counted.
func TestRate(t *testing.T) {
	for name, c := range map[string]struct {
		text        string
		burst, rate int
	}{
		"messages": {"x one", 400, 200},
		"bytes":    {"x " + strings.Repeat("c", 1<<19), 31, 8}, // a bit more than half a MiB
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, func(r *rig) { r.Limits.Dialects = map[string]relay.DialectLimits{"blind": {OutboxBytes: 64 << 20}} })
				a, s := r.as("a"), r.as("s")
				a.say(subscribe("x"))
				synctest.Wait()
				for _, most := range []int{c.burst, c.rate} {
					for range most + 10 {
						s.say(c.text)
						synctest.Wait()
					}
					for range most {
						require.Equal(t, c.text, a.hear())
					}
					a.silentFor(time.Second)
				}
				assert.Equal(t, map[string]uint64{"over the rate": 20}, r.ignored())
			})
		})
	}
}

// TestStaysOver: a connection that for ten seconds never is a second without a
// message over the rate is closed with 1008; one that pauses is not.
func TestStaysOver(t *testing.T) {
	flood := func(s *peer, d time.Duration) time.Duration {
		start := time.Now()
		for time.Since(start) < d {
			for range 100 {
				for msgs := [][]byte{message("x one")}; len(msgs) > 0; {
					n, err := s.Write(transport.Binary, msgs)
					if err != nil {
						return time.Since(start)
					}
					msgs = msgs[n:]
				}
			}
			time.Sleep(250 * time.Millisecond) // 400 a second
		}
		return d
	}
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		s := r.as("s")
		flood(s, 3*time.Second) // until the burst is used up
		time.Sleep(10 * time.Second)
		for range 3 {
			require.Equal(t, 11*time.Second, flood(s, 11*time.Second))
			time.Sleep(3 * time.Second)
		}
		assert.InDelta(t, 12, flood(s, time.Minute).Seconds(), 2)
		_, code := s.rest()
		assert.Equal(t, uint16(transport.ClosePolicy), code)
	})
}

// TestSlow: a subscriber whose queue overflows is closed with 1013 and has missed
// nothing until then; the others get everything.
func TestSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(r *rig) {
			r.Limits = relay.MaxLimits()
			r.Limits.Dialects = map[string]relay.DialectLimits{"blind": {OutboxMessages: 50}}
		})
		slow, quick, s := r.dial("slow", 10), r.as("quick"), r.as("s")
		slow.say(subscribe("x"))
		quick.say(subscribe("x"))
		synctest.Wait()
		for i := range 1000 {
			s.say(fmt.Sprint("x ", i))
			require.Equal(t, fmt.Sprint("x ", i), quick.hear())
		}
		require.NoError(t, slow.SetReadDeadline(time.Now().Add(time.Hour)))
		for i := 0; ; i++ {
			_, msg, err := slow.Read()
			if err != nil {
				assert.ErrorContains(t, err, "1013")
				assert.Greater(t, i, 9)
				assert.Less(t, i, 62)
				break
			}
			require.Equal(t, fmt.Sprint("x ", i), shorthand(t, msg))
		}
		synctest.Wait()
		st := r.balance()
		assert.EqualValues(t, 1, st.Ended["overloaded"])
		assert.NotZero(t, st.Dropped)
		s.say("x last")
		assert.Equal(t, "x last", quick.hear())
	})
}

// TestSubscriptionFlood: 200,000 subscriptions are attempted, in one message and in
// many; 4,096 are there, and when the connection has ended the memory is back.
func TestSubscriptionFlood(t *testing.T) {
	const attempts = 200_000
	var all bytes.Buffer
	all.WriteString(`{"op":"subscribe","entityIds":["k0"`)
	for i := 1; i < attempts/2; i++ {
		fmt.Fprintf(&all, `,"k%x"`, i)
	}
	all.WriteString("]}")
	require.Less(t, all.Len(), 1<<20)
	r := newRig(t, func(r *rig) {
		r.Limits.Dialects = map[string]relay.DialectLimits{"blind": {MessageRate: 1e9, MessageBurst: 1e9}}
	})
	before := heap()
	s := r.as("s")
	s.say(all.String())
	for i := attempts / 2; i < attempts; i += 100 {
		var keys []string
		for j := i; j < i+100; j++ {
			keys = append(keys, fmt.Sprintf("k%x", j))
		}
		s.say(subscribe(keys...))
	}
	s.say(rotate("a", "b"))
	require.Equal(t, rotated("a", "b"), s.hear())
	const most = 4096
	assert.Less(t, heap()-before, most*1000)
	assert.EqualValues(t, 1+attempts/2/100, r.ignored()["too many subscriptions"])

	a := r.as("a")
	for _, i := range []int{0, most - 1, most} {
		a.say(fmt.Sprintf("k%x one", i))
	}
	assert.Equal(t, "k0 one", s.hear())
	assert.Equal(t, fmt.Sprintf("k%x one", most-1), s.hear())
	a.say(unsubscribe())
	require.NoError(t, s.Conn.Close(1000, ""))
	require.Eventually(t, func() bool { return r.Stats().Sessions == 1 }, 10*time.Second, time.Millisecond)
	assert.Less(t, heap()-before, 300_000)
}
