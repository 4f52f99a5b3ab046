package pubsub

import (
	"hash/maphash"
	"math/bits"
)

// An index finds items by a key that they know. It is a hash table of which no
// change takes long, however many items it has, that gives memory back, and whose
// items are one look away: what a Go map is not. The zero value is empty.
type index[K any, T keyed[K]] struct {
	n     int       // items
	slots []slot[T] // a power of two, none or some of them free
	parts *[fan]index[K, T]
}

type keyed[K any] interface{ is(key K) bool }

// A slot without a hash is free.
type slot[T any] struct {
	hash uint64
	item T
}

const (
	fan       = 256  // parts of an index that has many items
	mostItems = 6144 // in slots: moving them takes some tens of microseconds
	fewItems  = 384  // not worth parts
)

// hash returns the hash of a key. It is never zero.
func hash[K comparable](seed maphash.Seed, k K) uint64 {
	return maphash.Comparable(seed, k) | 1<<40
}

// get returns the item with a key, which has a hash.
func (x *index[K, T]) get(h uint64, k K) (item T, ok bool) {
	for x.parts != nil {
		x, h = x.part(h)
	}
	if x.n == 0 {
		return item, false
	}
	i, ok := x.find(h, k)
	return x.slots[i].item, ok
}

// part returns where the items with a hash are, and the hash that they have
// there.
func (x *index[K, T]) part(h uint64) (part *index[K, T], _ uint64) {
	return &x.parts[h%fan], bits.RotateLeft64(h, -8)
}

// find returns the slot of an item, or the free one where it would go.
func (x *index[K, T]) find(h uint64, k K) (i uint64, ok bool) {
	mask := uint64(len(x.slots) - 1)
	for i = h & mask; x.slots[i].hash != 0; i = (i + 1) & mask {
		if s := &x.slots[i]; s.hash == h && s.item.is(k) {
			return i, true
		}
	}
	return i, false
}

// put adds an item whose key is not there.
func (x *index[K, T]) put(h uint64, item T) {
	if x.parts == nil && x.n == mostItems {
		x.divide()
	}
	if x.parts != nil {
		p, h := x.part(h)
		p.put(h, item)
	} else {
		if 4*(x.n+1) > 3*len(x.slots) {
			x.resize(max(2, 2*len(x.slots)))
		}
		x.place(h, item)
	}
	x.n++
}

// place puts an item into the first slot that is free for it.
func (x *index[K, T]) place(h uint64, item T) {
	mask := uint64(len(x.slots) - 1)
	i := h & mask
	for x.slots[i].hash != 0 {
		i = (i + 1) & mask
	}
	x.slots[i] = slot[T]{h, item}
}

// delete removes the item with a key, which is there.
func (x *index[K, T]) delete(h uint64, k K) {
	x.n--
	switch {
	case x.parts != nil:
		p, h := x.part(h)
		p.delete(h, k)
		if x.n < fewItems {
			x.unite()
		}
	case x.n == 0:
		x.slots = nil
	default:
		i, _ := x.find(h, k)
		x.free(i)
		if x.n < len(x.slots)/8 {
			x.resize(len(x.slots) / 4)
		}
	}
}

// free empties a slot, and moves up those that would not be found behind it.
func (x *index[K, T]) free(i uint64) {
	mask := uint64(len(x.slots) - 1)
	for j := (i + 1) & mask; x.slots[j].hash != 0; j = (j + 1) & mask {
		if home := x.slots[j].hash & mask; (j-home)&mask >= (j-i)&mask {
			x.slots[i] = x.slots[j]
			i = j
		}
	}
	x.slots[i] = slot[T]{}
}

func (x *index[K, T]) resize(n int) {
	old := x.slots
	x.slots = make([]slot[T], n)
	for i := range old {
		if s := &old[i]; s.hash != 0 {
			x.place(s.hash, s.item)
		}
	}
}

// divide moves the items into parts.
func (x *index[K, T]) divide() {
	x.parts = new([fan]index[K, T])
	for i := range x.slots {
		if s := &x.slots[i]; s.hash != 0 {
			p, h := x.part(s.hash)
			p.put(h, s.item)
		}
	}
	x.slots = nil
}

// unite moves the items back from the parts. They are so few that no part has
// parts.
func (x *index[K, T]) unite() {
	parts := x.parts
	x.parts, x.slots = nil, make([]slot[T], 512)
	for i := range parts {
		for _, s := range parts[i].slots {
			if s.hash != 0 {
				x.place(bits.RotateLeft64(s.hash, 8), s.item)
			}
		}
	}
}

// only returns the item of an index that has one.
func (x *index[K, T]) only() (item T) {
	for i := range x.slots {
		if s := &x.slots[i]; s.hash != 0 {
			item = s.item
		}
	}
	return item
}
