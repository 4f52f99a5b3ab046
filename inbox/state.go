package inbox

import (
	"bytes"
	"context"
	"iter"
	"strings"
	"sync"
)

// A State keeps small values by bucket and key: what a relay must remember
// beside messages (spec "inbox"). Buckets and keys are any bytes and compared as
// bytes. A bucket is there while it has a key. All methods may be called
// concurrently, and after Close fail with ErrClosed.
type State interface {
	// Get returns a copy of a value. ok is false when there is none, which is no
	// error.
	Get(ctx context.Context, bucket, key string) (value []byte, ok bool, err error)

	// Put sets a value, of which it keeps a copy. When it returns nil, the value
	// is durable, as far as the store is. Without room it changes nothing and
	// fails with ErrStorageFull.
	Put(ctx context.Context, bucket, key string, value []byte) error

	// Delete removes a value. One that is not there is no error.
	Delete(ctx context.Context, bucket, key string) error

	// Range yields the items of a bucket whose key is at least from, in order of
	// the keys. Items put or deleted meanwhile may or may not be seen. A yielded
	// item belongs to the caller. No lock is held while the body of the loop
	// runs, which may call any method. An error ends the loop.
	Range(ctx context.Context, bucket, from string) iter.Seq2[Item, error]

	// Close may be called more than once.
	Close() error
}

// An Item is a key of a [State] and its value.
type Item struct {
	Key   string
	Value []byte
}

// itemOverhead is what an item takes beside its bytes, about.
const itemOverhead = 128

func itemCost(bucket, key string, value []byte) int64 {
	return int64(len(bucket)+len(key)+len(value)) + itemOverhead
}

// MemoryState is the [State] that keeps its values in this process and loses
// them with it.
type MemoryState struct {
	max int64

	mu      sync.RWMutex
	closed  bool
	used    int64 // sum of the costs of all items
	buckets map[string]*sorted
}

var _ State = (*MemoryState)(nil)

// NewMemoryState returns an empty state store. It needs no Close, unless callers
// that still use it shall be refused.
func NewMemoryState(o *MemoryOptions) *MemoryState {
	return &MemoryState{max: o.maxBytes(), buckets: make(map[string]*sorted)}
}

// Get implements [State].
func (m *MemoryState) Get(ctx context.Context, bucket, key string) (value []byte, ok bool, err error) {
	if err := ctx.Err(); err != nil {
		return nil, false, err
	}
	m.mu.RLock()
	defer m.mu.RUnlock()
	if m.closed {
		return nil, false, ErrClosed
	}
	if s := m.buckets[bucket]; s != nil {
		value, ok = s.get(key)
	}
	return bytes.Clone(value), ok, nil
}

// Put implements [State].
func (m *MemoryState) Put(ctx context.Context, bucket, key string, value []byte) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	value = bytes.Clone(value)
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return ErrClosed
	}
	cost := itemCost(bucket, key, value)
	s := m.buckets[bucket]
	if s != nil {
		if old, ok := s.get(key); ok {
			cost -= itemCost(bucket, key, old)
		}
	}
	if cost > 0 && m.used > m.max-cost {
		return ErrStorageFull
	}
	m.used += cost
	if s == nil {
		s = new(sorted)
		m.buckets[strings.Clone(bucket)] = s
	}
	s.set(key, value)
	return nil
}

// Delete implements [State].
func (m *MemoryState) Delete(ctx context.Context, bucket, key string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return ErrClosed
	}
	s := m.buckets[bucket]
	if s == nil {
		return nil
	}
	if old, ok := s.delete(key); ok {
		m.used -= itemCost(bucket, key, old)
	}
	if len(s.blocks) == 0 {
		delete(m.buckets, bucket)
	}
	return nil
}

// Range implements [State].
func (m *MemoryState) Range(ctx context.Context, bucket, from string) iter.Seq2[Item, error] {
	return func(yield func(Item, error) bool) {
		var batch [batchSize]Item
		for next := from; ; {
			found, err := m.list(ctx, bucket, next, batch[:])
			if err != nil {
				yield(Item{}, err)
				return
			}
			for _, it := range batch[:found] {
				if err := ctx.Err(); err != nil {
					yield(Item{}, err)
					return
				}
				it.Value = bytes.Clone(it.Value) // a stored value is replaced, never changed
				if !yield(it, nil) {
					return
				}
			}
			if found < batchSize {
				return
			}
			next = batch[found-1].Key + "\x00"
		}
	}
}

func (m *MemoryState) list(ctx context.Context, bucket, from string, batch []Item) (n int, err error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	m.mu.RLock()
	defer m.mu.RUnlock()
	if m.closed {
		return 0, ErrClosed
	}
	s := m.buckets[bucket]
	if s == nil {
		return 0, nil
	}
	return s.list(batch, from), nil
}

// Close implements [State]. It lets go of all values.
func (m *MemoryState) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed, m.buckets = true, nil
	return nil
}
