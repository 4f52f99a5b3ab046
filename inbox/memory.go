package inbox

import (
	"bytes"
	"context"
	"hash/maphash"
	"iter"
	"math"
	"sync"
	"sync/atomic"
	"time"
)

const (
	shards    = 64
	batchSize = 64 // entries handled under one lock: some ten microseconds
)

// entryOverhead is what an entry takes beside its Data and names when it is the
// only one of its recipient, measured: record, box, sender, and the share of the
// tables and the heaps.
const entryOverhead = 640

// cost is what an entry counts against MemoryOptions.MaxBytes. Names count in
// full with each entry although entries share them.
func cost(to, from Address, size int) int64 {
	return int64(size+len(to.Name)+len(from.Name)) + entryOverhead
}

// MemoryOptions are the options of [NewMemory] and [NewMemoryState]. A nil
// pointer means the defaults.
type MemoryOptions struct {
	// MaxBytes bounds the memory taken, about: Data, names and what it costs to
	// keep them count, so an entry without Data counts too. Zero means 1 GiB.
	// Beyond it there is ErrStorageFull.
	MaxBytes int64
}

func (o *MemoryOptions) maxBytes() int64 {
	if o == nil || o.MaxBytes <= 0 {
		return 1 << 30
	}
	return o.MaxBytes
}

// Memory is the [Store] that keeps its entries in this process and loses them
// with it. Its methods do not wait for anything but each other, and it starts no
// goroutine. Put calls done before it returns, without holding a lock. A
// recipient without entries takes no memory.
//
// Time is the wall clock at NewMemory plus what the monotonic clock has counted
// since, so setting the wall clock makes nothing expire early or late (spec
// "inbox", Time). A time that was made with time.Now().Add(d) means d from then
// on, whatever the wall clock does; one without a monotonic reading is taken as
// it stands.
type Memory struct {
	start  time.Time
	seed   maphash.Seed
	max    int64
	used   atomic.Int64 // sum of the costs of all entries
	totals SenderTotals[kept]
	shards [shards]shard
}

// A shard holds the recipients that hash to it.
type shard struct {
	mu     sync.Mutex
	closed bool
	Index[kept]
}

// kept is what an Index does not know of an entry. It never changes, so it may
// be read without the lock.
type kept struct {
	data            []byte
	stored, expires time.Time
	form, flags     uint8
}

// entry returns a stored entry, with its Data or without.
func entry(rec *Record[kept], data []byte) *Entry {
	return &Entry{
		To: rec.To(), From: rec.From(), ID: rec.ID, Form: rec.Value.form, Flags: rec.Value.flags, Data: data,
		Stored: rec.Value.stored, Expires: rec.Value.expires, Seq: rec.Seq,
	}
}

var (
	_ Store  = (*Memory)(nil)
	_ Lister = (*Memory)(nil)
)

// NewMemory returns an empty store. It needs no Close, unless callers that still
// use it shall be refused.
func NewMemory(o *MemoryOptions) *Memory {
	m := &Memory{start: time.Now(), seed: maphash.MakeSeed(), max: o.maxBytes()}
	for i := range m.shards {
		m.shards[i].Totals = &m.totals
	}
	return m
}

// now and since measure from the start. Sub prefers monotonic readings and
// saturates, so no time overflows.
func (m *Memory) now() time.Duration              { return time.Since(m.start) }
func (m *Memory) since(t time.Time) time.Duration { return t.Sub(m.start) }
func (m *Memory) expiry(t time.Time) time.Duration {
	if t.IsZero() {
		return Never
	}
	return m.since(t)
}

// lock returns the shard of a recipient, locked.
func (m *Memory) lock(ctx context.Context, to Address) (*shard, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s := &m.shards[maphash.Comparable(m.seed, to)%shards]
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil, ErrClosed
	}
	return s, nil
}

// Put implements [Store].
func (m *Memory) Put(ctx context.Context, e *Entry, q Quota, done func(Result)) {
	done(m.put(ctx, e, q))
}

func (m *Memory) put(ctx context.Context, e *Entry, q Quota) (res Result) {
	data := bytes.Clone(e.Data) // here, since the copy of a large one takes too long for a lock
	s, err := m.lock(ctx, e.To)
	if err != nil {
		return Result{Err: err}
	}
	defer s.mu.Unlock()
	expires := m.expiry(e.Expires)
	a := s.Admit(e, len(data), expires, q, m.now())
	for _, rec := range a.Expired {
		m.used.Add(-costOf(rec))
		res.Expired = append(res.Expired, entry(rec, nil))
	}
	if a.Repeat != nil {
		res.Seq, res.Repeat = a.Repeat.Seq, true
		return res
	}
	if a.Err != nil {
		res.Err = a.Err
		return res
	}
	more := cost(e.To, e.From, len(data))
	for _, rec := range a.Dropped {
		more -= costOf(rec)
	}
	if !m.reserve(more) {
		s.Withdraw(e, q)
		res.Err = ErrStorageFull
		return res
	}
	for _, rec := range a.Dropped {
		s.Remove(rec)
		res.Dropped = append(res.Dropped, entry(rec, nil))
	}
	res.Seq = s.Add(e, len(data), expires, q, kept{data, e.Stored, e.Expires, e.Form, e.Flags}).Seq
	return res
}

func costOf(rec *Record[kept]) int64 { return cost(rec.To(), rec.From(), rec.Size) }

// remove takes an entry out of a shard, which is locked.
func (m *Memory) remove(s *shard, rec *Record[kept]) {
	m.used.Add(-costOf(rec))
	s.Remove(rec)
}

// reserve takes n more bytes, or none when they are not to be had.
func (m *Memory) reserve(n int64) bool {
	for {
		used := m.used.Load()
		if n > 0 && used > m.max-n {
			return false
		}
		if m.used.CompareAndSwap(used, used+n) {
			return true
		}
	}
}

// Entries implements [Store]. It ends with the last entry that was there when it
// began.
func (m *Memory) Entries(ctx context.Context, to Address, from uint64) iter.Seq2[*Entry, error] {
	return func(yield func(*Entry, error) bool) {
		var batch [batchSize]*Record[kept]
		last := uint64(math.MaxUint64)
		for next := from; ; {
			s, err := m.lock(ctx, to)
			if err != nil {
				yield(nil, err)
				return
			}
			last = min(last, s.Last())
			found := s.Visible(batch[:], to, next, last, m.now())
			s.mu.Unlock()
			for _, rec := range batch[:found] {
				if err := ctx.Err(); err != nil {
					yield(nil, err)
					return
				}
				if rec.Expires <= m.now() { // the body takes its time
					continue
				}
				if !yield(entry(rec, rec.Value.data), nil) {
					return
				}
			}
			if found < batchSize {
				return
			}
			next = batch[found-1].Seq + 1
		}
	}
}

// Delete implements [Store].
func (m *Memory) Delete(ctx context.Context, to Address, seqs ...uint64) (deleted int, err error) {
	err = m.each(ctx, to, seqs, func(s *shard, rec *Record[kept]) {
		m.remove(s, rec)
		deleted++
	})
	return deleted, err
}

// Lease implements [Store].
func (m *Memory) Lease(ctx context.Context, to Address, until time.Time, seqs ...uint64) (leased []uint64, err error) {
	err = m.each(ctx, to, seqs, func(_ *shard, rec *Record[kept]) {
		if now := m.now(); rec.Expires > now && rec.Leased <= now {
			rec.Leased = m.since(until)
			leased = append(leased, rec.Seq)
		}
	})
	return leased, err
}

// Release implements [Store].
func (m *Memory) Release(ctx context.Context, to Address, seqs ...uint64) error {
	return m.each(ctx, to, seqs, func(_ *shard, rec *Record[kept]) { rec.Leased = 0 })
}

// each calls do, under the lock, for the entries that are there.
func (m *Memory) each(ctx context.Context, to Address, seqs []uint64, do func(*shard, *Record[kept])) error {
	s, err := m.lock(ctx, to)
	if err != nil {
		return err
	}
	defer s.mu.Unlock()
	for _, seq := range seqs {
		if rec := s.Find(to, seq); rec != nil {
			do(s, rec)
		}
	}
	return nil
}

// Count implements [Store].
func (m *Memory) Count(ctx context.Context, to Address) (messages int, bytes int64, err error) {
	s, err := m.lock(ctx, to)
	if err != nil {
		return 0, 0, err
	}
	defer s.mu.Unlock()
	messages, bytes = s.Count(to, m.now())
	return messages, bytes, nil
}

// Totals implements [Store].
func (m *Memory) Totals(ctx context.Context) (messages int, bytes int64, err error) {
	for i := range m.shards {
		if err := ctx.Err(); err != nil {
			return 0, 0, err
		}
		s := &m.shards[i]
		s.mu.Lock()
		closed := s.closed
		n, size := s.Sum()
		s.mu.Unlock()
		messages += n
		bytes += size
		if closed {
			return 0, 0, ErrClosed
		}
	}
	return messages, bytes, nil
}

// Addressees implements [Lister].
func (m *Memory) Addressees(ctx context.Context) (all []Address, err error) {
	for i := range m.shards {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		s := &m.shards[i]
		s.mu.Lock()
		some, closed := s.Addressees(), s.closed
		s.mu.Unlock()
		if closed {
			return nil, ErrClosed
		}
		all = append(all, some...)
	}
	return all, nil
}

// Purge implements [Store].
func (m *Memory) Purge(ctx context.Context, limit int, expired func(*Entry)) (purged int, err error) {
	for i := range m.shards {
		for more := true; more; {
			if err := ctx.Err(); err != nil {
				return purged, err
			}
			var batch [batchSize]*Record[kept]
			n, err := m.purge(&m.shards[i], batch[:max(0, min(batchSize, limit-purged))])
			if err != nil {
				return purged, err
			}
			purged += n
			for _, rec := range batch[:n] {
				if expired != nil {
					expired(entry(rec, nil))
				}
			}
			if purged >= limit {
				return purged, nil
			}
			more = n == batchSize
		}
	}
	return purged, nil
}

// purge removes expired entries of one shard until batch is full.
func (m *Memory) purge(s *shard, batch []*Record[kept]) (n int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return 0, ErrClosed
	}
	for now := m.now(); n < len(batch); n++ {
		rec := s.Expired(now)
		if rec == nil {
			break
		}
		m.remove(s, rec)
		batch[n] = rec
	}
	return n, nil
}

// Close implements [Store]. It lets go of all entries.
func (m *Memory) Close() error {
	for i := range m.shards {
		s := &m.shards[i]
		s.mu.Lock()
		s.closed = true
		s.Index = Index[kept]{}
		s.mu.Unlock()
	}
	m.totals.Reset()
	return nil
}
