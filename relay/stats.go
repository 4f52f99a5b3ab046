package relay

import (
	"sync"
	"sync/atomic"
)

// Stats counts messages in copies, one a recipient. At any moment at which
// nothing is moving
//
//	Accepted + Found = Delivered + Expired + Dropped + Held
//
// What was refused at the door is in Refused and nowhere else.
type Stats struct {
	Accepted  uint64
	Found     uint64 // in the inbox at the start
	Delivered uint64 // written to a connection
	Expired   uint64 // unread in the inbox
	Dropped   uint64 // the sum of DroppedBy
	DroppedBy map[string]uint64
	Held      int64 // in outboxes, on the way to the inbox, and in it
	Refused   uint64
	Ignored   map[string]uint64 // by dialect and what it was; no messages of the sum above

	Sessions int // connections that are open

	// Connections that ended, and that were turned away before they were any, by
	// the names of codes; "none" stands for a peer that went. All codes are there.
	Ended    map[string]uint64
	Turned   map[string]uint64
	Messages uint64 // received from connections, whatever became of them
}

// reason says why an accepted message was dropped.
type reason int

const (
	dropSlow    reason = iota // a publication made room for a newer one
	dropGone                  // the connection ended, and nothing stores it
	dropEvicted               // the oldest of a full inbox
	dropRepeat                // the inbox had it already
	dropRefused               // it was on its way back to the inbox, which refused
	dropErased                // its recipient had its inbox erased
	reasons
)

var reasonNames = [reasons]string{"slow", "gone", "evicted", "repeat", "refused", "erased"}

// counters are updated where things happen. Those of the hot path stand apart
// so that two cores don't share their cache lines.
type counters struct {
	accepted  padded
	delivered padded
	queued    padded // live messages in outboxes
	messages  padded
	storing   atomic.Int64 // accepted messages on the way to the inbox
	stored    atomic.Int64
	found     atomic.Int64
	expired   atomic.Int64
	refused   atomic.Int64
	ended     codeCounters
	turned    codeCounters
	dropped   [reasons]atomic.Int64
	ignored   sync.Map // string to *atomic.Int64
}

// codeCounters count by Code. One that is not in the table counts as internal.
type codeCounters [len(codeNames)]atomic.Int64

func (c *codeCounters) add(code Code) {
	if int(code) >= len(c) {
		code = CodeInternal
	}
	c[code].Add(1)
}

func (c *counters) ignore(what string) {
	n, ok := c.ignored.Load(what)
	if !ok {
		n, _ = c.ignored.LoadOrStore(what, new(atomic.Int64))
	}
	n.(*atomic.Int64).Add(1)
}

type padded struct {
	atomic.Int64
	_ [56]byte
}

// Stats returns the counters. It may be called at any time.
func (s *Server) Stats() Stats {
	c := &s.count
	st := Stats{
		Accepted:  uint64(c.accepted.Load()),
		Found:     uint64(c.found.Load()),
		Delivered: uint64(c.delivered.Load()),
		Expired:   uint64(c.expired.Load()),
		Held:      c.queued.Load() + c.storing.Load() + c.stored.Load(),
		Refused:   uint64(c.refused.Load()),
		Messages:  uint64(c.messages.Load()),
		Ended:     make(map[string]uint64),
		Turned:    make(map[string]uint64),
		DroppedBy: make(map[string]uint64),
		Ignored:   make(map[string]uint64),
	}
	c.ignored.Range(func(what, n any) bool {
		st.Ignored[what.(string)] = uint64(n.(*atomic.Int64).Load())
		return true
	})
	for i := range c.dropped {
		n := uint64(c.dropped[i].Load())
		st.DroppedBy[reasonNames[i]] = n
		st.Dropped += n
	}
	for code, name := range codeNames {
		st.Ended[name] = uint64(c.ended[code].Load())
		st.Turned[name] = uint64(c.turned[code].Load())
	}
	s.mu.Lock()
	st.Sessions = len(s.ports)
	s.mu.Unlock()
	return st
}
