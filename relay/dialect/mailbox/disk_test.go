package mailbox

import (
	"log/slog"
	"math/rand/v2"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sotto-relay/sotto/inbox/disk"
	"github.com/sotto-relay/sotto/relay"
)

// openDisk has the rig's server keep everything in a directory.
func openDisk(t *testing.T, server *relay.Server, dir string) *disk.DB {
	t.Helper()
	db, err := disk.Open(dir, &disk.Options{Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	server.Inbox, server.State = db.Inbox(), db.State()
	t.Cleanup(func() { assert.NoError(t, db.Close()) })
	return db
}

// TestDisk: on a disk nothing is lost or doubled either, and what has been answered
// is known after a restart.
func TestDisk(t *testing.T) {
	dir := t.TempDir()
	var db *disk.DB
	r := newRig(t, func(r *rig) {
		unmetered(r)
		db = openDisk(t, r.server, dir)
	})
	r.storeWhileFetching(4, 25)

	want := []string{"a", "b", "c"}
	r.mustStore(r.alice, r.bob.Public(), want...)
	stamp := time.Now().Add(-time.Minute)
	next := func() string {
		stamp = stamp.Add(time.Millisecond)
		return "/relay/fetch" + query(r.bob, stamp)
	}
	for range 20 {
		c := r.begin("GET", next()+"&lease=60")
		c.read(rand.IntN(500))
		_ = c.Close()
		require.Eventually(t, func() bool { return len(r.pending(r.bob)) == 3 }, 10*time.Second, time.Millisecond)
		require.Equal(t, want, r.pending(r.bob))
	}
	fetched := next()
	items, _ := r.do("GET", fetched+"&limit=1", "").list(t)
	require.Equal(t, want[:1], blobs(items))
	items, _ = r.do("GET", next()+"&limit=1&lease=60", "").list(t)
	require.Equal(t, want[1:2], blobs(items))
	require.Equal(t, http.StatusOK, r.ack(r.bob, items[0].ID).status)

	r.stop()
	require.NoError(t, db.Close())
	r.server = &relay.Server{Logger: r.server.Logger, Limits: r.server.Limits}
	openDisk(t, r.server, dir)
	r.start()
	r.do("GET", fetched+"&limit=1", "").requireRefused(t, http.StatusUnauthorized)
	r.mustStore(r.alice, r.bob.Public(), want...)
	items, _ = r.do("GET", next(), "").list(t)
	assert.Equal(t, want[2:], blobs(items))
}
