package relaytest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"
)

// PacketFaults are what is wrong with a [PacketNetwork]. The zero value is a
// network that loses nothing and keeps the order.
type PacketFaults struct {
	// Loss and Duplicate are chances, from 0 to 1, for each datagram: that it does
	// not arrive, and that it arrives twice.
	Loss, Duplicate float64

	// Delay is how much later datagrams arrive, and Jitter up to how much more, each
	// for itself: so they overtake one another.
	Delay, Jitter time.Duration
}

// A PacketNetwork carries datagrams between the addresses of its PacketConns. Its
// methods may be called concurrently.
//
// One seed has the same luck with the same datagrams in the same order.
type PacketNetwork struct {
	mu     sync.Mutex
	faults PacketFaults
	luck   *rand.Rand
	conns  map[netip.AddrPort]*PacketConn
	port   uint16 // the last that was given away
}

// NewPacketNetwork returns a network without faults, whose PacketConns are closed
// when the test ends. A seed of zero has one chosen; the seed is logged.
func NewPacketNetwork(t testing.TB, seed uint64) *PacketNetwork {
	t.Helper()
	if seed == 0 {
		seed = rand.Uint64() | 1
	}
	t.Logf("relaytest: the packet network's seed is %#x", seed)
	n := &PacketNetwork{
		luck:  rand.New(rand.NewPCG(seed, 0)),
		conns: make(map[netip.AddrPort]*PacketConn),
		port:  1 << 15,
	}
	t.Cleanup(n.close)
	return n
}

// Set changes the faults for what is sent from now on.
func (n *PacketNetwork) Set(f PacketFaults) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.faults = f
}

// Listen returns a PacketConn at an address. Port 0 stands for one that is free.
func (n *PacketNetwork) Listen(at netip.AddrPort) (*PacketConn, error) {
	c := newPacketConn(n)
	if err := n.bind(c, at); err != nil {
		return nil, err
	}
	return c, nil
}

// DialFrom returns a dialling function, as net.Dialer.DialContext is one, for
// addresses of this network. What it returns is a *PacketConn at an address, with
// a peer.
func (n *PacketNetwork) DialFrom(at netip.AddrPort) func(ctx context.Context, network, address string) (net.Conn, error) {
	return func(_ context.Context, _, address string) (net.Conn, error) {
		peer, err := netip.ParseAddrPort(address)
		if err != nil {
			return nil, err
		}
		c := newPacketConn(n)
		c.peer = peer
		if err := n.bind(c, at); err != nil {
			return nil, err
		}
		return c, nil
	}
}

// Send sends a datagram from any address, as somebody can who forges it.
func (n *PacketNetwork) Send(from, to netip.AddrPort, datagram []byte) {
	n.mu.Lock()
	defer n.mu.Unlock()
	f := &n.faults
	if n.luck.Float64() < f.Loss {
		return
	}
	copies := 1
	if n.luck.Float64() < f.Duplicate {
		copies = 2
	}
	for range copies {
		p := packet{from, append([]byte(nil), datagram...)}
		delay := f.Delay
		if f.Jitter > 0 {
			delay += time.Duration(n.luck.Int64N(int64(f.Jitter)))
		}
		if delay == 0 {
			n.deliver(to, p)
			continue
		}
		time.AfterFunc(delay, func() {
			n.mu.Lock()
			defer n.mu.Unlock()
			n.deliver(to, p)
		})
	}
}

// deliver is called with mu held.
func (n *PacketNetwork) deliver(to netip.AddrPort, p packet) {
	if c := n.conns[to]; c != nil {
		c.push(p)
	}
}

// bind has an address be c's, and no other any more.
func (n *PacketNetwork) bind(c *PacketConn, at netip.AddrPort) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	for at.Port() == 0 {
		n.port++
		if free := netip.AddrPortFrom(at.Addr(), n.port); n.conns[free] == nil {
			at = free
		}
	}
	switch {
	case !at.IsValid():
		return errors.New("relaytest: no address")
	case n.conns[at] != nil:
		return fmt.Errorf("relaytest: %v is in use", at)
	}
	delete(n.conns, c.at)
	c.at, n.conns[at] = at, c
	return nil
}

func (n *PacketNetwork) close() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for at, c := range n.conns {
		c.shut()
		delete(n.conns, at)
	}
}
