package pipe

import (
	"io"
	"net"
	"sync"
	"time"

	"github.com/sotto-relay/sotto/transport"
)

// A conn is one end of a pipe.
type conn struct {
	in, out *queue
	close   sync.Once

	// Of the goroutine that reads.
	limit int
	lost  bool // a message was over four times the limit
	dry   func()
}

var (
	_ transport.Conn      = (*conn)(nil)
	_ transport.TryWriter = (*conn)(nil)
	_ transport.Batcher   = (*conn)(nil)
)

func (c *conn) Read() (transport.Kind, []byte, error) {
	if c.lost {
		c.Close(transport.CloseTooLarge, "message too large")
	}
	m, ok, err := c.in.read(c.dry == nil)
	if !ok && err == nil {
		c.dry()
		m, _, err = c.in.read(true)
	}
	switch {
	case err != nil:
		return 0, nil, err
	case (len(m.buf)+3)/4 > c.limit: // over 4 x limit, without an overflow
		c.lost = true
		return 0, nil, transport.ErrTooLarge
	case len(m.buf) > c.limit:
		return 0, nil, transport.ErrTooLarge
	}
	return m.kind, m.buf, nil
}

func (c *conn) Write(k transport.Kind, msgs [][]byte) (int, error) {
	return c.out.write(k, msgs, true)
}

// TryWrite is Write without the waiting. The write deadline does not matter to it.
func (c *conn) TryWrite(k transport.Kind, msgs [][]byte) (int, error) {
	return c.out.write(k, msgs, false)
}

func (c *conn) SetDry(dry func()) { c.dry = dry }

func (c *conn) SetReadLimit(n int) { c.limit = n }

func (c *conn) SetReadDeadline(t time.Time) error {
	c.in.setReadDeadline(t)
	return nil
}

func (c *conn) SetWriteDeadline(t time.Time) error {
	c.out.setWriteDeadline(t)
	return nil
}

func (c *conn) Close(code uint16, reason string) error {
	c.close.Do(func() {
		if code == 0 {
			c.in.closeReader(net.ErrClosed)
			c.out.closeWriter(io.EOF)
			return
		}
		err := &transport.CloseError{Code: code, Reason: reason}
		c.in.closeReader(err)
		c.out.closeWriter(err)
	})
	return nil
}

func (c *conn) RemoteAddr() net.Addr { return Addr{} }

func (c *conn) Value(key any) any {
	if key == transport.KindsKey {
		return true
	}
	return nil
}
