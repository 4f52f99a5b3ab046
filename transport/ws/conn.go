package ws

import (
	"crypto/tls"
	"errors"
	"math"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sotto-relay/sotto/transport"
)

// past is a deadline that has passed.
var past = time.Unix(1, 0)

// A conn is a connection after the upgrade, of either side.
type conn struct {
	nc      net.Conn
	sock    *socket // nil: nc is used as it is
	out     outlet
	options *ConnOptions
	request *http.Request
	proto   string
	start   time.Time
	lastIn  atomic.Int64 // time since start

	// Of the reading goroutine.
	in      reader
	dry     func()
	isDry   bool          // dry was called since Read was
	timed   uint64        // the unit that messageBy is for
	reading chan struct{} // one token: the right to read nc

	// Of whoever has the turn.
	turn chan struct{} // one token: the right to use w
	w    writer

	mu        sync.Mutex
	err       error         // what Read returns from the end on
	ended     chan struct{} // closed when err is set
	readBy    time.Time     // the user's deadline
	messageBy time.Time     // zero between messages; written by the reading goroutine
	alive     *time.Timer
	nextPing  time.Duration // since start
}

var (
	_ transport.Conn      = (*conn)(nil)
	_ transport.TryWriter = (*conn)(nil)
	_ transport.Batcher   = (*conn)(nil)
)

// newConn starts a connection. first is what has been read already.
func newConn(nc net.Conn, client bool, o *ConnOptions, p *pools, first []byte) *conn {
	c := &conn{
		nc:      nc,
		options: o,
		start:   time.Now(),
		reading: make(chan struct{}, 1),
		turn:    make(chan struct{}, 1),
		ended:   make(chan struct{}),
	}
	c.in = reader{masked: !client, limit: o.Limit, pools: p, fill: c.fill, control: c.handleControl}
	if c.sock = newSocket(nc); c.sock != nil {
		c.out = c.sock
		c.sock.before, c.sock.after = c.readSpace, c.releaseSpace
	} else {
		c.out = newBuffered(nc, p)
		c.in.buf = make([]byte, idleSize)
	}
	if len(first) > 0 {
		c.in.w = copy(c.readSpace(), first)
	}
	c.w = writer{masked: client, out: c.out, pools: p}
	if client {
		c.w.secret = rand.Uint64()
	}
	c.nextPing = o.PingInterval
	c.mu.Lock()
	defer c.mu.Unlock()
	c.alive = time.AfterFunc(min(o.PingInterval, o.IdleTimeout), c.checkAlive)
	return c
}

func (c *conn) Read() (transport.Kind, []byte, error) {
	c.isDry = c.dry == nil
	if c.hasEnded() {
		return 0, nil, c.err
	}
	k, b, err := c.in.next()
	if err == nil || err == transport.ErrTooLarge {
		return k, b, err
	}
	if said, ok := errors.AsType[*transport.CloseError](err); ok {
		c.end(said, closePayload(said.Code, said.Reason))
	} else if !errors.Is(err, os.ErrDeadlineExceeded) {
		c.end(err, nil)
	}
	if c.hasEnded() {
		err = c.err
	}
	return 0, nil, err
}

// fill reads from the network into the reader's buffer.
func (c *conn) fill() error {
	if !c.isDry {
		c.isDry = true
		c.dry()
	}
	select {
	case c.reading <- struct{}{}:
	case <-c.ended:
		return c.err
	}
	defer func() { <-c.reading }()
	if err := c.timeMessage(); err != nil {
		return err
	}
	var n int
	var err error
	if c.sock != nil {
		n, err = c.sock.read()
	} else if n, err = c.nc.Read(c.readSpace()); n > 0 {
		err = nil // if it lasts, the next Read will see it
	}
	if n > 0 {
		c.in.w += n
		c.lastIn.Store(int64(time.Since(c.start)))
		return nil
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return c.deadlineError()
	}
	return c.in.eof(err)
}

// readSpace returns where to read to, which is never empty.
func (c *conn) readSpace() []byte {
	if c.in.buf == nil {
		c.in.buf = c.in.pools.readBuffer()
	}
	c.in.room()
	return c.in.buf[c.in.w:]
}

// releaseSpace gives the buffer back if waiting for more needs none.
func (c *conn) releaseSpace() {
	if !c.in.partial() {
		c.in.pools.releaseRead(c.in.buf)
		c.in.buf, c.in.r, c.in.w = nil, 0, 0
	}
}

// timeMessage sets the deadline for the rest of a message that has begun, or
// lifts it. It costs nothing where messages come in as a whole.
func (c *conn) timeMessage() error {
	begun, timed := c.in.partial(), !c.messageBy.IsZero()
	if begun == timed && (!timed || c.timed == c.in.units) && !c.hasEnded() {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return c.err
	}
	c.timed, c.messageBy = c.in.units, time.Time{}
	if begun {
		c.messageBy = time.Now().Add(c.options.MessageTimeout)
	}
	return c.setReadDeadline()
}

func (c *conn) deadlineError() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.messageBy.IsZero() && !time.Now().Before(c.messageBy) {
		return &transport.CloseError{Code: transport.ClosePolicy, Reason: "message takes too long"}
	}
	return os.ErrDeadlineExceeded
}

// setReadDeadline is called with mu held.
func (c *conn) setReadDeadline() error {
	by := c.readBy
	if by.IsZero() || !c.messageBy.IsZero() && c.messageBy.Before(by) {
		by = c.messageBy
	}
	return c.nc.SetReadDeadline(by)
}

// handleControl is called by the reader. The payload is valid until it returns.
func (c *conn) handleControl(opcode byte, payload []byte) error {
	switch opcode {
	case opPing:
		c.w.queue.addPong(payload)
		c.flushControls()
	case opClose:
		said, err := parseClose(payload)
		if err != nil {
			return err
		}
		c.end(said, closePayload(said.Code, ""))
		return said
	}
	return nil
}

func (c *conn) Write(k transport.Kind, msgs [][]byte) (int, error) {
	select {
	case c.turn <- struct{}{}:
	case <-c.ended:
		return 0, net.ErrClosed
	}
	return c.write(k, msgs, true)
}

// TryWrite is Write without the waiting. The write deadline does not matter to it.
func (c *conn) TryWrite(k transport.Kind, msgs [][]byte) (int, error) {
	select {
	case c.turn <- struct{}{}:
	default:
		if c.hasEnded() {
			return 0, net.ErrClosed
		}
		return 0, nil // a control frame is just being written
	}
	n, err := c.write(k, msgs, false)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = nil
	}
	return n, err
}

// write is called with the turn and gives it back.
func (c *conn) write(k transport.Kind, msgs [][]byte, wait bool) (n int, err error) {
	if c.hasEnded() {
		err = net.ErrClosed
	} else if n, err = c.w.write(k, msgs, wait); err != nil && c.hasEnded() {
		err = net.ErrClosed
	}
	<-c.turn
	if c.w.queue.due.Load() {
		c.flushControls()
	}
	return n, err
}

// flushControls writes the control frames that wait if nobody is writing:
// whoever has the turn looks for them after giving it back.
func (c *conn) flushControls() {
	for {
		select {
		case c.turn <- struct{}{}:
		default:
			return
		}
		stuck := true // midway through a message: its next Write takes them along
		if !c.hasEnded() && c.w.sent == 0 {
			c.w.write(transport.Binary, nil, false)
			stuck = c.w.midway()
		}
		<-c.turn
		if stuck || !c.w.queue.due.Load() {
			return
		}
	}
}

func (c *conn) SetDry(dry func()) { c.dry = dry }

func (c *conn) SetReadLimit(n int) { c.in.limit = min(max(n, 0), math.MaxInt/8) }

func (c *conn) SetReadDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return net.ErrClosed
	}
	c.readBy = t
	return c.setReadDeadline()
}

func (c *conn) SetWriteDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return net.ErrClosed
	}
	return c.out.setDeadline(t)
}

func (c *conn) RemoteAddr() net.Addr { return c.nc.RemoteAddr() }

func (c *conn) Value(key any) any {
	switch key {
	case RequestKey:
		if c.request != nil {
			return c.request
		}
	case TLSKey:
		if t, ok := c.nc.(*tls.Conn); ok {
			state := t.ConnectionState()
			return &state
		}
	case SubprotocolKey:
		if c.proto != "" {
			return c.proto
		}
	}
	return nil
}
