package relay

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sotto-relay/sotto/transport"
	"github.com/stretchr/testify/assert"
)

// What a session has not acknowledged stays the relay's own.
func TestWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, &Server{Inbox: memory(), Limits: Limits{WindowMessages: 4}}, words{acks: true})
		alice, bob := b.as("alice"), b.as("bob")
		synctest.Wait()
		for i := range 10 {
			alice.say("send bob %d", i)
		}
		synctest.Wait()
		bob.expect("alice 0", "alice 1", "alice 2", "alice 3")
		bob.silent()
		bob.say("control")
		bob.expect("what?") // passes a full window
		st := b.balance()
		assert.Equal(t, int64(10), st.Held)
		assert.Zero(t, st.Delivered)

		bob.say("ack alice 0") // a quarter is free
		bob.expect("alice 4")
		bob.say("ack alice 2") // not in order
		bob.say("ack alice 2")
		bob.say("ack carol 3") // not hers
		bob.expect("alice 5")
		bob.silent()
		assert.Equal(t, uint64(2), b.balance().Delivered)
		_ = bob.Close(1000, "")
		synctest.Wait()
		alice.say("send bob later")
		alice.expect("stored")

		bob = b.as("bob")
		bob.expect("alice 1", "alice 3", "alice 4", "alice 5")
		for _, id := range []string{"1", "3", "4", "5"} {
			bob.say("ack alice %s", id)
		}
		bob.expect("alice 6", "alice 7", "alice 8", "alice 9")
		for _, id := range []string{"6", "7", "8", "9"} {
			bob.say("ack alice %s", id)
		}
		bob.expect("alice later")
		bob.say("ack alice later")
		synctest.Wait()
		st = b.balance()
		assert.Zero(t, st.Held)
		assert.Equal(t, uint64(11), st.Delivered)
	})
}

// A message that comes live while its entry waits to be acknowledged, since its sender
// sent it again to a relay that was started anew, keeps the entry's place.
func TestWindowOfRepeats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, &Server{Inbox: memory()}, words{acks: true})
		alice := b.as("alice")
		for _, id := range []string{"1", "2", "3"} {
			alice.say("send bob %s", id)
			alice.expect("stored")
		}
		bob := b.as("bob")
		bob.expect("alice 1", "alice 2", "alice 3")
		synctest.Wait()
		for _, id := range []string{"1", "2"} {
			alice.say("send bob %s", id)
			bob.expect("alice " + id)
			bob.say("ack alice %s", id) // the repeat
		}
		synctest.Wait()
		b.balance()
		_ = bob.Close(1000, "")
		synctest.Wait()
		bob = b.as("bob")
		for _, id := range []string{"1", "2", "3"} {
			bob.expect("alice " + id)
			bob.say("ack alice %s", id)
		}
		synctest.Wait()
		assert.Zero(t, b.balance().Held)
	})
}

// Likewise where the relay has forgotten it, and it was stored since it had not been
// acknowledged for too long.
func TestWindowOfForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, &Server{Inbox: memory()}, words{acks: true, settled: func(Receipt) {}})
		alice, bob := b.as("alice"), b.as("bob")
		synctest.Wait()
		for _, id := range []string{"1", "2"} {
			alice.say("send bob %s", id)
			bob.expect("alice " + id)
		}
		time.Sleep(time.Minute)
		alice.say("send bob 1")
		bob.expect("alice 1")
		bob.say("ack alice 1") // the repeat
		synctest.Wait()
		b.balance()
		_ = bob.Close(1000, "")
		synctest.Wait()
		bob = b.as("bob")
		for _, id := range []string{"1", "2"} {
			bob.expect("alice " + id)
			bob.say("ack alice %s", id)
		}
		bob.silent()
		assert.Zero(t, b.balance().Held)
	})
}

// What needs no acknowledgement is not held up.
func TestWindowOfOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, &Server{Limits: Limits{WindowMessages: 4}}, words{acks: true})
		alice, bob := b.as("alice"), b.as("bob")
		for i := range 20 {
			alice.say("once bob %d", i)
		}
		for i := range 20 {
			bob.expect("alice " + itoa(i))
		}
		synctest.Wait()
		assert.Zero(t, b.balance().Held)
	})
}

// One message that is not acknowledged holds none of the others' memory.
func TestWindowHoldsNoMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, &Server{}, words{acks: true})
		alice, bob := b.as("alice"), b.as("bob")
		alice.say("send bob held")
		bob.expect("alice held")
		for i := range 1000 {
			alice.say("send bob %d", i)
			bob.expect("alice " + itoa(i))
			bob.say("ack alice %d", i)
		}
		synctest.Wait()
		for _, p := range b.allPorts() {
			if p.Address().Name == "bob" {
				assert.Len(t, p.out.window.batches, 1)
			}
		}
		assert.Equal(t, int64(1), b.balance().Held)
	})
}

// A drain waits for the acknowledgements that are on their way, and not long for
// those that are not.
func TestDrainAwaitsAcknowledgements(t *testing.T) {
	for name, acks := range map[string]bool{"healthy": true, "frozen": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, &Server{Inbox: memory()}, words{acks: true})
				alice, bob := b.as("alice"), b.as("bob")
				synctest.Wait()
				alice.say("send bob x")
				bob.expect("alice x")
				synctest.Wait() // the relay knows that it is written
				start := time.Now()
				if acks {
					time.AfterFunc(300*time.Millisecond, func() { bob.say("ack alice x") })
				}
				ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
				defer cancel()
				assert.NoError(t, b.Shutdown(ctx))
				st := b.balance()
				if acks {
					assert.Equal(t, 300*time.Millisecond, time.Since(start))
					assert.Zero(t, st.Held)
				} else {
					assert.Equal(t, time.Second, time.Since(start))
					assert.Equal(t, int64(1), st.Held)
				}
			})
		})
	}
}

// Bytes bound the window too, and a message larger than it passes alone.
func TestWindowBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, &Server{Limits: Limits{WindowBytes: 100}}, words{acks: true})
		alice, bob := b.as("alice"), b.as("bob")
		for i := range 3 {
			alice.say("send bob %d%0200d", i, 0)
		}
		for i := range 3 {
			assert.True(t, strings.HasPrefix(bob.hear(), fmt.Sprint("alice ", i)))
			bob.silent()
			bob.say("ack alice %d%0200d", i, 0)
		}
		synctest.Wait()
		assert.Zero(t, b.balance().Held)
	})
}

// Acknowledgements do not count against the rate, as many as there are messages.
func TestAcknowledgementsAreFree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, &Server{Limits: Limits{Dialects: map[string]DialectLimits{}}},
			words{acks: true, limits: DialectLimits{MessageRate: 1e-3, MessageBurst: 52}})
		alice, bob := b.as("alice"), b.as("bob")
		for i := range 50 {
			alice.say("send bob %d", i)
			bob.expect("alice " + itoa(i))
			bob.say("ack alice %d", i)
		}
		bob.say("control")
		bob.expect("what?")
		for range 60 {
			_, _ = bob.Write(transport.Text, [][]byte{[]byte("ack alice 1")})
		}
		said, code := bob.rest()
		assert.Equal(t, []string{"bye rate-limited"}, said)
		assert.Equal(t, uint16(transport.ClosePolicy), code)
	})
}

// Sessions that acknowledge are cut at any moment, with what is on the way to
// them lost. Everything arrives, and without its repeats in order.
func TestNothingLostUnacknowledged(t *testing.T) {
	for round := range 30 {
		t.Run(fmt.Sprint(round), func(t *testing.T) { testUnacknowledged(t, random(t)) })
	}
}

func testUnacknowledged(t *testing.T, r *rand.Rand) {
	synctest.Test(t, func(t *testing.T) {
		const senders, each = 3, 200
		store := &lateStore{Store: memory(), late: func() { time.Sleep(rand.N(5 * time.Millisecond)) }}
		b := newBench(t, &Server{Inbox: store, Limits: Limits{
			OutboxMessages: 1 + r.IntN(10), FlushBytes: 1 + r.IntN(100), WindowMessages: 1 + r.IntN(20),
			TakeoverBurst: 1000,
		}}, words{acks: true, settled: func(Receipt) {}})

		var mu sync.Mutex
		next := make(map[string]int) // by sender
		var wg sync.WaitGroup
		read := func(p peer, rest time.Duration) {
			defer wg.Done()
			for {
				_, msg, err := p.Read()
				if err != nil {
					return
				}
				var from string
				var n int
				if _, err := fmt.Sscanf(string(msg), "%s %d", &from, &n); err == nil && from[0] == 's' {
					mu.Lock()
					assert.LessOrEqual(t, n, next[from], "from %s", from)
					next[from] = max(next[from], n+1)
					mu.Unlock()
					_, _ = p.Write(transport.Text, [][]byte{fmt.Appendf(nil, "ack %s %d", from, n)})
				}
				time.Sleep(rest)
			}
		}
		for i := range senders {
			p, r := b.as(fmt.Sprint("s", i)), rand.New(rand.NewPCG(r.Uint64(), 1))
			wg.Add(2)
			go read(p, 0)
			go func() {
				defer wg.Done()
				for n := range each {
					p.say("send bob %d", n)
					if r.IntN(3) == 0 {
						time.Sleep(time.Duration(r.IntN(20)) * time.Millisecond)
					}
				}
				time.Sleep(time.Hour)
				_ = p.Close(1000, "")
			}()
		}
		login := func(room int, rest time.Duration) peer {
			p := b.dial(room)
			p.say("claim bob")
			wg.Add(1)
			go read(p, rest)
			return p
		}
		for range 20 {
			p := login(1+r.IntN(5), time.Duration(r.IntN(3))*time.Millisecond)
			time.Sleep(time.Duration(r.IntN(100)) * time.Millisecond)
			switch r.IntN(3) {
			case 0:
				_ = p.Close(1000, "") // what is in the pipe is lost
				time.Sleep(time.Duration(r.IntN(50)) * time.Millisecond)
			case 1:
				_, _ = p.Write(transport.Text, [][]byte{[]byte("quit")})
			}
		}
		login(100, 0)
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		st := b.balance()
		assert.Zero(t, st.Held, "%+v", st)
		mu.Lock()
		for i := range senders {
			assert.Equal(t, each, next[fmt.Sprint("s", i)])
		}
		mu.Unlock()
		_ = b.Close()
		wg.Wait()
		assert.Zero(t, leftSeats(b.Server))
	})
}

// A message that is not acknowledged holds up none of those behind it, also when
// some had to go to the inbox, and goes back before them when the session ends.
func TestSpillBesideUnacknowledged(t *testing.T) {
	for name, lim := range map[string]Limits{
		"spilled":     {OutboxMessages: 4},
		"stored late": {OutboxMessages: 4, AckTimeout: time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := &lateStore{Store: memory(), late: func() { time.Sleep(5 * time.Millisecond) }}
				b := newBench(t, &Server{Inbox: store, Limits: lim}, words{acks: true, settled: func(Receipt) {}})
				alice, bob := b.as("alice"), b.as("bob")
				synctest.Wait()
				alice.say("send bob held")
				bob.expect("alice held")
				time.Sleep(10 * time.Millisecond)
				for round := range 3 {
					for i := range 20 {
						alice.say("send bob %d", 20*round+i)
					}
					time.Sleep(time.Second) // nothing is read: it spills
					for i := range 20 {
						bob.expect("alice " + itoa(20*round+i))
						bob.say("ack alice %d", 20*round+i)
					}
					synctest.Wait()
					time.Sleep(time.Second)
					assert.Equal(t, int64(1), b.balance().Held)
				}
				for i := range 20 {
					alice.say("send bob late %d", i)
				}
				time.Sleep(time.Second)
				bob.expect("alice late 0")
				_ = bob.Close(1000, "")
				synctest.Wait()
				bob = b.as("bob")
				bob.expect("alice held")
				bob.say("ack alice held")
				for i := range 20 {
					bob.expect(fmt.Sprint("alice late ", i))
					bob.say("ack alice late %d", i)
				}
				bob.silent()
				st := b.balance()
				assert.Zero(t, st.Held)
				assert.Equal(t, uint64(81), st.Delivered)
			})
		})
	}
}
