package disk

import (
	"time"

	"github.com/sotto-relay/sotto/inbox"
)

// A clock is the wall clock at Open plus what the monotonic clock has counted
// since, so setting the wall clock while the process runs neither loses entries
// nor brings any back (spec inbox.md, Time). Durations count from Open.
type clock struct {
	opened time.Time // as read, with its monotonic reading
	base   time.Time // what is taken for it, without
}

// newClock takes the last recorded time for a wall clock that is behind it.
func newClock(recorded time.Time) clock {
	c := clock{opened: time.Now()}
	c.base = c.opened.Round(0)
	if c.base.Before(recorded) {
		c.base = recorded
	}
	return c
}

func (c *clock) now() time.Duration { return time.Since(c.opened) }

// wall returns now as a time to record.
func (c *clock) wall() time.Time { return c.base.Add(c.now()) }

// since counts from Open. A time that was made with time.Now().Add(d) means d
// from then on, whatever the wall clock does; one without a monotonic reading is
// taken as it stands. The result saturates.
func (c *clock) since(t time.Time) time.Duration {
	if t != t.Round(0) { // Round strips the monotonic reading
		return t.Sub(c.opened)
	}
	return t.Sub(c.base)
}

// expiry is since for the time of an entry, of which zero means never.
func (c *clock) expiry(t time.Time) time.Duration {
	if t.IsZero() {
		return inbox.Never
	}
	return c.since(t)
}

// fix returns t as a time that means the same after a restart.
func (c *clock) fix(t time.Time) time.Time {
	if t != t.Round(0) {
		return c.base.Add(t.Sub(c.opened))
	}
	return t
}
