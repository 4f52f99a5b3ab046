package brep

import (
	"context"
	"errors"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/sotto-relay/sotto/crypto"
	"github.com/sotto-relay/sotto/frame"
	"github.com/sotto-relay/sotto/transport"
)

const (
	sendQueueBytes = 1 << 20          // what may wait in a Client, being written included
	writeTimeout   = 30 * time.Second // without any progress
	closeTimeout   = time.Second      // for what is queued at Close
	acksTogether   = 64               // in one ACK frame, and what may wait for more to come
	keptBuffer     = 64 << 10         // what a queue that is empty holds on to, twice
)

var errSlow = errors.New("brep: the relay takes nothing any more")

// A sendQueue collects frames of concurrent senders, so that those that come
// while others are written cost no write each. A goroutine that writes exists
// only while there is something to write.
//
// Acknowledgements stand beside the frames until a batch is written, so that as
// many as there are then share one frame.
type sendQueue struct {
	conn transport.Conn
	key  crypto.PublicKey // the sender of ACK frames
	run  func()           // write

	mu      sync.Mutex
	batch   sendBatch     // what waits
	acks    []byte        // likewise, of frame.AckSize each
	bytes   int           // in batch, and being written
	writing bool          // somebody writes, and takes the next batch too
	room    chan struct{} // closed when there is some again, or the end; nil: nobody waits
	err     error         // why the connection ended; nothing is taken any more
	broken  error         // what a failed write said, until there is an err
	writer  sync.WaitGroup

	// Owned by the goroutine that writes.
	out  sendBatch
	vecs [][]byte
}

// init has to be called first.
func (q *sendQueue) init(conn transport.Conn, key crypto.PublicKey) {
	q.conn, q.key, q.run = conn, key, q.write
}

// A sendBatch is a run of encoded frames.
type sendBatch struct {
	buf  []byte
	ends []int // of the frames, in buf
}

// trim lets a large buffer go. The batch is empty.
func (b *sendBatch) trim() {
	if cap(b.buf) > keptBuffer {
		*b = sendBatch{}
	}
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
	q.start()
}

// start has what waits written. The caller holds mu.
func (q *sendQueue) start() {
	if !q.writing {
		q.writing = true
		q.writer.Add(1)
		go q.run() // writer.Go would allocate for each batch
	}
}

// ack adds an acknowledgement. Unless now is set, it may wait for others, or for
// flushAcks. It is for relays that keep to a window: of one that sends on and does
// not read, what is more than the queue holds is not acknowledged.
func (q *sendQueue) ack(a *frame.Ack, now bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.ended() != nil || len(q.acks)+frame.AckSize > sendQueueBytes {
		return
	}
	q.acks = a.Append(q.acks)
	if now || len(q.acks) >= acksTogether*frame.AckSize {
		q.start()
	}
}

// flushAcks has the acknowledgements written that wait for others.
func (q *sendQueue) flushAcks() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.acks) > 0 && q.ended() == nil {
		q.start()
	}
}

// addAcks puts the acknowledgements into the batch. The caller holds mu.
func (q *sendQueue) addAcks() {
	for run := range slices.Chunk(q.acks, acksTogether*frame.AckSize) {
		f := frame.Brep{Type: frame.TypeAck, Sender: q.key, Payload: run}
		q.batch.add(&f)
		q.bytes += f.Size()
	}
	q.acks = q.acks[:0]
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
	q.flushAcks()
	_ = q.end(net.ErrClosed)
	t := time.AfterFunc(closeTimeout, func() { _ = q.conn.Close(transport.CloseNormal, "") })
	q.writer.Wait()
	t.Stop()
}

// write writes until nothing waits.
func (q *sendQueue) write() {
	defer q.writer.Done()
	for q.take() {
		q.vecs = q.out.vecs(q.vecs[:0])
		err := writeAll(q.conn, q.vecs)
		clear(q.vecs)
		if err != nil {
			q.fail(err)
			return
		}
	}
}

// take swaps what waits for what has been written. False ends the writing.
func (q *sendQueue) take() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.bytes -= len(q.out.buf)
	if len(q.out.buf) > 0 {
		q.wake()
	}
	q.addAcks()
	q.out.buf, q.out.ends = q.out.buf[:0], q.out.ends[:0]
	if len(q.batch.ends) == 0 {
		q.batch.trim()
		q.out.trim()
		q.writing = false
		return false
	}
	q.batch, q.out = q.out, q.batch
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
	q.broken, q.batch, q.acks = err, sendBatch{}, nil
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
