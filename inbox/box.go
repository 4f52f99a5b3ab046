package inbox

import (
	"slices"
	"strings"
	"sync"
	"time"
)

// entryOverhead is what an entry takes beside its Data and names when it is the
// only one of its recipient, measured: node, box, sender, and the share of the
// tables and the heaps.
const entryOverhead = 576

// cost is what an entry counts against MemoryOptions.MaxBytes. Names count in
// full with each entry although entries share them.
func (e *Entry) cost() int64 {
	return int64(len(e.Data)+len(e.To.Name)+len(e.From.Name)) + entryOverhead
}

// A shard holds the recipients that hash to it. All below it is under its lock.
type shard struct {
	mu       sync.Mutex
	closed   bool
	boxes    table[Address, *box]
	senders  table[senderKey, *sender]
	ids      table[idKey, *node]
	expiring heap[*box]
	last     uint64 // no less than the last Seq of any recipient whose box is gone
	messages int
	bytes    int64
}

// A box is the inbox of a recipient who has entries.
type box struct {
	to       Address
	last     uint64 // the last Seq given
	slots    []slot // in order of Seq
	head     int    // no slot before it has an entry
	live     int    // slots with an entry
	bytes    int64
	expiring heap[*node]
	place    int // in shard.expiring
}

// A slot outlives its entry until the box is compacted, since finding a Seq
// needs all of them in order.
type slot struct {
	seq uint64
	*node
}

// A node is a stored entry. Entry and expires never change, so they may be read
// without the lock.
type node struct {
	Entry
	expires time.Duration
	leased  time.Duration // hidden until then
	box     *box
	from    *sender
	place   int // in box.expiring
}

// A sender has entries in one box.
type sender struct {
	address Address
	count   int
}

type senderKey struct {
	to   *box
	from Address
}

type idKey struct {
	from *sender
	id   ID
}

func (n *node) due() time.Duration { return n.expires }
func (n *node) at() *int           { return &n.place }
func (b *box) due() time.Duration  { return b.expiring[0].expires }
func (b *box) at() *int            { return &b.place }

func (n *node) withoutData() *Entry {
	e := n.Entry
	e.Data = nil
	return &e
}

// add stores e with data in place of its own, and returns its Seq.
func (s *shard) add(e *Entry, data []byte, expires time.Duration) uint64 {
	b := s.boxes.get(e.To)
	if b == nil {
		b = &box{to: e.To, last: s.last}
		b.to.Name = strings.Clone(e.To.Name) // may be a part of something large
		s.boxes.set(b.to, b)
	}
	from := s.senders.get(senderKey{b, e.From})
	if from == nil {
		from = &sender{address: e.From}
		from.address.Name = strings.Clone(e.From.Name)
		s.senders.set(senderKey{b, from.address}, from)
	}
	n := &node{Entry: *e, expires: expires, box: b, from: from}
	b.last++
	n.To, n.From, n.Data, n.Seq = b.to, from.address, data, b.last
	from.count++
	if n.ID != (ID{}) {
		s.ids.set(idKey{from, n.ID}, n)
	}
	b.slots = append(b.slots, slot{n.Seq, n})
	b.live++
	b.bytes += int64(len(data))
	s.messages++
	s.bytes += int64(len(data))
	if expires != never {
		b.expiring.set(n)
		s.expiring.set(b)
	}
	return n.Seq
}

// remove takes a stored entry out and returns its cost.
func (s *shard) remove(n *node) int64 {
	b := n.box
	if n.expires != never {
		b.expiring.remove(n)
		if len(b.expiring) == 0 {
			s.expiring.remove(b)
		} else {
			s.expiring.set(b)
		}
	}
	b.empty(n.Seq)
	b.bytes -= int64(len(n.Data))
	s.messages--
	s.bytes -= int64(len(n.Data))
	if n.ID != (ID{}) {
		s.ids.delete(idKey{n.from, n.ID})
	}
	if n.from.count--; n.from.count == 0 {
		s.senders.delete(senderKey{b, n.From})
	}
	if b.live == 0 {
		s.boxes.delete(b.to)
		s.last = max(s.last, b.last)
	}
	return n.cost()
}

// expired returns an entry of the shard that has expired, or nil.
func (s *shard) expired(now time.Duration) *node {
	if len(s.expiring) == 0 {
		return nil
	}
	return s.expiring[0].expired(now)
}

// expired returns an entry of the box that has expired, or nil.
func (b *box) expired(now time.Duration) *node {
	if len(b.expiring) == 0 || b.expiring[0].expires > now {
		return nil
	}
	return b.expiring[0]
}

// victims returns the entries to drop, oldest first, so that another with size
// bytes of Data keeps q. ok is false when it cannot or may not be. b may be nil.
func (b *box) victims(q Quota, size int64) (victims []*node, ok bool) {
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
		if sl.node != nil {
			victims = append(victims, sl.node)
			messages--
			bytes -= int64(len(sl.Data))
		}
	}
	return victims, true
}

// visible fills batch with entries from a Seq to a last one that are neither
// expired nor leased, and returns how many it found.
func (b *box) visible(batch []*node, from, last uint64, now time.Duration) (n int) {
	i, _ := b.search(from)
	for _, sl := range b.slots[i:] {
		if n == len(batch) || sl.seq > last {
			break
		}
		if sl.node != nil && sl.expires > now && sl.leased <= now {
			batch[n] = sl.node
			n++
		}
	}
	return n
}

func (b *box) find(seq uint64) *node {
	if i, ok := b.search(seq); ok {
		return b.slots[i].node
	}
	return nil
}

// search returns the index of the first slot whose Seq is at least seq.
func (b *box) search(seq uint64) (i int, ok bool) {
	i, ok = slices.BinarySearchFunc(b.slots[b.head:], seq, func(s slot, seq uint64) int {
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
func (b *box) empty(seq uint64) {
	i, _ := b.search(seq)
	b.slots[i].node = nil
	b.live--
	for b.head < len(b.slots) && b.slots[b.head].node == nil {
		b.head++
	}
	if len(b.slots) >= 32 && b.live < len(b.slots)/2 {
		kept := make([]slot, 0, b.live+b.live/2)
		for _, s := range b.slots[b.head:] {
			if s.node != nil {
				kept = append(kept, s)
			}
		}
		b.slots, b.head = kept, 0
	}
}
