package ws

import (
	"encoding/binary"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sotto-relay/sotto/transport"
)

// A writer turns messages into frames and hands them to an outlet, many in one
// call: small messages cost a copy instead of a system call, and a large one
// still less than a second call or a second TLS record would.
//
// Its fields belong to whoever has the turn to write.
type writer struct {
	masked bool // we are the client
	out    outlet
	pools  *pools

	// Mask keys must not be known to whoever chooses the payload (RFC 6455,
	// section 10.3), and the key of a message must be the same when the rest of
	// it is written: so they follow from a secret and the message's number.
	secret, number uint64

	sent    int    // bytes of message number's frame that are out
	control []byte // what is left of control frames that have begun to go out
	queue   controlQueue
}

// An outlet takes bytes for the peer. Only setDeadline may be called
// concurrently with another of its methods.
type outlet interface {
	// put takes at most writeSize bytes. With wait it waits until it can take at
	// least one, or the deadline has passed (os.ErrDeadlineExceeded); without,
	// it takes 0 if it cannot.
	put(b []byte, wait bool) (int, error)

	// flushed waits until what was taken has been handed to the kernel.
	flushed() error

	setDeadline(t time.Time) error
}

// write makes as much progress as the outlet allows, waiting for the first
// byte of it if wait is set. It returns how many messages are out whole.
func (w *writer) write(k transport.Kind, msgs [][]byte, wait bool) (n int, err error) {
	buf := w.pools.writeBuffer()
	defer w.pools.releaseWrite(buf)
	for {
		b := w.frame(buf[:0], k, msgs[n:])
		if len(b) == 0 {
			return n, nil
		}
		took, err := w.out.put(b, wait)
		n += w.advance(took, msgs[n:])
		if took < len(b) {
			if took > 0 || n > 0 {
				err = nil // if it lasts, the next call will see it
			}
			return n, err
		}
		wait = false
	}
}

// frame appends what goes out next: the rest of the first message if a part of
// it is out, control frames, then messages, to the capacity of b.
func (w *writer) frame(b []byte, k transport.Kind, msgs [][]byte) []byte {
	opcode := byte(opBinary)
	if k == transport.Text {
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

// advance accounts for n bytes of what frame appended and returns how many
// messages they complete.
func (w *writer) advance(n int, msgs [][]byte) (whole int) {
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
func (w *writer) writeClose(payload []byte) error {
	if w.sent > 0 {
		return w.out.flushed()
	}
	b := appendControl(w.control, opClose, payload, w.masked, randomKey(w.masked))
	for len(b) > 0 {
		n, err := w.out.put(b, true)
		if err != nil {
			return err
		}
		b = b[n:]
	}
	return w.out.flushed()
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
