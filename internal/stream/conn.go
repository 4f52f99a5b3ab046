package stream

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"time"
)

// ErrSlow is returned by Fill when what has begun to come in takes longer than
// the message timeout.
var ErrSlow = errors.New("message takes too long")

// past is a deadline that has passed.
var past = time.Unix(1, 0)

const (
	// A connection that ends with a last word ends its own direction and reads on
	// for a little while: closed with unread input a TCP socket sends a reset,
	// which can overtake what was written before.
	lingerTime  = time.Second
	lingerBytes = 256 << 10
)

// A Conn is a network connection that messages are read from and written to. Of
// the media's Conns that embed one it does what transport.Conn says of
// deadlines, of writing and of the end. Init comes first.
type Conn struct {
	nc    net.Conn
	sock  *socket // nil: nc is used as it is
	out   Outlet
	pools *Pools

	// Of the reading goroutine.
	in      *Buffer
	partial func() bool
	dry     func()
	isDry   bool          // dry was called since Read was
	timed   uint64        // the unit that messageBy is for
	reading chan struct{} // one token: the right to read nc

	// Of whoever has the turn.
	turn   chan struct{} // one token: the right to use framer and out
	framer Framer

	messageTimeout time.Duration

	mu        sync.Mutex
	err       error         // what Read returns from the end on
	ended     chan struct{} // closed when err is set
	readBy    time.Time     // the user's deadline
	messageBy time.Time     // zero between messages; written by the reading goroutine
}

// A Config is what Init needs of a medium.
type Config struct {
	Pools *Pools

	// In is what Fill reads into. Partial says whether something has begun that
	// the peer owes the rest of, which may take MessageTimeout.
	In             *Buffer
	Partial        func() bool
	MessageTimeout time.Duration

	// First has been read already: at most MaxFirst bytes.
	First []byte

	Framer Framer
}

// Init begins a connection over nc.
func (c *Conn) Init(nc net.Conn, o Config) {
	c.nc, c.pools, c.in, c.partial, c.framer = nc, o.Pools, o.In, o.Partial, o.Framer
	c.messageTimeout = o.MessageTimeout
	c.reading, c.turn, c.ended = make(chan struct{}, 1), make(chan struct{}, 1), make(chan struct{})
	if c.sock = newSocket(nc); c.sock != nil {
		c.out = c.sock
		c.sock.before, c.sock.after = c.readSpace, c.releaseSpace
	} else {
		c.out = newBuffered(nc, c.pools)
		c.in.B = make([]byte, idleSize)
	}
	if len(o.First) > 0 {
		c.in.W = copy(c.readSpace(), o.First)
	}
}

// BeginRead is called at the beginning of every Read. It fails when the
// connection has ended.
func (c *Conn) BeginRead() error {
	c.isDry = c.dry == nil
	if c.HasEnded() {
		return c.err
	}
	return nil
}

// Fill reads more than nothing into the Buffer behind In.W, or fails: with
// os.ErrDeadlineExceeded, after which it can be called again, with ErrSlow, with
// io.EOF, with io.ErrUnexpectedEOF when Partial, or with an error of the network.
func (c *Conn) Fill() error {
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
	} else {
		if c.in.large != nil && !c.partial() {
			c.in.release(c.pools)
			c.in.B = make([]byte, idleSize)
		}
		n, err = c.nc.Read(c.readSpace())
	}
	switch {
	case n > 0:
		c.in.W += n // an error that lasts is seen by the next call
		return nil
	case errors.Is(err, os.ErrDeadlineExceeded):
		return c.deadlineError()
	case err == io.EOF && c.partial():
		return io.ErrUnexpectedEOF
	}
	return err
}

// readSpace returns where to read to, which is never empty.
func (c *Conn) readSpace() []byte {
	if c.in.B == nil {
		c.in.B = c.pools.readBuffer()
	}
	c.in.Room()
	return c.in.B[c.in.W:]
}

// releaseSpace gives the buffer back if waiting for more needs none.
func (c *Conn) releaseSpace() {
	if !c.partial() {
		c.in.release(c.pools)
	}
}

// timeMessage sets the deadline for the rest of a message that has begun, or
// lifts it. It costs nothing where messages come in as a whole.
func (c *Conn) timeMessage() error {
	begun, timed := c.partial(), !c.messageBy.IsZero()
	if begun == timed && (!timed || c.timed == c.in.Units) && !c.HasEnded() {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return c.err
	}
	c.timed, c.messageBy = c.in.Units, time.Time{}
	if begun {
		c.messageBy = time.Now().Add(c.messageTimeout)
	}
	return c.setReadDeadline()
}

func (c *Conn) deadlineError() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.messageBy.IsZero() && !time.Now().Before(c.messageBy) {
		return ErrSlow
	}
	return os.ErrDeadlineExceeded
}

// setReadDeadline is called with mu held.
func (c *Conn) setReadDeadline() error {
	by := c.readBy
	if by.IsZero() || !c.messageBy.IsZero() && c.messageBy.Before(by) {
		by = c.messageBy
	}
	return c.nc.SetReadDeadline(by)
}

// SetDry is transport.Batcher's.
func (c *Conn) SetDry(dry func()) { c.dry = dry }

// SetReadDeadline is transport.Conn's.
func (c *Conn) SetReadDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return net.ErrClosed
	}
	c.readBy = t
	return c.setReadDeadline()
}

// SetWriteDeadline is transport.Conn's.
func (c *Conn) SetWriteDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return net.ErrClosed
	}
	return c.out.SetDeadline(t)
}

// RemoteAddr returns the address of the network connection's other end.
func (c *Conn) RemoteAddr() net.Addr { return c.nc.RemoteAddr() }

// TLS returns the state of TLS, or nil for a connection without it.
func (c *Conn) TLS() *tls.ConnectionState {
	t, ok := c.nc.(*tls.Conn)
	if !ok {
		return nil
	}
	state := t.ConnectionState()
	return &state
}

// HasEnded says whether End was called.
func (c *Conn) HasEnded() bool {
	select {
	case <-c.ended:
		return true
	default:
		return false
	}
}

// End ends the connection, and does not wait; the first call counts. Read and
// Write return from then on, Read with the error of the first call, which is
// also what End returns.
//
// If lastWords is not nil it is called, on a goroutine of its own, to write what
// comes last; then the peer has a moment to take that and to close its
// direction. Without it the network connection is closed at once.
func (c *Conn) End(err error, lastWords func(Outlet) error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return c.err
	}
	c.err = err
	close(c.ended)
	c.nc.SetReadDeadline(past)
	c.out.SetDeadline(past)
	go c.linger(lastWords)
	return err
}

// linger closes the network connection, after lingerTime at the latest.
func (c *Conn) linger(lastWords func(Outlet) error) {
	bottom := c.nc
	if t, ok := c.nc.(*tls.Conn); ok {
		bottom = t.NetConn() // its own Close may wait for another 5 s
	}
	hard := time.AfterFunc(lingerTime, func() { bottom.Close() })
	defer hard.Stop()
	defer c.nc.Close()
	if lastWords == nil {
		return
	}
	// Whoever writes or reads has been interrupted. From here on nobody does.
	c.turn <- struct{}{}
	c.reading <- struct{}{}
	c.out.SetDeadline(time.Time{})
	c.nc.SetReadDeadline(time.Time{})
	if lastWords(c.out) != nil || c.out.Flushed() != nil {
		return
	}
	half, ok := c.nc.(interface{ CloseWrite() error })
	if !ok || half.CloseWrite() != nil {
		return
	}
	io.CopyN(io.Discard, c.nc, lingerBytes)
}
