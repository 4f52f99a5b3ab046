package udp

import (
	"context"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	"github.com/sotto-relay/sotto/transport"
)

// Dialer returns a function that connects a socket to an address, HOST:PORT; o may
// be nil. Nothing is sent for that: whether anybody is there remains to be seen.
//
// A datagram is a message of the Conn. Names and tokens in them are the dialect's
// business. A system may report that nothing listens at the address as an error of
// Read or Write, which ends the Conn. Neither end learns of the other's Close.
func Dialer(address string, o *DialOptions) transport.Dialer {
	if o == nil {
		o = &DialOptions{}
	}
	limit, open := or(o.Limit, maxDatagram), o.Dial
	if open == nil {
		open = new(net.Dialer).DialContext
	}
	return func(ctx context.Context) (transport.Conn, error) {
		nc, err := open(ctx, "udp", address)
		if err != nil {
			return nil, fmt.Errorf("udp: connecting to %s: %w", address, err)
		}
		return &client{nc: nc, limit: limit}, nil
	}
}

// A client is a connection of the client's side.
type client struct {
	nc  net.Conn
	end atomic.Pointer[transport.CloseError] // of Close

	// Of the goroutine that reads.
	buf    []byte
	limit  int
	excess bool // there was a message of more than four times the limit
}

var _ transport.Conn = (*client)(nil)

func (c *client) Read() (transport.Kind, []byte, error) {
	if c.buf == nil {
		c.buf = make([]byte, largest)
	}
	if c.excess {
		c.Close(transport.CloseTooLarge, "message too large")
	}
	for {
		n, err := c.nc.Read(c.buf)
		switch {
		case err != nil:
			return 0, nil, c.failed(err)
		case n > c.limit:
			c.excess = (n+3)/4 > c.limit // without an overflow
			return 0, nil, transport.ErrTooLarge
		case n > 0:
			return transport.Binary, c.buf[:n:n], nil
		}
	}
}

func (c *client) Write(_ transport.Kind, msgs [][]byte) (int, error) {
	for i, m := range msgs {
		if _, err := c.nc.Write(m); err != nil && i == 0 {
			return 0, c.failed(err)
		} else if err != nil {
			return i, nil // the next call will fail again, or not
		}
	}
	return len(msgs), nil
}

// failed returns why Read or Write has failed with err.
func (c *client) failed(err error) error {
	if end := c.end.Load(); end != nil {
		return end
	}
	return err
}

func (c *client) Close(code uint16, reason string) error {
	c.end.CompareAndSwap(nil, &transport.CloseError{Code: code, Reason: reason})
	c.nc.Close()
	return nil
}

func (c *client) SetReadDeadline(t time.Time) error  { return c.nc.SetReadDeadline(t) }
func (c *client) SetWriteDeadline(t time.Time) error { return c.nc.SetWriteDeadline(t) }
func (c *client) SetReadLimit(n int)                 { c.limit = n }
func (c *client) RemoteAddr() net.Addr               { return c.nc.RemoteAddr() }
func (c *client) Value(any) any                      { return nil }
