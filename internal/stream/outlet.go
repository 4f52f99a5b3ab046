package stream

import (
	"net"
	"os"
	"sync"
	"time"

	"github.com/sotto-relay/sotto/internal/deadline"
)

// An Outlet takes bytes for the peer. Only SetDeadline may be called
// concurrently with another of its methods.
type Outlet interface {
	// Put takes at most WriteSize bytes and retains nothing. With wait it waits
	// until it can take at least one, or the deadline has passed
	// (os.ErrDeadlineExceeded); without, it takes 0 if it cannot.
	Put(b []byte, wait bool) (int, error)

	// Flushed waits until what was taken has been handed to the kernel.
	Flushed() error

	SetDeadline(t time.Time) error
}

// A buffered outlet is for connections that cannot be written without waiting,
// or that do not survive a write that timed out, as TLS: what it takes is
// copied, and a goroutine that lives no longer than there is something to do
// writes it. So its deadline is that of the taking.
type buffered struct {
	conn  net.Conn
	pools *Pools

	mu       sync.Mutex
	changed  sync.Cond
	busy     bool // the goroutine runs
	err      error
	deadline deadline.Deadline
}

func newBuffered(c net.Conn, p *Pools) *buffered {
	o := &buffered{conn: c, pools: p}
	o.changed.L = &o.mu
	return o
}

// Put takes all of b (at most WriteSize bytes) or nothing.
func (o *buffered) Put(b []byte, wait bool) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for {
		switch {
		case o.err != nil:
			return 0, o.err
		case wait && o.deadline.Passed():
			return 0, os.ErrDeadlineExceeded
		case !o.busy:
			buf := o.pools.writeBuffer()
			o.busy = true
			go o.flush(buf, copy(buf[:], b))
			return len(b), nil
		case !wait:
			return 0, nil
		}
		o.changed.Wait()
	}
}

func (o *buffered) flush(buf *[WriteSize]byte, n int) {
	_, err := o.conn.Write(buf[:n])
	o.pools.releaseWrite(buf)
	o.mu.Lock()
	defer o.mu.Unlock()
	o.busy = false
	if o.err == nil {
		o.err = err
	}
	o.changed.Broadcast()
}

func (o *buffered) SetDeadline(t time.Time) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.deadline.Set(t, &o.changed)
	return nil
}

func (o *buffered) Flushed() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	for o.busy {
		o.changed.Wait()
	}
	return o.err
}
