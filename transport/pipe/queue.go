package pipe

import (
	"io"
	"net"
	"os"
	"sync"
	"time"

	"github.com/sotto-relay/sotto/internal/deadline"
	"github.com/sotto-relay/sotto/transport"
)

// A message waits in a queue.
type message struct {
	kind transport.Kind
	buf  []byte
}

// A queue is one direction of a pipe. mu guards all of it and is held for
// copying at most.
type queue struct {
	Options

	mu       sync.Mutex
	readable sync.Cond
	writable sync.Cond

	ring  []message // Options.Messages long
	head  int       // the oldest message
	count int
	bytes int // in the messages that wait

	// Buffers go from a message to the reader's hand, then to the free list
	// (which holds at most Options.Bytes), then to another message.
	held      []byte
	free      [][]byte
	freeBytes int

	readBy, writeBy deadline.Deadline

	writerClosed error // what the reader gets once the queue is empty
	readerClosed error // what the reader gets at once
}

func newQueue(o Options) *queue {
	q := &queue{Options: o, ring: make([]message, o.Messages)}
	q.readable.L = &q.mu
	q.writable.L = &q.mu
	return q
}

// read returns the oldest message, valid until the next read. If there is none
// it waits for one, or without wait returns false.
func (q *queue) read(wait bool) (m message, ok bool, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.release(q.held)
	q.held = nil
	for {
		switch {
		case q.readerClosed != nil:
			return message{}, false, q.readerClosed
		case q.readBy.Passed():
			return message{}, false, os.ErrDeadlineExceeded
		case q.count > 0:
			return q.pop(), true, nil
		case q.writerClosed != nil:
			return message{}, false, q.writerClosed
		case !wait:
			return message{}, false, nil
		}
		q.readable.Wait()
	}
}

// write queues the messages that fit, and waits for room for the first if wait
// is set.
func (q *queue) write(k transport.Kind, msgs [][]byte, wait bool) (int, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for {
		switch {
		case q.writerClosed != nil:
			return 0, net.ErrClosed
		case q.readerClosed != nil:
			return 0, io.ErrClosedPipe
		case wait && q.writeBy.Passed():
			return 0, os.ErrDeadlineExceeded
		}
		n := 0
		for n < len(msgs) && q.fits(len(msgs[n])) {
			q.push(k, msgs[n])
			n++
		}
		if n > 0 {
			q.readable.Signal()
		}
		if n > 0 || !wait || len(msgs) == 0 {
			return n, nil
		}
		q.writable.Wait()
	}
}

func (q *queue) fits(size int) bool {
	if q.count == 0 {
		return true
	}
	return q.count < q.Messages && size <= q.Bytes-q.bytes
}

func (q *queue) push(k transport.Kind, msg []byte) {
	q.ring[(q.head+q.count)%len(q.ring)] = message{k, append(q.acquire(), msg...)}
	q.count++
	q.bytes += len(msg)
}

func (q *queue) pop() message {
	m := q.ring[q.head]
	q.ring[q.head] = message{}
	q.head = (q.head + 1) % len(q.ring)
	q.count--
	q.bytes -= len(m.buf)
	q.held = m.buf
	q.writable.Signal()
	return m
}

func (q *queue) acquire() []byte {
	last := len(q.free) - 1
	if last < 0 {
		return nil
	}
	b := q.free[last]
	q.free = q.free[:last]
	q.freeBytes -= cap(b)
	return b
}

func (q *queue) release(b []byte) {
	if cap(b) > 0 && q.freeBytes+cap(b) <= q.Bytes {
		q.free = append(q.free, b[:0])
		q.freeBytes += cap(b)
	}
}

// closeWriter lets the reader have what waits, and then err.
func (q *queue) closeWriter(err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.writerClosed = err
	q.writeBy.Stop()
	q.readable.Broadcast()
	q.writable.Broadcast()
}

// closeReader drops what waits. The buffer that the last read returned is left
// alone: its reader may still look at it.
func (q *queue) closeReader(err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.readerClosed = err
	clear(q.ring)
	q.head, q.count, q.bytes = 0, 0, 0
	q.free, q.freeBytes = nil, 0
	q.readBy.Stop()
	q.readable.Broadcast()
	q.writable.Broadcast()
}

func (q *queue) setReadDeadline(t time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.readerClosed == nil {
		q.readBy.Set(t, &q.readable)
	}
}

func (q *queue) setWriteDeadline(t time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.writerClosed == nil {
		q.writeBy.Set(t, &q.writable)
	}
}
