//go:build unix

package stream

import (
	"io"
	"net"
	"syscall"
	"time"
)

// A socket is a TCP or Unix connection used without net.Conn's loops: it is
// written without waiting, and waited for without holding a buffer.
type socket struct {
	conn net.Conn
	raw  syscall.RawConn

	// Of a read.
	rn     int
	rerr   error
	before func() []byte // returns where to read to
	after  func()        // nothing is there to read
	onRead func(fd uintptr) bool

	// Of a write.
	wbuf    []byte
	wn      int
	werr    error
	wait    bool
	onWrite func(fd uintptr) bool
	onPut   func(fd uintptr)
}

// newSocket returns nil for a connection that must be used as a net.Conn. It
// looks for the types themselves, since one that wraps them may have its own
// idea of reading and writing, unless it says that it has none.
func newSocket(c net.Conn) *socket {
	c = Bare(c)
	var raw syscall.RawConn
	var err error
	switch c := c.(type) {
	case *net.TCPConn:
		raw, err = c.SyscallConn()
	case *net.UnixConn:
		raw, err = c.SyscallConn()
	default:
		return nil
	}
	if err != nil {
		return nil
	}
	s := &socket{conn: c, raw: raw}
	s.onRead, s.onWrite = s.tryRead, s.tryWrite // made once, as each is an allocation
	s.onPut = func(fd uintptr) { s.tryWrite(fd) }
	return s
}

// read waits until there is something to read and reads it to where before
// says. While it waits it has called after. Only a goroutine at a time.
func (s *socket) read() (int, error) {
	if err := s.raw.Read(s.onRead); err != nil {
		return 0, err
	}
	switch {
	case s.rerr != nil:
		return 0, &net.OpError{Op: "read", Net: "tcp", Err: s.rerr}
	case s.rn == 0:
		return 0, io.EOF
	}
	return s.rn, nil
}

func (s *socket) tryRead(fd uintptr) bool {
	b := s.before()
	for {
		s.rn, s.rerr = syscall.Read(int(fd), b)
		switch s.rerr {
		case syscall.EINTR:
			continue
		case syscall.EAGAIN:
			s.after()
			return false
		}
		return true
	}
}

// Put is the outlet's. A deadline is for who waits: that of an earlier write, which has
// passed, must not keep a PONG back.
func (s *socket) Put(b []byte, wait bool) (int, error) {
	s.wbuf, s.wait = b, wait
	var err error
	if wait {
		err = s.raw.Write(s.onWrite)
	} else {
		err = s.raw.Control(s.onPut)
	}
	s.wbuf = nil
	switch {
	case err != nil:
		return 0, err
	case s.werr != nil:
		return 0, &net.OpError{Op: "write", Net: "tcp", Err: s.werr}
	}
	return s.wn, nil
}

func (s *socket) tryWrite(fd uintptr) bool {
	for {
		s.wn, s.werr = syscall.Write(int(fd), s.wbuf)
		switch s.werr {
		case syscall.EINTR:
			continue
		case syscall.EAGAIN:
			s.wn, s.werr = 0, nil
			return !s.wait
		}
		return true
	}
}

func (s *socket) SetDeadline(t time.Time) error { return s.conn.SetWriteDeadline(t) }

func (s *socket) Flushed() error { return nil }
