package mailbox

import (
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/sotto-relay/sotto/crypto"
	"github.com/sotto-relay/sotto/internal/netaddr"
	"github.com/sotto-relay/sotto/relay"
)

// remote returns the address of the client, or nil.
func (h *handler) remote(r *http.Request) net.Addr {
	ap, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return nil // a Unix socket, say
	}
	peer := net.TCPAddrFromAddrPort(ap)
	if client := netaddr.Forwarded(peer, r.Header.Values("X-Forwarded-For"), h.TrustedProxies); client != nil {
		return client
	}
	return peer
}

// admit says whether a request may begin, before anything of it is looked at: so a
// flood of signatures that do not verify costs nothing.
func (h *handler) admit(remote net.Addr) error {
	if err := h.admitter.Admit(remote); err != nil {
		return refusalOf(relay.AsRefusal(err).Code)
	}
	if h.srv.Load() == relay.Overloaded {
		return refusalOf(relay.CodeOverloaded)
	}
	if !h.sources.allow(relay.Source(remote)) {
		return later(http.StatusTooManyRequests, "too many requests", time.Second)
	}
	return nil
}

// sources meter requests by their source. One that has made none for long enough
// to have its whole burst again is forgotten.
type sources struct {
	rate  float64 // zero: not metered
	burst int
	most  int // sources that are remembered; beyond, some are forgotten early

	mu          sync.Mutex
	recent, old map[netip.Prefix]*rate.Limiter
	turned      time.Time // when recent became old
}

func (s *sources) allow(src netip.Prefix) bool {
	if s.rate <= 0 || !src.IsValid() {
		return true
	}
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	full := time.Duration(float64(s.burst) / s.rate * float64(time.Second))
	if now.Sub(s.turned) > full || len(s.recent) >= s.most {
		s.old, s.recent, s.turned = s.recent, make(map[netip.Prefix]*rate.Limiter), now
	}
	l := s.recent[src]
	if l == nil {
		if l = s.old[src]; l == nil {
			l = rate.NewLimiter(rate.Limit(s.rate), s.burst)
		}
		s.recent[src] = l
	}
	return l.AllowN(now, 1)
}

// A share is an amount of something that users take parts of, each of them no more
// than a part of the whole.
type share[User comparable] struct {
	all, each int64

	mu   sync.Mutex
	used map[User]int64
	sum  int64
}

// take takes n more for a user, or says that there is not so much.
func (s *share[User]) take(u User, n int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sum+n > s.all || s.used[u]+n > s.each {
		return false
	}
	if s.used == nil {
		s.used = make(map[User]int64)
	}
	s.used[u] += n
	s.sum += n
	return true
}

func (s *share[User]) giveBack(u User, n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sum -= n
	if s.used[u] -= n; s.used[u] == 0 {
		delete(s.used, u)
	}
}

// wait takes a place among the requests that wait, for a key.
func (h *handler) wait(key crypto.PublicKey) (leave func(), err error) {
	if !h.waiting.take(key, 1) {
		return nil, later(http.StatusTooManyRequests, "too many requests are waiting", 10*time.Second)
	}
	return func() { h.waiting.giveBack(key, 1) }, nil
}
