package relay

import (
	"errors"
	"os"
	"time"

	"github.com/sotto-relay/sotto/transport"
)

// openBatch begins to put flushes off, unless that has begun.
func (p *Port) openBatch() (opened bool) {
	p.dirtyMu.Lock()
	defer p.dirtyMu.Unlock()
	opened, p.inBatch = !p.inBatch, true
	return opened
}

// closeBatch writes what has been brought into outboxes that were idle since
// openBatch: one write each, however many messages.
func (p *Port) closeBatch() {
	p.dirtyMu.Lock()
	dirty := p.dirty
	p.inBatch, p.dirty, p.spare = false, p.spare, nil
	p.dirtyMu.Unlock()
	for _, q := range dirty {
		q.flush()
	}
	clear(dirty)
	p.dirtyMu.Lock()
	p.spare = dirty[:0]
	p.dirtyMu.Unlock()
}

// endBatch ends the batch of messages that came in together.
func (p *Port) endBatch() {
	if p.batching {
		p.batching = false
		p.closeBatch()
	}
}

// flushLater sees to the flushing of q, whose outbox was idle: at the end of the
// batch of messages that p reads, or now if it reads none.
func (p *Port) flushLater(q *Port) {
	p.dirtyMu.Lock()
	if p.inBatch {
		p.dirty = append(p.dirty, q)
		p.dirtyMu.Unlock()
		return
	}
	p.dirtyMu.Unlock()
	q.flush()
}

// flush writes what waits for p, without blocking. What the medium does not take
// at once is left to a goroutine that lives until the outbox is empty.
func (p *Port) flush() {
	if !p.out.begin() {
		return
	}
	w, try := p.conn.(transport.TryWriter)
	const rounds = 4 // then others go on pushing, and the caller has its own work
	for i := 0; ; i++ {
		if !p.out.take() {
			return
		}
		if !try || i == rounds {
			break
		}
		whole, err := p.writeBatch(w.TryWrite)
		if err != nil {
			if !p.out.giveUp() {
				p.fail(peerGone(err))
			}
			return
		}
		if !whole {
			break
		}
	}
	go p.drain()
}

// writeBatch writes what has been taken, as far as one call of write for each run
// of one kind goes.
func (p *Port) writeBatch(write func(transport.Kind, [][]byte) (int, error)) (whole bool, err error) {
	for {
		k, msgs := p.out.next()
		if msgs == nil {
			return true, nil
		}
		n, err := write(k, msgs)
		short := n < len(msgs)
		if d := p.out.wrote(n); d > 0 {
			p.s.count.delivered.Add(int64(d))
			p.s.count.queued.Add(-int64(d))
		}
		if err != nil || short {
			return false, err
		}
	}
}

// drain writes until the outbox is empty.
func (p *Port) drain() {
	for {
		for whole := false; !whole; {
			_ = p.conn.SetWriteDeadline(time.Now().Add(p.s.limits.WriteTimeout))
			if p.out.isStopped() { // after the deadline was set: halt sets it to the past
				p.out.giveUp()
				return
			}
			var err error
			whole, err = p.writeBatch(p.conn.Write)
			if err != nil {
				if !p.out.giveUp() {
					p.fail(p.writeError(err))
				}
				return
			}
		}
		if !p.out.take() {
			return
		}
	}
}

func (p *Port) writeError(err error) error {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return &Refusal{Code: CodeOverloaded, Reason: "too slow", Err: err}
	}
	return peerGone(err)
}
