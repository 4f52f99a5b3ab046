package inbox

import (
	"bytes"
	"context"
	"hash/maphash"
	"iter"
	"math"
	"sync/atomic"
	"time"
)

// never is the time of what does not expire: 292 years after the start.
const never = time.Duration(math.MaxInt64)

const (
	shards    = 64
	batchSize = 64 // entries handled under one lock: some ten microseconds
)

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
	used   atomic.Int64 // sum of the costs of all nodes
	shards [shards]shard
}

var _ Store = (*Memory)(nil)

// NewMemory returns an empty store. It needs no Close, unless callers that still
// use it shall be refused.
func NewMemory(o *MemoryOptions) *Memory {
	return &Memory{start: time.Now(), seed: maphash.MakeSeed(), max: o.maxBytes()}
}

// now and since measure from the start. Sub prefers monotonic readings and
// saturates, so no time overflows.
func (m *Memory) now() time.Duration              { return time.Since(m.start) }
func (m *Memory) since(t time.Time) time.Duration { return t.Sub(m.start) }
func (m *Memory) expiry(t time.Time) time.Duration {
	if t.IsZero() {
		return never
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
	now, expires := m.now(), m.expiry(e.Expires)
	if expires <= now {
		return Result{Err: ErrExpired}
	}
	if b := s.boxes.get(e.To); b != nil {
		for n := b.expired(now); n != nil; n = b.expired(now) {
			m.used.Add(-s.remove(n))
			res.Expired = append(res.Expired, n.withoutData())
		}
	}
	b := s.boxes.get(e.To)
	from := s.senders.get(senderKey{b, e.From})
	if n := s.ids.get(idKey{from, e.ID}); n != nil {
		res.Seq, res.Repeat = n.Seq, true
		return res
	}
	if from != nil && q.PerSender > 0 && from.count >= q.PerSender {
		res.Err = ErrSenderQuota
		return res
	}
	victims, ok := b.victims(q, int64(len(data)))
	if !ok {
		res.Err = ErrInboxFull
		return res
	}
	cost := e.cost()
	for _, v := range victims {
		cost -= v.cost()
	}
	if !m.reserve(cost) {
		res.Err = ErrStorageFull
		return res
	}
	for _, v := range victims {
		s.remove(v)
		res.Dropped = append(res.Dropped, v.withoutData())
	}
	res.Seq = s.add(e, data, expires)
	return res
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
		var batch [batchSize]*node
		last := uint64(math.MaxUint64)
		for next := from; ; {
			s, err := m.lock(ctx, to)
			if err != nil {
				yield(nil, err)
				return
			}
			var found int
			if b := s.boxes.get(to); b != nil {
				last = min(last, b.last)
				found = b.visible(batch[:], next, last, m.now())
			}
			s.mu.Unlock()
			for _, n := range batch[:found] {
				if err := ctx.Err(); err != nil {
					yield(nil, err)
					return
				}
				if n.expires <= m.now() { // the body takes its time
					continue
				}
				e := n.Entry
				if !yield(&e, nil) {
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
	err = m.each(ctx, to, seqs, func(s *shard, n *node) {
		m.used.Add(-s.remove(n))
		deleted++
	})
	return deleted, err
}

// Lease implements [Store].
func (m *Memory) Lease(ctx context.Context, to Address, until time.Time, seqs ...uint64) (leased []uint64, err error) {
	err = m.each(ctx, to, seqs, func(_ *shard, n *node) {
		if now := m.now(); n.expires > now && n.leased <= now {
			n.leased = m.since(until)
			leased = append(leased, n.Seq)
		}
	})
	return leased, err
}

// Release implements [Store].
func (m *Memory) Release(ctx context.Context, to Address, seqs ...uint64) error {
	return m.each(ctx, to, seqs, func(_ *shard, n *node) { n.leased = 0 })
}

// each calls do, under the lock, for the entries that are there.
func (m *Memory) each(ctx context.Context, to Address, seqs []uint64, do func(*shard, *node)) error {
	s, err := m.lock(ctx, to)
	if err != nil {
		return err
	}
	defer s.mu.Unlock()
	b := s.boxes.get(to)
	if b == nil {
		return nil
	}
	for _, seq := range seqs {
		if n := b.find(seq); n != nil {
			do(s, n)
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
	b := s.boxes.get(to)
	if b == nil {
		return 0, 0, nil
	}
	messages, bytes = b.live, b.bytes
	b.expiring.until(m.now(), func(n *node) {
		messages--
		bytes -= int64(len(n.Data))
	})
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
		messages += s.messages
		bytes += s.bytes
		s.mu.Unlock()
		if closed {
			return 0, 0, ErrClosed
		}
	}
	return messages, bytes, nil
}

// Purge implements [Store].
func (m *Memory) Purge(ctx context.Context, limit int, expired func(*Entry)) (purged int, err error) {
	for i := range m.shards {
		for more := true; more; {
			if err := ctx.Err(); err != nil {
				return purged, err
			}
			var batch [batchSize]*node
			n, err := m.purge(&m.shards[i], batch[:max(0, min(batchSize, limit-purged))])
			if err != nil {
				return purged, err
			}
			purged += n
			for _, n := range batch[:n] {
				if expired != nil {
					expired(n.withoutData())
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
func (m *Memory) purge(s *shard, batch []*node) (n int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return 0, ErrClosed
	}
	for now := m.now(); n < len(batch); n++ {
		e := s.expired(now)
		if e == nil {
			break
		}
		m.used.Add(-s.remove(e))
		batch[n] = e
	}
	return n, nil
}

// Close implements [Store]. It lets go of all entries.
func (m *Memory) Close() error {
	for i := range m.shards {
		s := &m.shards[i]
		s.mu.Lock()
		s.closed = true
		s.boxes, s.senders, s.ids, s.expiring = table[Address, *box]{}, table[senderKey, *sender]{}, table[idKey, *node]{}, nil
		s.mu.Unlock()
	}
	return nil
}
