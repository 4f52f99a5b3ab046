package udp

import (
	"net"
	"net/netip"
)

// A socket is a net.PacketConn as it is used here. Any number of goroutines may
// write, and one may read.
type socket interface {
	// read waits for datagrams and fills in as many packets, at least one.
	read([]packet) (int, error)

	// write sends datagrams to one address and returns how many were taken. Where
	// the platform can, it does not wait: the error is syscall.EAGAIN then. After
	// any error the datagram behind those that were taken was not sent.
	write(msgs [][]byte, to net.Addr) (int, error)

	Close() error
	LocalAddr() net.Addr
}

const (
	batchSize = 16        // of datagrams in one call
	largest   = 1<<16 - 1 // a datagram
)

// A packet is a datagram that came in. An IPv4 address is as such in from.
type packet struct {
	buf  []byte // to read to: room for the largest
	n    int
	from netip.AddrPort
}

func newPackets() []packet {
	ps := make([]packet, batchSize)
	buf := make([]byte, batchSize*largest) // which the system backs with memory as far as it is used
	for i := range ps {
		ps[i].buf = buf[i*largest : (i+1)*largest]
	}
	return ps
}

// plain is any net.PacketConn.
type plain struct{ net.PacketConn }

func (s plain) read(ps []packet) (int, error) {
	p := &ps[0]
	n, from, err := s.ReadFrom(p.buf)
	if err != nil {
		return 0, err
	}
	p.n, p.from = n, addrPort(from)
	return 1, nil
}

func (s plain) write(msgs [][]byte, to net.Addr) (int, error) {
	for i, m := range msgs {
		if _, err := s.WriteTo(m, to); err != nil {
			return i, err
		}
	}
	return len(msgs), nil
}

// addrPort returns a as such, with IPv4 as IPv4. It is invalid if a is no address
// of IP.
func addrPort(a net.Addr) netip.AddrPort {
	u, ok := a.(*net.UDPAddr)
	if !ok {
		return netip.AddrPort{}
	}
	return unmap(u.AddrPort())
}

func unmap(a netip.AddrPort) netip.AddrPort {
	return netip.AddrPortFrom(a.Addr().Unmap(), a.Port())
}
