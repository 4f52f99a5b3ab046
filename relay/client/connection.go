package client

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"net/netip"
	"strings"
	"time"

	"github.com/sotto-relay/sotto/frame"
	"github.com/sotto-relay/sotto/handshake"
	"github.com/sotto-relay/sotto/relay/dialect/brep"
	"github.com/sotto-relay/sotto/transport"
)

// dialTimeout bounds dialling and logging in.
const dialTimeout = 30 * time.Second

// run has one connection after the other, until the end.
func (c *Client) run() {
	defer func() {
		c.in.close(c.Err()) // after all that was read is in it
		close(c.done)
	}()
	for attempt := 0; ; attempt++ {
		c.out.failOld()
		session, err := c.connect()
		if err == nil {
			start := time.Now()
			err = c.serve(session)
			if time.Since(start) >= c.cfg.BackoffMax {
				attempt = 0
			}
		}
		switch {
		case c.life.Err() != nil:
			return
		case isPermanent(err):
			c.end(err)
			return
		}
		if !c.pause(attempt, err) {
			return
		}
	}
}

// pause waits before the next attempt. False: the Client has ended.
func (c *Client) pause(attempt int, err error) bool {
	c.mu.Lock()
	c.last = err
	c.mu.Unlock()
	d := backoff(attempt, c.cfg.BackoffMin, c.cfg.BackoffMax)
	var re *brep.RelayError
	if errors.As(err, &re) { // a relay that goes away spreads its clients' return
		d = max(d, min(re.RetryAfter, c.cfg.BackoffMax))
	}
	c.cfg.Logger.Debug("client: not connected", "err", err, "retry_in", d)
	c.cfg.Trace.Disconnected(err, d)
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-c.life.Done():
		return false
	}
}

// backoff returns a random time of at most low·2^attempt and high, so that
// clients that lost their relay at the same time don't come back at the same time.
func backoff(attempt int, low, high time.Duration) time.Duration {
	limit := high
	if attempt < 32 && low < high>>attempt {
		limit = low << attempt
	}
	return rand.N(limit + 1)
}

// connect dials and logs in.
func (c *Client) connect() (*brep.Client, error) {
	ctx, cancel := context.WithTimeout(c.life, dialTimeout)
	defer cancel()
	expect, err := handshake.Expect(c.cfg.Relay, c.cfg.Trust, c.cfg.Address)
	if err != nil {
		return nil, &trustError{err}
	}
	conn, err := c.cfg.Dial(ctx)
	if err != nil {
		return nil, err
	}
	conn.SetReadLimit(frame.BrepHeaderSize + maxPayload)
	c.warn(conn)
	session, err := brep.Connect(ctx, conn, &brep.ClientOptions{
		Identity: c.cfg.Identity, Expect: expect, AllowLegacy: c.cfg.AllowLegacy,
		PingInterval: c.cfg.PingInterval, ManualAck: true,
	})
	if err != nil {
		return nil, err
	}
	if r := session.Relay(); r.FirstContact {
		if err := c.cfg.Trust.Remember(c.cfg.Address, r.Key); err != nil {
			_ = session.Close()
			return nil, &trustError{err}
		}
		c.cfg.Logger.Info("client: first contact with the relay", "key", r.Key)
		c.cfg.Trace.FirstContact(r.Key)
	}
	return session, nil
}

// warn tells once that what is not sealed can be read on the way, and who talks
// to whom.
func (c *Client) warn(conn transport.Conn) {
	if c.warned || c.cfg.Encrypted(conn) || isLocal(conn.RemoteAddr()) {
		return
	}
	c.warned = true
	c.cfg.Logger.Warn("client: the connection to the relay is not encrypted", "remote", conn.RemoteAddr())
	c.cfg.Trace.Unencrypted(conn.RemoteAddr())
}

// isLocal says whether an address is on this machine: loopback, a Unix socket or
// a pipe.
func isLocal(a net.Addr) bool {
	if a.Network() == "pipe" || strings.HasPrefix(a.Network(), "unix") {
		return true
	}
	ap, err := netip.ParseAddrPort(a.String())
	return err == nil && ap.Addr().Unmap().IsLoopback()
}
