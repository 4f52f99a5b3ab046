package client

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sotto-relay/sotto/crypto"
	"github.com/sotto-relay/sotto/frame"
	"github.com/sotto-relay/sotto/relay"
	"github.com/sotto-relay/sotto/relay/dialect/brep"
	"github.com/sotto-relay/sotto/transport/pipe"
)

// TestSenderCut: whenever and however often the senders' connections break, what
// they send arrives once and in order.
func TestSenderCut(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	synctest.Test(t, func(t *testing.T) {
		const senders = 3
		messages := few(400)
		random := rand.New(rand.NewPCG(seed, 0))
		r := newRig(t)
		r.limits = relay.MaxLimits()
		r.start()
		bob := identity(t, 2)
		b := r.client(bob, nil)
		var sending sync.WaitGroup
		var cuts, unsettled atomic.Int64
		for n := range senders {
			a := r.client(identity(t, byte(10+n)), func(c *Config) {
				c.Dial = cutting(r.dial, rand.New(rand.NewPCG(seed, uint64(n))), 20, func() bool { return cuts.Load() > 600 })
				c.Trace = &Trace{
					Disconnected: func(error, time.Duration) { cuts.Add(1) },
					Settled: func(_ crypto.PublicKey, _ Receipt, err error) {
						assert.NoError(t, err)
						unsettled.Add(-1)
					},
				}
			})
			noWait := random.IntN(2) == 0 || n == 0
			sending.Go(func() {
				for i := range messages {
					var o []SendOption
					if noWait {
						o = append(o, NoWait())
						unsettled.Add(1)
					}
					if i%8 != 0 { // or sealing is most of the work
						o = append(o, Clear())
					}
					_, err := a.Send(t.Context(), bob.Public(), Text(strconv.Itoa(i)), o...)
					assert.NoError(t, err)
				}
			})
		}
		want := make(map[crypto.PublicKey]int)
		for range senders * messages {
			l := next(t, b)
			require.Equal(t, strconv.Itoa(want[l.From]), l.Text())
			want[l.From]++
		}
		sending.Wait()
		for unsettled.Load() > 0 {
			none(t, b)
		}
		none(t, b)
		require.Greater(t, cuts.Load(), int64(messages/8))
		require.NotZero(t, r.server.Stats().Ignored["brep: repeat"], "the relay has kept none from the recipient")
	})
}

// TestBothCut: when the recipient's connections and the relay break too, letters
// still come exactly once and in order.
func TestBothCut(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	synctest.Test(t, func(t *testing.T) {
		const messages = 500
		r := newRig(t)
		r.limits = relay.MaxLimits()
		r.start()
		bob := identity(t, 2)
		var over atomic.Bool
		a := r.client(identity(t, 1), func(c *Config) {
			c.Dial = cutting(r.dial, rand.New(rand.NewPCG(seed, 1)), 60, over.Load)
		})
		b := r.client(bob, func(c *Config) {
			c.Dial = cutting(r.dial, rand.New(rand.NewPCG(seed, 2)), 60, over.Load)
		})
		var sending sync.WaitGroup
		sending.Go(func() {
			random := rand.New(rand.NewPCG(seed, 3))
			for i := range messages {
				send(t, a, bob, strconv.Itoa(i), Clear())
				if random.IntN(100) == 0 {
					r.stop()
					time.Sleep(time.Second)
					r.start()
				}
			}
			over.Store(true)
		})
		random := rand.New(rand.NewPCG(seed, 4))
		failed := errors.New("not taken")
		for want := 0; want < messages; {
			err := b.Handle(t.Context(), func(_ context.Context, l *Letter) error {
				require.Equal(t, strconv.Itoa(want), l.Text())
				if want == messages-1 {
					want++
					return context.Canceled
				}
				if random.IntN(20) == 0 {
					time.Sleep(time.Second)
					return failed // so it comes again
				}
				want++
				return nil
			})
			if want < messages {
				require.ErrorIs(t, err, failed)
			}
		}
		require.Equal(t, strconv.Itoa(messages-1), next(t, b).Text())
		sending.Wait()
		none(t, b)
		require.NotZero(t, b.Stats().Repeats)
	})
}

// TestHandlersSend: clients that answer every letter from where they take it, and
// wait for the receipts, do not wait for each other, with all bounds at one.
func TestHandlersSend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const balls = 7
		hits := int64(few(300))
		r := newRig(t)
		r.limits = relay.MaxLimits()
		r.limits.WindowMessages = 1
		r.pipes = pipe.Options{Messages: 1}
		r.start()
		tiny := func(c *Config) {
			c.PendingMessages = 1
			c.MessageRate, c.MessageBurst = 1e6, 1e6
		}
		ids := []*crypto.Identity{identity(t, 1), identity(t, 2)}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var count atomic.Int64
		var playing sync.WaitGroup
		clients := []*Client{r.client(ids[0], tiny), r.client(ids[1], tiny)}
		for _, c := range clients {
			playing.Go(func() {
				err := c.Handle(ctx, func(ctx context.Context, l *Letter) error {
					if count.Add(1) == hits {
						cancel()
					}
					_, err := c.Send(ctx, l.From, Raw(l.Data))
					return err
				})
				assert.ErrorIs(t, err, context.Canceled)
			})
		}
		for i := range balls {
			send(t, clients[i%2], ids[1-i%2], fmt.Sprint("ball ", i))
		}
		playing.Wait()
	})
}

// TestUnread: an application that takes no letters can send, holds no more of them
// than the relay's window, and gets all of them when it begins.
func TestUnread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.limits = relay.MaxLimits()
		r.start()
		alice, bob := identity(t, 1), identity(t, 2)
		a, b := r.client(alice, nil), r.client(bob, nil)
		const letters = 3 * windowLetters
		for i := range letters {
			send(t, a, bob, strconv.Itoa(i), Clear())
		}
		time.Sleep(time.Second)
		require.EqualValues(t, windowLetters, b.Stats().Letters)
		for range 20 {
			send(t, b, alice, "x")
		}
		require.EqualValues(t, windowLetters, b.Stats().Letters)
		for i := range letters {
			require.Equal(t, strconv.Itoa(i), next(t, b).Text())
		}
		require.Equal(t, Stats{Letters: letters}, b.Stats())
		require.Equal(t, 2, r.dialled())
	})
}

// TestRoom: letters that the relay does not keep do not hold up the others, nor
// receipts, when nobody takes them.
func TestRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		alice, self := identity(t, 1), identity(t, 1)
		r := &fakeRelay{t: t, seed: relaySeed, script: func(c *fakeConn) {
			for i := range 2 * windowLetters {
				f := inClear(alice, self, []byte("ephemeral"))
				f.ID, f.Flags = [16]byte{1, byte(i), byte(i >> 8)}, frame.FlagEphemeral
				c.write(f)
			}
			for i := range windowLetters {
				f := inClear(alice, self, []byte("kept"))
				f.ID = [16]byte{2, byte(i), byte(i >> 8)}
				c.write(f)
			}
			f, err := c.read()
			require.NoError(t, err)
			c.receipt(&frame.Receipt{ID: f.ID, Status: frame.ReceiptStored})
			c.hold()
		}}
		c, err := r.client(nil)
		require.NoError(t, err)
		send(t, c, identity(t, 2), "x")
		require.Equal(t, Stats{Letters: 2 * windowLetters, Dropped: windowLetters}, c.Stats())
		for i := range 2 * windowLetters {
			want := "ephemeral"
			if i >= windowLetters {
				want = "kept"
			}
			require.Equal(t, want, next(t, c).Text())
		}
	})
}

// TestSlowApplication: one that takes no letters for long keeps its connection,
// also on a medium where the relay listens for signs of life.
func TestSlowApplication(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.limits.WindowMessages = 2
		r.dialect.PingInterval = 30 * time.Second
		r.start()
		alice, bob := identity(t, 1), identity(t, 2)
		a, b := r.client(alice, nil), r.client(bob, nil)
		for i := range 5 {
			send(t, a, bob, strconv.Itoa(i))
		}
		time.Sleep(30 * time.Minute)
		for i := range 5 {
			require.Equal(t, strconv.Itoa(i), next(t, b).Text())
		}
		time.Sleep(time.Minute)
		send(t, b, alice, "back")
		require.Equal(t, 2, r.dialled())
	})
}

// TestConsumers: each letter goes to one of several loops.
func TestConsumers(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		bob := identity(t, 2)
		a, b := r.client(identity(t, 1), nil), r.client(bob, nil)
		const loops, letters = 4, 200
		got := make(chan string, letters+1)
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		for range loops {
			running.Go(func() {
				assert.ErrorIs(t, b.Handle(ctx, func(_ context.Context, l *Letter) error {
					got <- l.Text()
					return nil
				}), context.Canceled)
			})
		}
		for i := range letters {
			send(t, a, bob, strconv.Itoa(i), NoWait())
		}
		seen := make(map[string]bool)
		for range letters {
			seen[<-got] = true
		}
		require.Len(t, seen, letters)
		cancel()
		running.Wait()
		require.Empty(t, got)

		stop := errors.New("enough")
		send(t, a, bob, "one")
		send(t, a, bob, "two")
		require.ErrorIs(t, b.Handle(t.Context(), func(context.Context, *Letter) error { return stop }), stop)
		require.Equal(t, "one", next(t, b).Text())
		require.Equal(t, "two", next(t, b).Text())
	})
}

// TestClose: Close in the middle of everything returns soon, ends what waits, and
// tells which messages have no receipt. TestMain finds what it left behind.
func TestClose(t *testing.T) {
	silent := func(c *fakeConn) { c.hold() }
	for _, o := range []struct {
		name   string
		script func(*fakeConn)
	}{
		{"without an answer", silent},
		{"flooded", func(c *fakeConn) {
			f := inClear(identity(c.t, 9), identity(c.t, 1), make([]byte, 1000))
			for n := uint32(1); ; n++ { // without a window
				binary.BigEndian.PutUint32(f.ID[:], n)
				if _, err := c.Write(0, [][]byte{f.Append(nil)}); err != nil {
					return
				}
			}
		}},
		{"while it breaks", func(c *fakeConn) { time.Sleep(time.Millisecond) }},
	} {
		t.Run(o.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := &fakeRelay{t: t, seed: relaySeed, script: o.script}
				var unsettled atomic.Int64
				c, err := r.client(func(c *Config) {
					c.PendingMessages = 4
					c.Trace = &Trace{Settled: func(_ crypto.PublicKey, _ Receipt, err error) {
						assert.ErrorIs(t, err, ErrClosed)
						unsettled.Add(1)
					}}
				})
				require.NoError(t, err)
				bob := identity(t, 2).Public()
				for range 2 {
					_, err := c.Send(t.Context(), bob, Text("x"), NoWait())
					require.NoError(t, err)
				}
				var waiting sync.WaitGroup
				for range 5 { // for receipts, and for room
					waiting.Go(func() {
						_, err := c.Send(t.Context(), bob, Text("x"))
						assert.ErrorIs(t, err, ErrClosed)
					})
				}
				time.Sleep(time.Second)
				start := time.Now()
				for range 3 {
					waiting.Go(func() { assert.NoError(t, c.Close()) })
				}
				waiting.Go(func() {
					assert.NoError(t, c.Close())
					select {
					case <-c.done:
					default:
						assert.Fail(t, "Close did not wait")
					}
				})
				waiting.Go(func() {
					for l, err := range c.Messages(t.Context()) {
						if l == nil {
							assert.ErrorIs(t, err, ErrClosed)
						}
					}
				})
				waiting.Wait()
				require.LessOrEqual(t, time.Since(start), 2*time.Second)
				require.Equal(t, int64(2), unsettled.Load())
				require.ErrorIs(t, c.Err(), ErrClosed)
				require.NoError(t, c.Close())
				_, err = c.Send(t.Context(), bob, Text("x"))
				require.ErrorIs(t, err, ErrClosed)
			})
		})
	}
}

// TestCloseInHandler: a handler may close the Client.
func TestCloseInHandler(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		bob := identity(t, 2)
		b := r.client(bob, nil)
		send(t, r.client(identity(t, 1), nil), bob, "stop")
		require.ErrorIs(t, b.Handle(t.Context(), func(context.Context, *Letter) error { return b.Close() }), ErrClosed)
	})
}

// TestAllocs pins what a letter costs on the way in, beside its cryptography.
func TestAllocs(t *testing.T) {
	self := identity(t, 1)
	r := newRig(t).start()
	conn, err := r.dial(t.Context())
	require.NoError(t, err)
	s, err := brep.Connect(t.Context(), conn, &brep.ClientOptions{Identity: self, ManualAck: true})
	require.NoError(t, err)
	require.NoError(t, s.Close()) // so that nothing is written, which is brep's to count
	c := newClient(Config{Identity: self}.withDefaults())
	require.NoError(t, c.openKeys(t.Context()))
	defer c.kill()
	f := inClear(identity(t, 2), self, []byte("hello"))
	n := uint64(0)
	got := testing.AllocsPerRun(1000, func() {
		n++
		f.ID = [16]byte{byte(n), byte(n >> 8)}
		c.receive(s, f)
		require.NoError(t, c.hand(t.Context(), nil, func(*Letter) error { return nil }))
	})
	require.LessOrEqual(t, got, 5.0, "the letter, its data, its arrival, the queue, what is remembered")
	f.ID = [16]byte{1}
	require.Zero(t, testing.AllocsPerRun(1000, func() { c.receive(s, f) }), "a repeat")
}

// BenchmarkRoundTrip is one sealed message from one client to another, through a
// relay over pipes, after the other.
func BenchmarkRoundTrip(b *testing.B) {
	for _, size := range []int{128, 4096} {
		b.Run(strconv.Itoa(size), func(b *testing.B) {
			a, bob, key := benchClients(b)
			data := Raw(make([]byte, size))
			b.SetBytes(int64(size))
			b.ReportAllocs()
			for b.Loop() {
				_, err := a.Send(b.Context(), key, data)
				require.NoError(b, err)
				next(b, bob)
			}
		})
	}
}

// BenchmarkStream is the same with NoWait.
func BenchmarkStream(b *testing.B) {
	a, bob, key := benchClients(b)
	data := Raw(make([]byte, 128))
	b.SetBytes(128)
	b.ReportAllocs()
	go func() {
		for range b.N {
			if _, err := a.Send(b.Context(), key, data, NoWait()); err != nil {
				return
			}
		}
	}()
	for range b.N {
		next(b, bob)
	}
}

func benchClients(b *testing.B) (from, to *Client, key crypto.PublicKey) {
	r := newRig(b)
	r.limits = relay.MaxLimits()
	r.start()
	fast := func(c *Config) {
		c.MessageRate, c.MessageBurst, c.ByteRate, c.ByteBurst = 1e9, 1e9, 1e12, 1<<30
	}
	id := identity(b, 2)
	return r.client(identity(b, 1), fast), r.client(id, fast), id.Public()
}
