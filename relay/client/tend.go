package client

import (
	"time"

	"github.com/sotto-relay/sotto/frame"
)

// retryTime is for how long a message is sent again. Recipients rely on it when
// they forget ids after 14 days (spec native.md, "Delivery").
const retryTime = 7 * 24 * time.Hour

// quietTime is how long a relay with an inbox needs at most to say more than
// Handed: what has not been acknowledged for 10 s it stores. When it does not, the
// recipient's session is one that acknowledges nothing.
const quietTime = 15 * time.Second

// isFinal says whether no better receipt is to be waited for.
func (o *outbox) isFinal(p *pending) bool {
	switch {
	case p.best == Written:
		return true
	case p.isFleeting():
		return p.best >= Handed
	case p.until == Read:
		return p.best == Read
	}
	return p.safe
}

func (p *pending) isQuiet(now time.Time) bool { return !p.quietAt.IsZero() && !p.quietAt.After(now) }

// keeps says whether there is room for what has a receipt, after some of it was
// let go if need be.
func (o *outbox) keeps(p *pending) bool {
	now := time.Now()
	for e := o.all.Front(); e != nil && !o.kept.takes(p, o.maxKept); {
		q, after := e.Value.(*pending), e.Next()
		if q.stage == kept && (q.told && q.best == Stored || q.isQuiet(now)) {
			o.letGo(e)
		}
		e = after
	}
	return o.kept.takes(p, o.maxKept)
}

// tend ends what is too old, and lets go of what the relay says no more of: if
// others than we can have read it, since a repeat is none to a recipient that
// acknowledges nothing, and remembers nothing. Sealed messages never go to those.
func (o *outbox) tend() {
	o.update(func() {
		now := time.Now()
		var next time.Time
		for e := o.all.Front(); e != nil; {
			p, after := e.Value.(*pending), e.Next()
			end := p.made.Add(retryTime)
			switch {
			case !end.After(now):
				o.tell(p, ErrExpired)
				o.remove(e)
			case p.isQuiet(now) && p.frame.Type != frame.TypeSealed:
				o.letGo(e)
			default:
				if p.quietAt.After(now) {
					end = p.quietAt
				}
				if next.IsZero() || end.Before(next) {
					next = end
				}
			}
			e = after
		}
		o.wake()
		o.due = time.Time{}
		if !next.IsZero() {
			o.tendAt(next)
		}
	})
}

// tendAt has tend run at a time, or up to a second later.
func (o *outbox) tendAt(at time.Time) {
	if o.closed != nil || !o.due.IsZero() && !at.Before(o.due) {
		return
	}
	o.due = at
	d := max(time.Until(at), time.Second)
	if o.timer == nil {
		o.timer = time.AfterFunc(d, o.tend)
	} else {
		o.timer.Reset(d)
	}
}
