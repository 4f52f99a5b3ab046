package disk

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/sotto-relay/sotto/inbox"
)

// Options are the options of [Open]. A nil pointer means the defaults.
type Options struct {
	// Quarantine has Open move what is damaged aside, to names that end in
	// ".bad-<time>", and go on with what can be read of it, instead of returning
	// an error. [DB.Rescued] says what became of it.
	Quarantine bool

	// Existing has Open fail where there is no store, instead of making one.
	Existing bool

	// MaxBytes bounds the messages stored: their data, names, and 128 bytes each.
	// Zero means 64 GiB. MaxMessages bounds their number, and so the memory that
	// the index takes. Zero means 4,000,000: about one gigabyte, or two and a half
	// if each is for a recipient of its own. Beyond either, and beyond Reserve,
	// there is inbox.ErrStorageFull.
	MaxBytes    int64
	MaxMessages int

	// Reserve is how much room on the disk is left free, so that there is some for
	// deleting and for tidying up, which takes up to half of it. Beside it there is
	// room for a copy of what came last, until that has been tidied up: up to 128 MiB,
	// and more while the disk does not keep up. Zero means 128 MiB, or an eighth of a
	// disk of less than 1 GiB. What is stored stays readable and deletable below it,
	// and there is room again as soon as the disk has some.
	// Should something else fill the disk to the last byte, what needs to be written
	// waits until it can be.
	Reserve int64

	// CacheBytes is the size of the cache of blocks read. Zero means 32 MiB.
	CacheBytes int64

	// Logger gets what operators should know, and never what messages hold. Nil:
	// nothing is logged.
	Logger *slog.Logger

	// FS is the file system, for tests. Nil means that of the operating system.
	FS vfs.FS

	tune func(*pebble.Options) // for tests
}

func (o *Options) withDefaults() Options {
	var r Options
	if o != nil {
		r = *o
	}
	def(&r.MaxBytes, 64<<30)
	def(&r.MaxMessages, 4_000_000)
	def(&r.CacheBytes, 32<<20)
	if r.Logger == nil {
		r.Logger = slog.New(slog.DiscardHandler)
	}
	if r.FS == nil {
		r.FS = vfs.Default
	}
	return r
}

func def[T int | int64](v *T, d T) {
	if *v <= 0 {
		*v = d
	}
}

// A DB is an open directory. All methods may be called concurrently.
type DB struct {
	dir     string
	o       Options
	log     *slog.Logger
	fs      *guard
	lock    *lock
	pebble  *pebble.DB
	stretch uint64 // bytes that Compact rewrites at a time
	clock   clock
	queue   queue
	groups  chan *group
	turn    chan struct{} // has one while no group is on its way

	gate         sync.RWMutex   // between enter and shut
	readers      sync.WaitGroup // those who read from Pebble
	acked        chan struct{}  // closed when the acknowledger has ended
	running      atomic.Bool
	closing      atomic.Bool
	idle         chan struct{} // closed when Pebble is
	ctx          context.Context
	cancel       context.CancelFunc // of ctx, when it closes
	tidying      sync.WaitGroup     // the committer's, of makeRoom
	closed       atomic.Bool
	failure      atomic.Pointer[error]
	loose        atomic.Int64 // bytes of entries that were deleted since the last makeRoom
	tidyAt       atomic.Int64 // the time from which on there may be another
	damaged      atomic.Int64
	warned       atomic.Int64  // when tidying up was last said to have failed
	durable      atomic.Uint64 // Seqs up to it are durable
	acknowledged atomic.Uint64 // groups up to it are
	rescued      *Rescue

	mu     sync.Mutex
	index  inbox.Index[kept]
	totals inbox.SenderTotals[kept]
	used   int64 // sum of the costs of all entries

	taken map[uint64]bool // the acknowledger's own: numbers of what was taken back

	// The committer's own.
	group    uint64        // the last one
	values   int           // of the state
	ceiling  uint64        // recorded: no greater Seq has been given
	recorded time.Duration // when the time was recorded
	believed time.Duration // when full has to be determined again
	free     uint64        // on the disk
	spent    int64         // what has been put since, with its log
	said     time.Duration // when may be said again that the store is full
}

// Inbox returns the store of messages. Closing it closes the DB.
func (db *DB) Inbox() inbox.Store { return store{db} }

// State returns the state store. Closing it closes the DB.
func (db *DB) State() inbox.State { return state{db} }

// Err returns nil while the DB works, else inbox.ErrClosed or why it has failed:
// then it has to be closed and opened again, which a disk that is broken may not
// allow.
func (db *DB) Err() error {
	if db.closed.Load() {
		return inbox.ErrClosed
	}
	return db.failed()
}

func (db *DB) failed() error {
	if f := db.failure.Load(); f != nil {
		return *f
	}
	return nil
}

// Damaged returns how many times something was found damaged since Open: entries
// and stretches of the disk that are left out. [DB.Check] tells more.
func (db *DB) Damaged() int64 { return db.damaged.Load() }

// Full says whether there is no room for any message, however small, by
// Options.MaxBytes, MaxMessages or Reserve.
func (db *DB) Full() bool {
	db.mu.Lock()
	n, _ := db.index.Sum()
	used := db.used
	db.mu.Unlock()
	waits, _ := db.fs.waits()
	return waits || n >= db.o.MaxMessages || used > db.o.MaxBytes-entryOverhead || db.available() < uint64(db.o.Reserve)
}

// Dir returns the directory.
func (db *DB) Dir() string { return db.dir }

// Close waits until what was begun is durable, and makes later calls fail with
// inbox.ErrClosed. It may be called more than once. It returns why the DB has
// failed, if it has.
func (db *DB) Close() error {
	db.closed.Store(true)
	db.shut()
	db.lock.release()
	return db.failed()
}

// fail makes every later call return err. What is on its way ends with it. It
// does not block.
func (db *DB) fail(err error) {
	if scarce(err) {
		err = fmt.Errorf("%w: %w", inbox.ErrStorageFull, err)
	}
	err = fmt.Errorf("inbox store %s has failed: %w", db.dir, err)
	if !db.failure.CompareAndSwap(nil, &err) {
		return
	}
	db.log.Error("inbox store has failed; the process has to be restarted once the disk is well", "dir", db.dir, "err", line(err))
	db.fs.goDark()
	if db.running.Load() {
		go db.shut() // Pebble would go on, in the dark
	}
}

// shut ends what runs, once, and returns when that has ended.
func (db *DB) shut() {
	if !db.closing.CompareAndSwap(false, true) {
		<-db.idle
		return
	}
	defer close(db.idle)
	db.fs.patient.Store(false)
	db.queue.end()
	<-db.acked
	db.gate.Lock() // whoever is in enter has seen no end yet, and counts
	db.cancel()
	db.gate.Unlock()
	db.tidying.Wait()
	db.readers.Wait()
	defer db.recover()
	db.settle()
	if err := db.pebble.Close(); err != nil {
		db.log.Error("inbox store: close", "dir", db.dir, "err", line(err))
	}
}

// enter begins a read from Pebble, which ends with db.readers.Done. It returns
// [DB.Err] once that is not nil.
func (db *DB) enter() error {
	db.gate.RLock()
	defer db.gate.RUnlock()
	err := db.Err()
	if err == nil {
		db.readers.Add(1)
	}
	return err
}

// settle leaves nothing to the log, whose end nobody can tell from a torn one, so
// that the next Open is quick.
func (db *DB) settle() {
	g := &group{batch: db.pebble.NewBatch()}
	db.recordTime(g, 0)
	db.recordSum(g)
	err := db.pebble.Apply(g.batch, pebble.Sync)
	if err == nil {
		err = db.pebble.Flush()
	}
	if err != nil {
		db.fail(err)
	}
}

// damage notes that something could not be read.
func (db *DB) damage(what string, err error) {
	db.damaged.Add(1)
	db.log.Error("inbox store: "+what, "dir", db.dir, "err", line(err))
}

// isDamage says whether an error means that what is on the disk is not what was
// written.
func isDamage(err error) bool {
	return errors.Is(err, errDamaged) || pebble.IsCorruptionError(err)
}
