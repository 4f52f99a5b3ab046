package client

import (
	"bytes"
	"context"
	"errors"
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
	"github.com/sotto-relay/sotto/inbox"
)

// A slowState is durable after a while, and counts.
type slowState struct {
	inbox.State
	puts, deletes, failures atomic.Int64
	fail                    atomic.Bool
}

var errDisk = errors.New("disk on fire")

func (s *slowState) wait(n *atomic.Int64) error {
	n.Add(1)
	time.Sleep(time.Millisecond)
	if s.fail.Load() {
		s.failures.Add(1)
		return errDisk
	}
	return nil
}

func (s *slowState) Put(ctx context.Context, bucket, key string, value []byte) error {
	if err := s.wait(&s.puts); err != nil {
		return err
	}
	return s.State.Put(ctx, bucket, key, value)
}

func (s *slowState) Delete(ctx context.Context, bucket, key string) error {
	if err := s.wait(&s.deletes); err != nil {
		return err
	}
	return s.State.Delete(ctx, bucket, key)
}

func newSlowState() *slowState { return &slowState{State: inbox.NewMemoryState(nil)} }

// keys returns the keys of a bucket.
func keys(t *testing.T, s inbox.State, bucket string, id *crypto.Identity) (all []string) {
	t.Helper()
	for it, err := range s.Range(t.Context(), bucket+id.Public().String(), "") {
		require.NoError(t, err)
		all = append(all, it.Key)
	}
	return all
}

// TestJournalWhileOffline: a program that never had a connection leaves its messages
// to the next one, which sends the same, in order, and tells what became of them; but
// not what is ephemeral, was cancelled, or had an error.
func TestJournalWhileOffline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		alice, bob := identity(t, 1), identity(t, 2)
		store := newSlowState()
		ended := 0
		unsettled := func(to crypto.PublicKey, r Receipt, err error) {
			require.ErrorIs(t, err, ErrClosed)
			require.Zero(t, r.Status)
			ended++
		}
		a := r.client(alice, func(c *Config) {
			c.StartOffline, c.Store = true, store
			c.Trace = &Trace{Settled: unsettled}
		})
		first := send(t, a, bob, "first", NoWait())
		send(t, a, bob, "ephemeral", NoWait(), Ephemeral())
		withdrawn, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := a.Send(withdrawn, bob.Public(), Text("given up"))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		waiting := make(chan error, 1)
		go func() {
			_, err := a.Send(t.Context(), bob.Public(), Text("second"), Until(Stored))
			waiting <- err
		}()
		time.Sleep(time.Second)
		third := send(t, a, bob, "third", NoWait())
		before := a.Pending()
		require.NoError(t, a.Close())
		require.ErrorIs(t, <-waiting, ErrClosed)
		require.Equal(t, 1, ended, "the ephemeral one; the others have not")
		require.Len(t, keys(t, store, outboxBucket, alice), 3)

		store.fail.Store(true)
		failing := r.client(alice, func(c *Config) { c.StartOffline, c.Store = true, store })
		_, err = failing.Send(t.Context(), bob.Public(), Text("not taken"), NoWait())
		require.ErrorIs(t, err, errDisk)
		require.Len(t, failing.Pending(), 3)
		require.NoError(t, failing.Close())
		store.fail.Store(false)

		r.start()
		ends := make(chan Receipt, 9)
		a = r.client(alice, func(c *Config) {
			c.Store = store
			c.Trace = &Trace{Settled: func(to crypto.PublicKey, r Receipt, err error) {
				require.Equal(t, bob.Public(), to)
				require.NoError(t, err)
				ends <- r
			}}
		})
		for i, want := range []Receipt{{first.ID, Stored}, {before[2].ID, Stored}, {third.ID, Stored}} {
			require.Equal(t, want, <-ends, i)
		}
		b := r.client(bob, nil)
		for _, want := range []string{"first", "second", "third"} {
			l := next(t, b)
			require.Equal(t, want, l.Text())
			require.Equal(t, ProtectionSealed, l.Protection)
		}
		none(t, b)
		require.Empty(t, keys(t, store, outboxBucket, alice))
	})
}

// TestJournalDamage: what is no entry of ours is told, and deleted.
func TestJournalDamage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		alice, bob := identity(t, 1), identity(t, 2)
		store := inbox.NewMemoryState(nil)
		offline := func(c *Config) { c.StartOffline, c.Store = true, store }
		a := r.client(alice, offline)
		send(t, a, bob, "good", NoWait())
		require.NoError(t, a.Close())
		key := keys(t, store, outboxBucket, alice)[0]
		outbox, seen := outboxBucket+alice.Public().String(), seenBucket+alice.Public().String()
		good, _, err := store.Get(t.Context(), outbox, key)
		require.NoError(t, err)
		bad := 0
		put := func(bucket, key string, value []byte) {
			bad++
			require.NoError(t, store.Put(t.Context(), bucket, key, value))
		}
		at := func(i int, b byte) []byte {
			value := bytes.Clone(good)
			value[i] = b
			return value
		}
		put(outbox, "short", good)
		put(outbox, journalKey(0), good)
		put(outbox, journalKey(10), nil)
		put(outbox, journalKey(11), good[:journalHead])
		put(outbox, journalKey(12), good[:len(good)-1])
		put(outbox, journalKey(13), at(0, 2))
		put(outbox, journalKey(14), at(41, byte(Written)))
		put(outbox, journalKey(15), at(41, byte(Read)+1))
		put(outbox, journalKey(16), at(journalHead+1, byte(frame.TypeAck)))
		put(outbox, journalKey(17), at(journalHead+3, frame.FlagEphemeral|frame.FlagReceipt))
		put(outbox, journalKey(18), at(journalHead+24, 7)) // the sender
		put(seen, "short", make([]byte, letterKeySize))
		put(seen, journalKey(1), nil)
		put(seen, journalKey(2), make([]byte, letterKeySize-1))
		told := 0
		a = r.client(alice, func(c *Config) {
			offline(c)
			c.Trace = &Trace{StoreFailed: func(err error) {
				require.ErrorIs(t, err, errStored)
				told++
			}}
		})
		require.Equal(t, bad, told)
		require.Len(t, a.Pending(), 1)
		require.Equal(t, []string{key}, keys(t, store, outboxBucket, alice))
		require.Empty(t, keys(t, store, seenBucket, alice))

		require.NoError(t, store.Close())
		_, err = New(t.Context(), &Config{Identity: bob, Dial: r.dial, Store: store})
		require.ErrorIs(t, err, inbox.ErrClosed)
	})
}

// FuzzJournal: what is taken from a store is what would be put there.
func FuzzJournal(f *testing.F) {
	id := identity(f, 1)
	c := newClient(Config{Identity: id}.withDefaults())
	defer c.kill()
	require.NoError(f, c.openKeys(context.Background()))
	for _, o := range []sendOptions{{}, {frameType: frame.TypeData, until: Read}, {frameType: frame.TypeSignedData}} {
		p, err := c.prepare(context.Background(), identity(f, 2).Public(), Text("hello"), o)
		require.NoError(f, err)
		f.Add(journalKey(1), encodePending(p))
	}
	f.Fuzz(func(t *testing.T, key string, value []byte) {
		p, err := decodePending(inbox.Item{Key: key, Value: value}, id.Public())
		if err != nil {
			return
		}
		require.Equal(t, key, journalKey(p.number))
		require.Equal(t, value, encodePending(p))
	})
}

// TestSeenStore: a letter that was taken does not come again to the next program, for
// 14 days, nor do more stay recorded than Remembered.
func TestSeenStore(t *testing.T) {
	alice, self := identity(t, 2), identity(t, 1)
	synctest.Test(t, func(t *testing.T) {
		store := newSlowState()
		live := func(remembered int, n ...byte) Stats {
			r := &fakeRelay{t: t, seed: relaySeed, script: func(c *fakeConn) {
				for _, n := range n {
					f := inClear(alice, self, []byte("hello"))
					f.ID = [16]byte{n}
					c.write(f)
				}
				c.hold()
			}}
			c, err := r.client(func(c *Config) { c.Store, c.Remembered = store, remembered })
			require.NoError(t, err)
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			require.Error(t, c.Handle(ctx, func(context.Context, *Letter) error { return nil }))
			require.NoError(t, c.Close())
			s := c.Stats()
			return s
		}
		recorded := func() int { return len(keys(t, store, seenBucket, self)) }
		require.Equal(t, Stats{Letters: 4, Repeats: 1}, live(5, 1, 2, 3, 1, 4))
		require.Equal(t, 4, recorded())
		time.Sleep(rememberTime - time.Minute)
		require.Equal(t, Stats{Letters: 2, Repeats: 4}, live(5, 1, 2, 3, 4, 5, 6), "six are one too many")
		require.Equal(t, Stats{Letters: 1, Repeats: 5}, live(5, 2, 3, 4, 5, 6, 7))
		time.Sleep(time.Minute)
		require.Equal(t, Stats{Letters: 4, Repeats: 2}, live(5, 1, 2, 3, 4, 5, 6), "the others are of 14 days ago")
		require.LessOrEqual(t, recorded(), 6)
		require.Equal(t, Stats{Letters: 2}, live(2, 8, 9))
		require.Equal(t, Stats{Letters: 1, Repeats: 2}, live(2, 8, 9, 10))
		require.LessOrEqual(t, recorded(), 3)
		time.Sleep(rememberTime)
		live(5)
		require.Zero(t, recorded())
	})
}

// TestRecordsShare: letters that are taken at the same time are recorded with one
// write, each before it is acknowledged; and a store that fails holds up nothing.
func TestRecordsShare(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		const senders, letters = 50, 20
		bob := identity(t, 2)
		store := newSlowState()
		var failed atomic.Int64
		b := r.client(bob, func(c *Config) {
			c.Store = store
			c.Trace = &Trace{StoreFailed: func(error) { failed.Add(1) }}
		})
		var sending sync.WaitGroup
		for i := range senders {
			a := r.client(identity(t, byte(10+i)), nil)
			sending.Go(func() {
				for i := range letters {
					send(t, a, bob, strconv.Itoa(i), Clear(), NoWait())
				}
			})
		}
		sending.Wait()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		start := time.Now()
		var end time.Time
		var done atomic.Int64
		require.ErrorIs(t, b.Handle(ctx, func(context.Context, *Letter) error {
			if done.Add(1) == senders*letters {
				end = time.Now()
			}
			return nil
		}, Concurrently(senders)), context.DeadlineExceeded)
		require.EqualValues(t, senders*letters, done.Load())
		require.Less(t, end.Sub(start), senders*letters*time.Millisecond/5)
		require.Less(t, store.puts.Load(), int64(senders*letters/5))
		total := 0
		for it := range store.Range(t.Context(), seenBucket+bob.Public().String(), "") {
			total += len(it.Value)
		}
		require.Equal(t, senders*letters*letterKeySize, total)

		store.fail.Store(true)
		a := r.client(identity(t, 1), nil)
		require.Equal(t, Read, func() Status {
			go next(t, b)
			return send(t, a, bob, "x", Until(Read)).Status
		}())
		require.EqualValues(t, 1, failed.Load())
	})
}

// TestConcurrently: letters of one sender come in order and one at a time, others
// at the same time, and after an error what was not taken comes again, in order.
func TestConcurrently(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		const senders, letters, atOnce = 5, 30, 3
		bob := identity(t, 2)
		b := r.client(bob, nil)
		for s := range senders {
			a := r.client(identity(t, byte(10+s)), nil)
			for i := range letters {
				send(t, a, bob, strconv.Itoa(i), Clear())
			}
		}
		synctest.Wait()
		var mu sync.Mutex
		running := make(map[crypto.PublicKey]bool)
		want := make(map[crypto.PublicKey]int)
		most, total := 0, 0
		stop := errors.New("enough")
		handle := func(fail int) error {
			return b.Handle(t.Context(), func(ctx context.Context, l *Letter) error {
				mu.Lock()
				assert.False(t, running[l.From])
				running[l.From] = true
				most = max(most, len(running))
				assert.Equal(t, strconv.Itoa(want[l.From]), l.Text())
				mu.Unlock()
				time.Sleep(time.Second)
				mu.Lock()
				defer mu.Unlock()
				delete(running, l.From)
				total++
				if total == fail {
					return stop
				}
				assert.NoError(t, ctx.Err(), "another's error does not end it")
				want[l.From]++
				if total >= senders*letters+1 {
					return stop
				}
				return nil
			}, Concurrently(atOnce))
		}
		start := time.Now()
		require.Equal(t, stop, handle(20))
		require.Empty(t, running)
		require.LessOrEqual(t, total, 20+atOnce-1)
		require.Equal(t, stop, handle(-1))
		require.Equal(t, atOnce, most)
		require.GreaterOrEqual(t, total, senders*letters+1)
		require.Less(t, time.Since(start), (senders*letters/atOnce+20)*time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		take := func(context.Context, *Letter) error { return nil }
		require.Equal(t, context.DeadlineExceeded, b.Handle(ctx, take, Concurrently(2)))
		require.NoError(t, b.Close())
		require.ErrorIs(t, b.Handle(t.Context(), take, Concurrently(2)), ErrClosed)
	})
}
