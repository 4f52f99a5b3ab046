package relay

// A leftover is a message taken back from an outbox, with its bytes.
type leftover struct {
	slot
	data []byte
}

func newLeftover(s *slot, data []byte) leftover {
	return leftover{*s, append([]byte(nil), data...)}
}

// takeBack removes all that was not written or not acknowledged and returns the
// live messages among it, in order, and the numbers of publications and of
// messages that are done after all. Nobody writes, and the outbox is stopped. If
// nothing was half written, it can take last words afterwards: control, and
// nothing else.
func (o *outbox) takeBack() (left []leftover, pubs, delivered int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.last = o.out == nil
	o.stopped = !o.last
	for _, b := range o.window.batches {
		left, pubs = o.collect(left, pubs, b)
	}
	if o.out != nil {
		for i := o.done; i < len(o.out.slots); i++ {
			if s := &o.out.slots[i]; s.acked {
				delivered += o.finish(s)
			}
		}
		left, pubs = o.collect(left, pubs, o.out)
	}
	if o.queue != nil {
		o.queue.vec()
		left, pubs = o.collect(left, pubs, o.queue)
	}
	o.out, o.queue, o.bytes, o.slots, o.ctl, o.entries = nil, nil, 0, 0, 0, 0
	o.window.clear()
	o.poke()
	return left, pubs, delivered
}

func (o *outbox) collect(left []leftover, pubs int, b *batch) ([]leftover, int) {
	for i := range b.slots {
		s := &b.slots[i]
		if s.live() {
			left = append(left, newLeftover(s, b.vecs[i]))
		}
		if s.copy != nil && s.class != over {
			s.copy.end(o, &s.copy.taken)
		}
		if s.class == publication || s.class == replayed {
			pubs++
		}
		if s.shared != nil {
			s.shared.release()
		}
	}
	b.free()
	return left, pubs
}

// spill returns the live messages of the outbox, in order. Those that are not
// being written yet are moved out; the others, and those that have been and are
// not acknowledged, stay, tied to their copies.
func (o *outbox) spill() (left []leftover) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.moveOut()
}

// vacate is spill, and drops the entries of the inbox that are not being written.
func (o *outbox) vacate() (left []leftover) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.queue != nil {
		for i := range o.queue.slots {
			if s := &o.queue.slots[i]; s.class == message && s.seq != 0 {
				o.entries--
				o.drop(s)
			}
		}
		o.compact()
	}
	return o.moveOut()
}

func (o *outbox) moveOut() (left []leftover) {
	for _, b := range o.window.batches {
		left = o.copyOut(left, b)
	}
	if o.out != nil {
		left = o.copyOut(left, o.out)
	}
	if o.queue == nil {
		return left
	}
	o.queue.vec()
	for i := range o.queue.slots {
		if s := &o.queue.slots[i]; s.live() && !s.ephemeral {
			left = append(left, newLeftover(s, o.queue.vecs[i]))
			o.drop(s)
		}
	}
	o.compact()
	return left
}

func (o *outbox) copyOut(left []leftover, b *batch) []leftover {
	for i := range b.slots {
		if s := &b.slots[i]; s.live() && s.copy == nil && !s.ephemeral {
			s.copy = new(spilled)
			o.spills++
			o.copying++
			left = append(left, newLeftover(s, b.vecs[i]))
		}
	}
	return left
}

// A spilled ties a message that is being written to the copy of it that is put
// into the inbox: whichever ends first, the other one learns. All of it is under
// the outbox's lock.
type spilled struct {
	put     bool   // the put has ended
	seq     uint64 // with this entry; zero: refused
	written bool   // the slot has ended: written,
	taken   bool   // or taken back
}

// end notes the end of the slot in how.
func (c *spilled) end(o *outbox, how *bool) {
	*how = true
	if c.put {
		c.both(o)
	}
}

// stored notes the end of the put, seq being zero if it was refused.
func (c *spilled) stored(o *outbox, seq uint64) (written, taken bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	c.put, c.seq = true, seq
	o.copying--
	o.copied = max(o.copied, seq)
	if c.written || c.taken {
		c.both(o)
	}
	return c.written, c.taken
}

// both settles the two.
func (c *spilled) both(o *outbox) {
	o.spills--
	if c.written && c.seq != 0 {
		o.written = append(o.written, c.seq)
	}
	o.poke()
}

func (c *spilled) refused() bool { return c.put && c.seq == 0 }
