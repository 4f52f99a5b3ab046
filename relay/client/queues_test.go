package client

import (
	"context"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sotto-relay/sotto/frame"
	"github.com/sotto-relay/sotto/transport/pipe"
)

// TestOutboxBounds: what is settled makes room.
func TestOutboxBounds(t *testing.T) {
	message := func(id byte, size int) *pending {
		return &pending{
			frame:   frame.Brep{ID: [16]byte{id}, Payload: make([]byte, size)},
			awaited: true, settled: make(chan struct{}),
		}
	}
	o := newOutbox(load{3, 1000}, load{3, 1000}, nil)
	for id := range byte(20) {
		for _, p := range []*pending{message(id, 300), message(id+100, 300)} { // 840 bytes
			full, err := o.add(p)
			require.NoError(t, err)
			require.Nil(t, full)
		}
		full, err := o.add(message(200, 300))
		require.NoError(t, err)
		require.NotNil(t, full)
		o.receive([16]byte{id}, Read)
		<-full
		o.receive([16]byte{id + 100}, Read)
	}
}

// TestInboundBounds: letters and their bytes count, and what is taken does not.
func TestInboundBounds(t *testing.T) {
	for _, size := range []int{1, 1 << 20, 4 << 20} {
		q := newInbound(10)
		data := make([]byte, size)
		fill := func(mayDrop bool, until func() bool) (n int) {
			for ; !until(); n++ {
				if !q.add(&arrival{letter: &Letter{Data: data}}, mayDrop) {
					return n
				}
			}
			return n
		}
		for range 2 {
			dropped := fill(true, q.isFull)
			require.Equal(t, min(windowLetters, windowBytes/size), dropped)
			all := dropped + fill(false, q.isFull)
			require.Equal(t, min(2*windowLetters, 3*windowBytes/size)+1, all)
			for range all {
				_, err := q.take(t.Context(), nil)
				require.NoError(t, err)
			}
		}
	}
}

// TestTake: all who wait get a letter when there are as many, however they came;
// and none after the end of the context.
func TestTake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newInbound(10)
		for range 1000 {
			var taking sync.WaitGroup
			for range 3 {
				taking.Go(func() {
					_, err := q.take(t.Context(), nil)
					assert.NoError(t, err)
				})
			}
			for range 3 {
				q.add(&arrival{letter: new(Letter)}, false)
			}
			taking.Wait()
		}
		q.add(&arrival{letter: new(Letter)}, false)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := q.take(ctx, nil)
		require.ErrorIs(t, err, context.Canceled)
	})
}

// TestWithdrawn: messages whose context ends while they wait for their turn are
// not sent, and those behind them are.
func TestWithdrawn(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		bob := identity(t, 2)
		b := r.client(bob, nil)
		a := r.client(identity(t, 1), func(c *Config) { c.MessageRate, c.MessageBurst = 1, 1 })
		send(t, a, bob, "first")
		var sending sync.WaitGroup
		for i := range 2 { // one has its turn next, one waits behind it
			sending.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
				defer cancel()
				_, err := a.Send(ctx, bob.Public(), Text(strconv.Itoa(i)))
				assert.ErrorIs(t, err, context.DeadlineExceeded)
			})
			synctest.Wait()
		}
		sending.Wait()
		send(t, a, bob, "last")
		require.Equal(t, "first", next(t, b).Text())
		require.Equal(t, "last", next(t, b).Text())
		none(t, b)
	})
}

// TestLargeMessages pass a medium with a small read limit, and a rate with a small
// burst.
func TestLargeMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.pipes = pipe.Options{Limit: 1000}
		r.start()
		bob := identity(t, 2)
		b := r.client(bob, nil)
		a := r.client(identity(t, 1), func(c *Config) { c.ByteBurst = 1000 })
		_, err := a.Send(t.Context(), bob.Public(), Raw(make([]byte, 3<<20)), Clear())
		require.NoError(t, err)
		require.Len(t, next(t, b).Data, 3<<20)
	})
}
