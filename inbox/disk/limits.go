package disk

import (
	"encoding/binary"
	"math"
	"time"

	"github.com/sotto-relay/sotto/inbox"
)

// These are the committer's: what it looks at before it lets something in, and
// what it records on the way.

const (
	timeEvery = time.Minute            // the time is recorded, with what is written
	spaceFor  = 100 * time.Millisecond // free space is believed, unless much was put since
	tidyEvery = 10 * time.Second       // while the disk is full, what was deleted is tidied up, so often at most
	sayEvery  = time.Minute            // that it is full
	seqBlock  = 1 << 16                // numbers that may be skipped by a crash
)

// fit returns how much goes to Pebble's log before it is written to tables, and
// sets Options.Reserve if it is not set. There are up to five logs of that size,
// most of them to be written over, for which a small disk has no room.
func (db *DB) fit() (logSize uint64) {
	total := int64(math.MaxInt64)
	if u, err := db.o.FS.GetDiskUsage(db.dir); err == nil {
		total = int64(u.TotalBytes)
	}
	def(&db.o.Reserve, min(128<<20, max(1, total/8)))
	return uint64(min(32<<20, max(1<<20, total/128)))
}

// room says whether the store may grow. The caller holds db.mu.
func (db *DB) room(bytes int64, messages int) bool {
	n, _ := db.index.Sum()
	if bytes > 0 && db.used > db.o.MaxBytes-bytes || messages > 0 && n > db.o.MaxMessages-messages {
		db.sayFull("it holds as much as it may")
		return false
	}
	if !db.diskFull(db.o.Reserve) {
		return true
	}
	db.sayFull("the disk is full")
	db.makeRoom()
	return false
}

// sayFull tells operators why messages are refused, once in a while.
func (db *DB) sayFull(why string) {
	if now := db.clock.now(); now >= db.said {
		db.said = now + sayEvery
		n, size := db.index.Sum()
		db.log.Warn("inbox store: full, new messages are refused", "dir", db.dir, "why", why, "messages", n, "bytes", size)
	}
}

// diskFull says whether the disk is down to a reserve. Where the file system
// cannot tell, it is not.
func (db *DB) diskFull(reserve int64) bool {
	if waits, _ := db.fs.waits(); waits {
		return true
	}
	spare := int64(min(db.free, math.MaxInt64)) - db.o.Reserve
	if now := db.clock.now(); now >= db.believed || db.spent > spare/2 {
		db.believed, db.spent = now+spaceFor, 0
		db.free = db.available()
	}
	return db.free < uint64(reserve)
}

// available returns how much room there is on the disk, beside what Pebble needs to
// merge the tables that came last with the others. Were that not there, Pebble would
// try in vain for ever, and at so many tables let nothing in: not even a deletion.
func (db *DB) available() uint64 {
	u, err := db.o.FS.GetDiskUsage(db.dir)
	if err != nil {
		return math.MaxUint64
	}
	last := uint64(db.pebble.Metrics().Levels[0].TablesSize)
	return u.AvailBytes - min(u.AvailBytes, last)
}

// makeRoom has what was deleted tidied up, which Pebble does at its own time: too
// late for a disk that is full. While something waits to be written that would
// wait behind it. At most half of the time goes into it, since of a large store it
// takes minutes. The caller holds db.mu.
func (db *DB) makeRoom() {
	began := db.clock.now()
	if waits, _ := db.fs.waits(); waits || db.loose.Load() == 0 || int64(began) < db.tidyAt.Load() {
		return
	}
	db.tidyAt.Store(int64(inbox.Never))
	loose := db.loose.Swap(0)
	db.tidying.Go(func() { // which shut ends, and waits for
		if err := db.Compact(db.ctx); err != nil {
			db.loose.Add(loose)
			if db.Err() == nil {
				db.log.Warn("inbox store: cannot make room", "dir", db.dir, "err", line(err))
			}
		}
		ended := db.clock.now()
		db.tidyAt.Store(int64(ended + max(tidyEvery, ended-began)))
	})
}

// raise records a bound for the numbers given before one goes beyond it, so that
// none is given again after a crash.
func (db *DB) raise(g *group, seq uint64) {
	if seq > db.ceiling {
		db.ceiling = seq + seqBlock
		key := metaKey("seq")
		_ = g.batch.Set(key, seal(binary.BigEndian.AppendUint64(nil, db.ceiling), key), nil)
	}
}

// recordTime records the time, if that was not done for so long.
func (db *DB) recordTime(g *group, every time.Duration) {
	if now := db.clock.now(); now-db.recorded >= every {
		db.recorded = now
		key := metaKey("time")
		_ = g.batch.Set(key, seal(newStamp(db.clock.wall()).append(nil), key), nil)
	}
}
