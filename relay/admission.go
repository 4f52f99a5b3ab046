package relay

import (
	"net"
	"net/netip"
	"sync"
	"time"
)

// A gate admits connections to one dialect: so many of a source, so many new
// ones a second in all, shared fairly between sources.
type gate struct {
	perSource int
	perSecond float64

	mu      sync.Mutex
	open    map[netip.Prefix]int // connections
	tokens  float64              // within perSecond of zero
	updated time.Time
	recent  map[netip.Prefix]float64 // admitted in this second
	before  int                      // sources in the second before
	began   time.Time                // of this second
}

// recentMost bounds the sources remembered within a second: far more than are
// admitted in one.
const recentMost = 4096

func newGate(l *DialectLimits) *gate {
	return &gate{
		perSource: l.SourceConnections, perSecond: l.ConnectRate,
		open: make(map[netip.Prefix]int), recent: make(map[netip.Prefix]float64),
	}
}

// enter admits a connection, which has to leave. A nil Refusal admits.
func (g *gate) enter(src netip.Prefix, now time.Time) *Refusal {
	g.mu.Lock()
	defer g.mu.Unlock()
	if r := g.check(src, now); r != nil {
		return r
	}
	if g.perSecond > 0 {
		g.tokens--
		g.recent[src]++
	}
	g.open[src]++
	return nil
}

// peek says what enter would.
func (g *gate) peek(src netip.Prefix, now time.Time) *Refusal {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.check(src, now)
}

func (g *gate) check(src netip.Prefix, now time.Time) *Refusal {
	if g.perSource > 0 && src.IsValid() && g.open[src] >= g.perSource {
		return &Refusal{Code: CodeOverloaded, Reason: "too many connections from this source", RetryAfter: time.Second}
	}
	if g.perSecond <= 0 {
		return nil
	}
	if d := now.Sub(g.updated); d > 0 {
		g.tokens = min(g.perSecond, g.tokens+g.perSecond*d.Seconds())
		g.updated = now
	}
	if now.Sub(g.began) >= time.Second {
		g.before = len(g.recent)
		clear(g.recent)
		g.began = now
	}
	_, known := g.recent[src]
	sources := len(g.recent)
	if !known {
		sources++
	}
	// When there are few tokens left, they are for those who have not had their
	// share of this second; and those may leave the bucket in debt. One share is
	// kept for a newcomer.
	share := max(1, g.perSecond/float64(max(sources, g.before)+1))
	scarce := g.tokens < g.perSecond/3
	if scarce && g.recent[src]+1 > share || g.tokens <= -g.perSecond || !known && sources > recentMost {
		return &Refusal{Code: CodeOverloaded, Reason: "too many new connections", RetryAfter: time.Second}
	}
	return nil
}

func (g *gate) leave(src netip.Prefix) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.open[src]--; g.open[src] <= 0 {
		delete(g.open, src)
	}
}

// Source returns the prefix that stands for an address in limits and blocks: a
// single IPv4 address, or the /64 of an IPv6 one. It is invalid for media
// without IP addresses, which no source limit concerns.
func Source(a net.Addr) netip.Prefix {
	var ip netip.Addr
	switch a := a.(type) {
	case *net.TCPAddr:
		ip = a.AddrPort().Addr()
	case *net.UDPAddr:
		ip = a.AddrPort().Addr()
	case nil:
	default:
		ap, err := netip.ParseAddrPort(a.String())
		if err != nil {
			return netip.Prefix{}
		}
		ip = ap.Addr()
	}
	ip = ip.Unmap().WithZone("")
	bits := 32
	if ip.Is6() {
		bits = 64
	}
	p, _ := ip.Prefix(bits)
	return p
}

// unmapped returns a prefix of IPv4-mapped IPv6 addresses as one of IPv4.
func unmapped(p netip.Prefix) netip.Prefix {
	if a := p.Addr(); a.Is4In6() && p.Bits() >= 96 {
		return netip.PrefixFrom(a.Unmap(), p.Bits()-96)
	}
	return p
}

// Admit says whether a connection from an address would be admitted now: for
// media that can refuse before they have one, as at an HTTP upgrade. Nil admits.
func (h *handler) Admit(remote net.Addr) error {
	if r := h.s.turn(Source(remote), h.speaker.gate.peek); r != nil {
		return r
	}
	return nil
}

// turn checks all that may turn a connection away, with check of the gate last.
func (s *Server) turn(src netip.Prefix, check func(netip.Prefix, time.Time) *Refusal) *Refusal {
	now := time.Now()
	s.mu.Lock()
	closing := s.closing || s.draining
	blocked := s.blocked.has(src, now)
	full := s.unready >= s.limits.Unready
	s.mu.Unlock()
	switch {
	case closing:
		return &Refusal{Code: CodeGoingAway}
	case blocked:
		return &Refusal{Code: CodeDenied, Reason: "blocked"}
	case full:
		return &Refusal{Code: CodeOverloaded, Reason: "too many connections that have not logged in", RetryAfter: time.Second}
	}
	return check(src, now)
}

// A blocklist is a set of prefixes, each until a time.
type blocklist map[netip.Prefix]time.Time

func (b blocklist) has(src netip.Prefix, now time.Time) bool {
	if len(b) == 0 || !src.IsValid() {
		return false
	}
	for p, until := range b {
		if now.Before(until) && p.Overlaps(src) {
			return true
		}
	}
	return false
}

// Block turns connections from a prefix away for a time, and ends those that are
// there. A duration of zero or less lifts the block. It returns how many were
// ended.
func (s *Server) Block(p netip.Prefix, d time.Duration) int {
	s.init()
	p = unmapped(p).Masked()
	now := time.Now()
	s.mu.Lock()
	for q, until := range s.blocked {
		if !now.Before(until) {
			delete(s.blocked, q)
		}
	}
	if d <= 0 {
		delete(s.blocked, p)
		s.mu.Unlock()
		return 0
	}
	s.blocked[p] = now.Add(d)
	s.mu.Unlock()
	return s.Kick(Match{Source: p}, &Refusal{Code: CodeDenied, Reason: "blocked"})
}
