package relaytest

import (
	"net"
	"net/netip"
	"os"
	"sync"
	"time"

	"github.com/sotto-relay/sotto/internal/deadline"
)

// packetsWaiting is how many datagrams wait to be read. What comes then is lost, as in
// the buffer of a socket.
const packetsWaiting = 1024

type packet struct {
	from netip.AddrPort
	data []byte
}

// A PacketConn is a place in a [PacketNetwork]. Like a net.UDPConn it is a
// net.PacketConn, and a net.Conn if it has a peer: then it gets nothing that is
// from anybody else. Its methods may be called concurrently.
type PacketConn struct {
	network *PacketNetwork
	peer    netip.AddrPort // if valid, for Read and Write
	at      netip.AddrPort // guarded by the network's lock

	mu       sync.Mutex
	readable sync.Cond
	queue    []packet
	closed   bool
	readBy   deadline.Deadline
}

var (
	_ net.PacketConn = (*PacketConn)(nil)
	_ net.Conn       = (*PacketConn)(nil)
)

func newPacketConn(n *PacketNetwork) *PacketConn {
	c := &PacketConn{network: n}
	c.readable.L = &c.mu
	return c
}

func (c *PacketConn) push(p packet) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closed && len(c.queue) < packetsWaiting && (!c.peer.IsValid() || p.from == c.peer) {
		c.queue = append(c.queue, p)
		c.readable.Signal()
	}
}

func (c *PacketConn) shut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed, c.queue = true, nil
	c.readBy.Stop()
	c.readable.Broadcast()
}

func (c *PacketConn) read(b []byte) (int, netip.AddrPort, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		switch {
		case c.closed:
			return 0, netip.AddrPort{}, net.ErrClosed
		case c.readBy.Passed():
			return 0, netip.AddrPort{}, os.ErrDeadlineExceeded
		case len(c.queue) > 0:
			p := c.queue[0]
			c.queue = c.queue[1:]
			return copy(b, p.data), p.from, nil
		}
		c.readable.Wait()
	}
}

func (c *PacketConn) isClosed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.closed
}

// ReadFrom waits for a datagram. What of it does not fit into b is lost.
func (c *PacketConn) ReadFrom(b []byte) (int, net.Addr, error) {
	n, from, err := c.read(b)
	if err != nil {
		return 0, nil, err
	}
	return n, net.UDPAddrFromAddrPort(from), nil
}

// Read is ReadFrom for whom it does not matter from where.
func (c *PacketConn) Read(b []byte) (int, error) {
	n, _, err := c.read(b)
	return n, err
}

// WriteTo sends a datagram. It never waits.
func (c *PacketConn) WriteTo(b []byte, to net.Addr) (int, error) {
	u, ok := to.(*net.UDPAddr)
	if !ok {
		return 0, &net.AddrError{Err: "not a *net.UDPAddr", Addr: to.String()}
	}
	a := u.AddrPort()
	return c.send(b, netip.AddrPortFrom(a.Addr().Unmap(), a.Port()))
}

// Write sends a datagram to the peer.
func (c *PacketConn) Write(b []byte) (int, error) { return c.send(b, c.peer) }

func (c *PacketConn) send(b []byte, to netip.AddrPort) (int, error) {
	if c.isClosed() {
		return 0, net.ErrClosed
	}
	c.network.Send(c.addr(), to, b)
	return len(b), nil
}

// Rebind moves the PacketConn to another address, as a NAT does that has forgotten
// about it: what it sends comes from there, and what is sent to the old address is
// lost.
func (c *PacketConn) Rebind(at netip.AddrPort) error {
	if c.isClosed() {
		return net.ErrClosed
	}
	return c.network.bind(c, at)
}

// Close frees the address. Every pending and later call fails.
func (c *PacketConn) Close() error {
	c.shut()
	n := c.network
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.conns[c.at] == c {
		delete(n.conns, c.at)
	}
	return nil
}

func (c *PacketConn) addr() netip.AddrPort {
	c.network.mu.Lock()
	defer c.network.mu.Unlock()
	return c.at
}

// LocalAddr is where the PacketConn is.
func (c *PacketConn) LocalAddr() net.Addr { return net.UDPAddrFromAddrPort(c.addr()) }

// RemoteAddr is its peer's address; nil if it has none.
func (c *PacketConn) RemoteAddr() net.Addr {
	if !c.peer.IsValid() {
		return nil
	}
	return net.UDPAddrFromAddrPort(c.peer)
}

// SetDeadline is SetReadDeadline, as nothing else waits.
func (c *PacketConn) SetDeadline(t time.Time) error { return c.SetReadDeadline(t) }

// SetReadDeadline bounds reading.
func (c *PacketConn) SetReadDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closed {
		c.readBy.Set(t, &c.readable)
	}
	return nil
}

// SetWriteDeadline does nothing.
func (c *PacketConn) SetWriteDeadline(time.Time) error { return nil }
