package relaytest

import (
	"context"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
)

// A Listener is a net.Listener in memory: its connections are net.Pipes with
// addresses. An http.Server can serve it, also in a synctest bubble. Its methods
// may be called concurrently.
//
// A net.Pipe has no buffer: who writes waits for who reads. Behind a [Network]
// there is one.
type Listener struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
	ports  atomic.Uint32
}

// NewListener returns a Listener at 127.0.0.1:80.
func NewListener() *Listener {
	return &Listener{conns: make(chan net.Conn), closed: make(chan struct{})}
}

// Accept waits for the next connection. After Close the error is net.ErrClosed.
func (l *Listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Close ends every Accept and Dial, and no connection.
func (l *Listener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

// Addr returns 127.0.0.1:80.
func (l *Listener) Addr() net.Addr {
	return net.TCPAddrFromAddrPort(netip.MustParseAddrPort("127.0.0.1:80"))
}

// Dial connects from 127.0.0.1, whatever network and address say. The method
// value is for ws.DialOptions.Dial and its like.
func (l *Listener) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	return l.DialFrom(ctx, netip.AddrFrom4([4]byte{127, 0, 0, 1}))
}

// DialFrom connects from an address, which is what the other end sees. It waits
// until the connection is accepted; the error is ctx's, or net.ErrClosed.
func (l *Listener) DialFrom(ctx context.Context, from netip.Addr) (net.Conn, error) {
	remote := net.TCPAddrFromAddrPort(netip.AddrPortFrom(from, uint16(1024+l.ports.Add(1)%60000)))
	client, server := net.Pipe()
	select {
	case l.conns <- &addressed{server, l.Addr(), remote}:
		return &addressed{client, remote, l.Addr()}, nil
	case <-l.closed:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

type addressed struct {
	net.Conn
	local, remote net.Addr
}

func (c *addressed) LocalAddr() net.Addr  { return c.local }
func (c *addressed) RemoteAddr() net.Addr { return c.remote }
