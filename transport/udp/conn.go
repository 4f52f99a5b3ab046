package udp

import (
	"io"
	"net"
	"net/netip"
	"os"
	"sync"
	"time"

	"github.com/sotto-relay/sotto/internal/deadline"
	"github.com/sotto-relay/sotto/transport"
)

const (
	// credit is how many bytes an unproven source is sent for each that came from
	// it.
	credit = 3

	// paceDepth is the time whose share of a second's datagrams may go out at once: at
	// 50 a second that is one, so that no second has more than 50.
	paceDepth = 20 * time.Millisecond

	// fullPause is how long Write waits when the socket has no room. (What empties
	// it is the network card, in microseconds.)
	fullPause = time.Millisecond
)

// A conn is a session.
type conn struct {
	l *Listener

	// Guarded by the listener's lock.
	source netip.AddrPort
	tokens []token // the oldest first

	mu       sync.Mutex
	readable sync.Cond
	writable sync.Cond
	err      error  // what Read returns from the end on; written with both locks held
	in       *queue // what came in; nil while nothing waits
	sock     socket // where to write to it, and
	peer     *net.UDPAddr
	seen     time.Duration // when something came in last
	idle     *time.Timer
	pace     bucket

	proven         bool
	received, sent int  // bytes at this source while it is unproven
	greeted        bool // a token has been issued
	greeting       bool // the message with the first is still to be sent

	readBy, writeBy, paceBy deadline.Deadline

	// Of the goroutine that reads.
	out    *queue // what it has taken over; what Read returned last may be in it
	limit  int
	excess bool // there was a message of more than four times the limit
	dry    func()
}

var (
	_ transport.Conn      = (*conn)(nil)
	_ transport.TryWriter = (*conn)(nil)
	_ transport.Batcher   = (*conn)(nil)
	_ transport.Datagram  = (*conn)(nil)
)

// newConn is called with the listener's lock held.
func newConn(l *Listener, source netip.AddrPort) *conn {
	c := &conn{l: l, source: source, peer: net.UDPAddrFromAddrPort(source)}
	c.readable.L, c.writable.L = &c.mu, &c.mu
	c.SetReadLimit(l.options.MaxDatagram)
	c.idle = time.AfterFunc(l.options.IdleTimeout, c.expire)
	return c
}

// arrived queues a datagram for Read. mu is held.
func (c *conn) arrived(s socket, datagram []byte, now time.Duration) {
	c.sock, c.seen = s, now
	c.received += len(datagram)
	o := &c.l.options
	if c.in == nil {
		c.in = c.l.queues.Get().(*queue)
	}
	if !c.in.push(datagram, o.MaxDatagram, o.QueueBytes) {
		c.l.count.overrun.Add(1)
	}
	c.readable.Signal()
}

// expire ends the session, if nothing came in for long enough.
func (c *conn) expire() {
	c.l.mu.Lock()
	defer c.l.mu.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	if left := c.seen + c.l.options.IdleTimeout - c.l.now(); left > 0 && c.err == nil {
		c.idle.Reset(left)
		return
	}
	c.endLocked(io.EOF)
}

// stop has nothing be waited for. mu is held.
func (c *conn) stop() {
	c.idle.Stop()
	c.readBy.Stop()
	c.writeBy.Stop()
	c.paceBy.Stop()
	c.in = nil
	c.readable.Broadcast()
	c.writable.Broadcast()
}

func (c *conn) Read() (transport.Kind, []byte, error) {
	if c.excess {
		c.Close(transport.CloseTooLarge, "message too large")
	}
	msg, n, err := c.take()
	switch {
	case err != nil:
		return 0, nil, err
	case n > c.limit:
		c.excess = n > 4*c.limit
		return 0, nil, transport.ErrTooLarge
	}
	return transport.Binary, msg, nil
}

// take waits for the next datagram and returns it with its size.
func (c *conn) take() (datagram []byte, n int, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for dry := c.dry == nil; ; {
		switch {
		case c.err != nil:
			return nil, 0, c.err
		case c.readBy.Passed():
			return nil, 0, os.ErrDeadlineExceeded
		case !c.out.empty():
			datagram, n = c.out.pop(c.l.options.MaxDatagram)
			return datagram, n, nil
		case c.in != nil:
			c.recycle()
			c.in, c.out = nil, c.in
		case !dry:
			dry = true
			c.mu.Unlock()
			c.dry()
			c.mu.Lock()
		default:
			c.recycle()
			c.readable.Wait()
		}
	}
}

// recycle gives the memory of what was read to others.
func (c *conn) recycle() {
	if c.out != nil {
		c.out.reset()
		c.l.queues.Put(c.out)
		c.out = nil
	}
}

func (c *conn) Write(_ transport.Kind, msgs [][]byte) (int, error) { return c.write(msgs, true) }

// TryWrite is Write without the waiting. The write deadline does not matter to it.
func (c *conn) TryWrite(_ transport.Kind, msgs [][]byte) (int, error) { return c.write(msgs, false) }

func (c *conn) write(msgs [][]byte, wait bool) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		switch {
		case c.err != nil:
			return 0, net.ErrClosed
		case wait && c.writeBy.Passed():
			return 0, os.ErrDeadlineExceeded
		case len(msgs) == 0:
			return 0, nil
		}
		n, again := c.send(msgs)
		if n > 0 || !wait {
			return n, nil
		}
		c.paceBy.Set(time.Now().Add(again), &c.writable)
		for c.err == nil && !c.writeBy.Passed() && !c.paceBy.Passed() {
			c.writable.Wait()
		}
	}
}

// send sends what can be sent now and returns how many messages are done with, or
// when to try again. mu is held, but for the sending. What is dropped takes its
// turn in the pace, or a writer would spin.
func (c *conn) send(msgs [][]byte) (n int, again time.Duration) {
	unproven := !c.proven
	if unproven {
		msgs = msgs[:1]
	}
	now, rate := c.l.now(), c.l.options.PaceRate
	depth := max(paceDepth, time.Second/time.Duration(rate))
	msgs = msgs[:c.pace.take(len(msgs), now, rate, depth)]
	switch {
	case len(msgs) == 0:
		return 0, c.pace.wait(now, rate, depth)
	case unproven && !c.greeting && c.sent+len(msgs[0]) > credit*c.received:
		c.l.count.unproven.Add(1)
		return 1, 0
	}
	s, to := c.sock, c.peer
	c.mu.Unlock()
	n = c.l.send(s, msgs, to)
	c.mu.Lock()
	c.pace.giveBack(len(msgs)-n, rate)
	switch {
	case n == 0:
		return 0, fullPause
	case unproven && c.greeting:
		c.greeting = false
	case unproven && c.peer == to:
		c.sent += len(msgs[0])
	}
	return n, 0
}

func (c *conn) SetDry(dry func()) { c.dry = dry }

func (c *conn) SetReadLimit(n int) { c.limit = min(n, c.l.options.MaxDatagram) }

func (c *conn) SetReadDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil {
		c.readBy.Set(t, &c.readable)
	}
	return nil
}

func (c *conn) SetWriteDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil {
		c.writeBy.Set(t, &c.writable)
	}
	return nil
}

func (c *conn) Close(code uint16, reason string) error {
	if code == 0 {
		c.end(net.ErrClosed)
	} else {
		c.end(&transport.CloseError{Code: code, Reason: reason})
	}
	return nil
}

// RemoteAddr is where the peer is now.
func (c *conn) RemoteAddr() net.Addr {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.peer
}

func (c *conn) Value(key any) any {
	if key == transport.DatagramKey {
		return transport.Datagram(c)
	}
	return nil
}
