package relaytest

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"net"
	"sync"
	"time"

	"github.com/sotto-relay/sotto/transport"
	"github.com/sotto-relay/sotto/transport/pipe"
)

// queued is how many messages or reads are on their way in one direction at most,
// beside what the media at both ends hold.
const queued = 16

// A piece is a message, or what one read of a stream returned, or the end.
type piece struct {
	due  time.Time
	kind transport.Kind
	data []byte
	err  error // of reading: the end
}

// A side is one of the two connections that a link joins.
type side interface {
	read() (transport.Kind, []byte, error)
	write(k transport.Kind, b []byte, f *Faults) error
	close(err error) // as the other side ended
}

// A link joins two sides, with four goroutines that end with either.
type link struct {
	net   *Network
	sides [2]side // near, far
	loops sync.WaitGroup

	once   sync.Once
	broken chan struct{} // closed by cut
}

// cut breaks the link. It does not wait.
func (l *link) cut() {
	l.once.Do(func() { close(l.broken) })
	l.close()
}

func (l *link) close() {
	for _, s := range l.sides {
		s.close(nil)
	}
}

// A way is one direction of a link. Pieces go from take to give.
type way struct {
	link     *link
	dir      int
	from, to side
	queue    chan piece
	done     chan struct{} // closed when give has returned
	luck     *rand.Rand    // of give
	jitter   *rand.Rand    // of take
}

// take reads from one side.
func (w *way) take() {
	for {
		k, b, err := w.from.read()
		f, _ := w.link.net.state(w.dir)
		p := piece{kind: k, data: bytes.Clone(b), err: err, due: time.Now().Add(f.Delay)}
		if f.Jitter > 0 {
			p.due = p.due.Add(time.Duration(w.jitter.Int64N(int64(f.Jitter))))
		}
		select {
		case w.queue <- p:
		case <-w.done:
			return
		}
		if err != nil {
			return
		}
	}
}

// give writes to the other side, or does not.
func (w *way) give() {
	defer close(w.done)
	for {
		var p piece
		select {
		case p = <-w.queue:
		case <-w.link.broken:
			return
		}
		f, ok := w.await(p.due)
		switch {
		case !ok:
			return
		case f.BlackHole && p.err != nil:
			return
		case f.BlackHole:
			continue
		case p.err != nil:
			w.to.close(p.err)
			return
		case f.Cut > 0 && w.luck.Float64() < f.Cut:
			w.link.cut()
			return
		case f.Corrupt > 0 && w.luck.Float64() < f.Corrupt && len(p.data) > 0:
			p.data[w.luck.IntN(len(p.data))] ^= 1 << w.luck.IntN(8)
		}
		if w.to.write(p.kind, p.data, &f) != nil {
			return // that side has ended: whoever reads from it passes that on
		}
	}
}

// await waits until a piece is due and nothing holds it back. False: the link
// has been cut.
func (w *way) await(due time.Time) (Faults, bool) {
	for {
		f, changed := w.link.net.state(w.dir)
		left := time.Until(due)
		if !f.Stall && left <= 0 {
			return f, true
		}
		var timer <-chan time.Time
		if !f.Stall {
			timer = time.After(left)
		}
		select {
		case <-timer:
		case <-changed:
		case <-w.link.broken:
			return f, false
		}
	}
}

// A messageSide is a transport.Conn.
type messageSide struct{ conn transport.Conn }

// anySize is a read limit for whoever passes on what others bound.
const anySize = 64 << 20

func (s *messageSide) read() (transport.Kind, []byte, error) {
	s.conn.SetReadLimit(anySize)
	for {
		k, b, err := s.conn.Read()
		if !errors.Is(err, transport.ErrTooLarge) {
			return k, b, err
		}
	}
}

func (s *messageSide) write(k transport.Kind, b []byte, _ *Faults) error {
	for msgs := [][]byte{b}; len(msgs) > 0; {
		n, err := s.conn.Write(k, msgs)
		if err != nil {
			return err
		}
		msgs = msgs[n:]
	}
	return nil
}

func (s *messageSide) close(err error) {
	if said, ok := errors.AsType[*transport.CloseError](err); ok {
		_ = s.conn.Close(said.Code, said.Reason)
		return
	}
	_ = s.conn.Close(0, "")
}

// A messageEnd is the end of a pipe that the test holds, with the place of the
// connection behind it.
type messageEnd struct {
	pipeEnd
	behind transport.Conn
}

type pipeEnd interface {
	transport.Conn
	transport.TryWriter
	transport.Batcher
}

func newMessageEnds(behind transport.Conn) (near transport.Conn, far side) {
	a, b := pipe.New()
	return &messageEnd{a.(pipeEnd), behind}, &messageSide{b}
}

func (e *messageEnd) RemoteAddr() net.Addr { return e.behind.RemoteAddr() }
func (e *messageEnd) Value(key any) any    { return e.behind.Value(key) }

// A streamSide is a net.Conn.
type streamSide struct {
	conn net.Conn
	buf  []byte
}

func (s *streamSide) read() (transport.Kind, []byte, error) {
	if s.buf == nil {
		s.buf = make([]byte, 32<<10)
	}
	n, err := s.conn.Read(s.buf)
	if n > 0 {
		err = nil // comes again
	}
	return transport.Binary, s.buf[:n], err
}

func (s *streamSide) write(_ transport.Kind, b []byte, f *Faults) error {
	size := f.Segment
	if size <= 0 {
		size = len(b)
	}
	for len(b) > 0 {
		n, err := s.conn.Write(b[:min(size, len(b))])
		if err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}

func (s *streamSide) close(error) { _ = s.conn.Close() }

// A streamEnd is the end of a net.Pipe that the test holds, with the place of the
// connection behind it.
type streamEnd struct {
	net.Conn
	behind net.Conn
}

func newStreamEnds(behind net.Conn) (near net.Conn, far side) {
	a, b := net.Pipe()
	return &streamEnd{a, behind}, &streamSide{conn: b}
}

func (e *streamEnd) LocalAddr() net.Addr  { return e.behind.LocalAddr() }
func (e *streamEnd) RemoteAddr() net.Addr { return e.behind.RemoteAddr() }
