package relay

import "runtime/debug"

// A Trace watches a Server. Functions may be nil, may be called concurrently,
// and must return soon: they run where things happen. So they must not call what
// waits for sessions to end (Kick, Block, Drain, Shutdown, Close), except in a
// goroutine of their own. They cannot change anything, and one that panics is
// logged.
type Trace struct {
	Opened  func(ConnInfo)           // a connection was admitted
	Claimed func(ConnInfo, Address)  // a session has an address
	Closed  func(ConnInfo, *Refusal) // a connection has ended; CodeNone: the peer went
	Turned  func(ConnInfo, *Refusal) // a connection was turned away before it was one
	Load    func(Tier)               // the load tier changed
}

func (s *Server) watch(f func(*Trace)) {
	if s.Trace == nil {
		return
	}
	defer func() {
		if v := recover(); v != nil {
			s.log.Error("trace panicked", "panic", v, "stack", string(debug.Stack()))
		}
	}()
	f(s.Trace)
}
