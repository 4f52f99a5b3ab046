package relay

import (
	"errors"
	"os"
	"sync"
	"time"

	"github.com/sotto-relay/sotto/transport"
)

// A batcher puts the flushes of outboxes off that found themselves idle, until
// the end of a batch.
type batcher struct {
	dirtyMu sync.Mutex
	inBatch bool
	dirty   []*Port
	spare   []*Port // memory for dirty
}

// openBatch begins to put flushes off, unless that has begun.
func (b *batcher) openBatch() (opened bool) {
	b.dirtyMu.Lock()
	defer b.dirtyMu.Unlock()
	opened, b.inBatch = !b.inBatch, true
	return opened
}

// closeBatch writes what has been brought into outboxes that were idle since
// openBatch: one write each, however many messages.
func (b *batcher) closeBatch() {
	b.dirtyMu.Lock()
	dirty := b.dirty
	b.inBatch, b.dirty, b.spare = false, b.spare, nil
	b.dirtyMu.Unlock()
	for _, q := range dirty {
		q.flush()
	}
	clear(dirty)
	b.dirtyMu.Lock()
	b.spare = dirty[:0]
	b.dirtyMu.Unlock()
}

// handOver is closeBatch, and leaves the flushing to another.
func (b *batcher) handOver(to origin) {
	b.dirtyMu.Lock()
	dirty := b.dirty
	b.inBatch, b.dirty = false, nil
	b.dirtyMu.Unlock()
	for _, q := range dirty {
		to.flushLater(q)
	}
}

// flushLater sees to the flushing of q, whose outbox was idle: at the end of the
// batch, or now if there is none.
func (b *batcher) flushLater(q *Port) {
	b.dirtyMu.Lock()
	if b.inBatch {
		b.dirty = append(b.dirty, q)
		b.dirtyMu.Unlock()
		return
	}
	b.dirtyMu.Unlock()
	q.flush()
}

// endBatch ends the batch of messages that came in together.
func (p *Port) endBatch() {
	if p.batching {
		p.batching = false
		p.closeBatch()
	}
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
		d, waits := p.out.wrote(n)
		if d > 0 {
			p.s.count.delivered.Add(int64(d))
			p.s.count.queued.Add(-int64(d))
		}
		if waits {
			p.watchUnacked()
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
