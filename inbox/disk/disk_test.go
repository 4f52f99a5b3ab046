package disk

import (
	"math/rand/v2"
	"os"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/sotto-relay/sotto/inbox"
	"github.com/sotto-relay/sotto/inbox/inboxtest"
	"github.com/sotto-relay/sotto/internal/race"
)

func TestMain(m *testing.M) {
	if what, ok := os.LookupEnv(childEnv); ok {
		child(what)
		return
	}
	if dir, ok := os.LookupEnv(holderEnv); ok {
		hold(dir)
		return
	}
	goleak.VerifyTestMain(m)
}

// quiet keeps Pebble from waking up ten times a second, or a bubble could not
// advance by years.
func quiet(o *pebble.Options) {
	o.Experimental.CompactionScheduler = pebble.NewConcurrencyLimitSchedulerWithNoPeriodicGrantingForTest()
}

func openMem(t *testing.T) *DB {
	return reopen(t, &Options{FS: vfs.NewMem(), tune: quiet})
}

func reopen(t *testing.T, o *Options) *DB {
	db, err := Open("data", o)
	require.NoError(t, err)
	return db
}

func TestStore(t *testing.T) {
	inboxtest.TestStore(t, func(t *testing.T) inbox.Store { return openMem(t).Inbox() }, &inboxtest.Options{
		Reopen: func(t *testing.T, s inbox.Store) inbox.Store {
			require.NoError(t, s.Close())
			return reopen(t, &s.(store).o).Inbox()
		},
	})
}

func TestState(t *testing.T) {
	inboxtest.TestState(t, func(t *testing.T) inbox.State { return openMem(t).State() }, &inboxtest.Options{
		ReopenState: func(t *testing.T, s inbox.State) inbox.State {
			require.NoError(t, s.Close())
			return reopen(t, &s.(state).o).State()
		},
	})
}

// some returns where to begin and how far to step in a long list of cases: with
// the race detector a different small part of it is run each time.
func some(t *testing.T, one int) (begin, step int) {
	if !race.Enabled || *full {
		return 0, 1
	}
	begin = rand.IntN(one)
	t.Logf("every %dth case from the %dth on", one, begin)
	return begin, one
}
