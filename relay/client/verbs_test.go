package client

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sotto-relay/sotto/frame"
	"github.com/sotto-relay/sotto/inbox"
	"github.com/sotto-relay/sotto/relay"
)

func TestVerbs(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		alice, bob := identity(t, 1), identity(t, 2)
		a, b := r.client(alice, nil), r.client(bob, nil)
		said, err := a.Capabilities(t.Context())
		require.NoError(t, err)
		require.Equal(t, "brep", said.Dialect)
		require.Equal(t, 100, said.Limits.Subscriptions)
		require.Contains(t, said.Features, "rooms")

		require.NoError(t, b.Block(t.Context(), alice.Public()))
		_, err = a.Send(t.Context(), bob.Public(), Text("x"))
		var re *RefusedError
		require.ErrorAs(t, err, &re)
		require.Equal(t, frame.CodeDenied, re.Code)
		require.NoError(t, b.Unblock(t.Context(), alice.Public()))
		require.NoError(t, b.Unblock(t.Context(), alice.Public()))
		send(t, a, bob, "y")
		require.Equal(t, "y", next(t, b).Text())

		publish(t, a, "kept", "x", Retain())
		require.NoError(t, b.Block(t.Context(), alice.Public()))
		require.NoError(t, b.Erase(t.Context()))
		require.NoError(t, a.Erase(t.Context()))
		send(t, a, bob, "not blocked")
		requireHeard(t, subscribe(t, b, "#").feed, "nothing")
	})
}

// TestAtOnce: everything by many goroutines at once, over connections that break.
func TestAtOnce(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.limits = relay.MaxLimits()
		r.start()
		var clients []*Client
		for n := range uint64(3) {
			clients = append(clients, r.client(identity(t, byte(1+n)), func(c *Config) {
				c.Dial = cutting(r.dial, rand.New(rand.NewPCG(seed, n)), 200, func() bool { return false })
				c.BackoffMax = time.Second
			}))
		}
		var working sync.WaitGroup
		for n := range 24 {
			c, random := clients[n%3], rand.New(rand.NewPCG(seed, uint64(100+n)))
			working.Go(func() {
				for i := range 20 {
					name := strconv.Itoa(random.IntN(3))
					switch random.IntN(4) {
					case 0:
						s := subscribe(t, c, name, Buffer(1))
						publish(t, c, name, "x")
						_ = heard(t, s.feed)
						s.Close()
					case 1:
						room := join(t, c, name)
						say(t, room, "x", NoWait())
						room.Leave()
					case 2:
						ctx, cancel := context.WithTimeout(t.Context(), time.Duration(random.IntN(int(time.Second))))
						_, err := c.FindMatch(ctx, fmt.Sprint(name, n, i))
						require.ErrorIs(t, err, context.DeadlineExceeded)
						cancel()
					case 3:
						_, err := c.Capabilities(t.Context())
						require.NoError(t, err)
					}
				}
			})
		}
		working.Wait()
		time.Sleep(time.Minute)
		synctest.Wait()
		for _, c := range clients {
			require.Empty(t, c.stand.feeds)
			require.Empty(t, c.stand.searches)
			require.Empty(t, c.ask.openNumbers())
			require.NoError(t, c.Close())
		}
	})
}

// TestPaceOfAll: as fast as an application asks, publishes and sends, no relay closes
// the connection for it.
func TestPaceOfAll(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		c := r.client(identity(t, 1), nil)
		start := time.Now()
		var working sync.WaitGroup
		for range 20 {
			working.Go(func() {
				for range 40 {
					_, err := c.Capabilities(t.Context())
					assert.NoError(t, err)
				}
			})
			working.Go(func() {
				for range 40 {
					publish(t, c, "a", "x", NoWait())
				}
			})
		}
		working.Wait()
		publish(t, c, "a", "x")
		require.Greater(t, time.Since(start), 8*time.Second)
		require.Equal(t, 1, r.dialled())
	})
}

// TestPublicationIsNotStored: what is published while there is no connection is not
// for the next program.
func TestPublicationIsNotStored(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		listener := r.client(identity(t, 2), nil)
		sub := subscribe(t, listener, "#")
		store := inbox.NewMemoryState(nil)
		for i := range 2 {
			c, err := New(t.Context(), &Config{
				Identity: identity(t, 1), Dial: r.dial, Store: store, StartOffline: true,
				Logger: slog.New(slog.DiscardHandler),
			})
			require.NoError(t, err)
			if i == 0 {
				r.stop() // before anything goes out
				_, err := c.Publish(t.Context(), "a", []byte("x"), NoWait())
				require.NoError(t, err)
				require.Len(t, c.Pending(), 1)
			} else {
				r.start()
				publish(t, c, "b", "y")
				require.Empty(t, c.Pending(), "the first receipt is the last")
			}
			require.NoError(t, c.Close())
		}
		requireHeard(t, sub.feed, "gap")
		require.Contains(t, []string{"b: y", "nothing"}, heard(t, sub.feed))
		requireHeard(t, sub.feed, "nothing")
	})
}
