package relay

import (
	"bytes"
	"strings"
)

// A Forwarder brings messages to recipients who are connected to another relay,
// and hears of what it has to know for that. Its methods are called from any
// goroutine, must not block, and may be called under locks of the server's: before
// they return they call nothing of the server but Online and Waiting, and Release of its
// Inbox.
type Forwarder interface {
	Follower

	// Forward takes a message whose recipient has no session here, or one that comes
	// behind such messages, and calls its Settle or Return once, later. False: it
	// does not carry messages of this kind.
	Forward(*Forwarded) bool

	// Comes says that an address is about to get a session. Entries of its inbox that
	// are leased for another relay are released when it returns, or what is new would
	// come before them.
	Comes(Address)

	// Came and Went say that an address has got a session, and has none any more.
	// At the time of the call that may have changed again (Server.Online).
	Came(Address)
	Went(Address)

	// Kept says that a message has been stored for an address without a session.
	Kept(Address)

	// Stop returns everything, and forwards nothing afterwards. It is called without
	// locks, when there are no sessions any more, and returns when it is done.
	Stop()
}

// A Forwarded is a message in the hands of a Forwarder, with a copy of all that the
// Message points to.
type Forwarded struct {
	Message

	s    *Server
	by   origin
	seat *seat
}

// forward gives m to the Forwarder, if the recipient is not here, or if messages
// that were given to it before could still come before m.
func (s *Server) forward(m *Message, by origin, o offer) bool {
	if s.Mesh == nil || o != absent {
		return false
	}
	st := s.router.acquire(m.To)
	st.mu.Lock()
	if st.port != nil && st.away == 0 {
		st.mu.Unlock()
		s.router.release(st)
		return false
	}
	// To a session that comes now it is as a put in progress: nothing goes live
	// before it.
	st.away++
	st.puts++
	st.mu.Unlock()
	f := &Forwarded{Message: *m, s: s, by: by, seat: st}
	f.To = st.addr
	f.From.Name = strings.Clone(m.From.Name)
	f.Data, f.Note = bytes.Clone(m.Data), bytes.Clone(m.Note)
	if !s.Mesh.Forward(f) {
		f.ended()
		return false
	}
	return true
}

// comes, came and went tell the Forwarder of a seat's session.
func (s *Server) comes(st *seat) {
	if s.Mesh != nil && !s.online(st.addr) {
		s.Mesh.Comes(st.addr)
	}
}

func (s *Server) came(st *seat) {
	if s.Mesh != nil {
		s.Mesh.Came(st.addr)
	}
}

func (s *Server) went(st *seat) {
	if s.Mesh != nil && !s.online(st.addr) {
		s.Mesh.Went(st.addr)
	}
}

// Settle says what became of the message elsewhere.
func (f *Forwarded) Settle(o Outcome) {
	c := &f.s.count
	if o.Status == Refused {
		c.refused.Add(1)
	} else {
		c.accepted.Add(1)
		c.delivered.Add(1)
	}
	f.ended()
	f.tell(o)
}

// Return gives the message back: it is for a session here if there is one now, else
// for the inbox. Messages for one recipient that are returned one after the other
// keep their order.
func (f *Forwarded) Return() {
	o := f.seat.offer(&f.Message, f.by)
	result := Outcome{Status: Delivered}
	if o != offered {
		result = f.s.store(&f.Message, f.by, o)
	}
	f.ended()
	if result.Status != Pending {
		f.tell(result)
	}
}

func (f *Forwarded) ended() {
	st := f.seat
	st.mu.Lock()
	st.away--
	st.mu.Unlock()
	f.s.putDone(st, 0, false)
	f.s.router.release(st)
}

func (f *Forwarded) tell(o Outcome) {
	f.by.settled(Receipt{To: f.To, ID: f.ID, Flags: f.Flags, Note: f.Note, Outcome: o})
}

// Arrive brings a message that another relay has sent on to its recipient, if that
// has a session here; else it is refused with CodeNotHere. m.From is whoever the
// other relay says.
func (p *Port) Arrive(m *Message) Outcome {
	s := p.s
	m.received = s.now()
	if s.screens(m) {
		return s.refuse(CodeDenied)
	}
	if r := p.askArrived(m); r != nil {
		return s.refuse(r.Code)
	}
	if st := s.router.find(m.To); st != nil {
		st.copyToOthers(m, p)
		o := st.offer(m, p)
		if o == offered {
			return Outcome{Status: Delivered}
		}
		st.mu.Lock()
		here := st.port != nil
		st.mu.Unlock()
		if here || m.copied {
			return s.store(m, p, o)
		}
	}
	return s.refuse(CodeNotHere)
}

// Keep stores a message that another relay had stored, whether its recipient is
// here or not: it is Stored only when it is durable, as far as the inbox is.
func (p *Port) Keep(m *Message) Outcome {
	m.received = p.s.now()
	if p.s.screens(m) {
		return p.s.refuse(CodeDenied)
	}
	if r := p.askArrived(m); r != nil {
		return p.s.refuse(r.Code)
	}
	return p.s.store(m, p, entrusted)
}

// Waiting says whether messages for an address are in its inbox, or on their way
// there. When the inbox cannot say, they may be.
func (s *Server) Waiting(a Address) bool {
	s.init()
	if s.Inbox == nil {
		return false
	}
	if st := s.router.find(a); st != nil {
		st.mu.Lock()
		storing := st.puts > st.away
		st.mu.Unlock()
		if storing {
			return true
		}
	}
	n, _, err := s.Inbox.Count(s.ctx, a)
	return n > 0 || err != nil
}

// Online says whether a session has an address. A Forwarder may call it, and
// Waiting, at any time.
func (s *Server) Online(a Address) bool {
	s.init()
	return s.online(a)
}

// Flush has the inbox of an address looked through again, for entries whose lease
// has ended, if a session has the address.
func (s *Server) Flush(a Address) {
	s.init()
	if st := s.router.find(a); st != nil && s.Inbox != nil {
		st.mu.Lock()
		defer st.mu.Unlock()
		if st.port == nil {
			return
		}
		st.again = true
		if st.pump == nil {
			st.backlog = true
			s.startPump(st, new(backlog))
		}
		signal(st.wake)
	}
}

// Tell tells the sessions of an address of a message of theirs, as if it had
// been delivered here; the notice is borrowed.
func (s *Server) Tell(a Address, n Notice) {
	s.init()
	var by outsider
	by.openBatch()
	defer by.closeBatch()
	s.tell(a, &by, n)
}

// Become has the connection go on in another dialect, with that one's limits and a
// session of its. It is for the session's own calls, once, before Ready and Claim,
// which may not be called after it.
func (p *Port) Become(d Dialect, session Session) {
	p.speaker = p.s.speaker(d)
	p.out.mu.Lock()
	p.out.most = &p.speaker.outbox
	p.out.mu.Unlock()
	p.meter()
	p.session = session
	p.Ready()
}
