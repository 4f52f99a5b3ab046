package client

import (
	"container/list"
	"context"
	"sync"
	"time"

	"github.com/sotto-relay/sotto/crypto"
	"github.com/sotto-relay/sotto/frame"
)

// retryTime is for how long a message is sent again. Recipients rely on it when
// they forget ids after 14 days (spec native.md, "Delivery").
const retryTime = 7 * 24 * time.Hour

// A pending message has no receipt yet. status and err are set before settled is
// closed; the rest does not change.
type pending struct {
	to      crypto.PublicKey
	frame   frame.Brep
	made    time.Time
	awaited bool          // by a Send
	settled chan struct{} // closed at the end

	status Status
	err    error
}

func (p *pending) receipt() Receipt { return Receipt{ID: p.frame.ID, Status: p.status} }

// An outbox keeps messages in order until they are settled. All methods may be
// called by any goroutine.
type outbox struct {
	maxMessages, maxBytes int
	report                func(*pending) // the end of one that is not awaited

	work chan struct{} // with room for one: next may have something

	mu     sync.Mutex
	all    list.List // of *pending, oldest first
	byID   map[[16]byte]*list.Element
	unsent *list.Element // the oldest not given to this connection yet; nil: none
	bytes  int
	room   chan struct{} // closed when there is more of it; nil: nobody waits
	closed error         // nothing is taken any more
}

func newOutbox(maxMessages, maxBytes int, report func(*pending)) *outbox {
	return &outbox{
		maxMessages: maxMessages, maxBytes: maxBytes, report: report,
		work: make(chan struct{}, 1),
		byID: make(map[[16]byte]*list.Element),
	}
}

// add takes a message, unless there is no room for it: full is then closed when
// it is worth another try.
func (o *outbox) add(p *pending) (full <-chan struct{}, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	size := p.frame.Size()
	switch {
	case o.closed != nil:
		return nil, o.closed
	case o.all.Len() > 0 && (o.all.Len() >= o.maxMessages || o.bytes+size > o.maxBytes):
		if o.room == nil {
			o.room = make(chan struct{})
		}
		return o.room, nil
	}
	e := o.all.PushBack(p)
	o.byID[p.frame.ID] = e
	o.bytes += size
	if o.unsent == nil {
		o.unsent = e
	}
	signal(o.work)
	return nil, nil
}

// next waits for the next message for this connection.
func (o *outbox) next(ctx context.Context) (*pending, error) {
	for {
		if p := o.take(); p != nil {
			return p, nil
		}
		select {
		case <-o.work:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (o *outbox) take() *pending {
	o.mu.Lock()
	defer o.mu.Unlock()
	e := o.unsent
	if e == nil {
		return nil
	}
	o.unsent = e.Next()
	return e.Value.(*pending)
}

// rewind begins a new connection: everything is to be sent, again or for the
// first time.
func (o *outbox) rewind() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.unsent = o.all.Front()
	signal(o.work)
}

// settle ends a message, with an error unless that is nil. Those that have ended
// before are left alone.
func (o *outbox) settle(id [16]byte, s Status, err error) {
	o.mu.Lock()
	e := o.byID[id]
	if e == nil {
		o.mu.Unlock()
		return
	}
	p := o.remove(e, s, err)
	o.mu.Unlock()
	o.announce(p)
}

// failIf ends those for which is holds, with err.
func (o *outbox) failIf(is func(*pending) bool, err error) {
	var failed []*pending
	o.mu.Lock()
	for e := o.all.Front(); e != nil; {
		after := e.Next()
		if is(e.Value.(*pending)) {
			failed = append(failed, o.remove(e, 0, err))
		}
		e = after
	}
	o.wake()
	o.mu.Unlock()
	for _, p := range failed {
		o.announce(p)
	}
}

// failOld ends what was made more than retryTime ago.
func (o *outbox) failOld() {
	oldest := time.Now().Add(-retryTime)
	o.failIf(func(p *pending) bool { return p.made.Before(oldest) }, ErrExpired)
}

// close ends everything with err, and takes nothing more.
func (o *outbox) close(err error) {
	o.mu.Lock()
	o.closed = err
	o.mu.Unlock()
	o.failIf(func(*pending) bool { return true }, err)
}

// remove takes a message out. The caller holds mu, and announces it afterwards.
func (o *outbox) remove(e *list.Element, s Status, err error) *pending {
	if o.unsent == e {
		o.unsent = e.Next()
	}
	p := o.all.Remove(e).(*pending)
	delete(o.byID, p.frame.ID)
	o.bytes -= p.frame.Size()
	p.status, p.err = s, err
	o.wake()
	return p
}

func (o *outbox) announce(p *pending) {
	close(p.settled)
	if !p.awaited {
		o.report(p)
	}
}

// wake makes those who wait for room look again. The caller holds mu.
func (o *outbox) wake() {
	if o.room != nil {
		close(o.room)
		o.room = nil
	}
}

// isSettled says whether a message has ended.
func (p *pending) isSettled() bool {
	select {
	case <-p.settled:
		return true
	default:
		return false
	}
}

// signal leaves a token in a channel with room for one.
func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
