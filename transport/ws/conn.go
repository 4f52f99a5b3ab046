package ws

import (
	"errors"
	"math"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"sync/atomic"
	"time"

	"github.com/sotto-relay/sotto/internal/stream"
	"github.com/sotto-relay/sotto/transport"
)

// A conn is a connection after the upgrade, of either side.
type conn struct {
	stream.Conn
	options *ConnOptions
	request *http.Request
	remote  net.Addr // nil: that of the network connection
	proto   string
	start   time.Time
	lastIn  atomic.Int64 // time since start
	in      reader       // of the reading goroutine
	w       writer       // of whoever has the turn

	alive    *time.Timer
	nextPing time.Duration // since start; of checkAlive
}

var (
	_ transport.Conn      = (*conn)(nil)
	_ transport.TryWriter = (*conn)(nil)
	_ transport.Batcher   = (*conn)(nil)
)

// newConn starts a connection. first is what has been read already.
func newConn(nc net.Conn, client bool, o *ConnOptions, p *stream.Pools, first []byte) *conn {
	c := &conn{options: o, start: time.Now(), nextPing: o.PingInterval}
	c.in = reader{masked: !client, limit: o.Limit, pools: p, fill: c.fill, control: c.handleControl}
	c.w = writer{masked: client}
	if client {
		c.w.secret = rand.Uint64()
	}
	c.Init(nc, stream.Config{
		Pools:          p,
		In:             &c.in.Buffer,
		Partial:        c.in.partial,
		MessageTimeout: o.MessageTimeout,
		First:          first,
		Framer:         &c.w,
	})
	c.alive = time.AfterFunc(math.MaxInt64, c.checkAlive)
	c.alive.Reset(min(o.PingInterval, o.IdleTimeout)) // which checkAlive needs alive for
	return c
}

func (c *conn) Read() (transport.Kind, []byte, error) {
	if err := c.BeginRead(); err != nil {
		return 0, nil, err
	}
	k, b, err := c.in.next()
	if err == nil || err == transport.ErrTooLarge {
		return k, b, err
	}
	if err == stream.ErrSlow {
		err = &transport.CloseError{Code: transport.ClosePolicy, Reason: err.Error()}
	}
	if said, ok := errors.AsType[*transport.CloseError](err); ok {
		err = c.end(said, closePayload(said.Code, said.Reason))
	} else if !errors.Is(err, os.ErrDeadlineExceeded) || c.HasEnded() {
		err = c.end(err, nil)
	}
	return 0, nil, err
}

func (c *conn) fill() error {
	err := c.Fill()
	if err == nil {
		c.lastIn.Store(int64(time.Since(c.start)))
	}
	return err
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
	n, err := c.Conn.Write(uint8(k), msgs)
	if c.w.queue.due.Load() {
		c.flushControls()
	}
	return n, err
}

// TryWrite is Write without the waiting. The write deadline does not matter to it.
func (c *conn) TryWrite(k transport.Kind, msgs [][]byte) (int, error) {
	n, err := c.Conn.TryWrite(uint8(k), msgs)
	if c.w.queue.due.Load() {
		c.flushControls()
	}
	return n, err
}

// flushControls writes the control frames that wait if nobody is writing:
// whoever writes looks for them afterwards.
func (c *conn) flushControls() {
	stuck := false // midway through a message: its next Write takes them along
	flush := func(out stream.Outlet) {
		stream.Send(out, c.in.pools, &c.w, 0, nil, false)
		stuck = c.w.midway()
	}
	for c.w.queue.due.Load() && !stuck && c.Between(flush) {
	}
}

func (c *conn) SetReadLimit(n int) { c.in.limit = min(max(n, 0), math.MaxInt/8) }

func (c *conn) RemoteAddr() net.Addr {
	if c.remote != nil {
		return c.remote
	}
	return c.Conn.RemoteAddr()
}

func (c *conn) Value(key any) any {
	switch key {
	case RequestKey:
		if c.request != nil {
			return c.request
		}
	case transport.KindsKey:
		return true
	case transport.TokenKey:
		if c.request != nil {
			if token := bearer(c.request); token != "" {
				return token
			}
		}
	case TLSKey:
		if state := c.TLS(); state != nil {
			return state
		}
	case SubprotocolKey:
		if c.proto != "" {
			return c.proto
		}
	}
	return nil
}
