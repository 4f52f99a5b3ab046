package disk

import (
	"log/slog"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sotto-relay/sotto/inbox"
)

var (
	alice = inbox.Address{Realm: 1, Name: "alice"}
	bob   = inbox.Address{Realm: 1, Name: "bob"}
)

func putTo(db *DB, to inbox.Address, data string, q inbox.Quota) inbox.Result {
	done := make(chan inbox.Result, 1)
	db.Inbox().Put(ctx, &inbox.Entry{To: to, From: alice, Data: []byte(data)}, q, func(r inbox.Result) { done <- r })
	return <-done
}

// held returns the data of a recipient's messages.
func held(t *testing.T, db *DB, to inbox.Address) (data []string) {
	t.Helper()
	for e, err := range db.Inbox().Entries(ctx, to, 0) {
		require.NoError(t, err)
		data = append(data, string(e.Data))
	}
	return data
}

// TestReserve: down to the reserve nothing comes in, and all else goes on.
func TestReserve(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := vfs.NewMem()
		db := reopen(t, &Options{FS: mem, Reserve: 1000, tune: quiet})
		defer db.Close()
		first := putTo(db, bob, "first", inbox.Quota{})
		require.NoError(t, first.Err)
		require.NoError(t, putTo(db, bob, "second", inbox.Quota{}).Err)
		assert.False(t, db.Full())

		mem.TestingSetDiskUsage(vfs.DiskUsage{AvailBytes: 999, TotalBytes: 5000, UsedBytes: 4001})
		time.Sleep(spaceFor)
		assert.True(t, db.Full())
		assert.Equal(t, inbox.ErrStorageFull, putTo(db, bob, "third", inbox.Quota{}).Err)
		assert.Equal(t, inbox.ErrStorageFull, putTo(db, bob, "third", inbox.Quota{Messages: 1, DropOldest: true}).Err)
		assert.NoError(t, db.State().Put(ctx, "b", "k", nil), "it has half the reserve")
		assert.Equal(t, []string{"first", "second"}, held(t, db, bob), "nothing was dropped")
		n, err := db.Inbox().Delete(ctx, bob, first.Seq)
		assert.NoError(t, err)
		assert.Equal(t, 1, n)
		assert.NoError(t, db.State().Delete(ctx, "b", "k"))
		assert.NoError(t, db.Err())

		// What was deleted is tidied up while the disk is full, now and then.
		time.Sleep(tidyEvery)
		flushed := func() int64 { return db.pebble.Metrics().Flush.Count }
		before := flushed()
		assert.Equal(t, inbox.ErrStorageFull, putTo(db, bob, "third", inbox.Quota{}).Err)
		synctest.Wait()
		assert.Greater(t, flushed(), before)
		before = flushed()
		time.Sleep(tidyEvery)
		assert.Equal(t, inbox.ErrStorageFull, putTo(db, bob, "third", inbox.Quota{}).Err)
		synctest.Wait()
		assert.Equal(t, before, flushed(), "there is nothing more to tidy up")

		mem.TestingSetDiskUsage(vfs.DiskUsage{AvailBytes: 499, TotalBytes: 5000, UsedBytes: 4501})
		time.Sleep(spaceFor)
		assert.Equal(t, inbox.ErrStorageFull, db.State().Put(ctx, "b", "k", nil))

		mem.TestingSetDiskUsage(vfs.DiskUsage{AvailBytes: 1000, TotalBytes: 5000, UsedBytes: 4000})
		time.Sleep(spaceFor)
		assert.False(t, db.Full())
		assert.NoError(t, putTo(db, bob, "third", inbox.Quota{}).Err)
		assert.NoError(t, db.State().Put(ctx, "b", "k", nil))
		assert.Equal(t, []string{"second", "third"}, held(t, db, bob))
	})
}

// TestBurst: many messages at one moment do not use up the reserve before anybody
// looks.
func TestBurst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := vfs.NewMem()
		mem.TestingSetDiskUsage(vfs.DiskUsage{AvailBytes: 5000, TotalBytes: 5000})
		db := reopen(t, &Options{FS: mem, Reserve: 1000, tune: quiet})
		defer db.Close()
		require.NoError(t, putTo(db, bob, strings.Repeat("x", 1500), inbox.Quota{}).Err)
		mem.TestingSetDiskUsage(vfs.DiskUsage{AvailBytes: 999, TotalBytes: 5000, UsedBytes: 4001})
		assert.Equal(t, inbox.ErrStorageFull, putTo(db, bob, "x", inbox.Quota{}).Err)
	})
}

// TestFit: what is set aside goes by the size of the disk.
func TestFit(t *testing.T) {
	for _, tc := range []struct{ total, log, reserve uint64 }{
		{64 << 20, 1 << 20, 8 << 20},
		{256 << 20, 2 << 20, 32 << 20},
		{1 << 30, 8 << 20, 128 << 20},
		{1 << 40, 32 << 20, 128 << 20},
	} {
		mem := vfs.NewMem()
		mem.TestingSetDiskUsage(vfs.DiskUsage{AvailBytes: tc.total, TotalBytes: tc.total})
		db := &DB{o: Options{FS: mem}}
		assert.Equal(t, tc.log, db.fit())
		assert.Equal(t, int64(tc.reserve), db.o.Reserve)
		db.o.Reserve = 7
		db.fit()
		assert.Equal(t, int64(7), db.o.Reserve, "as was asked for")
	}
	db := &DB{o: Options{FS: vfs.NewMem()}} // which cannot tell
	assert.Equal(t, uint64(32<<20), db.fit())
	assert.Equal(t, int64(128<<20), db.o.Reserve)
}

// TestMax holds the store's own bounds.
func TestMax(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		db := reopen(t, &Options{FS: vfs.NewMem(), MaxBytes: 3 * (entryOverhead + 10), MaxMessages: 4, tune: quiet,
			Logger: slog.New(slog.NewTextHandler(&log, nil))})
		defer db.Close()
		for range 2 {
			require.NoError(t, putTo(db, bob, "xx", inbox.Quota{}).Err)
		}
		assert.Equal(t, inbox.ErrStorageFull, putTo(db, bob, "much too much", inbox.Quota{SenderTotal: 1}).Err)
		assert.NoError(t, putTo(db, bob, "x", inbox.Quota{SenderTotal: 1}).Err, "what found no room does not count")
		assert.Equal(t, inbox.ErrStorageFull, putTo(db, bob, "xx", inbox.Quota{}).Err)
		res := putTo(db, bob, "yy", inbox.Quota{Messages: 3, DropOldest: true})
		assert.NoError(t, res.Err, "one goes, one comes")
		assert.Len(t, res.Dropped, 1)

		assert.True(t, db.Full())
		assert.Equal(t, 1, strings.Count(log.String(), "new messages are refused"), log.String())
		time.Sleep(sayEvery)
		assert.Equal(t, inbox.ErrStorageFull, putTo(db, bob, "much too much", inbox.Quota{}).Err)
		assert.Equal(t, 2, strings.Count(log.String(), "new messages are refused"), log.String())

		few := reopen(t, &Options{FS: vfs.NewMem(), MaxMessages: 2, tune: quiet})
		defer few.Close()
		for range 2 {
			require.NoError(t, putTo(few, bob, "", inbox.Quota{}).Err)
		}
		assert.Equal(t, inbox.ErrStorageFull, putTo(few, bob, "", inbox.Quota{}).Err)
		assert.True(t, few.Full())
		assert.NoError(t, putTo(few, bob, "", inbox.Quota{Messages: 2, DropOldest: true}).Err)
	})
}

// failing wraps a file system whose writes fail with an error while there is one.
func failing(fs vfs.FS, kinds ...errorfs.OpKind) (vfs.FS, *atomic.Pointer[error]) {
	p := new(atomic.Pointer[error])
	return errorfs.Wrap(fs, errorfs.InjectorFunc(func(op errorfs.Op) error {
		for _, k := range kinds {
			if op.Kind == k {
				if err := p.Load(); err != nil && strings.Contains(op.Path, "/db/") {
					return *err
				}
			}
		}
		return nil
	})), p
}

// TestLastByte: something else fills the disk to the last byte, for longer than
// a sender should wait.
func TestLastByte(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := vfs.NewMem()
		fs, fault := failing(mem, errorfs.OpFileWrite, errorfs.OpCreate)
		db := reopen(t, &Options{FS: fs, tune: quiet})
		old := putTo(db, bob, "old", inbox.Quota{})
		require.NoError(t, old.Err)
		require.NoError(t, putTo(db, bob, "kept", inbox.Quota{}).Err)
		mortal := make(chan inbox.Result, 1)
		e := &inbox.Entry{To: alice, From: bob, Expires: time.Now().Add(time.Minute)}
		db.Inbox().Put(ctx, e, inbox.Quota{}, func(r inbox.Result) { mortal <- r })
		require.NoError(t, (<-mortal).Err)

		var enospc error = syscall.ENOSPC
		fault.Store(&enospc)
		start := time.Now()
		res := putTo(db, bob, "refused", inbox.Quota{Messages: 2, DropOldest: true})
		assert.ErrorIs(t, res.Err, inbox.ErrStorageFull)
		assert.Len(t, res.Dropped, 1, "told, although the put failed")
		assert.Less(t, time.Since(start), 2*time.Second)
		assert.ErrorIs(t, putTo(db, bob, "refused", inbox.Quota{}).Err, inbox.ErrStorageFull)
		assert.Equal(t, []string{"kept"}, held(t, db, bob), "what is there can be read")
		twice := make(chan inbox.Result, 2)
		for range 2 { // the second is no repeat of one that is stored
			db.Inbox().Put(ctx, &inbox.Entry{To: alice, From: bob, ID: inbox.ID{1}}, inbox.Quota{}, func(r inbox.Result) { twice <- r })
		}
		assert.ErrorIs(t, (<-twice).Err, inbox.ErrStorageFull)
		assert.ErrorIs(t, (<-twice).Err, inbox.ErrStorageFull)
		n, err := db.Inbox().Delete(ctx, bob, old.Seq+1)
		assert.ErrorIs(t, err, inbox.ErrStorageFull, "not durable yet")
		assert.Equal(t, 1, n, "but done")
		assert.Empty(t, held(t, db, bob))
		time.Sleep(2 * time.Minute)
		purged := 0
		n, err = db.Inbox().Purge(ctx, 10, func(*inbox.Entry) { purged++ })
		assert.ErrorIs(t, err, inbox.ErrStorageFull)
		assert.Equal(t, 1, n)
		assert.Equal(t, 1, purged)
		assert.NoError(t, db.Err())

		fault.Store(nil)
		time.Sleep(2 * roomPause)
		assert.NoError(t, putTo(db, bob, "after", inbox.Quota{}).Err)
		assert.Equal(t, []string{"after"}, held(t, db, bob))
		require.NoError(t, db.Close())
		db = reopen(t, &Options{FS: mem, tune: quiet})
		assert.Equal(t, []string{"after"}, held(t, db, bob))
		assert.NoError(t, db.Close())
	})
}

// TestTakenBack: what was under way when the disk became full is refused, with
// all that goes by it, and is not there when there is room again, nor after a
// power cut at any moment.
func TestTakenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := vfs.NewCrashableMem()
		fs, fault := failing(mem, errorfs.OpFileWrite)
		var clones []*vfs.MemFS
		fs = errorfs.Wrap(fs, changes(func(int64, errorfs.Op) error {
			if clones != nil {
				clones = append(clones, mem.CrashClone(vfs.CrashCloneCfg{}))
			}
			return nil
		}))
		db := reopen(t, &Options{FS: fs, tune: quiet})
		kept := putTo(db, bob, "kept", inbox.Quota{})
		require.NoError(t, kept.Err)

		var enospc error = syscall.ENOSPC
		fault.Store(&enospc)
		clones = []*vfs.MemFS{mem.CrashClone(vfs.CrashCloneCfg{})}
		answers := make(chan inbox.Result, 3)
		put := func(id byte) {
			e := &inbox.Entry{To: bob, From: alice, ID: inbox.ID{id}, Data: []byte{id}}
			db.Inbox().Put(ctx, e, inbox.Quota{}, func(r inbox.Result) { answers <- r })
		}
		put(1)
		synctest.Wait() // in a group of its own, whose write waits for room
		put(1)
		put(2)
		for range 3 {
			assert.ErrorIs(t, (<-answers).Err, inbox.ErrStorageFull)
		}
		assert.Equal(t, []string{"kept"}, held(t, db, bob))
		go func() { _, _ = db.Inbox().Delete(ctx, alice, 1) }()
		fault.Store(nil)
		time.Sleep(2 * roomPause)
		assert.Equal(t, []string{"kept"}, held(t, db, bob))
		put(1)
		assert.NoError(t, (<-answers).Err)
		assert.Equal(t, []string{"kept", "\x01"}, held(t, db, bob))
		n, _, err := db.Inbox().Totals(ctx)
		assert.NoError(t, err)
		assert.Equal(t, 2, n)
		require.NoError(t, db.Close())
		for i, clone := range append(clones, mem) {
			db := reopen(t, &Options{FS: clone, tune: quiet})
			got := held(t, db, bob)
			assert.Subset(t, []string{"kept", "\x01"}, got, "power cut %d", i)
			assert.Contains(t, got, "kept", "power cut %d", i)
			assert.NoError(t, db.Close())
		}
	})
}

// TestLastByteShort: a disk that is full for a moment delays a put.
func TestLastByteShort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs, fault := failing(vfs.NewMem(), errorfs.OpFileWrite)
		db := reopen(t, &Options{FS: fs, tune: quiet})
		defer db.Close()
		var enospc error = syscall.ENOSPC
		fault.Store(&enospc)
		time.AfterFunc(stuckFor/2, func() { fault.Store(nil) })
		assert.NoError(t, putTo(db, bob, "late", inbox.Quota{}).Err)
		assert.Equal(t, []string{"late"}, held(t, db, bob))
	})
}

// TestCloseWhenFull: Close does not wait for room.
func TestCloseWhenFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := vfs.NewMem()
		fs, fault := failing(mem, errorfs.OpFileWrite, errorfs.OpCreate)
		db := reopen(t, &Options{FS: fs, tune: quiet})
		require.NoError(t, putTo(db, bob, "stored", inbox.Quota{}).Err)
		var enospc error = syscall.ENOSPC
		fault.Store(&enospc)
		start := time.Now()
		assert.ErrorIs(t, db.Close(), inbox.ErrStorageFull)
		assert.Less(t, time.Since(start), 2*time.Second)
		db = reopen(t, &Options{FS: mem, tune: quiet})
		assert.Equal(t, []string{"stored"}, held(t, db, bob))
		assert.NoError(t, db.Close())
	})
}

// TestSyncFails: an fsync that failed is the end of the store, although the next
// one would succeed.
func TestSyncFails(t *testing.T) {
	for _, errno := range []error{syscall.EIO, syscall.ENOSPC} {
		synctest.Test(t, func(t *testing.T) {
			mem := vfs.NewMem()
			fs, fault := failing(mem, errorfs.OpFileSync, errorfs.OpFileSyncData)
			db := reopen(t, &Options{FS: fs, tune: quiet})
			stored := putTo(db, bob, "stored", inbox.Quota{})
			require.NoError(t, stored.Err)
			fault.Store(&errno)
			time.AfterFunc(time.Nanosecond, func() { fault.Store(nil) })
			assert.ErrorIs(t, putTo(db, bob, "lost", inbox.Quota{}).Err, errno)
			fault.Store(nil)
			assert.ErrorIs(t, db.Err(), errno)
			assert.ErrorIs(t, putTo(db, bob, "lost", inbox.Quota{}).Err, errno)
			_, err := db.Inbox().Delete(ctx, bob, stored.Seq)
			assert.ErrorIs(t, err, errno)
			for _, err := range db.Inbox().Entries(ctx, bob, 0) {
				assert.ErrorIs(t, err, errno)
			}
			_, _, err = db.Inbox().Count(ctx, bob)
			assert.ErrorIs(t, err, errno)
			_, err = db.Inbox().Purge(ctx, 1, nil)
			assert.ErrorIs(t, err, errno)
			assert.ErrorIs(t, db.State().Put(ctx, "b", "k", nil), errno)
			_, _, err = db.State().Get(ctx, "b", "k")
			assert.ErrorIs(t, err, errno)
			_, err = db.Check(ctx)
			assert.ErrorIs(t, err, errno)
			assert.ErrorIs(t, db.Compact(ctx), errno)
			assert.ErrorIs(t, db.Close(), errno)
			assert.Equal(t, inbox.ErrClosed, db.Err())

			db = reopen(t, &Options{FS: mem, tune: quiet})
			assert.Contains(t, held(t, db, bob), "stored")
			assert.NoError(t, db.Close())
		})
	}
}
