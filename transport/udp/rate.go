package udp

import (
	"net/netip"
	"sync"
	"time"
)

// A bucket lets so many things a second through, and as many at once as it holds.
// It is the time at which it will be full again, by the clock of the Listener. The
// zero value is full.
type bucket time.Duration

// take takes up to n out and returns how many that were. The bucket holds what it
// lets through in a time, depth.
func (b *bucket) take(n int, now time.Duration, perSecond int, depth time.Duration) int {
	each := time.Second / time.Duration(perSecond)
	full := max(time.Duration(*b), now)
	n = min(n, int((now+depth-full)/each))
	*b = bucket(full + time.Duration(n)*each)
	return n
}

// giveBack puts n of those back that were just taken.
func (b *bucket) giveBack(n, perSecond int) {
	*b -= bucket(time.Duration(n) * time.Second / time.Duration(perSecond))
}

// wait is the time until one can be taken.
func (b *bucket) wait(now time.Duration, perSecond int, depth time.Duration) time.Duration {
	return time.Duration(*b) + time.Second/time.Duration(perSecond) - depth - now
}

// mostSources bounds each of the two tables of sources.
const mostSources = 1 << 16

// sources meters what comes in by where it says that it comes from.
//
// A bucket that was not used for a second is full, and as good as none. So there
// are two tables, of the running second and the one before, and what is in
// neither is forgotten.
//
// When there are more sources in a second than a table holds, those that come
// late are not metered. A flood that can forge as many could send millions of
// datagrams a second within the rate, while turning away whoever is not in the
// table would turn away everybody.
type sources struct {
	perSecond int

	mu       sync.Mutex
	now, old map[uint64]bucket
	began    time.Duration
}

func newSources(perSecond int) *sources {
	return &sources{perSecond: perSecond, now: make(map[uint64]bucket), old: make(map[uint64]bucket)}
}

// allow counts one datagram.
func (s *sources) allow(a netip.Addr, now time.Duration) bool {
	k := sourceKey(a)
	s.mu.Lock()
	defer s.mu.Unlock()
	if now-s.began >= time.Second {
		s.now, s.old = s.old, s.now
		clear(s.now)
		s.began = now
	}
	b, ok := s.now[k]
	if !ok {
		if len(s.now) >= mostSources {
			return true
		}
		b = s.old[k]
	}
	if b.take(1, now, s.perSecond, time.Second) == 0 {
		return false
	}
	s.now[k] = b
	return true
}

// sourceKey is the IPv4 address, or the /64 of an IPv6 one. (The networks of IPv6
// that share a key with an IPv4 address are not in use.)
func sourceKey(a netip.Addr) (k uint64) {
	b := a.As16()
	part := b[:8]
	if a.Is4() {
		part = b[12:]
	}
	for _, c := range part {
		k = k<<8 | uint64(c)
	}
	return k
}
