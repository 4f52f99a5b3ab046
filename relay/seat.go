package relay

import (
	"slices"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/sotto-relay/sotto/inbox"
)

// A seat is where messages for one address meet: its live session, and what is
// on its way to the inbox. It exists while there is either.
//
// The rule it keeps: nothing goes live while an entry of the recipient, or a put
// in progress, could still come before it (spec inbox, "Flush").
type seat struct {
	addr Address
	refs int // under the shard's lock

	// order is held for reading around the decision to store a message and its
	// Put, and for writing while messages that are older than any of those are
	// brought back to the inbox. It is taken before mu.
	order sync.RWMutex

	mu      sync.Mutex
	port    *Port         // the live session
	tenure  uint64        // grows when another session, or the same one again, gets the seat
	others  []*Port       // that share the address: they get copies of what is live
	brake   *rate.Limiter // of takeovers
	backlog bool          // messages go to the inbox although port is there
	puts    int           // in progress
	away    int           // of those, messages that a Forwarder has
	again   bool          // the inbox is to be read from its beginning again (Server.Flush)
	last    uint64
	pump    chan struct{} // closed when the running pump ends; nil: none runs
	wake    chan struct{} // with room for one: a put has ended; made for the first pump

	watchers []chan struct{} // likewise, of Server.Watch
}

type offer uint8

const (
	offered   offer = iota
	absent          // no session, or one that has a backlog
	overflow        // the session is there, and slow
	unfitting       // the session is there, and cannot carry this message
	entrusted       // nobody was asked: it is stored first, whoever is there
)

// offer queues m for the live session, if it may.
func (st *seat) offer(m *Message, by origin) offer {
	st.mu.Lock()
	p := st.port
	if p == nil || st.backlog {
		st.mu.Unlock()
		return absent
	}
	v := p.out.pushMessage(message, m, p.speaker.dialect, p.form)
	switch v {
	case first, pushed:
		p.s.count.accepted.Add(1)
		p.s.count.queued.Add(1)
	}
	st.mu.Unlock()
	switch v {
	case first:
		by.flushLater(p)
		fallthrough
	case pushed:
		return offered
	case full:
		return overflow
	case unfit:
		return unfitting
	}
	return absent // going down, and what it held is on its way back; or held
}

// isCaughtUp says whether messages go live.
func (st *seat) isCaughtUp() bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.port != nil && !st.backlog
}

// beginPut counts a put in progress. All that follows queues up behind it in the
// inbox, unless it is of a misfit, and so must all that came before: what waits in
// memory for a session that is slow, or on its way out, goes there first.
func (s *Server) beginPut(st *seat, misfit bool) {
	st.mu.Lock()
	if misfit || st.port == nil || st.backlog {
		st.puts++
		st.backlog = st.backlog || !misfit
		st.mu.Unlock()
		return
	}
	st.mu.Unlock()
	st.order.Lock()
	defer st.order.Unlock()
	st.mu.Lock()
	p, live := st.port, st.port != nil && !st.backlog
	st.backlog = true
	st.puts++ // with the copies, or their end could have messages go live before it
	if !live {
		st.mu.Unlock()
		return
	}
	left := p.out.spill()
	st.puts += len(left)
	if st.pump == nil {
		s.startPump(st, new(backlog)) // whose successor will wait for the end of the copies
	}
	st.mu.Unlock()
	s.putBack(st, p, left)
}

// putBack stores messages that were in p's outbox. The caller holds st.order and
// has counted them in st.puts.
func (s *Server) putBack(st *seat, p *Port, left []leftover) {
	for _, l := range left {
		s.count.queued.Add(-1)
		s.count.storing.Add(1)
		m := Message{
			To: st.addr, From: l.from, ID: l.id, Form: l.form, Flags: l.flags, Data: l.data,
			TTL: time.Duration(l.ttl), received: l.received,
		}
		s.keep(st)
		// No quota: these were accepted, and the outbox bounded them.
		s.Inbox.Put(s.ctx, s.entry(&m, p.limits()), inbox.Quota{}, func(r inbox.Result) {
			s.returned(st, p, &l.slot, r)
		})
	}
}

// returned ends one put of putBack, of what was in a slot.
func (s *Server) returned(st *seat, p *Port, was *slot, r inbox.Result) {
	c, from, id, flags := was.copy, was.from, was.id, was.flags
	defer s.router.release(st)
	s.tally(r)
	s.count.storing.Add(-1)
	seq := r.Seq
	if r.Err != nil {
		seq = 0
	}
	written, taken := false, true
	if c != nil {
		written, taken = c.stored(&p.out, seq)
	}
	switch {
	case r.Repeat:
		s.count.dropped[dropRepeat].Add(1)
	case r.Err == nil:
		s.count.stored.Add(1)
		if !written {
			s.tell(from, p, Notice{Kind: NoticeStored, Peer: st.addr, ID: id, Flags: flags})
		}
	case written:
		s.count.delivered.Add(1)
	case taken:
		s.count.dropped[dropRefused].Add(1)
		s.tell(from, p, Notice{Kind: NoticeDropped, Peer: st.addr, ID: id, Flags: flags})
	default: // the slot is the only place again
		s.count.queued.Add(1)
	}
	s.putDone(st, seq, false)
}

// putDone accounts for the end of a put and, if the recipient is here, has the
// inbox flushed: no entry waits for the next login. A misfit waits for one.
func (s *Server) putDone(st *seat, seq uint64, misfit bool) {
	st.mu.Lock()
	st.puts--
	st.last = max(st.last, seq)
	if st.port != nil && st.pump == nil && st.backlog && !misfit {
		s.startPump(st, new(backlog))
	}
	signal(st.wake)
	if seq != 0 {
		for _, w := range st.watchers {
			signal(w)
		}
	}
	alone := st.port == nil
	st.mu.Unlock()
	if seq != 0 && alone && s.Mesh != nil {
		s.Mesh.Kept(st.addr)
	}
}

// signal wakes whoever waits for a channel with room for one.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// keep adds a reference for work that releases it at its end.
func (s *Server) keep(st *seat) { s.router.acquire(st.addr) }

// sit makes p the live session of the seat, with a backlog to flush until the
// pump finds none. The session that was there is returned, already cut off: what
// it had not written is in the inbox.
func (s *Server) sit(st *seat, p *Port, c *Claim) (old *Port, err error) {
	waiting := 0
	if c.Unproven && s.Inbox != nil {
		if waiting, _, err = s.Inbox.Count(s.ctx, c.Address); err != nil {
			return nil, err
		}
	}
	st.order.Lock()
	defer st.order.Unlock()
	s.comes(st) // before the inbox is read
	st.mu.Lock()
	p.rank = p.id
	if c.Latest {
		p.rank = s.lastID.Add(1)
	}
	old = st.port
	if r := st.contest(p, c); r != nil {
		st.mu.Unlock()
		return nil, r
	}
	greeted := pushed
	if len(c.Greeting) > 0 { // in the queue before anything can come
		greeted = p.out.pushFrame(control, frame{c.Kind, c.Greeting})
	}
	share := old != nil && c.InUse == Share
	found := backlog{confirm: c.Confirm, claimed: s.start.Add(time.Duration(s.now()))}
	if s.Inbox == nil || share || c.Unproven {
		found.queued = waiting
		found.end()
	}
	if share {
		st.others = append(st.others, p)
		st.mu.Unlock()
		if greeted == first {
			p.flushLater(p)
		}
		return nil, nil
	}
	st.port, st.backlog = p, s.Inbox != nil
	st.tenure++
	if s.Inbox != nil {
		st.puts++ // until what the older session had is stored
		s.startPump(st, &found)
	}
	st.mu.Unlock()
	if greeted == first {
		p.flushLater(p)
	}
	if old != nil {
		s.retire(st, old)
	}
	if s.Inbox != nil {
		s.putDone(st, 0, false)
	}
	return old, nil
}

// contest says whether a claim may take the seat over from the session in it, or
// share it, and counts a takeover. The caller holds st.mu.
func (st *seat) contest(p *Port, c *Claim) *Refusal {
	switch {
	case st.port == nil:
		return nil
	case !c.Latest && p.id < st.port.rank:
		// The network or the policy held the older connection up: its login is not
		// the newest, and its peer has given it up, perhaps for the newer one.
		return &Refusal{Code: CodeReplaced, Reason: "replaced by a newer login"}
	case c.Weak && !st.port.weak:
		return &Refusal{Code: CodeDenied, Reason: "a weaker login cannot take over"}
	case c.InUse == Reject && !st.port.out.isUnproven():
		return &Refusal{Code: CodeDenied, Reason: ErrInUse.Error(), Err: ErrInUse}
	case c.InUse == Share || c.allowed:
		return nil
	}
	return st.slowDown(&p.s.limits)
}

// allow is contest for a session that has an address to lose, before it does. The
// takeover is counted here, and not again when it comes.
func (st *seat) allow(p *Port, c *Claim) *Refusal {
	st.mu.Lock()
	defer st.mu.Unlock()
	r := st.contest(p, c)
	c.allowed = r == nil
	return r
}

// slowDown brakes sessions that keep taking a seat over from one another. The
// caller holds st.mu.
func (st *seat) slowDown(l *Limits) *Refusal {
	if st.brake == nil {
		st.brake = rate.NewLimiter(rate.Every(l.TakeoverInterval), l.TakeoverBurst)
	}
	if !st.brake.Allow() {
		return &Refusal{Code: CodeOverloaded, Reason: "sessions keep replacing one another", RetryAfter: l.TakeoverInterval}
	}
	return nil
}

// copyToOthers queues copies of m for the sessions that share the address. One
// that has no room goes without.
func (st *seat) copyToOthers(m *Message, by origin) {
	st.mu.Lock()
	alone := len(st.others) == 0
	st.mu.Unlock()
	if alone {
		return
	}
	if by.openBatch() { // so that nothing is written under the lock
		defer by.closeBatch()
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	for _, p := range st.others {
		c := &p.s.count
		switch p.out.pushMessage(publication, m, p.speaker.dialect, p.form) {
		case first:
			by.flushLater(p)
			fallthrough
		case pushed:
			m.copied = true
			c.queued.Add(1)
		case full:
			c.dropped[dropSlow].Add(1)
		default:
			continue
		}
		c.accepted.Add(1)
	}
}

// leave takes p out of the seat, if it is still in it, and brings what it had
// not written back to the inbox.
func (s *Server) leave(st *seat, p *Port) {
	st.order.Lock()
	defer st.order.Unlock()
	st.mu.Lock()
	promoted := s.getUp(st, p)
	st.mu.Unlock()
	s.retire(st, p)
	if promoted {
		s.putDone(st, 0, false)
	}
}

// vacate is leave for a session that goes on at another address. What is being
// written is finished; the pump of the new seat waits for that of this one, and
// so for the end of it.
func (s *Server) vacate(st *seat, p *Port) {
	st.order.Lock()
	defer st.order.Unlock()
	st.mu.Lock()
	var left []leftover
	if st.port == p && s.Inbox != nil {
		left = p.out.vacate()
		if st.pump == nil {
			s.startPump(st, new(backlog)) // which deletes what p has still to write
		}
		p.out.follow(st.pump)
	}
	promoted := s.getUp(st, p)
	st.mu.Unlock()
	s.putLeft(st, p, left)
	if promoted {
		s.putDone(st, 0, false)
	}
}

// getUp takes p out of the seat. A session that shares the address moves up, with
// a put in progress as in sit. The caller holds st.mu.
func (s *Server) getUp(st *seat, p *Port) (promoted bool) {
	if i := slices.Index(st.others, p); i >= 0 {
		st.others = slices.Delete(st.others, i, i+1)
	}
	if st.port != p {
		return false
	}
	st.port = nil
	st.tenure++
	if len(st.others) == 0 {
		return false
	}
	st.port = st.others[0]
	st.others = slices.Delete(st.others, 0, 1)
	st.backlog = s.Inbox != nil
	if st.backlog {
		st.puts++
		s.startPump(st, new(backlog))
	}
	return st.backlog
}

// retire stops p's outbox and stores what is left in it. The caller holds
// st.order, and p is not the session of the seat any more.
func (s *Server) retire(st *seat, p *Port) { s.putLeft(st, p, p.halt()) }

// putLeft stores what is left of p's outbox, where it can be stored. The caller
// holds st.order.
func (s *Server) putLeft(st *seat, p *Port, left []leftover) {
	kept := left[:0]
	for _, l := range left {
		if s.Inbox == nil || l.ephemeral || l.copied {
			s.count.queued.Add(-1)
			s.count.dropped[dropGone].Add(1)
			continue
		}
		kept = append(kept, l)
	}
	st.mu.Lock()
	st.puts += len(kept)
	st.backlog = st.backlog || len(kept) > 0
	st.mu.Unlock()
	s.putBack(st, p, kept)
}
