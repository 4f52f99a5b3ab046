package jsonmsg

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sotto-relay/sotto/inbox"
	"github.com/sotto-relay/sotto/relay"
)

// stored returns what a ledger has in the store, by name.
func stored(t *testing.T, l *ledger, r *rules) map[string]page {
	all := make(map[string]page)
	for it, err := range r.state.Range(t.Context(), l.bucket, "") {
		require.NoError(t, err)
		all[it.Key] = decodePage(it.Value)
	}
	return all
}

// checkCounts makes sure that what is counted is what is stored (case RA-03).
func checkCounts(t *testing.T, l *ledger, r *rules) {
	counts := map[string]int{}
	all := stored(t, l, r)
	for _, p := range all {
		if p.source != "" {
			counts[p.source]++
		}
	}
	if l.counted {
		require.Equal(t, len(all), l.total)
		require.True(t, maps.Equal(counts, l.counts), "%v, counted %v", counts, l.counts)
	}
}

// TestLedgerModel: random use, against what a list of names would say.
func TestLedgerModel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		seed := rand.Uint64()
		random := rand.New(rand.NewPCG(seed, 0))
		r := &rules{state: inbox.NewMemoryState(nil), max: 12, perSource: 5, ttl: 90 * time.Minute}
		l := &ledger{bucket: "b"}
		type use struct {
			key  byte
			last time.Time
		}
		model := make(map[string]use)
		for range 5000 {
			name, key := fmt.Sprint("n", random.IntN(20)), byte(random.IntN(3))
			source := []string{"", "s1", "s2", "s3"}[random.IntN(4)]
			was, known := model[name]
			age := time.Since(was.last)
			// Between ttl and a step or two more it may be forgotten; not before.
			held, maybe := known && age < r.ttl, known && age >= r.ttl && age < r.ttl+2*r.step()
			switch random.IntN(6) {
			case 0, 1, 2:
				fresh, err := l.record(t.Context(), r, name, [32]byte{key}, source)
				switch {
				case maybe && err == nil || err == nil && !held:
					require.True(t, fresh || maybe)
				case held && was.key == key:
					require.NoError(t, err)
					require.False(t, fresh)
				case held:
					require.ErrorIs(t, err, errBound)
				case err != nil && !maybe:
					require.ErrorIs(t, err, errStorageFull)
					require.True(t, l.total >= r.max || l.counts[source] >= r.perSource, "seed %d", seed)
				}
				if err == nil {
					model[name] = use{key, time.Now()}
				}
			case 3:
				require.NoError(t, l.touch(t.Context(), r, name, [32]byte{key}))
				if p, there := stored(t, l, r)[name]; there && p.key[0] == key { // also if out of date
					model[name] = use{key, time.Now()}
				}
			case 4:
				if random.IntN(4) == 0 {
					require.NoError(t, l.remove(t.Context(), r, name))
					delete(model, name)
				}
			case 5:
				time.Sleep(time.Duration(random.Int64N(int64(20 * time.Minute))))
			}
			checkCounts(t, l, r)
			require.LessOrEqual(t, l.total, r.max)
			if random.IntN(50) == 0 {
				l = &ledger{bucket: "b"} // a restart
			}
		}
	})
}

// TestLedgerSweep: names that are out of date are found wherever they are, a few
// at a time, and again later.
func TestLedgerSweep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &rules{state: inbox.NewMemoryState(nil), max: 40, perSource: 1000, ttl: time.Hour}
		l := &ledger{bucket: "b"}
		record := func(format string, i int) error {
			_, err := l.record(t.Context(), r, fmt.Sprintf(format, i), [32]byte{}, "")
			return err
		}
		count := func(letter string) (n int) {
			for name := range stored(t, l, r) {
				if name[:1] == letter {
					n++
				}
			}
			return n
		}
		for i := range 20 {
			require.NoError(t, record("b%02d", i))
		}
		time.Sleep(40 * time.Minute)
		for i := range 20 {
			require.NoError(t, record("a%02d", i))
		}
		require.ErrorIs(t, record("x%d", 0), errStorageFull)
		time.Sleep(25 * time.Minute) // now those with b are
		for i := range 4 {
			_ = record("c%d", i)
		}
		assert.Zero(t, count("b"))
		assert.Equal(t, 20, count("a"))
		for i := range 40 - 20 - count("c") {
			require.NoError(t, record("d%02d", i))
		}
		require.ErrorIs(t, record("x%d", 0), errStorageFull)
		time.Sleep(40 * time.Minute) // now those with a are, where the sweep began
		for i := range 4 {
			_ = record("e%d", i)
		}
		assert.Zero(t, count("a"))
	})
}

// TestLedgerValues: what is in the store is no use to a wrong key, and no harm when
// it is none of ours.
func TestLedgerValues(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &rules{state: inbox.NewMemoryState(nil), max: 10, perSource: 10, ttl: 90 * time.Hour}
		l := &ledger{bucket: "b"}
		values := [][]byte{nil, {1}, make([]byte, pageHead-1)}
		for n, value := range values {
			require.NoError(t, r.state.Put(t.Context(), "b", fmt.Sprint("n", n), value))
		}
		for n := range values {
			name := fmt.Sprint("n", n)
			_, ok, err := l.find(t.Context(), r, name)
			require.NoError(t, err)
			require.False(t, ok)
			fresh, err := l.record(t.Context(), r, name, [32]byte{1}, "s")
			require.NoError(t, err)
			require.True(t, fresh)
			checkCounts(t, l, r)
		}
		start := time.Now()
		time.Sleep(59 * time.Minute)
		require.NoError(t, l.touch(t.Context(), r, "n0", [32]byte{1}))
		assert.True(t, stored(t, l, r)["n0"].used.Equal(start), "less than a step writes nothing")
		time.Sleep(time.Minute)
		require.NoError(t, l.touch(t.Context(), r, "n0", [32]byte{2}))
		assert.True(t, stored(t, l, r)["n0"].used.Equal(start), "not its key")
		require.NoError(t, l.touch(t.Context(), r, "n0", [32]byte{1}))
		assert.True(t, stored(t, l, r)["n0"].used.Equal(start.Add(time.Hour)))
		require.NoError(t, l.touch(t.Context(), r, "none", [32]byte{1}))
		assert.Len(t, stored(t, l, r), 3)
	})
}

// meetingState has the first Put wait for the second, and fails if that does not
// come.
type meetingState struct {
	relay.State
	puts atomic.Int64
	met  chan struct{}
}

func (s *meetingState) Put(ctx context.Context, bucket, key string, value []byte) error {
	switch s.puts.Add(1) {
	case 1:
		select {
		case <-s.met:
		case <-time.After(10 * time.Second):
			return errors.New("nobody else came")
		}
	case 2:
		close(s.met)
	}
	return s.State.Put(ctx, bucket, key, value)
}

// Who takes a name does not wait for the store of others who take theirs; of two
// who want the same one gets it; and together they do not get past the bounds.
func TestLedgerAtOnce(t *testing.T) {
	r := &rules{state: &meetingState{State: inbox.NewMemoryState(nil), met: make(chan struct{})}, max: 20, perSource: 20, ttl: time.Hour}
	l := &ledger{bucket: "b"}
	var all sync.WaitGroup
	var fresh, bound, full atomic.Int64
	for i := range 40 {
		for key := range byte(2) {
			all.Go(func() {
				is, err := l.record(t.Context(), r, strconv.Itoa(i), [32]byte{key + 1}, "s")
				switch {
				case errors.Is(err, errBound):
					bound.Add(1)
				case errors.Is(err, errStorageFull):
					full.Add(1)
				case assert.NoError(t, err) && is:
					fresh.Add(1)
				}
			})
		}
	}
	all.Wait()
	assert.EqualValues(t, 20, fresh.Load())
	assert.EqualValues(t, 60, bound.Load()+full.Load())
	checkCounts(t, l, r)
}
