package inbox

import (
	"slices"
	"time"
)

// A box is the inbox of a recipient who has entries.
type box[V any] struct {
	to       Address
	slots    []slot[V] // in order of Seq
	head     int       // no slot before it has a record
	live     int       // slots with a record
	bytes    int64
	expiring heap[*Record[V]]
	place    int32 // in Index.expiring
}

func (b *box[V]) due() time.Duration { return b.expiring[0].Expires }
func (b *box[V]) at() *int32         { return &b.place }

// A slot outlives its record until the box is compacted, since finding a Seq needs
// all of them in order.
type slot[V any] struct {
	seq uint64
	*Record[V]
}

func (b *box[V]) all(yield func(*Record[V]) bool) bool {
	for _, sl := range b.slots {
		if sl.Record != nil && !yield(sl.Record) {
			return false
		}
	}
	return true
}

// expired returns a record of the box that has expired, or nil.
func (b *box[V]) expired(now time.Duration) *Record[V] {
	if len(b.expiring) == 0 || b.expiring[0].Expires > now {
		return nil
	}
	return b.expiring[0]
}

// victims returns the records to drop, oldest first, so that another of a size
// keeps q. ok is false when it cannot or may not be. b may be nil.
func (b *box[V]) victims(q Quota, size int64) (victims []*Record[V], ok bool) {
	if q.Bytes > 0 && size > q.Bytes {
		return nil, false
	}
	if b == nil {
		return nil, true
	}
	messages, bytes := b.live, b.bytes
	for _, sl := range b.slots[b.head:] {
		if (q.Messages <= 0 || messages < q.Messages) && (q.Bytes <= 0 || bytes <= q.Bytes-size) {
			break
		}
		if !q.DropOldest {
			return nil, false
		}
		if sl.Record != nil {
			victims = append(victims, sl.Record)
			messages--
			bytes -= int64(sl.Size)
		}
	}
	return victims, true
}

// search returns the index of the first slot whose Seq is at least seq.
func (b *box[V]) search(seq uint64) (i int, ok bool) {
	i, ok = slices.BinarySearchFunc(b.slots[b.head:], seq, func(s slot[V], seq uint64) int {
		switch {
		case s.seq < seq:
			return -1
		case s.seq > seq:
			return 1
		}
		return 0
	})
	return b.head + i, ok
}

// empty empties a slot. Once most slots are empty they go.
func (b *box[V]) empty(seq uint64) {
	i, _ := b.search(seq)
	b.slots[i].Record = nil
	b.live--
	for b.head < len(b.slots) && b.slots[b.head].Record == nil {
		b.head++
	}
	if len(b.slots) >= 32 && b.live < len(b.slots)/2 {
		kept := make([]slot[V], 0, b.live+b.live/2)
		for _, s := range b.slots[b.head:] {
			if s.Record != nil {
				kept = append(kept, s)
			}
		}
		b.slots, b.head = kept, 0
	}
}
