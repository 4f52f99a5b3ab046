package client

import (
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sotto-relay/sotto/inbox"
)

// TestReceiverRestart: a receiver that is started again goes on where it was, also
// with files that another has offered, and after a power cut that took bytes which
// it had acknowledged.
func TestReceiverRestart(t *testing.T) {
	skipInRace(t)
	for name, cut := range map[string]struct{ keep, from int64 }{
		"as it was":        {1 << 40, 10*part + firstPart},
		"some bytes gone":  {4*part + 100, 3*part + firstPart},
		"all gone":         {0, firstPart},
		"less than part 0": {7, firstPart},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				bob := identity(t, 2)
				enough := make(chan struct{})
				a := r.client(identity(t, 1), nil)
				b := r.receiver(bob, func(b *receiver) {
					note := b.policy.Event
					b.policy.Event = func(e FileEvent) {
						note(e)
						if e.Done >= 10*part && e.Done < 11*part {
							close(enough)
							<-b.life.Done()
						}
					}
				})
				data := content(30 * part)
				wait := background(t.Context(), a, bob.Public(), source("a", data))
				<-enough
				require.NoError(t, b.Close())
				hidden, err := filepath.Glob(filepath.Join(b.dir, ".*"))
				require.NoError(t, err)
				require.Len(t, hidden, 1)
				info, err := os.Stat(hidden[0])
				require.NoError(t, err)
				require.NoError(t, os.Truncate(hidden[0], min(info.Size(), cut.keep)))
				_, before := b.last()
				b.policy.Event = func(e FileEvent) {
					b.mu.Lock()
					defer b.mu.Unlock()
					b.events = append(b.events, e)
				}
				b.start()
				require.NoError(t, wait())
				b.has("a", data)
				b.mu.Lock()
				defer b.mu.Unlock()
				require.EqualValues(t, cut.from, b.events[before].Done)
			})
		})
	}
}

// TestSenderRestart: a sender that is started again, with the same transfer, sends
// what the receiver does not have.
func TestSenderRestart(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		alice, bob := identity(t, 1), identity(t, 2)
		a, b := r.client(alice, nil), r.receiver(bob, nil)
		data := content(30 * part)
		f := source("a", data)
		f.Transfer = [16]byte{1}
		var once sync.Once
		enough := make(chan struct{})
		f.Progress = func(done int64) {
			if done >= 10*part {
				once.Do(func() { close(enough) })
				<-a.life.Done()
			}
		}
		wait := background(t.Context(), a, bob.Public(), f)
		<-enough
		require.Equal(t, ErrFileTransfer, a.SendFile(t.Context(), bob.Public(), f))
		time.Sleep(time.Minute)
		require.NoError(t, a.Close())
		require.ErrorIs(t, wait(), ErrClosed)

		a = r.client(alice, nil)
		var done []int64
		f.Progress = func(n int64) { done = append(done, n) }
		require.NoError(t, a.SendFile(t.Context(), bob.Public(), f))
		b.has("a", data)
		require.Greater(t, done[1], int64(10*part), "%v", done)

		// The same once more is known to be there.
		require.NoError(t, a.SendFile(t.Context(), bob.Public(), f))
		require.Equal(t, []string{"a"}, b.saved())
	})
}

// TestReceiverEndsWithFile: a program that ends as soon as it has its file has told the
// sender.
func TestReceiverEndsWithFile(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		bob := identity(t, 2)
		over := make(chan FileEvent, 1)
		a := r.client(identity(t, 1), nil)
		b := r.receiver(bob, func(b *receiver) {
			b.policy.Event = func(e FileEvent) {
				if e.Path != "" {
					over <- e
				}
			}
		})
		wait := background(t.Context(), a, bob.Public(), source("a", content(3*part)))
		<-over
		require.NoError(t, b.Close())
		require.NoError(t, wait())
		b.start()
		time.Sleep(time.Hour)
		require.Equal(t, []string{"a"}, b.saved())
	})
}

// TestReceiverEndsUnheard: a file that was whole while nobody could be told does not
// come a second time to the next Client with the Store.
func TestReceiverEndsUnheard(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		bob := identity(t, 2)
		nearly, over := make(chan struct{}), make(chan struct{})
		data := content(3 * part)
		a := r.client(identity(t, 1), nil)
		b := r.receiver(bob, func(b *receiver) {
			b.store = inbox.NewMemoryState(nil)
			b.policy.Event = func(e FileEvent) {
				switch {
				case e.Path != "":
					close(over)
				case e.Done == 2*part+firstPart:
					close(nearly)
					time.Sleep(time.Minute) // the last part is there
				}
			}
		})
		wait := background(t.Context(), a, bob.Public(), source("a", data))
		<-nearly
		synctest.Wait()
		r.stop()
		<-over
		require.NoError(t, b.Close())
		b.policy.Event = nil
		r.start()
		b.start()
		require.NoError(t, wait())
		time.Sleep(time.Hour)
		require.Equal(t, []string{"a"}, b.saved())
	})
}
