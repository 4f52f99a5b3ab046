package ws

import (
	"crypto/tls"
	"io"
	"time"

	"github.com/sotto-relay/sotto/transport"
)

const (
	// A connection that ends says so, ends its own direction and reads on for a
	// little while: closed with unread input a TCP socket sends a reset, which
	// can overtake the close frame.
	lingerTime  = time.Second
	lingerBytes = 256 << 10
)

func (c *conn) Close(code uint16, reason string) error {
	payload := closePayload(code, reason)
	said, err := parseClose(payload)
	if err != nil { // no code that may travel
		said, payload = &transport.CloseError{Code: transport.CloseInternal}, closePayload(transport.CloseInternal, "")
	}
	c.end(said, payload)
	return nil
}

func (c *conn) hasEnded() bool {
	select {
	case <-c.ended:
		return true
	default:
		return false
	}
}

// checkAlive runs whenever a ping is due or the peer may have been silent for
// too long.
func (c *conn) checkAlive() {
	now := time.Since(c.start)
	silentFrom := time.Duration(c.lastIn.Load()) + c.options.IdleTimeout
	if now >= silentFrom {
		said := &transport.CloseError{Code: transport.ClosePolicy, Reason: "idle timeout"}
		c.end(said, closePayload(said.Code, said.Reason))
		return
	}
	ping := now >= c.nextPing // written here only, one call at a time
	if ping {
		c.nextPing = now + c.options.PingInterval
		c.w.queue.addPing()
		c.flushControls()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil {
		c.alive.Reset(min(c.nextPing, silentFrom) - now)
	}
}

// end ends the connection; the first call counts. Read returns err from then
// on. The peer gets a close frame with that payload, if err is a CloseError.
func (c *conn) end(err error, payload []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return
	}
	c.err = err
	close(c.ended)
	c.alive.Stop()
	c.nc.SetReadDeadline(past)
	c.out.setDeadline(past)
	_, tell := err.(*transport.CloseError)
	go c.linger(payload, tell)
}

// linger closes the network connection, after sending a close frame with that
// payload and waiting a little for the peer to close its direction, if tell is
// set. It ends after lingerTime at the latest.
func (c *conn) linger(payload []byte, tell bool) {
	bottom := c.nc
	if t, ok := c.nc.(*tls.Conn); ok {
		bottom = t.NetConn() // its own Close may wait for another 5 s
	}
	hard := time.AfterFunc(lingerTime, func() { bottom.Close() })
	defer hard.Stop()
	defer c.nc.Close()
	if !tell {
		return
	}
	// Whoever writes or reads has been interrupted. From here on nobody does.
	c.turn <- struct{}{}
	c.reading <- struct{}{}
	c.out.setDeadline(time.Time{})
	c.nc.SetReadDeadline(time.Time{})
	if c.w.writeClose(payload) != nil {
		return
	}
	half, ok := c.nc.(interface{ CloseWrite() error })
	if !ok || half.CloseWrite() != nil {
		return
	}
	io.CopyN(io.Discard, c.nc, lingerBytes)
}
