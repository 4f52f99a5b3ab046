package relay

import (
	"context"
	"errors"
	"time"
)

// lastWords is how long the end of a connection waits for what is queued (an
// error frame, replies) to be taken by the medium.
const lastWords = time.Second

// fail ends the connection from anywhere, without waiting.
func (p *Port) fail(err error) {
	if !p.ending.Load() {
		go p.end(err)
	}
}

// end takes the connection down. Only the first call does anything.
func (p *Port) end(err error) {
	ctx, cancel := context.WithTimeout(context.Background(), lastWords)
	defer cancel()
	if errors.Is(err, errPeerGone) {
		cancel()
	}
	p.endWithin(ctx, err)
}

// endWithin is end, with ctx bounding the time for what is queued to be written.
func (p *Port) endWithin(ctx context.Context, err error) {
	if !p.ending.CompareAndSwap(false, true) {
		return
	}
	p.err = err
	p.cancel()
	p.loop.Lock()
	if p.session != nil {
		p.session.Close(err) // may reply
	}
	p.closed = true
	for t := range p.timers {
		t.Stop()
	}
	clear(p.timers)
	p.leaveGroups()
	p.leaveGames()
	p.leaveTopics()
	p.keepLevel()
	if !p.ready {
		p.s.unreadyDone()
		p.late.Stop()
	}
	p.loop.Unlock()
	p.unwatch()

	p.flush() // whoever had promised to may be this goroutine
	stop := context.AfterFunc(ctx, p.out.wake)
	p.out.wait(true, func() bool { return ctx.Err() == nil })
	stop()

	r := AsRefusal(err)
	p.s.logEnd(p, r)
	if p.seat != nil {
		p.s.leave(p.seat, p)
		p.s.went(p.seat)
	} else {
		p.halt()
	}
	_ = p.conn.Close(r.closeCode(), r.Sentence())
	if p.seat != nil {
		p.s.router.release(p.seat)
	}
	p.gate.leave(p.source)
	p.s.mu.Lock()
	delete(p.s.ports, p)
	p.s.mu.Unlock()
	close(p.ended)
}

// awaitAcks gives a session the time to acknowledge what it has been sent: a
// second, since one that is frozen would take all that ctx allows.
func (p *Port) awaitAcks(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, lastWords)
	defer cancel()
	defer context.AfterFunc(ctx, p.out.wake)()
	p.out.waitAcks(func() bool { return ctx.Err() == nil })
}

// halt stops the outbox and returns the messages that were only in it.
func (p *Port) halt() []leftover {
	p.out.stop()
	_ = p.conn.SetWriteDeadline(time.Unix(1, 0)) // whoever writes returns
	p.out.wait(false, func() bool { return true })
	left, pubs, delivered := p.out.takeBack()
	p.s.count.queued.Add(-int64(pubs + delivered))
	p.s.count.delivered.Add(int64(delivered))
	p.s.count.dropped[dropGone].Add(int64(pubs))
	_ = p.conn.SetWriteDeadline(time.Now().Add(lastWords))
	return left
}
