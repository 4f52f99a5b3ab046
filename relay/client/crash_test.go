package client

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sotto-relay/sotto/crypto"
	"github.com/sotto-relay/sotto/inbox"
	"github.com/sotto-relay/sotto/internal/race"
)

// A reader is a program that reads letters, and is started again when it was
// killed.
type reader struct {
	t     *testing.T
	r     *rig
	id    *crypto.Identity
	state inbox.State

	mu    sync.Mutex
	got   []string // handled, without those that came again as they may
	again int
}

// live reads as a program that m is, until it is killed or ctx ends.
func (b *reader) live(ctx context.Context, m *mortal) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	m.State, m.dialer, m.died = b.state, b.r.dial, cancel
	c := b.r.client(b.id, m.config)
	defer c.Close()
	first := true
	err := c.Handle(ctx, func(_ context.Context, l *Letter) error {
		b.mu.Lock()
		defer b.mu.Unlock()
		if m.isDead() {
			return errKilled
		}
		if n := len(b.got); first && n > 0 && b.got[n-1] == l.Text() {
			b.again++ // its handler was running
		} else {
			b.got = append(b.got, l.Text())
		}
		first = false
		return nil
	})
	assert.Error(b.t, err)
}

// TestCrashes: whenever a program is killed, between any two changes of its store,
// or in one, what Send took arrives once and in order, except that the letter comes
// again that was being handled.
func TestCrashes(t *testing.T) {
	const messages = 6
	step := 1
	if race.Enabled {
		step = 5
	}
	for _, durable := range []bool{false, true} {
		for _, who := range []string{"sender", "recipient"} {
			for n := 1; ; n += step {
				reached := false
				for _, done := range []bool{false, true} {
					synctest.Test(t, func(t *testing.T) {
						name := fmt.Sprintf("durable %v, %s killed at %d, done %v", durable, who, n, done)
						r := newRig(t)
						r.dialect.Durable = durable
						r.start()
						bob := identity(t, 2)
						b := &reader{t: t, r: r, id: bob, state: inbox.NewMemoryState(nil)}
						ctx, cancel := context.WithCancel(t.Context())
						var living sync.WaitGroup
						last := new(mortal)
						killed := &mortal{left: n, done: done}
						living.Go(func() {
							if who == "recipient" {
								b.live(ctx, killed)
							}
							b.live(ctx, last)
						})
						state := inbox.NewMemoryState(nil)
						m := &mortal{State: state, dialer: r.dial}
						if who == "sender" {
							m = killed
							m.State, m.dialer = state, r.dial
						}
						a := r.client(identity(t, 1), m.config)
						var want []string
						for i := range messages {
							if m.isDead() {
								require.NoError(t, a.Close())
								m = &mortal{State: state, dialer: r.dial}
								a = r.client(identity(t, 1), m.config)
							}
							text := strconv.Itoa(i)
							_, err := a.Send(t.Context(), bob.Public(), Text(text), NoWait(), Clear())
							if err == nil || m.wroteLast() {
								want = append(want, text)
							}
							time.Sleep(time.Duration(i%2) * time.Millisecond)
						}
						time.Sleep(time.Minute)
						require.NoError(t, a.Close())
						a = r.client(identity(t, 1), func(c *Config) { c.Store = state }) // with all that was left
						time.Sleep(time.Minute)
						require.Empty(t, a.Pending(), name)
						cancel()
						living.Wait()
						require.Equal(t, want, b.got, name)
						reached = killed.isDead()
						require.LessOrEqual(t, b.again, 1)
						synctest.Wait()
						for range state.Range(t.Context(), outboxBucket+identity(t, 1).Public().String(), "") {
							t.Error("something is left in the journal: " + name)
						}
					})
				}
				if !reached {
					require.Greater(t, n, messages, "there are fewer changes than messages")
					break
				}
			}
		}
	}
}

// TestRestarts: when everybody is killed again and again, connections break, and
// letters are refused, what was taken arrives once and in order.
func TestRestarts(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	for _, durable := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			messages := few(400)
			random := rand.New(rand.NewPCG(seed, 0))
			r := newRig(t)
			r.dialect.Durable = durable
			r.start()
			r.restart()
			bob := identity(t, 2)
			b := &reader{t: t, r: r, id: bob, state: inbox.NewMemoryState(nil)}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var living sync.WaitGroup
			living.Go(func() {
				lives := rand.New(rand.NewPCG(seed, 1))
				for ctx.Err() == nil {
					m := new(mortal)
					life := time.AfterFunc(time.Duration(1+lives.IntN(3000))*time.Millisecond, m.kill)
					during, end := context.WithTimeout(ctx, 4*time.Second)
					b.live(during, m)
					end()
					life.Stop()
				}
			})
			state := inbox.NewMemoryState(nil)
			var m *mortal
			var a *Client
			start := func() {
				if a != nil {
					m.kill()
					_ = a.Close()
				}
				m = &mortal{State: state, dialer: cutting(r.dial, rand.New(rand.NewPCG(seed, random.Uint64())), 100, func() bool { return false })}
				a = r.client(identity(t, 1), m.config)
			}
			start()
			var want []string
			for i := range messages {
				text := strconv.Itoa(i)
				_, err := a.Send(t.Context(), bob.Public(), Text(text), NoWait(), Clear())
				require.NoError(t, err)
				want = append(want, text)
				switch random.IntN(40) {
				case 0:
					start()
				case 1:
					r.restart()
				case 2:
					time.Sleep(time.Duration(random.IntN(3000)) * time.Millisecond)
				}
			}
			for len(a.Pending()) > 0 {
				time.Sleep(time.Second)
			}
			time.Sleep(time.Minute)
			cancel()
			living.Wait()
			require.Equal(t, want, b.got)
		})
	}
}
