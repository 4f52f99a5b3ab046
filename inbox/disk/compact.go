package disk

import (
	"bytes"
	"context"
	"slices"
	"time"

	"github.com/cockroachdb/pebble/v2"
)

// cleanEvery is how often Compact looks for the room of what it has rewritten.
const cleanEvery = time.Millisecond

// tidy has Pebble, and Compact, rewrite so little at a time that there is room for it
// beside what is there, also on a disk that is full: in the reserve. By itself Pebble
// lets tables grow to 128 MB, and rewrites a dozen at once.
func (db *DB) tidy(o *pebble.Options) {
	table := min(4<<20, max(64<<10, db.o.Reserve/32))
	for i := range o.TargetFileSizes {
		o.TargetFileSizes[i] = table
	}
	o.LBaseMaxBytes = 16 * table
	o.L0CompactionFileThreshold = 16 // of two tables' size at most, for which room is left; see available
	db.stretch = 8 * uint64(table)
}

// Compact rewrites what is stored without what was deleted. That happens by
// itself; this does it at once. It goes from stretch to stretch, so free space of
// some 100 MB is enough for a store of any size.
func (db *DB) Compact(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := db.enter(); err != nil {
		return err
	}
	defer db.readers.Done()
	defer db.recover()
	flushed, err := db.pebble.AsyncFlush() // or the tables would not tell what was deleted
	if err != nil {
		return err
	}
	select {
	case <-flushed:
	case <-ctx.Done():
		return ctx.Err()
	}
	cuts, err := db.cuts()
	for i := 0; err == nil && i+1 < len(cuts); i++ {
		var some bool
		if some, err = db.anyDeleted(cuts[i], cuts[i+1]); some && err == nil {
			err = db.pebble.Compact(ctx, cuts[i], before(cuts[i+1]), false)
		}
		if err == nil {
			err = db.cleaned(ctx)
		}
	}
	return err
}

// cleaned waits until little is left of the tables that were rewritten. Pebble removes
// them in its own time, and on a full disk the next stretch needs their room.
func (db *DB) cleaned(ctx context.Context) error {
	for db.pebble.Metrics().Table.ObsoleteSize > db.stretch {
		select {
		case <-time.After(cleanEvery):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// cuts returns where the stretches begin, and where the last one ends.
func (db *DB) cuts() ([][]byte, error) {
	levels, err := db.pebble.SSTables()
	if err != nil {
		return nil, err
	}
	tables := slices.Concat(levels...)
	slices.SortFunc(tables, func(a, b pebble.SSTableInfo) int {
		return bytes.Compare(a.Smallest.UserKey, b.Smallest.UserKey)
	})
	cuts, size := [][]byte{{0}}, uint64(0)
	for _, t := range tables {
		if size > 0 && size+t.Size > db.stretch && !bytes.Equal(t.Smallest.UserKey, cuts[len(cuts)-1]) {
			cuts, size = append(cuts, t.Smallest.UserKey), 0
		}
		size += t.Size
	}
	return append(cuts, []byte{0xff}), nil
}

// anyDeleted says whether a stretch has tables that delete something.
func (db *DB) anyDeleted(from, to []byte) (bool, error) {
	levels, err := db.pebble.SSTables(pebble.WithKeyRangeFilter(from, to))
	return slices.ContainsFunc(slices.Concat(levels...), func(t pebble.SSTableInfo) bool {
		return t.TableStats.NumDeletions > 0 || t.TableStats.NumEntries == 0 // which is not known yet
	}), err
}

// before returns a key before k, with hardly any between them.
func before(k []byte) []byte {
	b := bytes.Clone(k)
	last := len(b) - 1
	if b[last] == 0 {
		return b[:last]
	}
	b[last]--
	return append(b, 0xff, 0xff, 0xff, 0xff)
}
