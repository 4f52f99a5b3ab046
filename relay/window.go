package relay

import (
	"slices"
	"time"
)

// A window holds what a session that acknowledges was sent and has not
// acknowledged yet: it stays the relay's own, and goes back to the inbox when the
// session ends (spec native, "Delivery"). Messages without an id, and those that
// are never stored, are not waited for. All of it is under the outbox's lock.
type window struct {
	on       bool // the session acknowledges
	messages int  // at most
	size     int  // bytes, at most

	watched bool     // storeUnacked will look
	batches []*batch // written whole, oldest first; each has slots that wait
	waiting int      // slots of class awaiting, in batches and in outbox.out
	live    int      // those that were not read from the inbox
	bytes   int      // of theirs
	shut    bool     // messages are queued that it has no room for
	credit  int      // messages added, less the acknowledgements that came free
}

func (o *outbox) setWindow(on bool, l *Limits) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.window.on, o.window.messages, o.window.size = on, l.WindowMessages, l.WindowBytes
}

// wants says whether a slot that has been written has to be acknowledged.
func (w *window) wants(s *slot) bool {
	return w.on && s.class == message && s.id != ID{} && !s.ephemeral
}

// takes says whether there is room for all of a queue.
func (w *window) takes(q *batch) bool {
	return !w.on || w.waiting+len(q.slots) <= w.messages && w.bytes+len(q.buf) <= w.size
}

// add makes a slot wait.
func (w *window) add(b *batch, s *slot) {
	s.class = awaiting
	b.awaiting++
	w.waiting++
	if s.seq == 0 {
		w.live++
	}
	w.bytes += int(s.n)
	w.credit = min(w.credit+1, 2*w.messages)
}

// keep takes a batch that has been written whole.
func (w *window) keep(b *batch) {
	if b.awaiting == 0 {
		b.free()
		return
	}
	b.kept = time.Now()
	w.batches = append(w.batches, b)
}

// reopen says whether a window that was shut has room again: a quarter of it, so
// that not every message is written alone.
func (w *window) reopen() bool {
	if !w.shut || w.waiting > w.messages*3/4 || w.bytes > w.size*3/4 {
		return false
	}
	w.shut = false
	return true
}

func (w *window) clear() {
	clear(w.batches)
	w.batches, w.waiting, w.live, w.bytes, w.shut = w.batches[:0], 0, 0, 0, false
}

// part takes from the queue what the window has room for: control and
// publications, and messages until one has to wait. It returns nil when that is
// nothing.
func (o *outbox) part() *batch {
	w := &o.window
	b := batchPool.Get().(*batch)
	from, messages, bytes := 0, w.waiting, w.bytes
	for i := range o.queue.slots {
		s := &o.queue.slots[i]
		n := int(s.n)
		if w.wants(s) {
			if messages > 0 && (messages >= w.messages || bytes+n > w.size) {
				w.shut = true
			}
			messages++
			bytes += n
		}
		if w.shut && s.class == message { // none overtakes another
			from += n
			continue
		}
		b.slots = append(b.slots, *s)
		if s.shared == nil {
			b.buf = append(b.buf, o.queue.buf[from:from+n]...)
			from += n
			o.dead += n
		} else {
			s.shared, s.n = nil, 0 // the copy has it now
		}
		s.class = over
		o.gone++
	}
	if len(b.slots) == 0 {
		b.free()
		return nil
	}
	o.compact()
	return b
}

// acknowledge ends the message that came from an address with an id, if it is
// awaited. It returns how many messages have left the relay by that, and whether
// the caller has to flush.
func (o *outbox) acknowledge(from Address, id ID) (delivered int, awaited, flush bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	w := &o.window
	b, s := o.awaited(from, id, false)
	if s != nil && s.isStored() && (w.live > 0 || o.out != nil) {
		// It may have been sent a second time: its sender did not learn that it is stored
		// before the relay was started anew, or it is no longer remembered. One
		// acknowledgement ends one of the two, and the entry, which comes before all that
		// is newer, is kept longer.
		if second, again := o.awaited(from, id, true); again != nil {
			b, s = second, again
		}
	}
	switch {
	case s == nil:
		return 0, false, false
	case s.class == message: // it was faster than whoever wrote
		awaited, s.acked = !s.acked, true
		return 0, awaited, false
	}
	b.awaiting--
	w.waiting--
	if s.seq == 0 {
		w.live--
	}
	w.bytes -= int(s.n)
	delivered = o.finish(s)
	if i := slices.Index(w.batches, b); i >= 0 && b.awaiting == 0 {
		w.batches = slices.Delete(w.batches, i, i+1)
		b.free()
	}
	if w.waiting == 0 {
		o.change.Broadcast()
	}
	if w.reopen() && o.state == idle && !o.stopped {
		o.state = scheduled
		flush = true
	}
	o.poke()
	return delivered, true, flush
}

// copyUnacked returns copies of the messages that were written before a time and
// that only the window holds, tied to them, and the time at which there will be
// more; zero: there are none.
func (o *outbox) copyUnacked(before time.Time) (left []leftover, next time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, b := range o.window.batches {
		if b.kept.After(before) {
			return left, b.kept
		}
		left = o.copyOut(left, b)
	}
	if o.window.waiting == 0 {
		o.window.watched = false
		return left, time.Time{}
	}
	return left, time.Now()
}

// waitAcks waits until all has been acknowledged, for as long as on says so.
func (o *outbox) waitAcks(on func() bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for o.window.waiting > 0 && !o.stopped && on() {
		o.change.Wait()
	}
}

// answered says whether an answer of the peer's is to one more message than it
// has answered.
func (o *outbox) answered() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.window.credit == 0 {
		return false
	}
	o.window.credit--
	return true
}

// awaited finds a slot that waits, of a message that is not in the inbox if live is set.
// Acknowledgements come in order as a rule, so it is at the front.
func (o *outbox) awaited(from Address, id ID, live bool) (*batch, *slot) {
	for _, b := range o.window.batches {
		if s := b.find(from, id, live, len(b.slots)); s != nil {
			return b, s
		}
	}
	if o.out != nil {
		if s := o.out.find(from, id, live, o.done); s != nil {
			return o.out, s
		}
		for i := o.done; i < len(o.out.slots); i++ {
			if s := &o.out.slots[i]; s.id == id && s.from == from && !(live && s.isStored()) && o.window.wants(s) {
				return o.out, s
			}
		}
	}
	return nil, nil
}

func (b *batch) find(from Address, id ID, live bool, end int) *slot {
	for b.head < end && b.slots[b.head].class == over {
		b.head++
	}
	for i := b.head; i < end; i++ {
		if s := &b.slots[i]; s.class == awaiting && s.id == id && s.from == from && !(live && s.isStored()) {
			return s
		}
	}
	return nil
}
