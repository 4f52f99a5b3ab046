package disk

import (
	"context"
	"errors"
	"iter"
	"syscall"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/sotto-relay/sotto/inbox"
)

// store is the [inbox.Store] of a DB.
type store struct{ *DB }

var (
	_ inbox.Store  = store{}
	_ inbox.Lister = store{}
)

// kept is what the index keeps of an entry beside what it knows itself.
type kept struct {
	stored, expires stamp
	form, flags     uint8
}

type record = inbox.Record[kept]

// entry returns an entry as it was put.
func entry(rec *record, data []byte) *inbox.Entry {
	return &inbox.Entry{
		To: rec.To(), From: rec.From(), ID: rec.ID, Form: rec.Value.form, Flags: rec.Value.flags, Data: data,
		Stored: rec.Value.stored.time(), Expires: rec.Value.expires.time(), Seq: rec.Seq,
	}
}

// entryOverhead is what an entry counts against Options.MaxBytes beside its data
// and names: about what it takes on disk, its key and its share of tables.
const entryOverhead = 128

func cost(to, from inbox.Address, size int) int64 {
	return int64(size+len(to.Name)+len(from.Name)) + entryOverhead
}

func costOf(rec *record) int64 { return cost(rec.To(), rec.From(), rec.Size) }

// forget deletes an entry that has left the index. The caller holds db.mu.
func (db *DB) forget(g *group, rec *record) {
	db.used -= costOf(rec)
	db.loose.Add(costOf(rec))
	// Not SingleDelete: a compaction that meets a damaged block while it handles one
	// panics, where nobody can recover.
	_ = g.batch.Delete(seqKey(entrySpace, rec.Seq), nil)
	for i := range parts(rec.Size) {
		_ = g.batch.Delete(partKey(rec.Seq, i), nil)
	}
}

// A call is an op that somebody waits for.
type call struct {
	do    func(*group)
	err   error
	ended chan struct{}
}

func (c *call) apply(g *group) { c.do(g) }

func (c *call) finish(err error) {
	c.err = err
	close(c.ended)
}

// run has the committer do something, and waits until that is durable. The
// context ends the waiting only, so what do sets may be read if and only if ended
// is true. With an error it has been done all the same, as far as it went, and may
// be undone by a crash.
func (db *DB) run(ctx context.Context, do func(*group)) (ended bool, err error) {
	if err := ctx.Err(); err != nil {
		return false, err
	}
	c := &call{do: do, ended: make(chan struct{})}
	if !db.queue.push(c) {
		return false, db.Err()
	}
	select {
	case <-c.ended:
		return true, c.err
	case <-ctx.Done():
		return false, ctx.Err()
	}
}

// Delete implements [inbox.Store].
func (s store) Delete(ctx context.Context, to inbox.Address, seqs ...uint64) (int, error) {
	var deleted int
	seqs = append([]uint64(nil), seqs...)
	ended, err := s.run(ctx, func(g *group) {
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, seq := range seqs {
			if rec := s.index.Find(to, seq); rec != nil {
				s.index.Remove(rec)
				s.forget(g, rec)
				deleted++
			}
		}
	})
	if !ended {
		return 0, err
	}
	return deleted, err
}

// purgeBatch is how many entries Purge removes at once: a tenth of a millisecond,
// with as much again for Pebble. Puts that come meanwhile wait for it.
const purgeBatch = 64

// Purge implements [inbox.Store].
func (s store) Purge(ctx context.Context, limit int, expired func(*inbox.Entry)) (purged int, err error) {
	for more := true; more; {
		var gone []*record
		ended, err := s.run(ctx, func(g *group) {
			s.mu.Lock()
			defer s.mu.Unlock()
			for now := s.clock.now(); len(gone) < min(purgeBatch, limit-purged); {
				rec := s.index.Expired(now)
				if rec == nil {
					break
				}
				s.index.Remove(rec)
				s.forget(g, rec)
				gone = append(gone, rec)
			}
		})
		if !ended {
			return purged, err
		}
		purged += len(gone)
		for _, rec := range gone {
			if expired != nil {
				expired(entry(rec, nil))
			}
		}
		if err != nil {
			return purged, err
		}
		more = len(gone) == purgeBatch
	}
	return purged, nil
}

// Entries implements [inbox.Store]. It yields what is durable, and ends with the
// last entry that was when it began. An entry that cannot be read, since the
// disk has damaged it, is left out, logged and counted ([DB.Damaged]).
func (s store) Entries(ctx context.Context, to inbox.Address, from uint64) iter.Seq2[*inbox.Entry, error] {
	return func(yield func(*inbox.Entry, error) bool) {
		var batch [64]*record
		last := s.durable.Load()
		for next := from; ; {
			found, err := s.visible(ctx, batch[:], to, next, last)
			if err != nil {
				yield(nil, err)
				return
			}
			for _, rec := range batch[:found] {
				e, err := s.read(ctx, rec)
				switch {
				case err != nil:
					yield(nil, err)
					return
				case e != nil && !yield(e, nil):
					return
				}
			}
			if found < len(batch) {
				return
			}
			next = batch[found-1].Seq + 1
		}
	}
}

func (s store) visible(ctx context.Context, batch []*record, to inbox.Address, from, last uint64) (int, error) {
	if err := s.check(ctx); err != nil {
		return 0, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.index.Visible(batch, to, from, last, s.clock.now()), nil
}

// check is for calls that the committer has no part in.
func (db *DB) check(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return db.Err()
}

// read returns an entry with its data, or nil when it has expired, is gone, or
// is damaged.
func (s store) read(ctx context.Context, rec *record) (*inbox.Entry, error) {
	if err := s.check(ctx); err != nil {
		return nil, err
	}
	if rec.Expires <= s.clock.now() { // the body of the loop takes its time
		return nil, nil
	}
	data, err := s.data(rec)
	if err == nil {
		return entry(rec, data), nil
	}
	if down := s.Err(); down != nil {
		return nil, down
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.index.Find(rec.To(), rec.Seq) != rec:
		return nil, nil
	case isDamage(err), errors.Is(err, syscall.EIO):
		rec.Leased = inbox.Never // to find that out takes long
		s.damage("a message cannot be read, and is left out", err)
		return nil, nil
	}
	return nil, err
}

// data reads the data of an entry.
func (s store) data(rec *record) ([]byte, error) {
	data := make([]byte, 0, rec.Size)
	collect := func(body []byte) error {
		data = append(data, body...)
		return nil
	}
	n := parts(rec.Size)
	if n == 0 {
		collect = func(body []byte) error {
			_, inline, err := parseEntry(body)
			data = append(data, inline...)
			return err
		}
	}
	for i := range max(1, n) {
		key := partKey(rec.Seq, i)
		if n == 0 {
			key = seqKey(entrySpace, rec.Seq)
		}
		if err := s.get(key, collect); errors.Is(err, pebble.ErrNotFound) {
			return nil, errDamaged // the index has it
		} else if err != nil {
			return nil, err
		}
	}
	if len(data) != rec.Size {
		return nil, errDamaged
	}
	return data, nil
}

// Lease implements [inbox.Store].
func (s store) Lease(ctx context.Context, to inbox.Address, until time.Time, seqs ...uint64) (leased []uint64, err error) {
	err = s.each(ctx, to, seqs, func(rec *record) {
		if now := s.clock.now(); rec.Expires > now && rec.Leased <= now {
			rec.Leased = s.clock.since(until)
			leased = append(leased, rec.Seq)
		}
	})
	return leased, err
}

// Release implements [inbox.Store].
func (s store) Release(ctx context.Context, to inbox.Address, seqs ...uint64) error {
	return s.each(ctx, to, seqs, func(rec *record) { rec.Leased = 0 })
}

func (s store) each(ctx context.Context, to inbox.Address, seqs []uint64, do func(*record)) error {
	if err := s.check(ctx); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, seq := range seqs {
		if rec := s.index.Find(to, seq); rec != nil {
			do(rec)
		}
	}
	return nil
}

// Count implements [inbox.Store].
func (s store) Count(ctx context.Context, to inbox.Address) (messages int, bytes int64, err error) {
	if err := s.check(ctx); err != nil {
		return 0, 0, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	messages, bytes = s.index.Count(to, s.clock.now())
	return messages, bytes, nil
}

// Totals implements [inbox.Store].
func (s store) Totals(ctx context.Context) (messages int, bytes int64, err error) {
	if err := s.check(ctx); err != nil {
		return 0, 0, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	messages, bytes = s.index.Sum()
	return messages, bytes, nil
}

// Addressees implements [inbox.Lister].
func (s store) Addressees(ctx context.Context) ([]inbox.Address, error) {
	if err := s.check(ctx); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.index.Addressees(), nil
}
