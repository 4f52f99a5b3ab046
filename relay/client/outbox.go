package client

import (
	"container/list"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/sotto-relay/sotto/crypto"
	"github.com/sotto-relay/sotto/frame"
)

// A pending message is one that the relay does not have for good, as far as we
// know.
type pending struct {
	to      crypto.PublicKey
	frame   frame.Brep
	made    time.Time
	until   Status        // the receipt that was asked for
	awaited bool          // by a Send
	piece   bool          // of a file: not for the journal, as who sends it does not outlive the Client
	settled chan struct{} // closed when there is an answer

	// Set before settled is closed.
	receipt Receipt
	err     error

	// Under the outbox's mu.
	number  uint64 // in the journal; zero: not there
	ready   bool   // in the journal, if it is to be
	told    bool   // there is an answer
	best    Status // the highest receipt
	safe    bool   // it is stored by a relay that was durable, or read
	stage   stage
	quietAt time.Time // when no more than Handed means that no more comes; zero: no matter
}

// A stage is where a message is, as seen from the present connection.
type stage uint8

const (
	queued stage = iota // it is to be sent
	flying              // it was given to the connection
	kept                // there is a receipt, and a better one to come
)

// A load counts messages and their bytes.
type load struct{ messages, bytes int }

func (l *load) add(p *pending)    { l.messages, l.bytes = l.messages+1, l.bytes+p.frame.Size() }
func (l *load) remove(p *pending) { l.messages, l.bytes = l.messages-1, l.bytes-p.frame.Size() }

// takes says whether there is room for a message below a bound. One of any size
// passes when it is alone.
func (l *load) takes(p *pending, most load) bool {
	return l.messages == 0 || l.messages < most.messages && l.bytes+p.frame.Size() <= most.bytes
}

// An outbox keeps messages in order until the relay, or the recipient, has them
// for good. All methods may be called by any goroutine.
//
// Messages without a receipt are bounded by maxPending, and so are those of them
// that were given to the connection; those with one by maxKept. Past that the
// oldest are let go that the relay has stored, if only in its memory, or that it
// says no more of; the others are waited for.
type outbox struct {
	maxPending, maxKept load

	journal *journal // nil: none
	trace   *Trace

	work chan struct{} // with room for one: next may have something

	mu      sync.Mutex
	durable bool      // the relay's inbox is
	all     list.List // of *pending, oldest first
	byID    map[[16]byte]*list.Element
	unsent  *list.Element // the oldest that is queued; nil: none
	pending load          // queued and flying
	flying  load
	kept    load
	room    chan struct{} // closed when there is more of it; nil: nobody waits
	closed  error         // nothing is taken any more
	timer   *time.Timer   // of tend
	due     time.Time     // when it fires; zero: it does not
	answers []answer      // to be told once mu is free
}

// An answer is what there is to tell of a message: to who waits, or to the Trace.
// One that is not the first revokes that.
type answer struct {
	p     *pending
	first bool
	r     Receipt
	err   error
}

func newOutbox(maxPending, maxKept load, t *Trace) *outbox {
	return &outbox{
		maxPending: maxPending, maxKept: maxKept, trace: t,
		work: make(chan struct{}, 1),
		byID: make(map[[16]byte]*list.Element),
	}
}

// restore begins with what is in a journal.
func (o *outbox) restore(j *journal, left []*pending) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.journal = j
	for _, p := range left {
		o.append(p)
	}
}

// update calls f with mu held, and tells the answers that it leaves.
func (o *outbox) update(f func()) {
	o.mu.Lock()
	f()
	answers := o.answers
	o.answers = nil
	o.mu.Unlock()
	for _, a := range answers {
		if !a.first {
			o.trace.Revoked(a.p.to, a.r, a.err)
			continue
		}
		close(a.p.settled)
		if !a.p.awaited {
			o.trace.Settled(a.p.to, a.r, a.err)
		}
	}
}

// add takes a message, unless there is no room for it: full is then closed when
// it is worth another try. With a journal it has a number then, and is sent once it
// is said to be recorded.
func (o *outbox) add(p *pending) (full <-chan struct{}, err error) {
	o.update(func() {
		switch {
		case o.closed != nil:
			err = o.closed
		case !o.pending.takes(p, o.maxPending) || !o.keeps(p):
			if o.room == nil {
				o.room = make(chan struct{})
			}
			full = o.room
		default:
			if o.journal != nil && !p.isFleeting() && !p.piece {
				p.number = o.journal.next()
			} else {
				p.ready = true
			}
			o.append(p)
		}
	})
	return full, err
}

// append adds a message to the end. The caller holds mu, as for all below that do
// not take it.
func (o *outbox) append(p *pending) {
	e := o.all.PushBack(p)
	o.byID[p.frame.ID] = e
	o.pending.add(p)
	if o.unsent == nil {
		o.unsent = e
	}
	o.tendAt(p.made.Add(retryTime))
	signal(o.work)
}

// recorded says that a message is in the journal, or is not, for a reason.
func (o *outbox) recorded(p *pending, err error) {
	o.update(func() {
		p.ready = true
		if e := o.byID[p.frame.ID]; e != nil && err != nil {
			p.told = true // by the caller, who knows
			o.remove(e)
		}
		signal(o.work)
	})
}

// isFleeting says whether a message is for those who are there, and for nobody
// else: it is ephemeral, or a publication.
func (p *pending) isFleeting() bool {
	return p.frame.Flags&frame.FlagEphemeral != 0 || !isLetter(p.frame.Type)
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
	p := e.Value.(*pending)
	if !p.ready || !o.flying.takes(p, o.maxPending) {
		return nil
	}
	p.stage = flying
	o.flying.add(p)
	o.unsent = e.Next()
	return p
}

// rewind begins a new connection: everything is to be sent, again or for the
// first time.
func (o *outbox) rewind(durable bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.durable = durable
	for e := o.all.Front(); e != nil; e = e.Next() {
		p := e.Value.(*pending)
		if p.stage == kept {
			o.kept.remove(p)
			o.pending.add(p)
		}
		p.stage, p.quietAt = queued, time.Time{}
	}
	o.flying = load{}
	o.unsent = o.all.Front()
	signal(o.work)
}

// recipient returns to whom a message goes that is here.
func (o *outbox) recipient(id [16]byte) (to crypto.PublicKey, ok bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	e := o.byID[id]
	if e == nil {
		return crypto.PublicKey{}, false
	}
	return e.Value.(*pending).to, true
}

// receive notes a receipt.
func (o *outbox) receive(id [16]byte, s Status) {
	o.update(func() {
		e := o.byID[id]
		if e == nil {
			return
		}
		p := e.Value.(*pending)
		p.best = max(p.best, s)
		p.safe = p.safe || s == Read || s == Stored && o.durable
		if p.stage == flying {
			o.land(p)
			p.stage = kept
			o.kept.add(p)
		}
		switch {
		case o.isFinal(p):
			o.letGo(e)
			return
		case p.best >= p.until:
			o.tell(p, nil)
		}
		p.quietAt = time.Time{}
		if p.stage == kept && s == Handed {
			p.quietAt = time.Now().Add(quietTime)
			o.tendAt(p.quietAt)
		}
	})
}

// fail ends a message, if it is here.
func (o *outbox) fail(id [16]byte, err error) {
	o.failIf(id, func(*pending) bool { return true }, err)
}

// failIf ends a message with err if it is here and is holds.
func (o *outbox) failIf(id [16]byte, is func(*pending) bool, err error) (failed bool) {
	o.update(func() {
		e := o.byID[id]
		if e == nil || !is(e.Value.(*pending)) {
			return
		}
		o.tell(e.Value.(*pending), err)
		o.remove(e)
		failed = true
	})
	return failed
}

// close ends everything with err, and takes nothing more. What is in the journal
// stays there, and has not ended.
func (o *outbox) close(err error) {
	o.update(func() {
		o.closed = err
		if o.timer != nil {
			o.timer.Stop()
		}
		for e := o.all.Front(); e != nil; e = e.Next() {
			if p := e.Value.(*pending); !p.told && (p.awaited || p.number == 0) {
				o.tell(p, err)
			}
		}
		o.all.Init()
		clear(o.byID)
		o.unsent = nil
		o.wake()
	})
}

// awaitErased waits, after close, until the journal has no more than it should, or
// its store has taken too long.
func (o *outbox) awaitErased() {
	if o.journal != nil {
		t := time.AfterFunc(storeTime, o.journal.giveUp)
		o.journal.eraser.Wait()
		t.Stop()
		o.journal.giveUp()
	}
}

// list returns what is here, oldest first.
func (o *outbox) list() []Pending {
	o.mu.Lock()
	defer o.mu.Unlock()
	all := make([]Pending, 0, o.all.Len())
	for e := o.all.Front(); e != nil; e = e.Next() {
		if p := e.Value.(*pending); p.ready {
			all = append(all, Pending{p.frame.ID, p.to, p.made, p.frame.Size(), p.best})
		}
	}
	return slices.Clip(all)
}

// letGo ends a message with the receipt that it has.
func (o *outbox) letGo(e *list.Element) {
	o.tell(e.Value.(*pending), nil)
	o.remove(e)
}

// tell answers for a message: once, and then only to say that it has failed after
// all.
func (o *outbox) tell(p *pending, err error) {
	if p.told && (err == nil || err == ErrCancelled) {
		return
	}
	a := answer{p: p, first: !p.told, r: Receipt{p.frame.ID, p.best}, err: err}
	if a.first {
		p.told, p.receipt, p.err = true, a.r, err
	}
	o.answers = append(o.answers, a)
}

// remove takes a message out.
func (o *outbox) remove(e *list.Element) {
	if o.unsent == e {
		o.unsent = e.Next()
	}
	p := o.all.Remove(e).(*pending)
	delete(o.byID, p.frame.ID)
	switch p.stage {
	case queued:
		o.pending.remove(p)
	case flying:
		o.land(p)
	case kept:
		o.kept.remove(p)
	}
	if p.number != 0 {
		o.journal.erase(p.number)
	}
	o.wake()
}

// land ends a flight.
func (o *outbox) land(p *pending) {
	o.flying.remove(p)
	o.pending.remove(p)
	o.wake()
	signal(o.work)
}

// wake makes those who wait for room look again.
func (o *outbox) wake() {
	if o.room != nil {
		close(o.room)
		o.room = nil
	}
}

// has says whether a message is still to be sent.
func (o *outbox) has(p *pending) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.byID[p.frame.ID] != nil
}

// signal leaves a token in a channel with room for one.
func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
