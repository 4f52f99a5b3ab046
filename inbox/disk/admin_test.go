package disk

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sotto-relay/sotto/inbox"
	"github.com/sotto-relay/sotto/internal/race"
)

func TestOperators(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := openMem(t)
		defer db.Close()
		list, err := db.Recipients(ctx)
		require.NoError(t, err)
		assert.Empty(t, list)

		start := time.Now().UTC()
		var seqs []uint64
		for i, to := range []inbox.Address{bob, {Realm: 0, Name: "zed"}, bob, alice, bob} {
			e := &inbox.Entry{To: to, From: alice, Data: make([]byte, i*1000), Stored: start.Add(time.Duration(i) * time.Second)}
			if i == 2 {
				e.Expires = start.Add(time.Hour)
			}
			done := make(chan inbox.Result, 1)
			db.Inbox().Put(ctx, e, inbox.Quota{}, func(r inbox.Result) { done <- r })
			res := <-done
			require.NoError(t, res.Err)
			seqs = append(seqs, res.Seq)
		}
		list, err = db.Recipients(ctx)
		require.NoError(t, err)
		assert.Equal(t, []Recipient{
			{Address: inbox.Address{Realm: 0, Name: "zed"}, Messages: 1, Bytes: 1000, Oldest: start.Add(time.Second)},
			{Address: alice, Messages: 1, Bytes: 3000, Oldest: start.Add(3 * time.Second)},
			{Address: bob, Messages: 3, Bytes: 6000, Oldest: start},
		}, list)
		messages, err := db.Messages(ctx, bob)
		require.NoError(t, err)
		assert.Equal(t, []Message{
			{Seq: seqs[0], From: alice, Stored: start},
			{Seq: seqs[2], From: alice, Bytes: 2000, Stored: start.Add(2 * time.Second), Expires: start.Add(time.Hour)},
			{Seq: seqs[4], From: alice, Bytes: 4000, Stored: start.Add(4 * time.Second)},
		}, messages)
		require.NoError(t, db.State().Put(ctx, "b", "k", []byte("v")))
		check, err := db.Check(ctx)
		require.NoError(t, err)
		assert.Equal(t, Check{Messages: 5, Bytes: 10000, Values: 1}, check)

		time.Sleep(time.Hour)
		list, err = db.Recipients(ctx)
		require.NoError(t, err)
		assert.Equal(t, 3, list[2].Messages, "expired ones are there until they are purged")
		n, err := db.Remove(ctx, bob)
		require.NoError(t, err)
		assert.Equal(t, 3, n)
		n, err = db.Remove(ctx, bob)
		require.NoError(t, err)
		assert.Zero(t, n)
		require.NoError(t, db.Compact(ctx))
		check, err = db.Check(ctx)
		require.NoError(t, err)
		assert.Equal(t, Check{Messages: 2, Bytes: 4000, Values: 1}, check)

		ended, cancel := context.WithCancel(ctx)
		cancel()
		_, err = db.Recipients(ended)
		assert.Equal(t, context.Canceled, err)
		_, err = db.Messages(ended, bob)
		assert.Equal(t, context.Canceled, err)
		_, err = db.Remove(ended, bob)
		assert.Equal(t, context.Canceled, err)
		_, err = db.Check(ended)
		assert.Equal(t, context.Canceled, err)
		assert.Equal(t, context.Canceled, db.Compact(ended))
		require.NoError(t, db.Close())
		_, err = db.Recipients(ctx)
		assert.Equal(t, inbox.ErrClosed, err)
		_, err = db.Messages(ctx, bob)
		assert.Equal(t, inbox.ErrClosed, err)
		_, err = db.Check(ctx)
		assert.Equal(t, inbox.ErrClosed, err)
		assert.Equal(t, inbox.ErrClosed, db.Compact(ctx))
	})
}

// spoilTables flips a byte in the middle of each table.
func spoilTables(t *testing.T, mem *vfs.MemFS) {
	names, err := mem.List("data/db")
	require.NoError(t, err)
	n := 0
	for _, name := range names {
		if isTable(name) {
			b, err := mem.UnsafeGetFileDataBuffer("data/db/" + name)
			require.NoError(t, err)
			b[len(b)/2] ^= 1
			n++
		}
	}
	require.Positive(t, n)
}

// TestDamagedMeanwhile: a message that the disk damages while the store is open
// is left out, the others are delivered, and the store goes on.
func TestDamagedMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := vfs.NewMem()
		db := reopen(t, &Options{FS: mem, tune: func(o *pebble.Options) { quiet(o); o.CacheSize = 1 }})
		defer db.Close()
		for i := range 9 {
			require.NoError(t, putTo(db, bob, strings.Repeat(fmt.Sprint(i), 10_000), inbox.Quota{}).Err)
		}
		require.NoError(t, db.pebble.Flush())
		spoilTables(t, mem)
		for range 2 {
			got := held(t, db, bob)
			assert.Len(t, got, 8)
			for _, data := range got {
				assert.Equal(t, strings.Repeat(data[:1], 10_000), data)
			}
		}
		assert.Positive(t, db.Damaged())
		noted := db.Damaged()
		held(t, db, bob)
		assert.Equal(t, noted, db.Damaged(), "found once, and not read again")
		check, err := db.Check(ctx)
		assert.NoError(t, err)
		assert.Equal(t, 8, check.Messages)
		require.Len(t, check.Damaged, 1)
		assert.Regexp(t, `^message \d cannot be read: the file data/db/\d+.sst is damaged$`, check.Damaged[0])
		assert.NoError(t, db.Err())
		assert.NoError(t, putTo(db, bob, "new", inbox.Quota{}).Err)
		n, err := db.Remove(ctx, bob)
		assert.NoError(t, err)
		assert.Equal(t, 10, n, "what is damaged can be deleted")
	})
}

// TestDamagedState: a value that is damaged is an error, not a value that is not
// there.
func TestDamagedState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := vfs.NewMem()
		db := reopen(t, &Options{FS: mem, tune: func(o *pebble.Options) { quiet(o); o.CacheSize = 1 }})
		require.NoError(t, db.State().Put(ctx, "b", "k", make([]byte, 3000)))
		require.NoError(t, db.pebble.Flush())
		spoilTables(t, mem)
		_, ok, err := db.State().Get(ctx, "b", "k")
		assert.False(t, ok)
		assert.True(t, isDamage(err), "%v", err)
		var errs []error
		for _, err := range db.State().Range(ctx, "b", "") {
			errs = append(errs, err)
		}
		require.Len(t, errs, 1)
		assert.True(t, isDamage(errs[0]))
		assert.NoError(t, db.Err())
		require.NoError(t, db.Close())
		_, err = Open("data", &Options{FS: mem, tune: quiet})
		var open *openError
		require.True(t, errors.As(err, &open))
		assert.True(t, open.damaged)
		assert.Contains(t, err.Error(), ".sst is damaged; ")
	})
}

// TestGrowth puts and deletes behind a message that stays: what is gone takes no
// room, in the directory or in memory.
func TestGrowth(t *testing.T) {
	n := 20_000
	switch {
	case *full:
		n = 1_000_000
	case race.Enabled:
		t.Skip("long, and one goroutine puts")
	}
	dir := t.TempDir()
	db, err := Open(dir, &Options{tune: func(o *pebble.Options) { o.MemTableSize = 1 << 20 }})
	require.NoError(t, err)
	defer db.Close()
	require.NoError(t, putTo(db, bob, "stays", inbox.Quota{}).Err)
	const batch = 500
	data := make([]byte, 1000)
	for i := range data {
		data[i] = byte(i * i * 31 >> 3)
	}
	for range n / batch {
		var wg sync.WaitGroup
		seqs := make([]uint64, batch)
		wg.Add(batch)
		for i := range seqs {
			db.Inbox().Put(ctx, &inbox.Entry{To: bob, From: alice, Data: data}, inbox.Quota{}, func(r inbox.Result) {
				seqs[i] = r.Seq
				wg.Done()
			})
		}
		wg.Wait()
		deleted, err := db.Inbox().Delete(ctx, bob, seqs...)
		require.NoError(t, err)
		require.Equal(t, batch, deleted)
	}
	size := int64(0)
	for _, name := range listing(t, dir) {
		info, err := vfs.Default.Stat(name)
		require.NoError(t, err)
		if !info.IsDir() {
			size += info.Size()
		}
	}
	t.Logf("%d messages of 1000 bytes came and went; the directory has %d KiB", n, size>>10)
	assert.Less(t, size, int64(12<<20))
	assert.Equal(t, []string{"stays"}, held(t, db, bob))
}
