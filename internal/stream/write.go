package stream

import (
	"errors"
	"net"
	"os"
)

// A Framer puts messages in the form that they have on the wire, and remembers
// how much of the first one is out. Its methods are called with the turn.
type Framer interface {
	// Frame appends what goes out next to b, as much as its capacity holds: the
	// rest of msgs[0] if a part of it is out, then the others. The kind is the
	// caller's.
	Frame(b []byte, kind uint8, msgs [][]byte) []byte

	// Advance accounts for n bytes of what Frame appended and returns how many
	// messages they complete.
	Advance(n int, msgs [][]byte) (whole int)
}

// Send makes as much progress as the outlet allows, waiting for the first byte
// of it if wait is set. It returns how many messages are out whole. Many go out
// in one call: small messages cost a copy instead of a system call, and a large
// one still less than a second call or a second TLS record would.
func Send(out Outlet, p *Pools, f Framer, kind uint8, msgs [][]byte, wait bool) (n int, err error) {
	buf := p.writeBuffer()
	defer p.releaseWrite(buf)
	for {
		b := f.Frame(buf[:0], kind, msgs[n:])
		if len(b) == 0 {
			return n, nil
		}
		took, err := out.Put(b, wait)
		n += f.Advance(took, msgs[n:])
		if took < len(b) {
			if took > 0 || n > 0 {
				err = nil // if it lasts, the next call will see it
			}
			return n, err
		}
		wait = false
	}
}

// Write is transport.Conn's, with the kind as the Framer knows it.
func (c *Conn) Write(kind uint8, msgs [][]byte) (int, error) {
	select {
	case c.turn <- struct{}{}:
	case <-c.ended:
		return 0, net.ErrClosed
	}
	return c.send(kind, msgs, true)
}

// TryWrite is transport.TryWriter's, with the kind as the Framer knows it.
func (c *Conn) TryWrite(kind uint8, msgs [][]byte) (int, error) {
	select {
	case c.turn <- struct{}{}:
	default:
		if c.HasEnded() {
			return 0, net.ErrClosed
		}
		return 0, nil // somebody is in a Between
	}
	n, err := c.send(kind, msgs, false)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = nil
	}
	return n, err
}

// send is called with the turn and gives it back.
func (c *Conn) send(kind uint8, msgs [][]byte, wait bool) (n int, err error) {
	defer c.giveTurn()
	if c.HasEnded() {
		return 0, net.ErrClosed
	}
	n, err = Send(c.out, c.pools, c.framer, kind, msgs, wait)
	if err != nil && c.HasEnded() {
		err = net.ErrClosed
	}
	return n, err
}

func (c *Conn) giveTurn() { <-c.turn }

// Between calls f with the right to write if nobody has it, and says whether
// nobody had. After the end there is none.
func (c *Conn) Between(f func(Outlet)) bool {
	select {
	case c.turn <- struct{}{}:
	default:
		return false
	}
	defer c.giveTurn()
	if c.HasEnded() {
		return false
	}
	f(c.out)
	return true
}
