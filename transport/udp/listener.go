package udp

import (
	"errors"
	"hash/maphash"
	"maps"
	"net"
	"net/netip"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/sotto-relay/sotto/transport"
)

// A Listener has the sessions of its sockets. Its methods may be called
// concurrently.
type Listener struct {
	options Options
	sockets []socket
	begun   time.Time
	start   sync.Once
	backlog chan *conn
	count   counters
	rates   *sources
	queues  sync.Pool // of *queue
	seed    maphash.Seed

	// mu guards what says where sessions are: this, and fields of theirs. It is
	// taken before a session's own.
	mu       sync.Mutex
	conns    map[*conn]struct{}
	bySource map[netip.AddrPort]*conn
	byToken  map[uint64]*conn // by a hash that nobody outside can compute
	closed   chan struct{}
	err      error // of Accept; set before closed is closed
}

var _ transport.Listener = (*Listener)(nil)

// NewListener returns a listener for the sessions of sockets, which it closes when
// it has been closed and the last of its sessions has ended. A socket is a
// net.UDPConn, or anything else with addresses that are *net.UDPAddr.
func NewListener(sockets []net.PacketConn, o *Options) *Listener {
	l := &Listener{
		options:  o.withDefaults(),
		begun:    time.Now(),
		conns:    make(map[*conn]struct{}),
		seed:     maphash.MakeSeed(),
		bySource: make(map[netip.AddrPort]*conn),
		byToken:  make(map[uint64]*conn),
		closed:   make(chan struct{}),
	}
	l.backlog = make(chan *conn, l.options.Backlog)
	l.rates = newSources(l.options.SourceRate)
	l.queues.New = func() any { return new(queue) }
	for _, s := range sockets {
		l.sockets = append(l.sockets, newSocket(s))
	}
	return l
}

// now is the time by the listener's clock.
func (l *Listener) now() time.Duration { return time.Since(l.begun) }

// Addr returns the address of the first socket.
func (l *Listener) Addr() net.Addr { return l.sockets[0].LocalAddr() }

// Accept waits for a datagram that opens a session. After Close the error is
// net.ErrClosed. When a socket has failed for good, it is that socket's error, and
// all sessions end.
func (l *Listener) Accept() (transport.Conn, error) {
	l.start.Do(func() {
		for _, s := range l.sockets {
			go l.read(s)
		}
	})
	select {
	case <-l.closed:
		return nil, l.err
	default:
	}
	select {
	case c := <-l.backlog:
		return c, nil
	case <-l.closed:
		return nil, l.err
	}
}

// Close ends every Accept, and the sessions that nobody has accepted. Those that
// were go on. It does not wait.
func (l *Listener) Close() error {
	l.close(net.ErrClosed)
	for {
		select {
		case c := <-l.backlog:
			c.Close(transport.CloseGoingAway, "")
		default:
			return nil
		}
	}
}

func (l *Listener) close(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err == nil {
		l.err = err
		close(l.closed)
		l.release()
	}
}

// release closes the sockets if nobody needs them any more. It is called with mu
// held.
func (l *Listener) release() {
	if l.err != nil && len(l.conns) == 0 {
		for _, s := range l.sockets {
			s.Close()
		}
	}
}

// read reads from a socket until that is closed, or fails again and again.
func (l *Listener) read(s socket) {
	ps := newPackets()
	const tries = 10
	for failed := 0; failed < tries; {
		n, err := s.read(ps)
		switch {
		case errors.Is(err, net.ErrClosed):
			failed = tries
		case err != nil: // of something that was sent, perhaps
			time.Sleep(time.Millisecond << failed)
			failed++
		default:
			failed = 0
		}
		if failed == tries {
			l.fail(err)
		}
		l.count.received.Add(int64(n))
		now := l.now()
		for _, p := range ps[:n] {
			l.receive(s, p.from, p.buf[:p.n:p.n], now)
		}
	}
}

// fail ends everything that has not ended.
func (l *Listener) fail(err error) {
	l.close(err)
	l.mu.Lock()
	conns := slices.Collect(maps.Keys(l.conns))
	l.mu.Unlock()
	for _, c := range conns {
		c.end(err)
	}
}

// receive brings a datagram to its session.
func (l *Listener) receive(s socket, from netip.AddrPort, datagram []byte, now time.Duration) {
	if !l.rates.allow(from.Addr(), now) {
		l.count.limited.Add(1)
		return
	}
	if len(datagram) == 0 {
		l.count.empty.Add(1)
		return
	}
	open, name, token := l.options.Demux(datagram)
	var c *conn // locked
	switch {
	case open && len(datagram) > l.options.MaxDatagram:
		l.count.tooLarge.Add(1)
	case open:
		if c = l.opening(from); c == nil {
			l.count.refused.Add(1)
		}
	case len(name)+len(token) > 0:
		if c = l.paired(name, token, from); c == nil {
			l.count.wrongPair.Add(1)
		}
	default:
		l.answer(s, from, datagram)
	}
	if c != nil {
		c.arrived(s, datagram, now)
		c.mu.Unlock()
	}
}

// answer sends an answer that needs no session.
func (l *Listener) answer(s socket, to netip.AddrPort, datagram []byte) {
	var a []byte
	if l.options.Answer != nil {
		a = l.options.Answer(datagram)
	}
	if len(a) == 0 || len(a) > credit*len(datagram) {
		l.count.unanswered.Add(1)
		return
	}
	l.send(s, [][]byte{a}, net.UDPAddrFromAddrPort(to))
}

// send sends datagrams to one address, and returns how many are done with: sent,
// or lost. The others the socket has no room for.
func (l *Listener) send(s socket, msgs [][]byte, to net.Addr) (done int) {
	for done < len(msgs) {
		n, err := s.write(msgs[done:], to)
		l.count.sent.Add(int64(n))
		done += n
		if errors.Is(err, syscall.EAGAIN) {
			break
		}
		if err != nil {
			l.count.unsent.Add(1)
			done++
		}
	}
	return done
}
