package relay

import (
	"sync"

	"github.com/sotto-relay/sotto/transport"
)

// An outbox holds what waits to be written to one connection. Pushing never
// blocks. Whoever pushes into an idle outbox has to see to the writing (see
// Port.flush); there is no goroutine and no memory while it is idle.
type outbox struct {
	most    *outboxLimits // not changed
	mu      sync.Mutex
	queue   *batch // nil when empty
	bytes   int    // in queue, and being written
	slots   int    // likewise
	ctl     int    // bytes of control among them
	gone    int    // slots in queue that were dropped
	dead    int    // bytes of theirs in queue.buf
	oldest  int    // in queue.slots: none before it is a publication
	state   outboxState
	stopped bool      // takes nothing more, and whoever writes gives up
	last    bool      // takes control only
	change  sync.Cond // on mu: state or stopped has changed, or it became empty

	entries int           // slots that were read from the inbox
	spills  int           // messages of which the end of the slot or of the copy is not known yet
	copying int           // those of which the copy is not stored yet
	copied  uint64        // the last entry that is a copy; the pump begins after it
	written []uint64      // inbox entries that have been written, to be deleted
	pump    chan struct{} // with room for one; told of writing while the pump runs
	moved   chan struct{} // closed when the pump of a seat that was left has ended
	replay  chan struct{} // as pump, while retained values are replayed
	gaps    gaps

	// What is being written belongs to whoever set state to writing; what others
	// change in its slots, and the writer after it has written, is under mu: class,
	// copy and acked.
	out  *batch
	done int // slots of out that have been written

	unproven bool // the peer is: only credit bytes may be sent, and no entries
	credit   int

	window window // what was written and is not acknowledged, if the session does that
}

// outboxLimits bound outboxes of one dialect.
type outboxLimits struct {
	messages, bytes int // that wait, publications included
	control         int // bytes of control
}

type outboxState uint8

const (
	idle      outboxState = iota
	scheduled             // somebody has promised to flush
	writing
)

// verdict is the answer to a push.
type verdict uint8

const (
	pushed  verdict = iota
	first           // pushed, and the caller has to flush
	full            // no room
	held            // not to be sent to a peer that is unproven
	unfit           // cannot be rendered in the session's form
	stopped         // the connection is going down
)

// admit makes sure of a queue to append to, with room for n bytes more.
func (o *outbox) admit(c class, n int) verdict {
	switch {
	case o.stopped || o.last && c != control:
		return stopped
	case o.unproven && n > o.credit:
		return held
	case c == control && o.ctl+n > o.most.control && o.ctl > 0:
		return full
	case c != control && o.slots > 0 && (o.slots >= o.most.messages || o.bytes+n > o.most.bytes):
		return full
	}
	if o.queue == nil {
		o.queue = batchPool.Get().(*batch)
		o.oldest, o.gone, o.dead = 0, 0, 0
	}
	return pushed
}

// added accounts for the slot just appended, and says who flushes.
func (o *outbox) added(s *slot) verdict {
	o.bytes += int(s.n)
	o.slots++
	if o.unproven {
		o.credit -= int(s.n)
	}
	if s.class == control {
		o.ctl += int(s.n)
	}
	if s.seq != 0 {
		o.entries++
	}
	if o.window.shut && s.class == message {
		return pushed // it waits for acknowledgements
	}
	if o.state == idle {
		o.state = scheduled
		return first
	}
	return pushed
}

// pushFrame queues bytes as they are.
func (o *outbox) pushFrame(c class, f frame) verdict {
	o.mu.Lock()
	defer o.mu.Unlock()
	if v := o.admit(c, len(f.data)); v != pushed {
		return v
	}
	o.queue.buf = append(o.queue.buf, f.data...)
	o.queue.slots = append(o.queue.slots, slot{class: c, kind: f.kind, n: int32(len(f.data))})
	return o.added(&o.queue.slots[len(o.queue.slots)-1])
}

// pushMessage renders m into the queue.
func (o *outbox) pushMessage(c class, m *Message, d Dialect, form uint8) verdict {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.unproven && m.seq != 0 && !o.stopped {
		return held
	}
	if v := o.admit(c, len(m.Data)); v != pushed {
		return v
	}
	b := o.queue
	before := len(b.buf)
	kind, buf, err := d.Render(b.buf, form, m)
	if err != nil {
		if len(b.slots) == 0 {
			o.queue = nil
			b.free()
		}
		return unfit
	}
	b.buf = buf
	s := slot{class: c, kind: kind, n: int32(len(buf) - before)}
	if c == message {
		s.from, s.id, s.form, s.flags = m.From, m.ID, form, m.Flags
		s.received, s.ttl, s.seq, s.ephemeral, s.copied = m.received, int64(m.TTL), m.seq, m.Ephemeral, m.copied
	}
	b.slots = append(b.slots, s)
	return o.added(&b.slots[len(b.slots)-1])
}

// pushPublication queues a publication, by reference if it is large. At a limit
// it makes room by dropping older ones, and returns how many. If what comes is to
// be whole, it takes control only from there on. filter is that of a topic's.
func (o *outbox) pushPublication(k transport.Kind, pub *shared, whole bool, filter Address) (v verdict, lost int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	n := len(pub.data)
	for v = o.admit(publication, n); v == full; v = o.admit(publication, n) {
		if whole {
			o.last = true
			return full, 0
		}
		if !o.dropOldest() {
			o.gaps.add(filter)
			return full, lost
		}
		lost++
	}
	if v != pushed {
		return v, lost
	}
	b, s := o.queue, slot{class: publication, kind: k, n: int32(n), from: filter}
	if n >= shareFrom {
		pub.refs.Add(1)
		s.shared = pub
	} else {
		b.buf = append(b.buf, pub.data...)
	}
	b.slots = append(b.slots, s)
	return o.added(&b.slots[len(b.slots)-1]), lost
}

// dropOldest drops the oldest publication that is not being written.
func (o *outbox) dropOldest() bool {
	b := o.queue
	if b == nil {
		return false
	}
	for ; o.oldest < len(b.slots); o.oldest++ {
		s := &b.slots[o.oldest]
		if s.class != publication {
			continue
		}
		o.gaps.add(s.from)
		o.drop(s)
		if o.gone > len(b.slots)/2 || o.dead > len(b.buf)/2 {
			o.compact()
		}
		return true
	}
	return false
}

// drop takes a slot out of the queue; compact will remove it.
func (o *outbox) drop(s *slot) {
	o.bytes -= int(s.n)
	o.slots--
	o.gone++
	s.class = over
	if s.shared != nil {
		s.shared.release()
		s.shared, s.n = nil, 0
	}
	o.dead += int(s.n)
}

// compact takes dropped slots and their bytes out of the queue.
func (o *outbox) compact() {
	b := o.queue
	from, to, kept := 0, 0, 0
	for _, s := range b.slots {
		n := int(s.n)
		if s.shared != nil {
			n = 0
		}
		if s.class != over {
			copy(b.buf[to:], b.buf[from:from+n])
			to += n
			b.slots[kept] = s
			kept++
		}
		from += n
	}
	clear(b.slots[kept:])
	b.slots, b.buf = b.slots[:kept], b.buf[:to]
	o.oldest, o.gone, o.dead = 0, 0, 0
	if kept == 0 {
		o.queue = nil
		b.free()
	}
}

// begin makes the caller the one who writes, if somebody is wanted.
func (o *outbox) begin() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.state != scheduled {
		return false
	}
	o.state = writing
	return true
}

// take takes what is queued for writing, as far as the window allows, or ends the
// writing and returns false when there is nothing or the outbox was stopped.
func (o *outbox) take() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.queue != nil && o.gone > 0 {
		o.compact()
	}
	switch {
	case o.stopped || o.out == nil && o.queue == nil:
		o.gaps = gaps{}
		o.idle()
		return false
	case o.out != nil: // an earlier writer gave up
		return true
	case o.window.takes(o.queue):
		o.out, o.queue = o.queue, nil
	default:
		if o.out = o.part(); o.out == nil {
			o.idle()
			return false
		}
	}
	o.done = 0
	o.out.vec()
	return true
}

// idle ends the writing. The caller holds mu.
func (o *outbox) idle() {
	o.state = idle
	o.change.Broadcast()
	o.poke()
}

// poke wakes the pump and the replay, if they run. The caller holds mu.
func (o *outbox) poke() {
	signal(o.pump)
	signal(o.replay)
}

// next returns the messages to write next, all of one kind. The caller is
// writing; nil means that the batch is finished.
func (o *outbox) next() (transport.Kind, [][]byte) {
	if o.out == nil {
		return 0, nil
	}
	i := o.done
	k, j := o.out.slots[i].kind, i+1
	for j < len(o.out.slots) && o.out.slots[j].kind == k {
		j++
	}
	return k, o.out.vecs[i:j]
}

// wrote accounts for the first n messages of next and returns how many of them
// were held nowhere else and so have left the relay, and whether there are now
// such that wait to be acknowledged.
func (o *outbox) wrote(n int) (delivered int, waits bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for i := o.done; i < o.done+n; i++ {
		s := &o.out.slots[i]
		o.bytes -= int(s.n)
		o.slots--
		if s.class == control {
			o.ctl -= int(s.n)
		}
		if o.window.wants(s) && !s.acked {
			o.window.add(o.out, s)
			continue
		}
		delivered += o.finish(s)
	}
	o.window.reopen() // what was acknowledged at once; the writer goes on
	o.done += n
	if o.done == len(o.out.slots) {
		o.window.keep(o.out)
		o.out = nil
		if o.queue == nil {
			o.change.Broadcast()
		}
	}
	o.poke()
	waits = o.window.waiting > 0 && !o.window.watched
	o.window.watched = o.window.watched || waits
	return delivered, waits
}

// finish ends a slot: its message has been written and, where that is done,
// acknowledged. It returns 1 if the message was held nowhere else. The caller
// holds mu.
func (o *outbox) finish(s *slot) (delivered int) {
	isMessage := s.class == message || s.class == awaiting
	switch {
	case isMessage && s.seq != 0:
		o.entries--
		o.written = append(o.written, s.seq)
	case isMessage && s.copy != nil:
		if s.copy.refused() {
			delivered = 1
		}
		s.copy.end(o, &s.copy.written)
	case isMessage || s.class == publication || s.class == replayed:
		delivered = 1
	}
	if s.shared != nil {
		s.shared.release()
		s.shared = nil
	}
	s.class = over
	return delivered
}

// giveUp ends the writing with work left, and says whether that is because the
// outbox was stopped.
func (o *outbox) giveUp() (stopped bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.idle()
	return o.stopped
}

func (o *outbox) isStopped() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.stopped
}

// stop makes the outbox take nothing more. Who writes has to be interrupted by
// the connection's write deadline.
func (o *outbox) stop() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.stopped = true
	if o.state != writing {
		o.idle()
	}
}

// wait waits until nobody writes, or with empty until nothing is left to write or
// whoever wrote gave up, for as long as on says so.
func (o *outbox) wait(empty bool, on func() bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for (o.state == writing || empty && !o.stopped && o.state != idle && o.slots > 0) && on() {
		o.change.Wait()
	}
}

// wake has those who wait look again.
func (o *outbox) wake() {
	o.mu.Lock()
	o.change.Broadcast()
	o.mu.Unlock()
}

// load returns how many bytes wait, or are being written.
func (o *outbox) load() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.bytes
}

// owes says whether entries of the inbox are in the outbox, or have been written
// and not been deleted.
func (o *outbox) owes() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.entries > 0 || o.spills > 0 || len(o.written) > 0
}

// copies returns the last entry of the inbox that is a copy of what was here, and
// whether more are on their way there. Copies are made while nothing is unread in
// the inbox, so up to there the session has everything: it was sent, or its slot
// is still here and comes before what is read from there.
func (o *outbox) copies() (last uint64, more bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.copied, o.copying > 0
}

// forgetCopies is for the end of a pump: none is left, and the next may be of
// another inbox.
func (o *outbox) forgetCopies() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.copied = 0
}

// takeWritten returns the entries to delete.
func (o *outbox) takeWritten() []uint64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	w := o.written
	o.written = nil
	return w
}

func (o *outbox) setCredit(unproven bool, credit int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.unproven, o.credit = unproven, credit
	o.poke()
}

func (o *outbox) addCredit(n int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.credit += n
	o.poke()
}

// follow has the next pump wait for that of a seat that is left.
func (o *outbox) follow(pump chan struct{}) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.moved = pump
}

func (o *outbox) isUnproven() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.unproven
}
