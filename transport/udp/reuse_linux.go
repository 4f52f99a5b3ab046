package udp

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// shareable says that the system spreads what comes in over sockets that share an
// address.
const shareable = true

// share allows others to share the address of a socket.
func share(c syscall.RawConn) (err error) {
	if e := c.Control(func(fd uintptr) {
		err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEPORT, 1)
	}); e != nil {
		return e
	}
	return err
}
