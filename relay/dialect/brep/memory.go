package brep

import (
	"container/list"
	"hash/maphash"
	"sync"
	"time"

	"github.com/sotto-relay/sotto/crypto"
	"github.com/sotto-relay/sotto/frame"
	"github.com/sotto-relay/sotto/relay"
)

// A relay remembers for a while what became of the messages of each sender. One
// that comes again is answered with that, and not delivered again (spec native.md,
// "Delivery"). What was refused at the door may be tried again, in the session that has
// been told: who was cut off before does not know, and has sent others behind it.
const (
	rememberFor = 10 * time.Minute
	rememberMax = 4096 // of one sender

	// rememberAll bounds what is remembered of all senders together: some 50 MB, and
	// as much for proofs. Past it those that are gone are forgotten first, and then
	// those that are here are remembered rememberMin of, whatever others do.
	rememberAll = 1 << 19
	rememberMin = 64
)

// A memory has what the sessions of a server remember. Its methods may be called
// concurrently.
type memory struct {
	start time.Time
	seed  maphash.Seed
	all   int // rememberAll, except in tests

	mu      sync.Mutex
	number  uint32 // of the last session
	senders map[crypto.PublicKey]*sent
	gone    list.List // of *sent that have no session, since the longest time first
	places  int       // of all senders
}

// A sent is what is remembered of one sender.
type sent struct {
	memory *memory
	sender crypto.PublicKey

	// Under memory.mu.
	sessions int
	left     time.Duration // when the last session went
	gone     *list.Element // in memory.gone
	places   int           // reserved

	// turn is held from where a message is found to be new until it is with its
	// recipient or in the inbox. For a moment a sender may have two sessions, and the
	// newer one repeats what the older one has not done with: what it sends after that
	// must not come first.
	turn sync.Mutex

	mu    sync.Mutex
	ring  []fate              // as long as a power of two
	first uint32              // the oldest is ring[first%len]
	next  uint32              // and the next one will be ring[next%len]
	index map[relay.ID]uint32 // to where it is in the ring; of two with one id, the newer
}

// A fate is what became of one message.
type fate struct {
	outcome
	id        relay.ID
	signature uint64        // a hash of it
	came      time.Duration // since memory.start
	asks      *session      // where the message came again before there was an outcome
	told      uint32        // the number of the session that knows that it was refused at the door
}

// An outcome is what a receipt says of a message. The zero value stands for a
// message that is still on its way.
type outcome struct {
	status frame.ReceiptStatus
	code   relay.Code
	proof  *proof // of ReceiptAcknowledged
}

// A proof is a recipient's signature, which nobody has verified.
type proof struct {
	recipient [32]byte
	signature [64]byte
}

func newMemory() *memory {
	return &memory{
		start: time.Now(), seed: maphash.MakeSeed(), all: rememberAll,
		senders: make(map[crypto.PublicKey]*sent),
	}
}

func (m *memory) now() time.Duration { return time.Since(m.start) }

// enter returns what is remembered of a sender, for one more session of it. It
// stays until as long after the last one has left as messages are remembered.
func (m *memory) enter(sender crypto.PublicKey) *sent {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.forget()
	x := m.senders[sender]
	if x == nil {
		x = &sent{memory: m, sender: sender}
		m.senders[sender] = x
	}
	if x.gone != nil {
		m.gone.Remove(x.gone)
		x.gone = nil
	}
	x.sessions++
	return x
}

func (m *memory) leave(x *sent) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch x.sessions--; {
	case x.sessions > 0:
	case x.places == 0:
		delete(m.senders, x.sender)
	default:
		x.left, x.gone = m.now(), m.gone.PushBack(x)
	}
}

// find returns what is remembered of a sender, or nil.
func (m *memory) find(sender crypto.PublicKey) *sent {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.senders[sender]
}

// forget drops those of whom all is out of date. The caller holds mu.
func (m *memory) forget() {
	for now := m.now(); m.gone.Len() > 0 && now-m.gone.Front().Value.(*sent).left >= rememberFor; {
		m.dropOldest()
	}
}

func (m *memory) dropOldest() {
	x := m.gone.Remove(m.gone.Front()).(*sent)
	delete(m.senders, x.sender)
	m.places -= x.places
}

// reserve gives a sender n more places, if there are any.
func (m *memory) reserve(x *sent, n int) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.forget()
	for m.places+n > m.all && m.gone.Len() > 0 {
		m.dropOldest()
	}
	if m.places+n > m.all && x.places >= rememberMin {
		return false
	}
	m.places += n
	x.places += n
	return true
}

// numbered returns the number of a new session, which is not zero.
func (m *memory) numbered() uint32 {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.number = max(m.number+1, 1)
	return m.number
}

// recall returns the fate of a message that has come before, else nil, and
// remembers it from now on. by is the number of the session where it has come. The
// caller holds mu, as for all that follows.
func (x *sent) recall(m *frame.Brep, by uint32) *fate {
	signature := m.Signature[:]
	if m.Signature == [64]byte{} {
		signature = m.Payload // what it would be of
	}
	now, hash := x.memory.now(), maphash.Bytes(x.memory.seed, signature)
	if f := x.find(m.ID); f != nil && f.signature == hash && now-f.came < rememberFor && (f.told == 0 || f.told != by) {
		return f
	}
	for x.first != x.next && now-x.at(x.first).came >= rememberFor {
		x.drop()
	}
	if int(x.next-x.first) == len(x.ring) && !x.grow() {
		x.drop()
	}
	*x.at(x.next) = fate{id: m.ID, signature: hash, came: now}
	x.index[m.ID] = x.next
	x.next++
	return nil
}

// learn notes what became of a message. It returns false for what is out of date
// already: a receipt is never followed by one that says less. asks is where the
// message has come again meanwhile, if it has; else the session numbered by is told.
func (x *sent) learn(id relay.ID, o outcome, by uint32) (asks *session, news bool) {
	f := x.find(id)
	switch {
	case f == nil, f.told != 0:
		return nil, true
	case o.status < f.status && f.status <= frame.ReceiptAcknowledged:
		return nil, false
	}
	asks, f.asks = f.asks, nil
	if f.status == 0 && o.status == frame.ReceiptRefused {
		f.told = by
		if asks != nil {
			f.told = asks.number
		}
	}
	f.outcome = o
	return asks, true
}

func (x *sent) at(i uint32) *fate { return &x.ring[int(i)&(len(x.ring)-1)] }

func (x *sent) find(id relay.ID) *fate {
	i, ok := x.index[id]
	if !ok {
		return nil
	}
	return x.at(i)
}

// drop forgets the oldest message.
func (x *sent) drop() {
	f := x.at(x.first)
	if x.index[f.id] == x.first {
		delete(x.index, f.id)
	}
	*f = fate{}
	x.first++
}

// grow makes room for more, unless there may be no more.
func (x *sent) grow() bool {
	n := len(x.ring)
	more := max(n, 8)
	if n == rememberMax || !x.memory.reserve(x, more) {
		return false
	}
	old := x.ring
	x.ring = make([]fate, n+more)
	if x.index == nil {
		x.index = make(map[relay.ID]uint32)
	}
	for i := x.first; i != x.next; i++ {
		*x.at(i) = old[int(i)&(n-1)]
	}
	return true
}
