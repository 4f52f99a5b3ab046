package ws

import (
	"time"

	"github.com/sotto-relay/sotto/internal/stream"
	"github.com/sotto-relay/sotto/transport"
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
	c.alive.Reset(min(c.nextPing, silentFrom) - now)
	if c.HasEnded() {
		c.alive.Stop()
	}
}

// end ends the connection, which it may have already, and returns what Read
// returns from then on. If err is a *transport.CloseError the peer gets a close
// frame with that payload, unless a message is half written.
func (c *conn) end(err error, payload []byte) error {
	defer c.alive.Stop()
	if _, tell := err.(*transport.CloseError); tell {
		return c.End(err, func(out stream.Outlet) error { return c.w.writeClose(out, payload) })
	}
	return c.End(err, nil)
}
