package ws

import (
	"encoding/binary"
	"math/rand/v2"
	"sync"
	"sync/atomic"

	"github.com/sotto-relay/sotto/internal/stream"
	"github.com/sotto-relay/sotto/transport"
)

// A writer turns messages into frames. Its fields, but the queue, belong to
// whoever has the turn to write.
type writer struct {
	masked bool // we are the client

	// Mask keys must not be known to whoever chooses the payload (RFC 6455,
	// section 10.3), and the key of a message must be the same when the rest of
	// it is written: so they follow from a secret and the message's number.
	secret, number uint64

	sent    int    // bytes of message number's frame that are out
	control []byte // what is left of control frames that have begun to go out
	queue   controlQueue
}

// writeExtra is room for the control frames that may stand between two messages.
const writeExtra = 3 * (maxHead + maxControl)

// Frame is stream.Framer's. Between two messages there may be control frames.
func (w *writer) Frame(b []byte, kind uint8, msgs [][]byte) []byte {
	opcode := byte(opBinary)
	if transport.Kind(kind) == transport.Text {
		opcode = opText
	}
	full := cap(b) - writeExtra
	if w.sent == 0 {
		b = w.appendControls(b)
	}
	from := w.sent
	for i, msg := range msgs {
		if len(b)+maxHead >= full {
			break
		}
		key := w.key(w.number + uint64(i))
		payload := from - headSize(len(msg), w.masked)
		if payload < 0 {
			start := len(b)
			b = appendHead(b, opcode, len(msg), w.masked, key)
			b = append(b[:start], b[start+from:]...)
			payload = 0
		}
		part := msg[payload:]
		part = part[:min(len(part), full-len(b))]
		b = append(b, part...)
		if w.masked {
			mask(b[len(b)-len(part):], key, payload)
		}
		if payload+len(part) < len(msg) {
			break
		}
		if from > 0 {
			b = w.appendControls(b)
			from = 0
		}
	}
	return b
}

// appendControls appends the control frames that are due. A message must not
// be half out.
func (w *writer) appendControls(b []byte) []byte {
	if len(w.control) == 0 {
		w.control = w.queue.take(w.control, w.masked)
	}
	return append(b, w.control...)
}

// Advance is stream.Framer's.
func (w *writer) Advance(n int, msgs [][]byte) (whole int) {
	for n > 0 {
		if w.sent == 0 && len(w.control) > 0 {
			done := min(n, len(w.control))
			w.control = w.control[done:]
			n -= done
			continue
		}
		rest := headSize(len(msgs[whole]), w.masked) + len(msgs[whole]) - w.sent
		if n < rest {
			w.sent += n
			break
		}
		n -= rest
		whole++
		w.number++
		w.sent = 0
	}
	if len(w.control) == 0 {
		w.control = nil
	}
	return whole
}

// writeClose writes a close frame with that payload, as the last frame. After a
// part of a message there is no place for one.
func (w *writer) writeClose(out stream.Outlet, payload []byte) error {
	if w.sent > 0 {
		return nil
	}
	b := appendControl(w.control, opClose, payload, w.masked, randomKey(w.masked))
	for len(b) > 0 {
		n, err := out.Put(b, true)
		if err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}

// midway says whether a frame is half out.
func (w *writer) midway() bool { return w.sent > 0 || len(w.control) > 0 }

// key is the mask key of a message: the splitmix64 generator at that number.
func (w *writer) key(number uint64) (key [4]byte) {
	if w.masked {
		x := w.secret + number*0x9e3779b97f4a7c15
		x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
		x = (x ^ x>>27) * 0x94d049bb133111eb
		binary.LittleEndian.PutUint32(key[:], uint32(x^x>>31))
	}
	return key
}

// A controlQueue holds the control frames that wait for a place between two
// messages: the answer to the latest ping and a ping of ours. Any goroutine may
// add to it.
type controlQueue struct {
	due atomic.Bool // something is in it

	mu   sync.Mutex
	pong []byte // the payload, nil for none
	ping bool
}

// addPong replaces a pong that still waits, as RFC 6455, section 5.5.3, allows.
func (q *controlQueue) addPong(payload []byte) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.pong = append(q.pong[:0], payload...)
	if q.pong == nil {
		q.pong = []byte{}
	}
	q.due.Store(true)
}

func (q *controlQueue) addPing() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.ping = true
	q.due.Store(true)
}

// take appends the frames that wait and empties the queue.
func (q *controlQueue) take(b []byte, masked bool) []byte {
	if !q.due.Load() {
		return b
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.pong != nil {
		b = appendControl(b, opPong, q.pong, masked, randomKey(masked))
	}
	if q.ping {
		b = appendControl(b, opPing, nil, masked, randomKey(masked))
	}
	q.pong, q.ping = nil, false
	q.due.Store(false)
	return b
}

func randomKey(masked bool) (key [4]byte) {
	if masked {
		binary.LittleEndian.PutUint32(key[:], rand.Uint32())
	}
	return key
}
