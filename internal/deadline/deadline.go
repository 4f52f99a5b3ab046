// Package deadline makes a wait on a sync.Cond end at a time that may be moved.
// It makes timers only, no goroutine, and works in a testing/synctest bubble.
package deadline

import (
	"sync"
	"time"
)

// A Deadline wakes whoever waits on a sync.Cond once its time has come. All of
// its methods are called with the Cond's lock held, and always with the same
// Cond. The zero value never passes.
type Deadline struct {
	at     time.Time
	passed bool
	timer  *time.Timer // made at first use
}

// Passed says whether the time has come.
func (d *Deadline) Passed() bool { return d.passed }

// Set moves the deadline to t; the zero time stands for none.
func (d *Deadline) Set(t time.Time, c *sync.Cond) {
	d.Stop()
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

// Stop ends the timer. The deadline stays as passed, or as far off, as it is.
func (d *Deadline) Stop() {
	if d.timer != nil {
		d.timer.Stop()
	}
}
