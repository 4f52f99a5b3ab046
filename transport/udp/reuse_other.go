//go:build !linux

package udp

import (
	"errors"
	"syscall"
)

const shareable = false

func share(syscall.RawConn) error { return errors.ErrUnsupported }
