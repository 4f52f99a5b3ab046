package relay

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/sotto-relay/sotto/transport"
)

// shareFrom is the size from which a message to many is kept once and referred
// to, instead of copied into each outbox.
const shareFrom = 1 << 10

// A shared is one message in wire form that several outboxes refer to.
type shared struct {
	refs atomic.Int32
	data []byte
}

var sharedPool = sync.Pool{New: func() any { return new(shared) }}

func (s *shared) release() {
	if s.refs.Add(-1) == 0 {
		if cap(s.data) > 64<<10 {
			s.data = nil
		}
		sharedPool.Put(s)
	}
}

// class says what may become of a slot that finds no room or is not written.
type class uint8

const (
	control     class = iota // of this connection only; never dropped, goes down with it
	message                  // goes to the inbox
	publication              // the oldest are dropped
	replayed                 // a retained value: never dropped, goes down with the connection
	awaiting                 // a message that was written, and is not acknowledged yet
	over                     // nothing more to do: written, acknowledged, dropped or moved
)

// A slot is one message in an outbox. It says all that is needed to store a
// message that could not be written.
type slot struct {
	shared   *shared // nil: the bytes are the next n of the buffer
	copy     *spilled
	from     Address // of a publication: the filter that it came by; zero: none
	received int64
	ttl      int64
	seq      uint64 // the inbox entry it was read from
	id       ID
	n        int32
	class    class
	kind     transport.Kind
	flags    uint8
	form     uint8

	ephemeral bool
	copied    bool // another session of the address has it
	acked     bool // before its writing was accounted for
}

// live says whether the slot is the only place where its message is.
func (s *slot) live() bool {
	return (s.class == message || s.class == awaiting) && !s.acked && !s.isStored()
}

// isStored says whether the message is in the inbox, or on its way there.
func (s *slot) isStored() bool { return s.seq != 0 || s.copy != nil && !s.copy.refused() }

// A batch is a run of slots with their bytes.
type batch struct {
	slots []slot
	buf   []byte
	vecs  [][]byte // the slots' bytes, from when writing begins

	kept     time.Time // in a window, since
	awaiting int       // slots of that class
	head     int       // none before it is
}

var batchPool = sync.Pool{New: func() any { return new(batch) }}

func (b *batch) free() {
	const keepBytes, keepSlots = 1 << 20, 4 << 10
	if cap(b.buf) > keepBytes || cap(b.slots) > keepSlots {
		return
	}
	clear(b.slots)
	clear(b.vecs)
	b.slots, b.buf, b.vecs, b.awaiting, b.head = b.slots[:0], b.buf[:0], b.vecs[:0], 0, 0
	batchPool.Put(b)
}

// vec fills b.vecs.
func (b *batch) vec() {
	off := 0
	b.vecs = b.vecs[:0]
	for i := range b.slots {
		s := &b.slots[i]
		if s.shared != nil {
			b.vecs = append(b.vecs, s.shared.data)
			continue
		}
		end := off + int(s.n)
		b.vecs = append(b.vecs, b.buf[off:end:end])
		off = end
	}
}
