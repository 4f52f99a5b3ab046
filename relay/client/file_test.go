package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sotto-relay/sotto/crypto"
	"github.com/sotto-relay/sotto/inbox"
	"github.com/sotto-relay/sotto/internal/race"
	"github.com/sotto-relay/sotto/relay"
)

const part = crypto.MaxPartSize

// content returns n bytes that are nowhere alike.
func content(n int) []byte {
	b := make([]byte, n)
	random := rand.NewChaCha8([32]byte{byte(n), byte(n >> 8)})
	_, _ = random.Read(b)
	return b
}

func source(name string, data []byte) FileSource {
	return FileSource{Name: name, Size: int64(len(data)), Content: bytes.NewReader(data)}
}

// A receiver is a Client that saves files, and can be started again.
type receiver struct {
	*Client
	r      *rig
	id     *crypto.Identity
	dir    string
	policy FilePolicy
	store  inbox.State // nil: none

	mu     sync.Mutex
	events []FileEvent
}

// receiver returns a Client that takes files as set says, by default all.
func (r *rig) receiver(id *crypto.Identity, set func(*receiver)) *receiver {
	b := &receiver{r: r, id: id, dir: filepath.Join(r.t.(*testing.T).TempDir(), "files")}
	b.policy.Accept = SaveTo(b.dir, SaveLimits{})
	b.policy.Event = func(e FileEvent) {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.events = append(b.events, e)
	}
	if set != nil {
		set(b)
	}
	b.start()
	return b
}

func (b *receiver) start() {
	b.Client = b.r.client(b.id, func(c *Config) { c.Files, c.Store = &b.policy, b.store })
}

// last returns the latest event, and how many there were.
func (b *receiver) last() (FileEvent, int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.events) == 0 {
		return FileEvent{}, 0
	}
	return b.events[len(b.events)-1], len(b.events)
}

// files returns the names in the directory; hidden ones are listed as "hidden".
func (b *receiver) saved() []string {
	entries, err := os.ReadDir(b.dir)
	if !os.IsNotExist(err) {
		require.NoError(b.r.t, err)
	}
	names := []string{}
	for _, e := range entries {
		if e.Name()[0] == '.' {
			names = append(names, "hidden")
			continue
		}
		names = append(names, e.Name())
	}
	return names
}

// has makes sure that the directory has these bytes as a file, and nothing hidden.
func (b *receiver) has(name string, want []byte) {
	b.r.t.Helper()
	got, err := os.ReadFile(filepath.Join(b.dir, name))
	require.NoError(b.r.t, err)
	require.True(b.r.t, bytes.Equal(want, got), "%s: %d bytes, want %d", name, len(got), len(want))
	require.NotContains(b.r.t, b.saved(), "hidden")
}

// A probe is a source that tells which bytes were asked for last.
type probe struct {
	io.ReaderAt
	mu  sync.Mutex
	far int64
}

func (p *probe) ReadAt(b []byte, at int64) (int, error) {
	p.mu.Lock()
	p.far = at + int64(len(b))
	p.mu.Unlock()
	return p.ReaderAt.ReadAt(b, at)
}

func (p *probe) latest() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.far
}

// background runs SendFile, and returns a function that waits for its end.
func background(ctx context.Context, c *Client, to crypto.PublicKey, f FileSource) (wait func() error) {
	done := make(chan error, 1)
	go func() { done <- c.SendFile(ctx, to, f) }()
	return func() error { return <-done }
}

// TestSendFile: files of every length around the bounds of parts arrive whole, are
// private, and replace none; both sides see it happen.
func TestSendFile(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		bob := identity(t, 2)
		a, b := r.client(identity(t, 1), nil), r.receiver(bob, nil)
		for i, n := range []int{
			0, 1, firstPart - 1, firstPart, firstPart + 1, part, firstPart + part - 1, firstPart + part, firstPart + part + 1,
			2 * part, firstPart + 3*part, 40*part + 7,
		} {
			data, done := content(n), []int64{}
			f := source("a.bin", data)
			f.Progress = func(n int64) { done = append(done, n) }
			require.NoError(t, a.SendFile(t.Context(), bob.Public(), f))
			name := "a.bin"
			if i > 0 {
				name = fmt.Sprintf("a (%d).bin", i+1)
			}
			synctest.Wait() // the sender may hear of it before the program does
			b.has(name, data)
			require.True(t, slices.IsSorted(done))
			require.EqualValues(t, n, done[len(done)-1])
			e, _ := b.last()
			require.Equal(t, filepath.Join(b.dir, name), e.Path)
			require.EqualValues(t, n, e.Done)
			require.EqualValues(t, n, e.Size)
			require.Equal(t, a.cfg.Identity.Public(), e.From)
			info, err := os.Stat(e.Path)
			require.NoError(t, err)
			require.Equal(t, os.FileMode(0o600), info.Mode())
		}
		none(t, b.Client)
		none(t, a)
		require.Zero(t, a.Stats().Dropped+b.Stats().Dropped)
		require.Empty(t, a.files.out)
		require.Empty(t, b.files.in)
	})
}

type zeros struct{}

func (zeros) ReadAt(b []byte, _ int64) (int, error) {
	clear(b)
	return len(b), nil
}

// TestSendFileLarge: a file that is larger than all that may be in memory.
func TestSendFileLarge(t *testing.T) {
	skipInRace(t)
	bubble(t, func(t *testing.T, r *rig) {
		bob := identity(t, 2)
		a, b := r.client(identity(t, 1), nil), r.receiver(bob, nil)
		require.NoError(t, a.SendFile(t.Context(), bob.Public(), FileSource{Name: "zeros", Size: 64 << 20, Content: zeros{}}))
		info, err := os.Stat(filepath.Join(b.dir, "zeros"))
		require.NoError(t, err)
		require.EqualValues(t, 64<<20, info.Size())
	})
}

// TestSendFileCut: files arrive, once each, however often connections break on both
// sides and the relay is started again, and letters with them.
func TestSendFileCut(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	files := 5
	if race.Enabled {
		files = 2
	}
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.limits = relay.MaxLimits()
		r.start()
		bob := identity(t, 2)
		over := make(chan struct{})
		isOver := func() bool {
			select {
			case <-over:
				return true
			default:
				return false
			}
		}
		random := rand.New(rand.NewPCG(seed, 1))
		a := r.client(identity(t, 1), func(c *Config) {
			c.Dial, c.BackoffMax = cutting(r.dial, random, 60, isOver), time.Second
		})
		b := r.receiver(bob, func(b *receiver) { b.policy.PerSender = files })
		require.NoError(t, b.Close())
		b.Client = r.client(bob, func(c *Config) {
			c.Files = &b.policy
			c.Dial, c.BackoffMax = cutting(r.dial, rand.New(rand.NewPCG(seed, 2)), 60, isOver), time.Second
		})
		var sending sync.WaitGroup
		for n := range files {
			sending.Go(func() {
				assert.NoError(t, a.SendFile(t.Context(), bob.Public(), source(fmt.Sprint(n), content(part*(3+7*n)+n))))
			})
		}
		sending.Go(func() {
			for !isOver() {
				time.Sleep(7 * time.Second)
				r.stop()
				time.Sleep(3 * time.Second)
				r.start()
			}
		})
		sending.Go(func() {
			for n := range 50 {
				_, err := a.Send(t.Context(), bob.Public(), Text(fmt.Sprint(n)))
				assert.NoError(t, err)
				time.Sleep(time.Second)
			}
			close(over)
		})
		for n := range 50 {
			require.Equal(t, fmt.Sprint(n), next(t, b.Client).Text())
		}
		sending.Wait()
		for n := range files {
			b.has(fmt.Sprint(n), content(part*(3+7*n)+n))
		}
		require.Len(t, b.saved(), files)
		none(t, b.Client)
	})
}

// TestSlowReceiver: a sender reads no further ahead of a receiver than the window,
// and letters pass.
func TestSlowReceiver(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		bob := identity(t, 2)
		a := r.client(identity(t, 1), nil)
		data := content(60 * part)
		p := &probe{ReaderAt: bytes.NewReader(data)}
		var ahead atomic.Int64
		b := r.receiver(bob, func(b *receiver) {
			b.policy.Event = func(e FileEvent) {
				time.Sleep(time.Minute)
				ahead.Store(max(ahead.Load(), p.latest()-e.Done))
			}
		})
		wait := background(t.Context(), a, bob.Public(), FileSource{Name: "a", Size: int64(len(data)), Content: p})
		for n := range 30 {
			time.Sleep(time.Minute)
			send(t, a, bob, fmt.Sprint(n))
			require.Equal(t, fmt.Sprint(n), next(t, b.Client).Text())
		}
		require.NoError(t, wait())
		b.has("a", data)
		require.LessOrEqual(t, ahead.Load(), int64(2*fileWindow*part), "what is told once for several parts, and the window")
		require.Greater(t, ahead.Load(), int64(8*part))
	})
}

// TestFileRefused: before the policy has accepted, no more than the first part is
// sent and nothing is on the disk; nor after it has refused.
func TestFileRefused(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		bob, carol := identity(t, 2), identity(t, 3)
		a := r.client(identity(t, 1), nil)
		verdict := make(chan error)
		b := r.receiver(bob, func(b *receiver) {
			save := b.policy.Accept
			b.policy.Accept = func(ctx context.Context, o FileOffer) (string, error) {
				if err := <-verdict; err != nil {
					return "", err
				}
				return save(ctx, o)
			}
		})
		data := content(4 * part)
		p := &probe{ReaderAt: bytes.NewReader(data)}
		f := FileSource{Name: "a", Size: int64(len(data)), Content: p}
		no := errors.New("no")
		for _, answer := range []error{no, nil} {
			wait := background(t.Context(), a, bob.Public(), f)
			time.Sleep(time.Hour)
			require.EqualValues(t, firstPart, p.latest())
			require.Empty(t, b.saved())
			verdict <- answer
			if answer == nil {
				require.NoError(t, wait())
				break
			}
			require.Equal(t, ErrFileRefused, wait())
			e, _ := b.last()
			require.Equal(t, no, e.Err)
			require.Empty(t, b.saved())
		}
		r.client(carol, nil) // has no policy
		require.Equal(t, ErrFileRefused, a.SendFile(t.Context(), carol.Public(), source("a", nil)))

		for name, f := range map[string]FileSource{
			"a/b": source("a/b", nil), "": source("", nil),
			"size": {Name: "a", Size: -1}, "too large": {Name: "a", Size: crypto.MaxTransferSize + 1},
			"short": {Name: "a", Size: 5, Content: bytes.NewReader([]byte("four"))},
		} {
			require.Error(t, a.SendFile(t.Context(), bob.Public(), f), name)
		}
		require.Equal(t, ErrFileContent, a.SendFile(t.Context(), bob.Public(), FileSource{Name: "a"}))
		d := r.client(identity(t, 4), func(c *Config) {
			c.Contacts = func(crypto.PublicKey) (crypto.X25519Key, bool) { return bob.X25519().Public(), true }
		})
		require.Equal(t, ErrFileContact, d.SendFile(t.Context(), bob.Public(), source("a", nil)))
	})
}

// TestFileCancelled: either side can end a transfer, at any time; the other learns
// it, and nothing is left of the file.
func TestFileCancelled(t *testing.T) {
	for _, during := range []string{"offer", "transfer"} {
		for _, by := range []string{"sender", "receiver", "nobody else"} {
			t.Run(during+" by "+by, func(t *testing.T) {
				bubble(t, func(t *testing.T, r *rig) {
					alice, bob, eve := identity(t, 1), identity(t, 2), identity(t, 3)
					a, e := r.client(alice, nil), r.client(eve, nil)
					asked, going := make(chan struct{}), make(chan struct{})
					ctx, cancel := context.WithCancel(t.Context())
					defer cancel()
					b := r.receiver(bob, func(b *receiver) {
						save, note := b.policy.Accept, b.policy.Event
						b.policy.Accept = func(ctx context.Context, o FileOffer) (string, error) {
							close(asked)
							if during == "offer" {
								select {
								case <-ctx.Done():
									return "", ctx.Err()
								case <-time.After(time.Hour):
								}
							}
							return save(ctx, o)
						}
						b.policy.Event = func(e FileEvent) {
							note(e)
							if e.Done > 10*part && e.Done < 11*part && e.Err == nil {
								close(going)
								time.Sleep(time.Minute)
							}
						}
					})
					data := content(30 * part)
					f := source("a", data)
					f.Transfer = [16]byte{7}
					wait := background(ctx, a, bob.Public(), f)
					<-asked
					if during == "transfer" {
						<-going
					}
					switch by {
					case "sender":
						cancel()
						require.Equal(t, context.Canceled, wait())
						time.Sleep(time.Hour)
						last, _ := b.last()
						require.Equal(t, ErrFileCancelled, last.Err)
					case "receiver":
						b.CancelFile(eve.Public(), f.Transfer) // another's
						b.CancelFile(alice.Public(), f.Transfer)
						want := ErrFileCancelled
						if during == "offer" {
							want = ErrFileRefused
						}
						require.Equal(t, want, wait())
						last, _ := b.last()
						require.Equal(t, ErrFileRefused, last.Err)
					default:
						for _, ctl := range []crypto.TransferControl{
							{Op: crypto.TransferAccept}, {Op: crypto.TransferHave, Have: 200}, {Op: crypto.TransferCancel},
						} {
							ctl.Transfer = f.Transfer
							for _, to := range []*crypto.Identity{alice, bob} {
								_, err := e.Send(t.Context(), to.Public(), Content{Content: ctl.Content()})
								require.NoError(t, err)
							}
						}
						require.NoError(t, wait())
						b.has("a", data)
						return
					}
					synctest.Wait()
					require.Empty(t, b.saved())
					require.Empty(t, b.files.in)
				})
			})
		}
	}
}

// TestFilesBesideUnread: an application that takes no letters gets its files.
func TestFilesBesideUnread(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.limits = relay.MaxLimits()
		r.stop()
		r.start()
		bob := identity(t, 2)
		a, b := r.client(identity(t, 1), nil), r.receiver(bob, nil)
		send(t, a, bob, "unread")
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		var waits []func() error
		for i := range 4 {
			waits = append(waits, background(ctx, a, bob.Public(), source(fmt.Sprint(i), content(few(20)*part))))
		}
		for i, wait := range waits {
			require.NoError(t, wait(), i)
		}
		for i := range waits {
			b.has(fmt.Sprint(i), content(few(20)*part))
		}
		require.Equal(t, "unread", next(t, b.Client).Text())
	})
}
