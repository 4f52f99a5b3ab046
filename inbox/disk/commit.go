package disk

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"sync"

	"github.com/cockroachdb/pebble/v2"

	"github.com/sotto-relay/sotto/inbox"
)

// An op changes the store. The committer applies ops in the order in which they
// were begun; the acknowledger finishes them in the same order.
type op interface {
	apply(*group)     // what it does to the index, and to the batch
	finish(err error) // what it did is durable, or the store failed with err
}

// A group is what is made durable by one fsync.
type group struct {
	batch  *pebble.Batch
	ops    []op
	number uint64          // if it has changed anything
	last   uint64          // the last Seq put, or zero
	values map[string]bool // of the state, that are there after the group or are not
}

const (
	groupOps   = 512
	groupBytes = 4 << 20
	queueBytes = 64 << 20
)

// A queue is what waits for the committer.
type queue struct {
	mu     sync.Mutex
	ops    []op
	bytes  int // of the data of puts, until their groups are written
	ended  bool
	signal chan struct{} // with room for one

	taken []op // the committer's own: those that it has taken,
	at    int  // and how many of them it has applied
}

// push returns false after end.
func (q *queue) push(o op) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.ended {
		return false
	}
	q.ops = append(q.ops, o)
	q.wake()
	return true
}

// room counts the data of a put that will be pushed, if there is room for it.
func (q *queue) room(n int) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.bytes > 0 && q.bytes+n > queueBytes {
		return false
	}
	q.bytes += n
	return true
}

func (q *queue) leave(n int) {
	q.mu.Lock()
	q.bytes -= n
	q.mu.Unlock()
}

func (q *queue) end() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.ended = true
	q.wake()
}

func (q *queue) wake() {
	select {
	case q.signal <- struct{}{}:
	default:
	}
}

// next returns the op that has waited longest, nil if none waits. over says that
// then none ever will.
func (q *queue) next() (o op, over bool) {
	if q.at == len(q.taken) {
		clear(q.taken)
		q.mu.Lock()
		q.ops, q.taken, over = q.taken[:0], q.ops, q.ended
		q.mu.Unlock()
		q.at = 0
	}
	if len(q.taken) == 0 {
		return nil, over
	}
	q.at++
	return q.taken[q.at-1], false
}

// commit is the goroutine that applies ops. While one group is being written and
// synced the next one gathers, so writers share fsyncs without waiting for more
// of their kind. It is handed to Pebble once that one is durable: any sooner, and
// those who were waiting for that one would have to wait for this one too before
// they can take part again, so of many writers an fsync would serve one half.
func (db *DB) commit() {
	defer close(db.groups)
	for g := db.newGroup(); db.gather(g); {
		var turn <-chan struct{}
		if len(g.ops) > 0 {
			turn = db.turn
		}
		select {
		case <-db.queue.signal:
		case <-turn:
			db.gatherAll(g)
			db.write(g)
			db.groups <- g
			g = db.newGroup()
		}
	}
}

func (db *DB) newGroup() *group { return &group{batch: db.pebble.NewBatch()} }

// gather applies the ops that wait, as many as go into one group. It returns false
// when there is nothing to commit, and never will be.
func (db *DB) gather(g *group) bool {
	for len(g.ops) < groupOps && g.batch.Len() < groupBytes {
		o, over := db.queue.next()
		if o == nil {
			return len(g.ops) > 0 || !over
		}
		db.apply(g, o)
	}
	return true
}

// gatherAll gathers until those who have just been told that their puts are
// durable have had their turn, and with it those who are about to put.
func (db *DB) gatherAll(g *group) {
	for had := 0; had < len(g.ops); {
		had = len(g.ops)
		runtime.Gosched()
		db.gather(g)
	}
}

func (db *DB) apply(g *group, o op) {
	defer db.recover()
	g.ops = append(g.ops, o) // first, so that it ends also when it panics
	if db.failed() == nil {
		o.apply(g)
	}
}

// write hands a group to Pebble.
func (db *DB) write(g *group) {
	defer db.recover()
	db.recordTime(g, timeEvery)
	if !g.batch.Empty() {
		db.recordSum(g)
		if err := db.pebble.ApplyNoSyncWait(g.batch, pebble.Sync); err != nil {
			db.fail(err)
		}
	}
}

// acknowledge is the goroutine that waits for groups to be durable.
func (db *DB) acknowledge() {
	defer close(db.acked)
	var syncs sync.WaitGroup
	defer syncs.Wait()
	for g := range db.groups {
		err := db.await(g, &syncs)
		if err == nil && g.last > 0 {
			db.durable.Store(g.last)
		}
		if err == nil && g.number > 0 {
			db.acknowledged.Store(g.number)
		}
		for _, o := range g.ops {
			o.finish(err)
		}
		db.turn <- struct{}{}
	}
}

// await returns nil when the group is durable. When the disk has been full to
// the last byte for too long it does not wait for the end, and takes back what
// was put.
func (db *DB) await(g *group, syncs *sync.WaitGroup) error {
	if err := db.failed(); err != nil {
		return err
	}
	if g.batch.Empty() {
		_ = g.batch.Close()
		return nil
	}
	synced := make(chan struct{})
	syncs.Go(func() {
		defer close(synced)
		defer db.recover()
		if err := g.batch.SyncWait(); err != nil {
			db.fail(err)
		}
		_ = g.batch.Close()
	})
	_, stuck := db.fs.waits()
	select {
	case <-synced:
		return db.failed()
	case <-stuck:
		db.takeBack(g)
		return inbox.ErrStorageFull
	}
}

// takeBack hides what a group put, before anybody can have seen it, and has it
// deleted behind what is still waiting to be written.
func (db *DB) takeBack(g *group) {
	u := &undo{db: db}
	db.mu.Lock()
	defer db.mu.Unlock()
	for _, o := range g.ops {
		if p, ok := o.(*put); ok && p.stored {
			if rec := db.index.Find(p.e.To, p.res.Seq); rec != nil {
				rec.Leased = inbox.Never
				db.taken[rec.Seq] = true
				u.gone = append(u.gone, rec)
			}
		}
	}
	db.queue.push(u)
}

// An undo deletes what was taken back.
type undo struct {
	db   *DB
	gone []*record
}

func (u *undo) apply(g *group) {
	u.db.mu.Lock()
	defer u.db.mu.Unlock()
	for _, rec := range u.gone {
		if u.db.index.Find(rec.To(), rec.Seq) == rec {
			u.db.index.Remove(rec)
			u.db.forget(g, rec)
		}
	}
}

func (u *undo) finish(error) {
	for _, rec := range u.gone {
		delete(u.db.taken, rec.Seq)
	}
}

// recover makes a panic below the failure of the store, instead of the end of
// the program.
func (db *DB) recover() {
	if p := recover(); p != nil {
		db.log.Error("inbox store: panic", "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
		db.fail(fmt.Errorf("panic: %v", p))
	}
}
