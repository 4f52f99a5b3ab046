package relay

import (
	"context"
	"iter"
	"net/netip"
	"time"
)

// A SessionInfo is a snapshot of a session.
type SessionInfo struct {
	ConnInfo
	Address Address // zero: none yet
	Waiting int     // bytes in its outbox
}

// Sessions yields the sessions that are there, in no order. No lock is held
// meanwhile.
func (s *Server) Sessions() iter.Seq[SessionInfo] {
	return func(yield func(SessionInfo) bool) {
		for _, p := range s.allPorts() {
			i := SessionInfo{ConnInfo: p.Info(), Waiting: p.out.load()}
			if a := p.address.Load(); a != nil {
				i.Address = *a
			}
			if !yield(i) {
				return
			}
		}
	}
}

func (s *Server) allPorts() []*Port {
	s.init()
	s.mu.Lock()
	defer s.mu.Unlock()
	ports := make([]*Port, 0, len(s.ports))
	for p := range s.ports {
		ports = append(ports, p)
	}
	return ports
}

// A Match picks sessions: those that fit all of its fields that are set. One
// with none picks none.
type Match struct {
	Address Address
	Conn    uint64 // ConnInfo.ID
	Source  netip.Prefix
}

func (m Match) fits(p *Port) bool {
	if m == (Match{}) {
		return false
	}
	if m.Address != (Address{}) {
		if a := p.address.Load(); a == nil || *a != m.Address {
			return false
		}
	}
	src := p.source
	return (m.Conn == 0 || m.Conn == p.id) && (!m.Source.IsValid() || src.IsValid() && m.Source.Overlaps(src))
}

// kickGrace is how long a session that is kicked may take for its last words.
const kickGrace = 50 * time.Millisecond

// Kick ends sessions now: revocation. It returns how many, when their addresses
// are free and their connections closed. A nil reason is CodeDenied.
func (s *Server) Kick(who Match, why *Refusal) int {
	if why == nil {
		why = &Refusal{Code: CodeDenied}
	}
	who.Source = unmapped(who.Source)
	var kicked []*Port
	ctx, cancel := context.WithTimeout(context.Background(), kickGrace)
	defer cancel()
	for _, p := range s.allPorts() {
		if who.fits(p) {
			kicked = append(kicked, p)
			go p.endWithin(ctx, why)
		}
	}
	for _, p := range kicked {
		<-p.ended
	}
	return len(kicked)
}
