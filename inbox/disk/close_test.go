package disk

import (
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sotto-relay/sotto/inbox"
)

// TestCloseWhileReading closes a store on a disk that takes a second for each read
// of a table and for each write. Who reads gets what it reads, and Close waits
// for it; who comes later does not wait for Close.
func TestCloseWhileReading(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := vfs.NewMem()
		db := reopen(t, &Options{FS: mem, tune: quiet})
		data := strings.Repeat("x", partSize)
		require.NoError(t, putTo(db, bob, data, inbox.Quota{}).Err)
		require.NoError(t, db.State().Put(ctx, "history", "key", []byte("value")))
		require.NoError(t, db.Close())

		var slow atomic.Bool
		fs := errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
			reads := strings.HasSuffix(op.Path, ".sst") && op.Kind == errorfs.OpFileReadAt
			if slow.Load() && (reads || op.Kind == errorfs.OpFileWrite) {
				time.Sleep(time.Second)
			}
			return nil
		}))
		db = reopen(t, &Options{FS: fs, CacheBytes: 1, tune: quiet})
		slow.Store(true)

		start := time.Now()
		read, closed := make(chan error, 1), make(chan time.Duration, 1)
		go func() {
			var err error
			for got, failed := range db.Inbox().Entries(ctx, bob, 0) {
				if err = failed; err == nil {
					assert.Equal(t, data, string(got.Data))
				}
			}
			read <- err
		}()
		time.Sleep(time.Second / 2)
		go func() {
			_ = db.Close()
			closed <- time.Since(start)
		}()
		time.Sleep(time.Second / 4)
		_, _, err := db.State().Get(ctx, "history", "key")
		assert.ErrorIs(t, err, inbox.ErrClosed)
		assert.Equal(t, 750*time.Millisecond, time.Since(start), "waited for Close")
		assert.NoError(t, <-read)
		assert.GreaterOrEqual(t, time.Since(start), time.Second, "nothing was read from the disk")
		assert.Greater(t, <-closed, time.Second, "Close did not wait")
	})
}
