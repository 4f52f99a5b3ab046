package disk

import (
	"errors"
	"math/rand/v2"
	"os"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sotto-relay/sotto/inbox"
)

// small makes Pebble flush, rotate its log and compact within a short scenario.
func small(o *pebble.Options) {
	quiet(o)
	o.MemTableSize = 32 << 10
	o.L0CompactionThreshold = 2
}

// scenario opens a store, works on it, closes it, and does that again. It returns
// the first error, after which it only closes.
func scenario(fs vfs.FS, h *history, seed uint64) (err error) {
	next := make(map[string]int)
	for round := range 2 {
		db, err := Open("data", &Options{FS: fs, tune: small})
		if err != nil {
			return err
		}
		l := newLoad(db, h, seed+uint64(round))
		l.next = next
		for i := 0; i < 24 && err == nil; i++ {
			err = l.step(people[i%len(people)])
		}
		if err == nil && round == 0 {
			err = db.Compact(ctx)
		}
		if err = errors.Join(err, db.Close()); err != nil {
			return err
		}
	}
	return nil
}

// changes is an injector that is called for what changes the file system, with
// the index of the change.
func changes(do func(i int64, op errorfs.Op) error) errorfs.Injector {
	var n atomic.Int64
	return errorfs.InjectorFunc(func(op errorfs.Op) error {
		switch op.Kind {
		case errorfs.OpCreate, errorfs.OpLink, errorfs.OpRemove, errorfs.OpRemoveAll, errorfs.OpRename, errorfs.OpReuseForWrite,
			errorfs.OpMkdirAll, errorfs.OpFileWrite, errorfs.OpFileWriteAt, errorfs.OpFileSync, errorfs.OpFileSyncData, errorfs.OpFileSyncTo, errorfs.OpFileClose:
			return do(n.Add(1), op)
		}
		return nil
	})
}

// recordChanges returns how many changes the scenario makes when nothing fails.
func recordChanges(t *testing.T) (n int64) {
	synctest.Test(t, func(t *testing.T) {
		var last atomic.Int64
		fs := errorfs.Wrap(vfs.NewMem(), changes(func(i int64, _ errorfs.Op) error {
			last.Store(i)
			return nil
		}))
		require.NoError(t, scenario(fs, newHistory(), 1))
		n = last.Load()
	})
	t.Logf("%d changes of the file system", n)
	return n
}

// verify opens what is left and compares it with the history.
func verify(t *testing.T, fs vfs.FS, h *history, what string, i int64) {
	db, err := Open("data", &Options{FS: fs, tune: quiet})
	require.NoError(t, err, "%s at change %d", what, i)
	defer db.Close()
	boxes, values, err := contents(db, people)
	require.NoError(t, err, "%s at change %d", what, i)
	require.Empty(t, h.check(boxes, values), "%s at change %d", what, i)
	check, err := db.Check(ctx)
	require.NoError(t, err)
	require.Empty(t, check.Damaged, "%s at change %d", what, i)
}

// TestPowerCut cuts the power before every change of the file system: what was
// synced is there, of the rest some pages are, others are not.
func TestPowerCut(t *testing.T) {
	n := recordChanges(t)
	begin, step := some(t, 20)
	for i := int64(begin); i <= n; i += int64(step) {
		synctest.Test(t, func(t *testing.T) {
			mem := vfs.NewCrashableMem()
			h := newHistory()
			var after *vfs.MemFS
			var before *history
			fs := errorfs.Wrap(mem, changes(func(n int64, _ errorfs.Op) error {
				if n == i {
					before = h.clone() // what is acknowledged later does not count
					after = mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: int(i*29) % 101, RNG: rand.New(rand.NewPCG(uint64(i), 0))})
					before.since(h.clone())
				}
				return nil
			}))
			require.NoError(t, scenario(fs, h, 1))
			if after != nil { // the order of what goes on in the background varies a little
				verify(t, after, before, "power cut", i)
			}
		})
	}
}

// TestFailure has every change of the file system fail, once. The store fails or
// does not; what it has acknowledged is there, and it does not panic.
func TestFailure(t *testing.T) {
	n := recordChanges(t)
	begin, step := some(t, 60)
	for _, errno := range []error{syscall.EIO, syscall.EROFS, &os.PathError{Op: "x", Path: "y", Err: syscall.EACCES}} {
		for i := int64(begin); i <= n; i += int64(step) {
			synctest.Test(t, func(t *testing.T) {
				mem := vfs.NewMem()
				h := newHistory()
				failed := false
				fs := errorfs.Wrap(mem, changes(func(n int64, op errorfs.Op) error {
					if n == i {
						failed = true
						return errno
					}
					return nil
				}))
				err := scenario(fs, h, 1)
				if failed && err != nil {
					assert.ErrorIs(t, err, errno, "at change %d", i)
				}
				verify(t, mem, h, errno.Error(), i)
			})
		}
	}
}

// TestFull has the disk be full at every change of the file system, for a while
// that may be too long to wait for. Puts fail or succeed, the store does not
// fail once it is open, and goes on by itself.
func TestFull(t *testing.T) {
	n := recordChanges(t)
	begin, step := some(t, 40)
	for _, refusals := range []int64{1, 30} {
		for i := int64(begin); i <= n; i += int64(step) {
			synctest.Test(t, func(t *testing.T) {
				mem := vfs.NewMem()
				h := newHistory()
				var refused atomic.Int64
				fs := errorfs.Wrap(mem, changes(func(n int64, op errorfs.Op) error {
					if n >= i && refused.Load() < refusals && op.Kind != errorfs.OpFileSync && op.Kind != errorfs.OpFileSyncData &&
						op.Kind != errorfs.OpFileClose && op.Kind != errorfs.OpFileSyncTo {
						refused.Add(1)
						return syscall.ENOSPC
					}
					return nil
				}))
				if err := scenario(fs, h, 1); err != nil {
					assert.True(t, errors.Is(err, inbox.ErrStorageFull) || errors.Is(err, syscall.ENOSPC), "%v at change %d", err, i)
				}
				verify(t, mem, h, "full disk", i)
			})
		}
	}
}
