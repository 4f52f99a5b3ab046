package tcp

import (
	"errors"
	"fmt"
	"math"
	"net"
	"os"

	"github.com/sotto-relay/sotto/internal/stream"
	"github.com/sotto-relay/sotto/transport"
)

// A conn is a connection of either side.
type conn struct {
	stream.Conn
	in reader // of the reading goroutine
	w  writer // of whoever writes
}

var (
	_ transport.Conn      = (*conn)(nil)
	_ transport.TryWriter = (*conn)(nil)
	_ transport.Batcher   = (*conn)(nil)
)

func newConn(nc net.Conn, f transport.Framing, o *ConnOptions, p *stream.Pools) *conn {
	c := &conn{w: writer{framing: f}}
	c.in = reader{framing: f, pools: p, fill: c.Fill}
	c.SetReadLimit(o.Limit)
	c.Init(nc, stream.Config{
		Pools:          p,
		In:             &c.in.Buffer,
		Partial:        c.in.partial,
		MessageTimeout: o.MessageTimeout,
		Framer:         &c.w,
	})
	return c
}

func (c *conn) Read() (transport.Kind, []byte, error) {
	if err := c.BeginRead(); err != nil {
		return 0, nil, err
	}
	b, err := c.in.next()
	switch {
	case err == nil:
		return transport.Binary, b, nil
	case err == transport.ErrTooLarge, errors.Is(err, os.ErrDeadlineExceeded) && !c.HasEnded():
		return 0, nil, err
	case err == stream.ErrSlow:
		err = &transport.CloseError{Code: transport.ClosePolicy, Reason: err.Error()}
	}
	return 0, nil, c.End(err, nil)
}

func (c *conn) Write(k transport.Kind, msgs [][]byte) (int, error) {
	return c.Conn.Write(uint8(k), msgs)
}

// TryWrite is Write without the waiting. The write deadline does not matter to it.
func (c *conn) TryWrite(k transport.Kind, msgs [][]byte) (int, error) {
	return c.Conn.TryWrite(uint8(k), msgs)
}

func (c *conn) SetReadLimit(n int) { c.in.limit = min(max(n, 0), math.MaxInt/8) }

// Close ends the connection. The peer does not learn of the code and the reason.
func (c *conn) Close(code uint16, reason string) error {
	c.End(&transport.CloseError{Code: code, Reason: reason}, func(stream.Outlet) error { return nil })
	return nil
}

func (c *conn) Value(key any) any {
	if state := c.TLS(); key == TLSKey && state != nil {
		return state
	}
	return nil
}

// A reader cuts messages out of what fill reads. All its state is in its fields,
// so that after an error of fill (a deadline) reading can go on.
type reader struct {
	stream.Buffer
	framing transport.Framing
	limit   int
	pools   *stream.Pools
	fill    func() error // reads more than nothing into B[W:], or fails
	excess  int          // bytes to pass over of a message that is too large
	lost    bool         // it is not passed over
}

// partial says whether something has begun that its peer owes the rest of.
func (d *reader) partial() bool { return d.R < d.W || d.excess > 0 }

// next returns the next message, which is valid until the next call.
func (d *reader) next() ([]byte, error) {
	for {
		if d.excess > 0 {
			if err := d.passOver(); err != nil {
				return nil, err
			}
			return nil, transport.ErrTooLarge
		}
		if d.R < d.W {
			skip, n, err := d.framing.Next(d.B[d.R:d.W], d.limit)
			switch {
			case err == transport.ErrEmpty && skip > 0:
				d.R += skip
				d.Units++
				return d.B[d.R:d.R:d.R], nil
			case err != nil && n <= 0:
				return nil, fmt.Errorf("tcp: %w: %w", transport.ErrMalformed, err)
			case err != nil && n > 4*d.limit && d.lost:
				return nil, &transport.CloseError{Code: transport.CloseTooLarge, Reason: "message too large"}
			case err != nil && n > 4*d.limit:
				d.lost = true
				return nil, transport.ErrTooLarge
			case err != nil:
				d.excess = skip + n
				continue
			case n > 0:
				begin, end := d.R+skip, d.R+skip+n
				d.R = end
				d.Units++
				return d.B[begin:end:end], nil
			case skip > 0:
				d.R += skip
				continue
			}
			d.Grow(d.pools)
		}
		if err := d.fill(); err != nil {
			return nil, err
		}
	}
}

func (d *reader) passOver() error {
	for {
		n := min(d.W-d.R, d.excess)
		d.R += n
		d.excess -= n
		if d.excess == 0 {
			d.Units++
			return nil
		}
		if err := d.fill(); err != nil {
			return err
		}
	}
}

// A writer puts messages behind their heads. Its fields belong to whoever writes.
type writer struct {
	framing transport.Framing
	sent    int // bytes of the first message and its head that are out
	scratch [transport.MaxHead]byte
}

// Frame is stream.Framer's.
func (w *writer) Frame(b []byte, _ uint8, msgs [][]byte) []byte {
	from := w.sent
	for _, msg := range msgs {
		if cap(b)-len(b) < transport.MaxHead {
			break
		}
		start := len(b)
		b = w.framing.Head(b, len(msg))
		out := min(from, len(b)-start) // of the head
		b = append(b[:start], b[start+out:]...)
		from -= out
		rest := msg[from:]
		part := rest[:min(len(rest), cap(b)-len(b))]
		b = append(b, part...)
		if len(part) < len(rest) {
			break
		}
		from = 0
	}
	return b
}

// Advance is stream.Framer's.
func (w *writer) Advance(n int, msgs [][]byte) (whole int) {
	for n > 0 {
		rest := len(w.framing.Head(w.scratch[:0], len(msgs[whole]))) + len(msgs[whole]) - w.sent
		if n < rest {
			w.sent += n
			break
		}
		n -= rest
		whole++
		w.sent = 0
	}
	return whole
}
