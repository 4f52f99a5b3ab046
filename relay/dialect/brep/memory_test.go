package brep

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sotto-relay/sotto/crypto"
	"github.com/sotto-relay/sotto/frame"
	"github.com/sotto-relay/sotto/relay"
)

func senderKey(n int) (k crypto.PublicKey) {
	binary.BigEndian.PutUint32(k[:], uint32(n))
	return k
}

func numbered(n int) *frame.Brep {
	f := &frame.Brep{Signature: [64]byte{1}}
	binary.BigEndian.PutUint32(f.ID[:], uint32(n))
	return f
}

// remembers says whether a message is known, and remembers it.
func (x *sent) remembers(f *frame.Brep) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.recall(f, 1) != nil
}

// TestMemoryAgainstAList: at random, it knows what a list of all that came does.
func TestMemoryAgainstAList(t *testing.T) {
	type came struct {
		f       frame.Brep
		when    time.Time
		outcome outcome
		known   bool // it was not refused, and is not too old
	}
	synctest.Test(t, func(t *testing.T) {
		seed := rand.Uint64()
		t.Logf("seed %d", seed)
		random := rand.New(rand.NewPCG(seed, 0))
		x := newMemory().enter(senderKey(1))
		var list []*came               // in order
		newest := map[relay.ID]*came{} // with each id
		repeats := 0
		for range 30_000 {
			switch random.IntN(10) {
			case 0:
				time.Sleep(time.Duration(random.Int64N(int64(5 * time.Second))))
			case 1, 2:
				f := numbered(random.IntN(6000))
				o := outcome{status: frame.ReceiptStatus(1 + random.IntN(5))}
				x.mu.Lock()
				_, news := x.learn(f.ID, o, 1)
				x.mu.Unlock()
				c := newest[f.ID]
				if c == nil || !c.known {
					require.True(t, news)
					continue
				}
				require.Equal(t, o.status >= c.outcome.status || c.outcome.status > acknowledged, news)
				if news {
					c.known = c.outcome.status != 0 || o.status != refused
					c.outcome = o
				}
			default:
				f := numbered(random.IntN(6000))
				f.Signature[1] = byte(random.IntN(2))
				c := newest[f.ID]
				repeat := c != nil && c.known && c.f.Signature == f.Signature && time.Since(c.when) < rememberFor
				x.mu.Lock()
				got := x.recall(f, 1)
				if repeat {
					require.NotNil(t, got)
					require.Equal(t, c.outcome, got.outcome)
					repeats++
				} else {
					require.Nil(t, got)
				}
				x.mu.Unlock()
				if repeat {
					continue
				}
				c = &came{f: *f, when: time.Now(), known: true}
				newest[f.ID], list = c, append(list, c)
				for len(list) > rememberMax || time.Since(list[0].when) >= rememberFor {
					list[0].known = false
					list = list[1:]
				}
			}
			require.LessOrEqual(t, len(x.index), len(list))
		}
		require.Greater(t, repeats, 1000)
	})
}

// TestMemoryIsBounded: of one sender, and of all; whoever is here is remembered a
// little of whatever others do, and who has gone makes room first.
func TestMemoryIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		m.all = 3 * 1024
		first := m.enter(senderKey(1))
		for i := range 10_000 {
			require.False(t, first.remembers(numbered(i)))
		}
		require.Equal(t, 2048, len(first.ring), "the next size is too much")
		require.Equal(t, 2048, m.places)
		require.True(t, first.remembers(numbered(10_000-2048)))
		require.False(t, first.remembers(numbered(10_000-2049)))

		second := m.enter(senderKey(2))
		for i := range 10_000 {
			require.False(t, second.remembers(numbered(i)))
		}
		require.Equal(t, 1024, len(second.ring))
		for n := range 10 {
			x := m.enter(senderKey(3 + n))
			for i := range 1000 {
				x.remembers(numbered(i))
			}
			require.Equal(t, rememberMin, len(x.ring))
			require.True(t, x.remembers(numbered(999)))
		}
		require.Equal(t, 3*1024+10*rememberMin, m.places)

		m.leave(first)
		x := m.enter(senderKey(100))
		for i := range 1000 {
			x.remembers(numbered(i))
		}
		require.Equal(t, 1024, len(x.ring), "in the place of the first")
		require.Nil(t, m.find(senderKey(1)))
		require.False(t, m.enter(senderKey(1)).remembers(numbered(9999)), "who has been forgotten")
	})
}

// TestMemoryOfTheGone lasts as long as messages are remembered, from when the last
// session went.
func TestMemoryOfTheGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		idle := m.enter(senderKey(1))
		m.leave(idle)
		require.Empty(t, m.senders, "nothing to remember")

		x, again := m.enter(senderKey(2)), m.enter(senderKey(2))
		require.Same(t, x, again)
		x.remembers(numbered(1))
		m.leave(x)
		time.Sleep(time.Hour)
		m.leave(m.enter(senderKey(3)))
		require.Same(t, x, m.find(senderKey(2)), "it has a session yet")
		x.remembers(numbered(2))
		m.leave(x)
		time.Sleep(rememberFor - 1)
		require.Same(t, x, m.enter(senderKey(2)))
		require.True(t, x.remembers(numbered(2)))
		m.leave(x)
		time.Sleep(rememberFor)
		m.leave(m.enter(senderKey(3)))
		require.Empty(t, m.senders)
		require.Zero(t, m.places)
		require.Zero(t, m.gone.Len())
	})
}

// TestNumbersWrap: the numbers of places go round.
func TestNumbersWrap(t *testing.T) {
	x := newMemory().enter(senderKey(1))
	x.first, x.next = 1<<32-5, 1<<32-5
	for i := range 100 {
		require.False(t, x.remembers(numbered(i)))
		require.True(t, x.remembers(numbered(max(0, i-7))))
	}
}

// TestSessionsLeaveTheMemory: nothing is remembered for ever of who has gone.
func TestSessionsLeaveTheMemory(t *testing.T) {
	bubble(t, nil, func(t *testing.T, r *rig) {
		p := r.extended(2)
		m := r.session(0).common.memory
		require.Len(t, m.senders, 2)
		p[1].leave() // who has sent nothing
		require.Len(t, m.senders, 1)
		p[0].send(p[0].sealed(p[1].id, 1, 0, ""))
		p[0].leave()
		require.Equal(t, 1, m.gone.Len())
	})
}
