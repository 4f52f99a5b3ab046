//go:build !linux

package udp

import "net"

// newSocket has one datagram read and written at a time.
func newSocket(pc net.PacketConn) socket { return plain{pc} }
