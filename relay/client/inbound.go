package client

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/sotto-relay/sotto/crypto"
	"github.com/sotto-relay/sotto/frame"
	"github.com/sotto-relay/sotto/relay/dialect/brep"
)

// The most that a relay hands out before it is acknowledged (spec native.md,
// "Delivery").
const (
	windowLetters = 256
	windowBytes   = 8 << 20
)

// An arrival is a letter on its way to the application.
type arrival struct {
	letter *Letter
	key    letterKey
	keyed  bool // the key is one
	kept   bool // the relay has it until it is acknowledged

	session *brep.Client // where it came, the last time
	frame   frame.Brep   // that it came in, without the payload
}

// An inbound queue holds the letters that the application has not taken, and
// knows which it has. One goroutine adds; all else may be called by any.
//
// A relay's window bounds what is in it, so that reading goes on and receipts
// come, however slow the application is. Letters that the relay does not keep are
// outside of that window: those that come when there are as many as it has are
// dropped. Only for a relay without a window, in a legacy session, the client
// stops reading, which holds up no receipt as there are none.
type inbound struct {
	taken   chan struct{} // with room for one: isFull may answer otherwise
	records *records      // of what is seen; nil: none

	mu     sync.Mutex
	queue  []*arrival
	bytes  int
	unread map[letterKey]*arrival // in the queue, or in the application's hands
	seen   *seen                  // what the application has taken
	closed error                  // nothing more comes
	more   chan struct{}          // closed when take may have something; nil: nobody waits
}

// A crew is some goroutines that take letters, those of one sender one after the
// other: busy are the senders of those that are taken and not done.
type crew struct {
	busy map[crypto.PublicKey]bool // under the queue's mu
}

func newInbound(remembered int) *inbound {
	return &inbound{
		taken:  make(chan struct{}, 1),
		unread: make(map[letterKey]*arrival), seen: newSeen(remembered),
	}
}

// A repeat says what is to be done with a frame whose letter may have come before.
type repeat uint8

const (
	isNew   repeat = iota
	isTaken        // the application has taken it, under this id: acknowledge it again
	isSpare        // acknowledge it, not signed: nothing was read under its id, or not yet
	isHeld         // it is the relay's hold on a letter that is unread: one is left to each
)

// repeats says whether a letter has come before. ENCRYPTED_DATA has not been seen under
// an id: who repeats it under another one is not to have our signature for that.
func (q *inbound) repeats(k letterKey, f *frame.Brep, s *brep.Client) repeat {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.seen.has(k) {
		if k.id != f.ID {
			return isSpare
		}
		return isTaken
	}
	a := q.unread[k]
	switch {
	case a == nil:
		return isNew
	case a.session == s || a.frame.ID != f.ID:
		return isSpare
	}
	a.session = s
	return isHeld
}

// add queues a letter. False: there is no room for one that the relay does not
// keep.
func (q *inbound) add(a *arrival, mayDrop bool) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if mayDrop && (len(q.queue) >= windowLetters || q.bytes >= windowBytes) {
		return false
	}
	if a.keyed {
		q.unread[a.key] = a
	}
	q.queue = append(q.queue, a)
	q.bytes += len(a.letter.Data)
	q.wake()
	return true
}

// isFull says whether more is unread than a relay with a window causes: what it
// has in it, and as much that it does not keep, one letter being large.
func (q *inbound) isFull() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.queue) > 2*windowLetters || q.bytes > 3*windowBytes
}

// take waits for the oldest letter, of those that are for c if that is not nil. It
// remains unread until it is given to settle, putBack or leave, and c's until it is
// given to release. What is in the queue comes before the error of close.
func (q *inbound) take(ctx context.Context, c *crew) (*arrival, error) {
	for {
		a, more, err := q.pop(ctx, c)
		if a != nil || err != nil {
			return a, err
		}
		select {
		case <-more:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (q *inbound) pop(ctx context.Context, c *crew) (a *arrival, more <-chan struct{}, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if err := ctx.Err(); err != nil { // here, as one of a crew ends it before it puts back
		return nil, nil, err
	}
	i := 0
	for c != nil && i < len(q.queue) && c.busy[q.queue[i].letter.From] {
		i++
	}
	if i == len(q.queue) {
		if i == 0 && q.closed != nil {
			return nil, nil, q.closed
		}
		if q.more == nil {
			q.more = make(chan struct{})
		}
		return nil, q.more, nil
	}
	a = q.queue[i]
	if i == 0 {
		q.queue[0] = nil
		q.queue = q.queue[1:]
	} else {
		q.queue = slices.Delete(q.queue, i, i+1)
	}
	q.bytes -= len(a.letter.Data)
	if c != nil {
		c.busy[a.letter.From] = true
	}
	signal(q.taken)
	return a, nil, nil
}

// release says that one of a crew is done with a letter.
func (q *inbound) release(c *crew, a *arrival) {
	if c == nil {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(c.busy, a.letter.From)
	q.wake()
}

// wake makes those who wait for letters look again. The caller holds mu.
func (q *inbound) wake() {
	if q.more != nil {
		close(q.more)
		q.more = nil
	}
}

// settle notes that the application has taken a letter, records that, and
// acknowledges it. If the present session has not brought it again yet, that is for
// when it does.
func (q *inbound) settle(a *arrival) {
	var in *record
	if a.keyed && q.records != nil {
		in = q.records.add(a.key)
	}
	q.mu.Lock()
	if a.keyed {
		delete(q.unread, a.key)
		q.seen.note(a.key, time.Now(), in)
	}
	s := a.session
	q.mu.Unlock()
	s.Ack(&a.frame)
}

// putBack returns a letter that the application has not taken to the front of
// the queue.
func (q *inbound) putBack(a *arrival) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed != nil && a.kept {
		return
	}
	q.queue = slices.Insert(q.queue, 0, a)
	q.bytes += len(a.letter.Data)
	q.wake()
}

// leave forgets a letter, so that it may come again.
func (q *inbound) leave(a *arrival) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if a.keyed {
		delete(q.unread, a.key)
	}
}

// close adds an end to the queue, once, and leaves what the relay keeps to it.
func (q *inbound) close(err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.queue = slices.DeleteFunc(q.queue, func(a *arrival) bool { return a.kept })
	q.closed = err
	q.wake()
}
