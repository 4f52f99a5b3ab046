package client

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sotto-relay/sotto/crypto"
	"github.com/sotto-relay/sotto/frame"
	"github.com/sotto-relay/sotto/inbox"
	"github.com/sotto-relay/sotto/relay/dialect/brep"
)

// byHand is a brep.Client, and the relay's rig has it cut by nobody.
func (r *rig) byHand(id *crypto.Identity) *brep.Client {
	conn, err := r.dial(r.t.Context())
	require.NoError(r.t, err)
	c, err := brep.Connect(r.t.Context(), conn, &brep.ClientOptions{Identity: id, ManualAck: true})
	require.NoError(r.t, err)
	return c
}

// TestBadAcks: who acknowledges without a valid signature holds up nobody's outbox,
// also after a reconnect, when the relay answers with nothing but that.
func TestBadAcks(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		alice, bob, mallory := identity(t, 1), identity(t, 2), identity(t, 3)
		m := r.byHand(mallory)
		var running sync.WaitGroup
		running.Go(func() {
			for {
				f, err := m.Receive()
				if err != nil {
					return
				}
				if isLetter(f.Type) {
					a := frame.Ack{Sender: f.Sender, ID: f.ID, Signature: [64]byte{1}}
					_ = m.Send(context.Background(), &frame.Brep{Type: frame.TypeAck, Payload: a.Append(nil)})
				}
			}
		})
		bad := 0
		const most = 8
		a := r.client(alice, func(c *Config) {
			c.PendingMessages = most
			c.Trace = &Trace{BadReceipt: func(crypto.PublicKey, [16]byte) { bad++ }}
		})
		for i := range most {
			send(t, a, mallory, strconv.Itoa(i))
		}
		time.Sleep(time.Second)
		r.mu.Lock()
		_ = r.conns[1].Close(0, "")
		r.mu.Unlock()
		time.Sleep(time.Minute)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err := a.Send(ctx, bob.Public(), Text("x"))
		require.NoError(t, err)
		require.Len(t, a.Pending(), most+1, "they are not safe, and sent again")
		_, _ = m.Close(), a.Close()
		running.Wait()
		require.Equal(t, 2*most, bad)
	})
}

// TestStoredElsewhere: what a relay that was not durable had stored is not safe with
// a durable one that has only handed it over.
func TestStoredElsewhere(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		alice, bob := identity(t, 1), identity(t, 2)
		a := r.client(alice, nil)
		require.Equal(t, Stored, send(t, a, bob, "x").Status)
		r.stop()
		r.store, r.dialect.Durable = inbox.NewMemory(nil), true
		r.start()
		b := r.byHand(bob)
		_, err := b.Receive()
		require.NoError(t, err)
		time.Sleep(time.Second)
		require.Len(t, a.Pending(), 1)
		_ = b.Close()
		time.Sleep(time.Second)
		require.Empty(t, a.Pending(), "it has gone back to the inbox")
	})
}

// A hungState changes nothing, and says so when the time is up.
type hungState struct {
	inbox.State
	hung, hungPuts atomic.Bool
}

func (s *hungState) Put(ctx context.Context, bucket, key string, value []byte) error {
	if s.hungPuts.Load() {
		<-ctx.Done()
		return ctx.Err()
	}
	return s.State.Put(ctx, bucket, key, value)
}

func (s *hungState) Delete(ctx context.Context, bucket, key string) error {
	if s.hung.Load() {
		<-ctx.Done()
		return ctx.Err()
	}
	return s.State.Delete(ctx, bucket, key)
}

// TestCloseWithHungStore: storeTime bounds the end, however much is to be deleted.
func TestCloseWithHungStore(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		s := &hungState{State: inbox.NewMemoryState(nil)}
		r.dialect.Durable = true
		a := r.client(identity(t, 1), func(c *Config) { c.Store = s })
		s.hung.Store(true)
		for i := range 10 * writtenTogether {
			send(t, a, identity(t, 2), strconv.Itoa(i))
		}
		start := time.Now()
		require.NoError(t, a.Close())
		require.LessOrEqual(t, time.Since(start), storeTime+time.Second)
	})
}

// TestSendWithHungStore: Send returns after Close, also if it waits for the Store.
func TestSendWithHungStore(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		s := &hungState{State: inbox.NewMemoryState(nil)}
		a := r.client(identity(t, 1), func(c *Config) { c.Store = s })
		s.hungPuts.Store(true)
		for _, o := range [][]SendOption{nil, {NoWait()}} {
			sent := make(chan error, 1)
			go func() {
				_, err := a.Send(context.Background(), identity(t, 2).Public(), Text("x"), o...)
				sent <- err
			}()
			defer func() {
				select {
				case err := <-sent:
					require.ErrorIs(t, err, ErrClosed)
				case <-time.After(time.Minute):
					t.Fatal("it waits")
				}
			}()
		}
		time.Sleep(time.Second)
		require.NoError(t, a.Close())
	})
}

// TestCrewAfterError: the letter of an error is for nobody of the same Handle, not
// even for one that was about to take.
func TestCrewAfterError(t *testing.T) {
	for range 1000 {
		c := &Client{in: newInbound(1)}
		c.in.queue = []*arrival{{letter: new(Letter)}}
		var calls atomic.Int64
		err := c.Handle(t.Context(), func(context.Context, *Letter) error {
			calls.Add(1)
			return errors.New("no")
		}, Concurrently(8))
		require.EqualError(t, err, "no")
		require.EqualValues(t, 1, calls.Load())
	}
}
