package relay

import (
	"net/netip"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// levels remembers how much of its rate a session had used up when it ended, by
// where it came from and its address, until it would be nothing: so that a new
// connection buys nothing.
type levels struct {
	mu    sync.Mutex
	of    map[levelKey]*rate.Limiter
	swept time.Time
}

type levelKey struct {
	source  netip.Prefix
	address Address
}

// keepLevel is called at the end of a session. The caller holds p.loop.
func (p *Port) keepLevel() {
	if p.seat == nil || p.perMsg == nil || isFull(p.perMsg) {
		return
	}
	l := &p.s.levels
	l.mu.Lock()
	defer l.mu.Unlock()
	if now := time.Now(); now.Sub(l.swept) > time.Second {
		l.swept = now
		for k, old := range l.of {
			if isFull(old) {
				delete(l.of, k)
			}
		}
	}
	if l.of == nil {
		l.of = make(map[levelKey]*rate.Limiter)
	}
	l.of[levelKey{p.source, p.seat.addr}] = p.perMsg
}

// resumeLevel goes on where the session before this one was. The caller holds
// p.loop, and reads.
func (p *Port) resumeLevel() {
	if p.perMsg == nil {
		return
	}
	l := &p.s.levels
	l.mu.Lock()
	defer l.mu.Unlock()
	k := levelKey{p.source, p.seat.addr}
	if old := l.of[k]; old != nil && old.Tokens() < p.perMsg.Tokens() {
		p.perMsg = old
	}
	delete(l.of, k)
}

func isFull(l *rate.Limiter) bool { return l.Tokens() >= float64(l.Burst()) }
