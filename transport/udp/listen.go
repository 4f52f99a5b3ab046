package udp

import (
	"context"
	"net"
	"syscall"
)

// readBuffer is what is asked of the system for each socket. It may grant less.
const readBuffer = 1 << 20

// Listen opens up to n sockets for an address, HOST:PORT, that share what comes in
// by its source. Where the system cannot share it there is one socket. An address
// that anybody else has is an error: it is not shared with him.
func Listen(ctx context.Context, address string, n int) (sockets []net.PacketConn, err error) {
	defer func() {
		if err != nil {
			for _, s := range sockets {
				s.Close()
			}
			sockets = nil
		}
	}()
	if !shareable {
		n = 1
	}
	var lc net.ListenConfig
	for len(sockets) < max(n, 1) {
		pc, err := lc.ListenPacket(ctx, "udp", address)
		if err != nil {
			return sockets, err
		}
		sockets = append(sockets, pc)
		u := pc.(*net.UDPConn)
		_ = u.SetReadBuffer(readBuffer)
		if n <= 1 || len(sockets) > 1 {
			continue
		}
		// From here on, so that the first had to have the address to itself.
		raw, err := u.SyscallConn()
		if err == nil {
			err = share(raw)
		}
		if err != nil {
			return sockets, err
		}
		address = pc.LocalAddr().String() // with a port
		lc.Control = func(_, _ string, c syscall.RawConn) error { return share(c) }
	}
	return sockets, nil
}
