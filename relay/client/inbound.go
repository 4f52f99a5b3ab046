package client

import (
	"context"
	"sync"
)

// overrun is how many times more unread letters than configured are taken while
// a Send waits for its receipt.
const overrun = 8

// An inbound queue holds the letters that the application has not taken. One
// goroutine adds; all else may be called by any.
//
// The bound is soft while receipts are expected, because they come behind what
// the relay has sent before: an application that sends from where it takes its
// letters would wait for ever. At the hard bound whoever waits is told so.
type inbound struct {
	maxLetters, maxBytes int

	letters chan struct{} // with room for one: take may have something
	changed chan struct{} // with room for one: admits may answer otherwise

	mu        sync.Mutex
	queue     []*Letter
	bytes     int
	expecting int           // Sends that wait
	closed    error         // nothing more comes
	done      chan struct{} // closed with it
}

func newInbound(maxLetters, maxBytes int) *inbound {
	return &inbound{
		maxLetters: maxLetters, maxBytes: maxBytes,
		letters: make(chan struct{}, 1), changed: make(chan struct{}, 1),
		done: make(chan struct{}),
	}
}

// add queues a letter, whatever the bounds.
func (q *inbound) add(l *Letter) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.queue = append(q.queue, l)
	q.bytes += len(l.Data)
	signal(q.letters)
}

// admits says whether to read on, and if not, whether a Send waits in vain.
func (q *inbound) admits() (ok, vain bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case !q.holds(1):
		return true, false
	case q.expecting == 0:
		return false, false
	case q.holds(overrun):
		return false, true
	}
	return true, false
}

// backlogged says whether the hard bound is reached.
func (q *inbound) backlogged() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.holds(overrun)
}

// holds says whether the bounds, times n, are reached. The caller holds mu.
func (q *inbound) holds(n int) bool {
	return len(q.queue) >= n*q.maxLetters || q.bytes >= n*q.maxBytes
}

// expectReceipts notes that so many Sends more, or less, wait.
func (q *inbound) expectReceipts(n int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.expecting += n
	signal(q.changed)
}

// take waits for the oldest letter. What was queued before close comes first,
// then its error.
func (q *inbound) take(ctx context.Context) (*Letter, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	for {
		l, err := q.pop()
		if l != nil || err != nil {
			return l, err
		}
		select {
		case <-q.letters:
		case <-q.done:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (q *inbound) pop() (*Letter, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.queue) == 0 {
		return nil, q.closed
	}
	l := q.queue[0]
	q.queue[0] = nil
	q.queue = q.queue[1:]
	q.bytes -= len(l.Data)
	if len(q.queue) > 0 {
		signal(q.letters) // for another goroutine that takes
	}
	signal(q.changed)
	return l, nil
}

// close adds an end to the queue, once.
func (q *inbound) close(err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = err
	close(q.done)
}
