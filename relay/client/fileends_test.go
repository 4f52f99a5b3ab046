package client

import (
	"bytes"
	"context"
	"log/slog"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sotto-relay/sotto/crypto"
	"github.com/sotto-relay/sotto/inbox"
)

// A putCounter counts what is stored of messages.
type putCounter struct {
	inbox.State
	puts atomic.Int64
}

func (s *putCounter) Put(ctx context.Context, bucket, key string, value []byte) error {
	if strings.HasPrefix(bucket, outboxBucket) || strings.HasPrefix(bucket, seenBucket) {
		s.puts.Add(1)
	}
	return s.State.Put(ctx, bucket, key, value)
}

// TestFileStore: files leave the store alone, however large.
func TestFileStore(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		bob := identity(t, 2)
		state := &putCounter{State: inbox.NewMemoryState(nil)}
		keep := func(c *Config) { c.Store = state }
		a := r.client(identity(t, 1), keep)
		b := r.receiver(bob, nil)
		require.NoError(t, b.Close())
		b.Client = r.client(bob, func(c *Config) { c.Store, c.Files = state, &b.policy })
		send(t, a, bob, "hello") // each has the other's card now
		require.Equal(t, "hello", next(t, b.Client).Text())
		send(t, b.Client, identity(t, 1), "hello")
		require.Equal(t, "hello", next(t, a).Text())
		synctest.Wait()
		before := state.puts.Load()
		require.NotZero(t, before)
		require.NoError(t, a.SendFile(t.Context(), bob.Public(), source("a", content(9*part))))
		require.Equal(t, before, state.puts.Load())
	})
}

// TestFileStrays: who sends parts of nothing does not have it forgotten which files
// came.
func TestFileStrays(t *testing.T) {
	skipInRace(t)
	bubble(t, func(t *testing.T, r *rig) {
		bob := identity(t, 2)
		b := r.receiver(bob, nil)
		f := source("a", content(part))
		f.Transfer = [16]byte{1}
		a := r.client(identity(t, 1), nil)
		require.NoError(t, a.SendFile(t.Context(), bob.Public(), f))
		h := r.hand(t, identity(t, 3), bob.Public())
		for n := range maxEnds + 1 {
			h.id = [16]byte{byte(n), byte(n >> 8)}
			h.part(crypto.TransferPart{Index: 5})
		}
		require.NoError(t, a.SendFile(t.Context(), bob.Public(), f))
		require.Equal(t, []string{"a"}, b.saved())
		require.LessOrEqual(t, len(b.files.finished.others.of), maxEnds)
	})
}

// TestFileTransferAgain: who names the transfer of a file that has come for another one
// is not told that this one is there.
func TestFileTransferAgain(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		bob := identity(t, 2)
		a, b := r.client(identity(t, 1), nil), r.receiver(bob, nil)
		for n, data := range [][]byte{content(2 * part), content(2*part + 1), bytes.Repeat([]byte{1}, 2*part)} {
			f := source("a", data)
			f.Transfer = [16]byte{1}
			require.NoError(t, a.SendFile(t.Context(), bob.Public(), f))
			require.NoError(t, a.SendFile(t.Context(), bob.Public(), f), "once more")
			require.Len(t, b.saved(), n+1)
			e, _ := b.last()
			b.has(filepath.Base(e.Path), data)
		}
	})
}

// TestFileEnds: which files came is remembered in the Store as long as letters are, and
// no more than in memory.
func TestFileEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := Config{Identity: identity(t, 1), Store: inbox.NewMemoryState(nil), Logger: slog.New(slog.DiscardHandler)}.withDefaults()
		shelf := newShelf(&cfg, filesBucket)
		open := func() *ends {
			e := new(ends)
			require.NoError(t, e.open(t.Context(), shelf))
			return e
		}
		kept := func() (n int) {
			for _, err := range cfg.Store.Range(t.Context(), shelf.bucket, "") {
				require.NoError(t, err)
				n++
			}
			return n
		}
		key := func(n int) transferKey {
			return transferKey{identity(t, 2).Public(), [16]byte{byte(n), byte(n >> 8)}}
		}
		e := open()
		for n := range maxEnds + 10 {
			time.Sleep(time.Second)
			h := crypto.TransferHeader{Name: strconv.Itoa(n), Size: 9}
			e.set(key(n), transferEnd{whole: true, last: uint32(n), header: headerSum(&h)})
		}
		e.set(key(0), transferEnd{offer: [16]byte{1}})
		require.Equal(t, maxEnds, kept())

		e = open()
		require.Equal(t, maxEnds, len(e.whole.order))
		require.Equal(t, key(10), e.whole.order[0], "the oldest are forgotten first")
		got, _ := e.get(key(10))
		h := crypto.TransferHeader{Name: "10", Size: 9}
		require.Equal(t, transferEnd{whole: true, last: 10, header: headerSum(&h)}, got)
		h.Name = "11"
		require.NotEqual(t, headerSum(&h), got.header)
		_, known := e.get(key(9))
		require.False(t, known)

		require.NoError(t, cfg.Store.Put(t.Context(), shelf.bucket, "?", []byte("damaged")))
		time.Sleep(rememberTime - 5*time.Minute)
		require.Less(t, len(open().whole.of), maxEnds/2)
		require.Less(t, kept(), maxEnds/2)
	})
}
