package ws

import (
	"net"
	"os"
	"sync"
	"time"
)

// A buffered outlet is for connections that cannot be written without waiting,
// or that do not survive a write that timed out, as TLS: what it takes is
// copied, and a goroutine that lives no longer than there is something to do
// writes it. So its deadline is that of the taking.
type buffered struct {
	conn  net.Conn
	pools *pools

	mu       sync.Mutex
	changed  sync.Cond
	busy     bool // the goroutine runs
	err      error
	deadline deadline
}

func newBuffered(c net.Conn, p *pools) *buffered {
	o := &buffered{conn: c, pools: p}
	o.changed.L = &o.mu
	return o
}

// put takes all of b (at most writeSize bytes) or nothing.
func (o *buffered) put(b []byte, wait bool) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for {
		switch {
		case o.err != nil:
			return 0, o.err
		case wait && o.deadline.passed:
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

func (o *buffered) flush(buf *[writeSize]byte, n int) {
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

func (o *buffered) setDeadline(t time.Time) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.deadline.set(t, &o.changed)
	return nil
}

func (o *buffered) flushed() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	for o.busy {
		o.changed.Wait()
	}
	return o.err
}

// A deadline wakes whoever waits on a sync.Cond. The Cond's lock guards it.
type deadline struct {
	at     time.Time
	passed bool
	timer  *time.Timer // made at first use
}

func (d *deadline) set(t time.Time, c *sync.Cond) {
	if d.timer != nil {
		d.timer.Stop()
	}
	d.at, d.passed = t, false
	if t.IsZero() {
		return
	}
	left := time.Until(t)
	switch {
	case left <= 0:
		d.passed = true
		c.Broadcast()
	case d.timer != nil:
		d.timer.Reset(left)
	default:
		d.timer = time.AfterFunc(left, func() {
			c.L.Lock()
			defer c.L.Unlock()
			// The timer may have fired just before it was stopped or set anew.
			if !d.at.IsZero() && !time.Now().Before(d.at) {
				d.passed = true
				c.Broadcast()
			}
		})
	}
}
