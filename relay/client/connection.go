package client

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"strings"
	"sync"
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
	var beside sync.WaitGroup
	beside.Go(func() { c.keys.run(c.life) })
	beside.Go(func() { c.files.run(c.life) })
	beside.Go(c.clearOld)
	defer func() {
		c.kill()            // it is, unless run panics
		c.in.close(c.Err()) // after all that was read is in it
		beside.Wait()
		c.files.running.Wait()
		c.out.awaitErased()
		close(c.done)
	}()
	to := c.home()
	for attempt := 0; ; attempt++ {
		c.out.tend()
		session, err := c.connect(to)
		permanent := isPermanent(err)
		if err == nil {
			start := time.Now()
			err = c.serve(session)
			permanent = isPermanent(err) && !c.isExpired(err)
			if time.Since(start) >= c.cfg.BackoffMax {
				attempt = 0
			}
		}
		switch {
		case c.life.Err() != nil:
			return
		case permanent:
			c.end(err)
			return
		}
		if !c.pause(attempt, err) {
			return
		}
		to = c.after(err)
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

// A destination is a relay to connect to.
type destination struct {
	Other
	address string // in Config.Trust
	isOther bool
}

func (c *Client) home() destination {
	return destination{Other: Other{c.cfg.Dial, c.cfg.Relay}, address: c.cfg.Address}
}

// after returns where the next connection is made after one that ended with err.
func (c *Client) after(err error) destination {
	var re *brep.RelayError
	if errors.As(err, &re) {
		if o, ok := c.cfg.Others[re.Other]; ok {
			return destination{o, re.Other, true}
		}
	}
	return c.home()
}

// connect dials and logs in. That another relay will not do is never permanent: we
// are there on a hint.
func (c *Client) connect(to destination) (*brep.Client, error) {
	session, err := c.login(to)
	if err != nil && to.isOther {
		return nil, fmt.Errorf("client: the other relay %q: %v", to.address, err)
	}
	return session, err
}

func (c *Client) login(to destination) (*brep.Client, error) {
	ctx, cancel := context.WithTimeout(c.life, dialTimeout)
	defer cancel()
	expect, err := handshake.Expect(to.Relay, c.cfg.Trust, to.address)
	if err != nil {
		return nil, &trustError{err}
	}
	dial, err := c.withToken(ctx)
	if err != nil {
		return nil, err
	}
	conn, err := to.Dial(dial)
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
		if err := c.cfg.Trust.Remember(to.address, r.Key); err != nil {
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
