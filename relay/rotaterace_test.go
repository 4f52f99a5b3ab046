package relay

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestRotateRace: two who move a name at once: one wins, the other is told who.
func TestRotateRace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, &Server{}, rotary{})
		ann, bob := b.dial(0), b.dial(0)
		for i := range 100 {
			a := fmt.Sprintf("a%d", i)
			var heard [2]string
			var wg sync.WaitGroup
			for j, p := range []peer{ann, bob} {
				wg.Go(func() {
					p.say("move %s to%d", a, j)
					heard[j] = p.hear()
				})
			}
			wg.Wait()
			if heard[0] != "moved to0" {
				assert.Equal(t, [2]string{"no denied to1", "moved to1"}, heard)
			} else {
				assert.Equal(t, "no denied to0", heard[1])
			}
			time.Sleep(grace)
		}
	})
}

// TestRotateJoins: while a group moves to and fro, who joins it by either name is in
// it by either, and who leaves is not.
func TestRotateJoins(t *testing.T) {
	b := newBench(t, &Server{}, rotary{})
	for range 4 {
		p := b.dial(0)
		p.say("lead a")
		p.expect("a") // the session is there, and idle: its port is ours
	}
	ports, names := b.allPorts(), [2]Address{called("a"), called("b")}
	mover := ports[0]
	_, err := mover.Move(names[0], names[1], grace)
	require.NoError(t, err)
	var joining sync.WaitGroup
	var over atomic.Bool
	for _, p := range ports[1:] {
		joining.Go(func() {
			for range 20000 {
				if !assert.NoError(t, p.Join(names[rand.IntN(2)], nil)) || !assert.True(t, p.Member(names[rand.IntN(2)])) {
					return
				}
				p.Leave(names[rand.IntN(2)])
				if !assert.False(t, p.Member(names[rand.IntN(2)])) {
					return
				}
			}
		})
	}
	var moving sync.WaitGroup
	moving.Go(func() {
		for i := 1; !over.Load(); i++ {
			if _, err := mover.Move(names[i%2], names[1-i%2], grace); !assert.NoError(t, err) {
				return
			}
		}
	})
	joining.Wait()
	over.Store(true)
	moving.Wait()
	checkBooks(t, b.Server)
}

// TestRotateTraffic: under moves, among them those that merge groups and those that
// lead back, every member gets every publication once and in order, by whichever
// name it came.
func TestRotateTraffic(t *testing.T) {
	const (
		messages = 300 // of each sender: all of them fit the outboxes
		senders  = 3
		members  = 8
	)
	b := newBench(t, &Server{}, rotary{words{limits: DialectLimits{Aliases: 1 << 20}}})
	// Names of two families lead to the members: k0, k1, … as many as there are.
	var names [2]atomic.Int64
	name := func(family, i int64) string { return fmt.Sprintf("%c%d", 'k'+rune(family), i) }

	var hearing sync.WaitGroup
	for m := range members {
		p := b.dial(0)
		p.say("room %s", name(int64(m%2), 0))
		p.expect(fmt.Sprint("room ", m/2+1))
		hearing.Go(func() {
			next := make(map[string]int)
			for range senders * messages {
				var group, number string
				n, err := fmt.Sscanf(p.hear(), "#%s %s", &group, &number)
				if !assert.NoError(t, err) || !assert.Equal(t, 2, n) {
					return
				}
				sender, i, _ := strings.Cut(number, ".")
				if !assert.Equal(t, fmt.Sprint(next[sender]), i, "of sender %s", sender) {
					return
				}
				next[sender]++
			}
		})
	}
	ann := b.dial(0)
	ann.say("move l0 k0") // from here on they are one
	ann.expect("moved k0")
	names[0].Store(1)
	names[1].Store(1)

	var sending sync.WaitGroup
	var over atomic.Bool
	for s := range senders {
		p := b.dial(0)
		sending.Go(func() {
			for i := range messages {
				family := int64(rand.IntN(2))
				p.say("pub %s %d.%d", name(family, rand.Int64N(names[family].Load())), s, i)
			}
		})
	}
	var moving sync.WaitGroup
	moving.Go(func() { // one moves everybody on, or back, or is denied a ninth hop
		for at := name(0, 0); !over.Load(); {
			known := names[0].Load()
			to := name(0, rand.Int64N(known+1))
			ann.say("move %s %s", at, to)
			if ann.hear() == "moved "+to {
				at = to
				if to == name(0, known) {
					names[0].Add(1)
				}
			}
		}
	})
	bob := b.dial(0)
	moving.Go(func() { // one comes with a group of his own, again and again
		for i := 0; !over.Load(); i++ {
			bob.say("join c%d", i)
			bob.say("move c%d %s", i, name(0, names[0].Load()-1))
			bob.say("leave c%d", i)
			for strings.HasPrefix(bob.hear(), "#") {
			}
		}
	})
	cat := b.dial(0)
	moving.Go(func() { // one joins and leaves, by names that are just moving
		for !over.Load() {
			at := name(0, max(0, names[0].Load()-1-rand.Int64N(3)))
			cat.say("room %s", at)
			for strings.HasPrefix(cat.hear(), "#") {
			}
			cat.say("leave %s", name(0, 0))
		}
	})
	sending.Wait()
	hearing.Wait()
	over.Store(true)
	moving.Wait()
	checkBooks(t, b.Server)
}
