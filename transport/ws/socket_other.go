//go:build !unix

package ws

import (
	"net"
	"time"
)

// A socket needs system calls that do not wait.
type socket struct {
	before func() []byte
	after  func()
}

func newSocket(net.Conn) *socket { return nil }

func (*socket) read() (int, error)            { return 0, net.ErrClosed }
func (*socket) put([]byte, bool) (int, error) { return 0, net.ErrClosed }
func (*socket) flushed() error                { return net.ErrClosed }
func (*socket) setDeadline(time.Time) error   { return net.ErrClosed }
