// Package acceptor accepts connections that begin with something that takes time
// (a TLS handshake, a PROXY header), so that none holds up the others.
package acceptor

import (
	"container/list"
	"errors"
	"net"
	"sync"
	"time"
)

// ErrCrowded is what a connection is refused with that had taken longer than all
// others when there were too many.
var ErrCrowded = errors.New("too many connections are beginning")

// A Listener hands out connections that have begun.
//
// The first Accept starts a goroutine that accepts connections, and there is one
// for each that is beginning. All end after Close.
type Listener struct {
	net.Listener
	config Config

	start sync.Once
	ready chan net.Conn
	fails chan error

	mu        sync.Mutex
	closed    chan struct{}
	isClosed  bool
	beginning list.List // of net.Conn, the longest waiting first
}

// A Config says how connections begin. All fields but Refused must be set.
type Config struct {
	// Begin does what has to be done and returns the connection to hand out. It
	// runs on a goroutine of its own, with a deadline for reading and writing
	// that is Timeout away and lifted afterwards. If it fails, or if the
	// connection has to go, nc is closed, which ends what Begin waits for.
	Begin   func(nc net.Conn) (net.Conn, error)
	Timeout time.Duration

	// Max bounds the connections that have been accepted and not handed out. One
	// more closes the one that has waited longest: so those that never get on
	// keep out only others of their kind.
	Max int

	// Refused, if not nil, is told of connections that did not get through. It
	// may be called concurrently.
	Refused func(peer net.Addr, err error)
}

// New returns a Listener of the connections of l.
func New(l net.Listener, c Config) *Listener {
	return &Listener{
		Listener: l,
		config:   c,
		ready:    make(chan net.Conn),
		fails:    make(chan error),
		closed:   make(chan struct{}),
	}
}

// Accept returns a connection that has begun, an error of the listener below, or
// net.ErrClosed.
func (l *Listener) Accept() (net.Conn, error) {
	l.start.Do(func() { go l.run() })
	select {
	case <-l.closed:
		return nil, net.ErrClosed
	default:
	}
	select {
	case nc := <-l.ready:
		return nc, nil
	case err := <-l.fails:
		return nil, err
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Close closes the listener below and every connection that was not handed out.
func (l *Listener) Close() error {
	l.mu.Lock()
	var left []net.Conn
	if !l.isClosed {
		l.isClosed = true
		close(l.closed)
		for e := l.beginning.Front(); e != nil; e = e.Next() {
			left = append(left, e.Value.(net.Conn))
		}
	}
	l.mu.Unlock()
	err := l.Listener.Close()
	for _, nc := range left {
		nc.Close()
	}
	return err
}

// run accepts until the Listener is closed. After a failure it waits until that
// was returned by Accept: whoever calls that knows whether to try again.
func (l *Listener) run() {
	for {
		nc, err := l.Listener.Accept()
		if err == nil {
			l.admit(nc)
			continue
		}
		select {
		case l.fails <- err:
		case <-l.closed:
			return
		}
	}
}

func (l *Listener) admit(nc net.Conn) {
	l.mu.Lock()
	if l.isClosed {
		l.mu.Unlock()
		nc.Close()
		return
	}
	var oldest net.Conn
	if l.beginning.Len() >= l.config.Max {
		oldest = l.beginning.Remove(l.beginning.Front()).(net.Conn)
	}
	e := l.beginning.PushBack(nc)
	l.mu.Unlock()
	if oldest != nil {
		oldest.Close()
		l.refused(oldest, ErrCrowded)
	}
	go l.begin(nc, e)
}

func (l *Listener) begin(nc net.Conn, e *list.Element) {
	nc.SetDeadline(time.Now().Add(l.config.Timeout))
	begun, err := l.config.Begin(nc)
	if err == nil {
		err = nc.SetDeadline(time.Time{})
	}
	if err == nil {
		select {
		case l.ready <- begun:
		case <-l.closed: // and so is nc
		}
	} else {
		nc.Close()
	}
	if l.forget(e) && err != nil {
		l.refused(nc, err)
	}
}

// forget removes e and says whether it was there: neither removed to make room
// nor closed with the Listener.
func (l *Listener) forget(e *list.Element) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	before := l.beginning.Len()
	l.beginning.Remove(e)
	return l.beginning.Len() < before && !l.isClosed
}

func (l *Listener) refused(nc net.Conn, err error) {
	if l.config.Refused != nil {
		l.config.Refused(nc.RemoteAddr(), err)
	}
}
