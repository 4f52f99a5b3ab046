package disk

import (
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"

	"github.com/sotto-relay/sotto/inbox"
)

// slowLogs takes a while for each sync of a log, and counts them.
type slowLogs struct {
	vfs.FS
	syncs *atomic.Int64
}

func (s slowLogs) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := s.FS.Create(name, c)
	if err == nil && strings.HasSuffix(name, ".log") {
		f = slowLog{f, s.syncs}
	}
	return f, err
}

type slowLog struct {
	vfs.File
	syncs *atomic.Int64
}

func (f slowLog) Sync() error {
	f.syncs.Add(1)
	time.Sleep(time.Millisecond)
	return f.File.Sync()
}

func (f slowLog) SyncData() error { return f.Sync() }

// Writers who wait for each of their puts share every fsync: none is for half of
// them, while the others wait for the next.
func TestWritersShareSyncs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const writers, rounds = 64, 20
		var syncs atomic.Int64
		db := reopen(t, &Options{FS: slowLogs{vfs.NewMem(), &syncs}, tune: quiet})
		before := syncs.Load()
		var wg sync.WaitGroup
		for range writers {
			wg.Go(func() {
				for range rounds {
					done := make(chan error, 1)
					db.Inbox().Put(ctx, message(messageName("alice", "bob", 1)), inbox.Quota{}, func(r inbox.Result) { done <- r.Err })
					if err := <-done; err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		took := syncs.Load() - before
		require.NoError(t, db.Close())
		require.LessOrEqual(t, took, int64(rounds+rounds/2), "syncs for %d rounds", rounds)
	})
}
