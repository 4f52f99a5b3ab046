package brep

import (
	"github.com/sotto-relay/sotto/frame"
	"github.com/sotto-relay/sotto/relay"
)

const pingSize = 8

// silentHalves is how many whole halves of a PingInterval a peer may be silent.
const silentHalves = 5

// life notes whether the peer is there (spec brep.md, "Errors seen by a peer").
// What is sent to it does not count.
type life struct {
	heard  bool // since the last look
	halves int  // looks at intervals of half a PingInterval
	silent int  // of those, since it was heard
}

func (s *session) watchLife() {
	if half := s.dialect.PingInterval / 2; half > 0 {
		s.port.After(half, s.lookForLife)
	}
}

func (s *session) lookForLife() {
	l := &s.life
	l.silent++
	if l.heard {
		l.heard, l.silent = false, 0
	}
	if l.silent >= silentHalves {
		s.port.End(&relay.Refusal{Code: relay.CodeGoingAway, Reason: "nothing heard for too long"})
		return
	}
	if l.halves++; l.halves%2 == 0 {
		s.reply(frame.TypePing, 0, make([]byte, pingSize))
	}
	s.watchLife()
}
