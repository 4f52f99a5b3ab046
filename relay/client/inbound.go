package client

import (
	"context"
	"slices"
	"sync"

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
	letters chan struct{} // with room for one: take may have something
	taken   chan struct{} // with room for one: isFull may answer otherwise

	mu     sync.Mutex
	queue  []*arrival
	bytes  int
	unread map[letterKey]*arrival // in the queue, or in the application's hands
	seen   *seen                  // what the application has taken
	closed error                  // nothing more comes
	done   chan struct{}          // closed with it
}

func newInbound(remembered int) *inbound {
	return &inbound{
		letters: make(chan struct{}, 1), taken: make(chan struct{}, 1),
		unread: make(map[letterKey]*arrival), seen: newSeen(remembered),
		done: make(chan struct{}),
	}
}

// isRepeat says whether a letter has come before, and if so whether the frame is
// to be acknowledged now. It is not if it is the relay's hold on a letter that is
// unread: one is left to each.
func (q *inbound) isRepeat(k letterKey, f *frame.Brep, s *brep.Client) (repeat, ack bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.seen.has(k) {
		return true, true
	}
	a := q.unread[k]
	switch {
	case a == nil:
		return false, false
	case a.session == s || a.frame.ID != f.ID:
		return true, true
	}
	a.session = s
	return true, false
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
	signal(q.letters)
	return true
}

// isFull says whether more is unread than a relay with a window causes: what it
// has in it, and as much that it does not keep, one letter being large.
func (q *inbound) isFull() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.queue) > 2*windowLetters || q.bytes > 3*windowBytes
}

// take waits for the oldest letter, which remains unread until it is given to
// settle, putBack or leave. What is in the queue comes before the error of close.
func (q *inbound) take(ctx context.Context) (*arrival, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	for {
		a, err := q.pop()
		if a != nil || err != nil {
			return a, err
		}
		select {
		case <-q.letters:
		case <-q.done:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (q *inbound) pop() (*arrival, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.queue) == 0 {
		return nil, q.closed
	}
	a := q.queue[0]
	q.queue[0] = nil
	q.queue = q.queue[1:]
	q.bytes -= len(a.letter.Data)
	if len(q.queue) > 0 {
		signal(q.letters) // for another goroutine that takes
	}
	signal(q.taken)
	return a, nil
}

// settle notes that the application has taken a letter, and acknowledges it. If
// the present session has not brought it again yet, that is for when it does.
func (q *inbound) settle(a *arrival) {
	q.mu.Lock()
	if a.keyed {
		delete(q.unread, a.key)
		q.seen.note(a.key)
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
	signal(q.letters)
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
	close(q.done)
}
