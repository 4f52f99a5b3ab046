//go:build !unix

package stream

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
func (*socket) Put([]byte, bool) (int, error) { return 0, net.ErrClosed }
func (*socket) Flushed() error                { return net.ErrClosed }
func (*socket) SetDeadline(time.Time) error   { return net.ErrClosed }
