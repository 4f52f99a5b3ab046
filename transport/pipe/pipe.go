// Package pipe carries messages between two ends in one process: for tests that
// need neither a port nor a sleep, and for a program that is a client of the
// relay that it embeds.
//
// It is not a byte stream (see [net.Pipe]) and does not imitate a slow or lossy
// network. Messages are copied when they are written, and wait in a queue that
// is bounded in messages and in bytes. There is no goroutine behind a pipe;
// whoever waits in one waits on a sync.Cond or on a channel that [Listen] made,
// and deadlines are timers, so that a testing/synctest bubble that made the pipe
// holds all of it.
//
// The ends also implement [transport.TryWriter] and [transport.Batcher]. Close
// codes and reasons reach the other end after what was written before. Code 0
// stands for a close without a code: the other end reads io.EOF.
package pipe

import (
	"context"
	"net"
	"sync"

	"github.com/sotto-relay/sotto/transport"
)

// Options bound a pipe. Zero fields mean the defaults.
type Options struct {
	// Messages and Bytes bound what waits in each direction (128 messages,
	// 256 KiB). A message longer than Bytes passes when nothing else waits.
	Messages int
	Bytes    int

	// Limit is the read limit that both ends start with, in bytes
	// (4 MiB + 120).
	Limit int
}

func (o Options) withDefaults() Options {
	if o.Messages <= 0 {
		o.Messages = 128
	}
	if o.Bytes <= 0 {
		o.Bytes = 256 << 10
	}
	if o.Limit <= 0 {
		o.Limit = 4<<20 + 120
	}
	return o
}

// New returns the two ends of a connection with default options.
func New() (a, b transport.Conn) { return Options{}.New() }

// New returns the two ends of a connection.
func (o Options) New() (a, b transport.Conn) {
	o = o.withDefaults()
	ab, ba := newQueue(o), newQueue(o)
	return &conn{in: ba, out: ab, limit: o.Limit}, &conn{in: ab, out: ba, limit: o.Limit}
}

// Addr is the address of everything here. A pipe has no place, so all are equal.
type Addr struct{}

// Network returns "pipe".
func (Addr) Network() string { return "pipe" }

// String returns "pipe".
func (Addr) String() string { return "pipe" }

// A Network is a listener and the way to reach it. Its methods may be called
// concurrently.
type Network struct {
	options Options
	conns   chan transport.Conn
	closed  chan struct{}
	close   sync.Once
}

var _ transport.Listener = (*Network)(nil)

// Listen returns a Network whose connections have default options.
func Listen() *Network { return Options{}.Listen() }

// Listen returns a Network whose connections have these options.
func (o Options) Listen() *Network {
	return &Network{options: o, conns: make(chan transport.Conn), closed: make(chan struct{})}
}

// Dial opens a connection and waits until it is accepted. It fails with the
// context's error, or with net.ErrClosed once the Network is closed. The method
// value is a [transport.Dialer].
func (n *Network) Dial(ctx context.Context) (transport.Conn, error) {
	client, server := n.options.New()
	select {
	case n.conns <- server:
		return client, nil
	case <-n.closed:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Accept waits for the next connection. After Close it fails with net.ErrClosed.
func (n *Network) Accept() (transport.Conn, error) {
	select {
	case <-n.closed:
		return nil, net.ErrClosed
	default:
	}
	select {
	case c := <-n.conns:
		return c, nil
	case <-n.closed:
		return nil, net.ErrClosed
	}
}

// Close ends every Accept and Dial. Connections made before are not touched.
func (n *Network) Close() error {
	n.close.Do(func() { close(n.closed) })
	return nil
}

// Addr returns an [Addr].
func (n *Network) Addr() net.Addr { return Addr{} }
