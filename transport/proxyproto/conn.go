package proxyproto

import (
	"errors"
	"net"
	"strings"

	"github.com/sotto-relay/sotto/internal/stream"
)

// Both leave the bytes alone, so that package stream can do without them.
var (
	_ stream.Transparent = (*proxied)(nil)
	_ stream.Transparent = (*direct)(nil)
)

// A proxied connection has the addresses that its header named.
type proxied struct {
	net.Conn
	remote, local net.Addr
}

func (c *proxied) RemoteAddr() net.Addr { return c.remote }
func (c *proxied) LocalAddr() net.Addr  { return c.local }
func (c *proxied) Inner() net.Conn      { return c.Conn }
func (c *proxied) CloseWrite() error    { return closeWrite(c.Conn) }

// A direct connection must not begin with a header. What looks like one is held
// back until that is known.
type direct struct {
	net.Conn

	// Of whoever reads.
	begun   bool
	err     error // of a header
	n       int
	buf     [len(signature2)]byte
	waiting []byte // of buf, once begun
}

func (c *direct) Read(b []byte) (int, error) {
	for !c.begun && c.err == nil {
		n, err := c.Conn.Read(c.buf[c.n:])
		c.n += n
		c.look()
		if err == nil || c.begun || c.err != nil {
			continue // an error that lasts is seen by the next Read
		}
		if c.n == 0 || isTimeout(err) {
			return 0, err
		}
		c.begin() // with what there was
	}
	if c.err != nil {
		return 0, c.err
	}
	if len(c.waiting) > 0 {
		n := copy(b, c.waiting)
		c.waiting = c.waiting[n:]
		return n, nil
	}
	return c.Conn.Read(b)
}

// look decides what the first bytes are, if they say so already.
func (c *direct) look() {
	got := string(c.buf[:c.n])
	switch {
	case strings.HasPrefix(got, signature1), got == signature2:
		c.err = errUntrusted
		c.Conn.Close()
	case !strings.HasPrefix(signature1, got) && !strings.HasPrefix(signature2, got):
		c.begin()
	}
}

func (c *direct) begin() { c.begun, c.waiting = true, c.buf[:c.n] }

func isTimeout(err error) bool {
	t, ok := errors.AsType[net.Error](err)
	return ok && t.Timeout()
}

// Inner is called by whoever reads.
func (c *direct) Inner() net.Conn {
	if !c.begun || len(c.waiting) > 0 {
		return nil
	}
	return c.Conn
}

func (c *direct) CloseWrite() error { return closeWrite(c.Conn) }

func closeWrite(c net.Conn) error {
	half, ok := c.(interface{ CloseWrite() error })
	if !ok {
		return errors.ErrUnsupported
	}
	return half.CloseWrite()
}
