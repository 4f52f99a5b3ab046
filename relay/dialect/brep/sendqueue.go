package brep

import (
	"context"
	"errors"
	"net"
	"os"
	"sync"
	"time"

	"github.com/sotto-relay/sotto/frame"
	"github.com/sotto-relay/sotto/transport"
)

const (
	sendQueueBytes = 1 << 20          // what may wait in a Client, being written included
	writeTimeout   = 30 * time.Second // without any progress
	closeTimeout   = time.Second      // for what is queued at Close
)

var errSlow = errors.New("brep: the relay takes nothing any more")

// A sendQueue collects frames of concurrent senders, so that those that come
// while others are written cost no write each. A goroutine that writes exists
// only while there is something to write.
type sendQueue struct {
	conn transport.Conn

	mu      sync.Mutex
	batch   sendBatch     // what waits
	bytes   int           // in batch, and being written
	writing bool          // somebody writes, and takes the next batch too
	room    chan struct{} // closed when there is some again, or the end; nil: nobody waits
	err     error         // why the connection ended; nothing is taken any more
	broken  error         // what a failed write said, until there is an err
	writer  sync.WaitGroup
}

// A sendBatch is a run of encoded frames.
type sendBatch struct {
	buf  []byte
	ends []int // of the frames, in buf
}

func (b *sendBatch) add(f *frame.Brep) {
	b.buf = f.Append(b.buf)
	b.ends = append(b.ends, len(b.buf))
}

// vecs returns the frames.
func (b *sendBatch) vecs(dst [][]byte) [][]byte {
	start := 0
	for _, end := range b.ends {
		dst = append(dst, b.buf[start:end:end])
		start = end
	}
	return dst
}

// push waits for room and has fill add frames of size bytes in all.
func (q *sendQueue) push(ctx context.Context, size int, fill func(add func(*frame.Brep))) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	for q.ended() == nil && q.bytes > 0 && q.bytes+size > sendQueueBytes {
		if q.room == nil {
			q.room = make(chan struct{})
		}
		room := q.room
		q.mu.Unlock()
		select {
		case <-room:
		case <-ctx.Done():
		}
		q.mu.Lock()
		if err := ctx.Err(); err != nil {
			return err
		}
	}
	if err := q.ended(); err != nil {
		return err
	}
	fill(q.batch.add)
	q.added(size)
	return nil
}

// offer adds a frame unless the queue is full: what answers a peer that sends
// and does not read must not pile up.
func (q *sendQueue) offer(f *frame.Brep) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.ended() == nil && q.bytes+f.Size() <= sendQueueBytes {
		q.batch.add(f)
		q.added(f.Size())
	}
}

func (q *sendQueue) added(size int) {
	q.bytes += size
	if !q.writing {
		q.writing = true
		q.writer.Go(q.write)
	}
}

// ended says why nothing is taken any more, if so. The caller holds mu.
func (q *sendQueue) ended() error {
	if q.err != nil {
		return q.err
	}
	return q.broken
}

// end makes err the reason of the end, unless there is one, and returns the one
// that counts.
func (q *sendQueue) end(err error) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.err == nil {
		q.err = err
	}
	q.wake()
	return q.err
}

// wake makes those who wait for room look again. The caller holds mu.
func (q *sendQueue) wake() {
	if q.room != nil {
		close(q.room)
		q.room = nil
	}
}

// drain takes nothing more, and waits until what is queued has been written, or
// the connection has been closed because that took too long.
func (q *sendQueue) drain() {
	_ = q.end(net.ErrClosed)
	t := time.AfterFunc(closeTimeout, func() { _ = q.conn.Close(transport.CloseNormal, "") })
	q.writer.Wait()
	t.Stop()
}

// write writes until nothing waits.
func (q *sendQueue) write() {
	var b sendBatch
	var vecs [][]byte
	for q.take(&b) {
		clear(vecs)
		vecs = b.vecs(vecs[:0])
		if err := writeAll(q.conn, vecs); err != nil {
			q.fail(err)
			return
		}
	}
}

// take swaps what waits for b, which has been written. False ends the writing.
func (q *sendQueue) take(b *sendBatch) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.bytes -= len(b.buf)
	if len(b.buf) > 0 {
		q.wake()
	}
	b.buf, b.ends = b.buf[:0], b.ends[:0]
	if len(q.batch.ends) == 0 {
		q.writing = false
		return false
	}
	q.batch, *b = *b, q.batch
	return true
}

// fail ends the writing after an error. A peer that has closed has perhaps said
// why: that is for Receive to read, so only our own decision closes here.
func (q *sendQueue) fail(err error) {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		_ = q.end(errSlow)
		_ = q.conn.Close(transport.CloseTryLater, "")
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.broken, q.batch = err, sendBatch{}
	q.wake()
}

// writeAll writes messages. It fails when the medium takes nothing for
// writeTimeout.
func writeAll(conn transport.Conn, msgs [][]byte) error {
	for len(msgs) > 0 {
		if err := conn.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil {
			return err
		}
		n, err := conn.Write(transport.Binary, msgs)
		if err != nil {
			return err
		}
		msgs = msgs[n:]
	}
	return nil
}
