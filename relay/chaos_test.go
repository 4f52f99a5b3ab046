package relay

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sotto-relay/sotto/transport"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var seed = flag.Uint64("seed", 0, "seed of the random tests; 0 picks one")

func random(t *testing.T) *rand.Rand {
	s := *seed
	if s == 0 {
		s = rand.Uint64()
	}
	t.Logf("-seed %d", s)
	return rand.New(rand.NewPCG(s, s))
}

// Senders write to one recipient whose sessions come, go, freeze and replace one
// another. What the relay accepted arrives once, in the order of each sender.
// (The sessions are ended by the relay, so that nothing is lost in a pipe that
// nobody reads any more.)
func TestNothingLost(t *testing.T) {
	for round := range 30 {
		t.Run(fmt.Sprint(round), func(t *testing.T) { testNothingLost(t, random(t)) })
	}
}

func testNothingLost(t *testing.T, r *rand.Rand) {
	synctest.Test(t, func(t *testing.T) {
		const senders, each = 3, 200
		store := &lateStore{Store: memory(), late: func() { time.Sleep(rand.N(5 * time.Millisecond)) }}
		b := newBench(t, &Server{Inbox: store, Limits: Limits{
			OutboxMessages: 1 + r.IntN(10), FlushBytes: 1 + r.IntN(100), TakeoverBurst: 1000,
		}}, words{settled: func(Receipt) {}})

		var sessions []*[]string // what each got, in the order of their logins
		var wg sync.WaitGroup
		read := func(p peer, rest time.Duration, got *[]string) {
			defer wg.Done()
			for {
				_, msg, err := p.Read()
				if err != nil {
					return
				}
				if s := string(msg); s != "welcome" && s[:4] != "bye " {
					*got = append(*got, s)
				}
				time.Sleep(rest)
			}
		}
		pause := func(r *rand.Rand, most time.Duration) { time.Sleep(time.Duration(r.Int64N(int64(most)))) }
		for i := range senders {
			p, r := b.as(fmt.Sprint("s", i)), rand.New(rand.NewPCG(r.Uint64(), 1))
			wg.Add(2)
			go read(p, 0, new([]string))
			go func() {
				defer wg.Done()
				for n := range each {
					p.say("send bob %d", n)
					if r.IntN(3) == 0 {
						pause(r, 20*time.Millisecond)
					}
				}
				time.Sleep(time.Minute)
				_ = p.Close(1000, "")
			}()
		}
		login := func(room int, rest time.Duration) peer {
			p := b.dial(room)
			p.say("claim bob")
			got := new([]string)
			sessions = append(sessions, got)
			wg.Add(1)
			go read(p, rest, got)
			return p
		}
		var last peer
		for range 20 {
			p := login(1+r.IntN(5), time.Duration(r.IntN(3))*time.Millisecond)
			pause(r, 100*time.Millisecond)
			if r.IntN(3) == 0 {
				p.say("quit")
				pause(r, 50*time.Millisecond)
			}
			last = p
		}
		time.Sleep(30 * time.Second)
		// What was in its pipe is read all the same. (It may have quit already.)
		_, _ = last.Write(transport.Text, [][]byte{[]byte("quit")})
		time.Sleep(time.Second)
		login(100, 0)
		time.Sleep(time.Minute)
		synctest.Wait()
		st := b.balance()
		assert.Zero(t, st.Held, "%+v", st)
		assert.Zero(t, st.Dropped, "%+v", st)
		_ = b.Close()
		wg.Wait()

		next := make(map[string]int)
		for _, got := range sessions {
			for _, m := range *got {
				var from string
				var n int
				_, err := fmt.Sscanf(m, "%s %d", &from, &n)
				require.NoError(t, err, m)
				require.Equal(t, next[from], n, "from %s", from)
				next[from]++
			}
		}
		for i := range senders {
			assert.Equal(t, each, next[fmt.Sprint("s", i)])
		}
		assert.Zero(t, leftSeats(b.Server), "seats are given back")
	})
}

func leftSeats(s *Server) (n int) {
	for i := range s.router.seats {
		n += len(s.router.seats[i].m) + len(s.router.groups[i].m)
	}
	return n
}

// Groups against a naive model.
func TestGroupsModel(t *testing.T) {
	r := random(t)
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, &Server{}, words{})
		const peers, groups = 6, 4
		var ps []peer
		member := [peers][groups]bool{}
		for i := range peers {
			ps = append(ps, b.as(fmt.Sprint("p", i)))
		}
		for n := range 2000 {
			i, g := r.IntN(peers), r.IntN(groups)
			switch r.IntN(4) {
			case 0:
				ps[i].say("join g%d", g)
				member[i][g] = true
			case 1:
				ps[i].say("leave g%d", g)
				member[i][g] = false
			default:
				echo := r.IntN(2) == 0
				verb := map[bool]string{true: "echo", false: "pub"}[echo]
				ps[i].say("%s g%d %d", verb, g, n)
				for j := range peers {
					if member[j][g] && (i != j || echo) {
						ps[j].expect(fmt.Sprintf("#g%d p%d %d", g, i, n))
					}
				}
			}
			synctest.Wait()
		}
		assert.Zero(t, b.balance().Held)
		for _, p := range ps {
			_ = p.Close(transport.CloseNormal, "")
		}
		synctest.Wait()
		assert.Zero(t, leftSeats(b.Server))
	})
}

func TestSlowSubscriberLosesOldest(t *testing.T) {
	for name, size := range map[string]int{"copied": 10, "shared": 2000} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, &Server{Limits: Limits{OutboxMessages: 10}}, words{})
				pub, healthy := b.as("pub"), b.as("healthy")
				frozen := b.dial(3)
				frozen.say("join g")
				healthy.say("join g")
				synctest.Wait()
				const n = 500
				for i := range n {
					pub.say("pub g %0*d", size, i)
					healthy.expect(fmt.Sprintf("#g pub %0*d", size, i))
				}
				synctest.Wait()
				assert.Equal(t, uint64(n-13), b.balance().DroppedBy["slow"])
				for _, i := range []int{0, 1, 2} {
					frozen.expect(fmt.Sprintf("#g pub %0*d", size, i))
				}
				// One was in the writer's hands since; the others are the newest.
				var got []string
				for range 10 {
					got = append(got, frozen.hear())
				}
				assert.Equal(t, fmt.Sprintf("#g pub %0*d", size, n-1), got[9])
				assert.Equal(t, fmt.Sprintf("#g pub %0*d", size, n-2), got[8])
				synctest.Wait()
				b.balance()
			})
		})
	}
}

func TestGroupLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, &Server{}, words{limits: DialectLimits{Groups: 2}})
		p := b.as("alice")
		for _, g := range []string{"a", "b", "a", "c"} {
			p.say("join %s", g)
		}
		p.expect("no quota")
		p.say("leave a")
		p.say("join c")
		p.say("echo c x")
		p.expect("#c alice x")
	})
}

// A connection whose replies nobody reads is closed before they fill memory.
func TestControlIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, &Server{}, words{})
		p := b.dial(1)
		for range 100_000 {
			if _, err := p.Write(transport.Text, [][]byte{[]byte("x")}); err != nil {
				break
			}
		}
		_, code := p.rest()
		assert.Equal(t, uint16(transport.CloseTryLater), code)
	})
}
