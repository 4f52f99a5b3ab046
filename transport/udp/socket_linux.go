package udp

import (
	"encoding/binary"
	"net"
	"net/netip"
	"os"
	"strconv"
	"sync"
	"syscall"
	"unsafe"

	"golang.org/x/net/ipv4"
	"golang.org/x/sys/unix"
)

// newSocket has datagrams read and written in batches where pc is a socket.
func newSocket(pc net.PacketConn) socket {
	u, ok := pc.(*net.UDPConn)
	if !ok {
		return plain{pc}
	}
	raw, err := u.SyscallConn()
	if err != nil {
		return plain{pc}
	}
	s := &batched{UDPConn: u, raw: raw, out: ipv4.NewPacketConn(u)}
	s.onRead = s.receive // made once, as it is an allocation
	s.pool.New = func() any { return new(letters) }
	return s
}

// A batched socket has its datagrams read by recvmmsg and written by sendmmsg.
//
// The former is called here and not by way of x/net, whose ReadBatch allocates an
// address for each datagram: as many as strangers like to send.
type batched struct {
	*net.UDPConn
	raw  syscall.RawConn
	out  *ipv4.PacketConn // its WriteBatch does for IPv6 as well
	pool sync.Pool        // of *letters

	// Of the reading goroutine.
	headers [batchSize]header
	iovecs  [batchSize]unix.Iovec
	names   [batchSize]unix.RawSockaddrInet6 // or Inet4, which is shorter
	n       int
	errno   syscall.Errno
	onRead  func(fd uintptr) bool
}

// A header is C's struct mmsghdr.
type header struct {
	unix.Msghdr
	len uint32
}

func (s *batched) read(ps []packet) (int, error) {
	for i := range ps {
		s.iovecs[i].Base = &ps[i].buf[0]
		s.iovecs[i].SetLen(len(ps[i].buf))
		s.headers[i].Name = (*byte)(unsafe.Pointer(&s.names[i]))
		s.headers[i].Namelen = unix.SizeofSockaddrInet6
		s.headers[i].Iov = &s.iovecs[i]
		s.headers[i].SetIovlen(1)
	}
	if err := s.raw.Read(s.onRead); err != nil {
		return 0, err
	}
	if s.errno != 0 {
		return 0, os.NewSyscallError("recvmmsg", s.errno)
	}
	for i := range s.n {
		ps[i].n, ps[i].from = int(s.headers[i].len), from(&s.names[i])
	}
	return s.n, nil
}

func (s *batched) receive(fd uintptr) bool {
	for {
		n, _, errno := unix.Syscall6(unix.SYS_RECVMMSG, fd, uintptr(unsafe.Pointer(&s.headers[0])), batchSize, 0, 0, 0)
		if errno == unix.EINTR {
			continue
		}
		s.n, s.errno = int(n), errno
		return errno != unix.EAGAIN
	}
}

// from returns what the system wrote into name.
func from(name *unix.RawSockaddrInet6) netip.AddrPort {
	port := (*[2]byte)(unsafe.Pointer(&name.Port)) // in the same place for both
	var ip netip.Addr
	switch name.Family {
	case unix.AF_INET:
		ip = netip.AddrFrom4((*unix.RawSockaddrInet4)(unsafe.Pointer(name)).Addr)
	case unix.AF_INET6:
		ip = netip.AddrFrom16(name.Addr).Unmap()
		if name.Scope_id != 0 {
			ip = ip.WithZone(strconv.FormatUint(uint64(name.Scope_id), 10))
		}
	}
	return netip.AddrPortFrom(ip, binary.BigEndian.Uint16(port[:]))
}

// letters are the memory for a write.
type letters struct {
	messages [batchSize]ipv4.Message
	bodies   [batchSize][1][]byte
}

func (s *batched) write(msgs [][]byte, to net.Addr) (n int, err error) {
	l := s.pool.Get().(*letters)
	defer s.pool.Put(l)
	defer clear(l.bodies[:])
	for n < len(msgs) && err == nil {
		batch := msgs[n:min(len(msgs), n+batchSize)]
		for i, m := range batch {
			l.bodies[i][0] = m
			l.messages[i] = ipv4.Message{Buffers: l.bodies[i][:], Addr: to}
		}
		var sent int
		sent, err = s.out.WriteBatch(l.messages[:len(batch)], unix.MSG_DONTWAIT)
		n += max(sent, 0)
	}
	return n, err
}
