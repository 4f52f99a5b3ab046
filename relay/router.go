package relay

import (
	"bytes"
	"errors"
	"hash/maphash"
	"sync"
	"time"

	"github.com/sotto-relay/sotto/inbox"
)

const shards = 64

// A router finds seats by address. Its locks are held for a map look-up only.
type router struct {
	seed   maphash.Seed
	seats  [shards]seatShard
	groups [shards]groupShard
	moves  moves
}

type seatShard struct {
	mu sync.RWMutex
	m  map[Address]*seat
}

func (r *router) init() {
	r.seed = maphash.MakeSeed()
	for i := range r.seats {
		r.seats[i].m = make(map[Address]*seat)
		r.groups[i].m = make(map[Address]*group)
	}
}

func (r *router) shard(a Address) int {
	return int(maphash.String(r.seed, a.Name) % shards)
}

// find returns the seat of an address, or nil. It may be on its way out, in
// which case no port is in it.
func (r *router) find(a Address) *seat {
	sh := &r.seats[r.shard(a)]
	sh.mu.RLock()
	st := sh.m[a]
	sh.mu.RUnlock()
	return st
}

// acquire returns the seat of an address, made when missing. It stays until
// released.
func (r *router) acquire(a Address) *seat {
	sh := &r.seats[r.shard(a)]
	sh.mu.Lock()
	defer sh.mu.Unlock()
	st := sh.m[a]
	if st == nil {
		a.Name = string([]byte(a.Name)) // it may be borrowed
		st = &seat{addr: a}
		sh.m[a] = st
	}
	st.refs++
	return st
}

func (r *router) release(st *seat) {
	sh := &r.seats[r.shard(st.addr)]
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if st.refs--; st.refs == 0 {
		delete(sh.m, st.addr)
	}
}

// online says whether a session has the address.
func (s *Server) online(a Address) bool {
	st := s.router.find(a)
	if st == nil {
		return false
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.port != nil
}

// An origin is where messages come from: a Port, or the embedding program.
type origin interface {
	openBatch() bool
	closeBatch()
	flushLater(*Port)
	limits() *DialectLimits
	settled(Receipt)
}

// route brings m to its recipient: to the live session, else to another relay or the
// inbox.
func (s *Server) route(m *Message, by origin) Outcome {
	if m.received == 0 {
		m.received = s.now()
	}
	o := absent
	if st := s.router.find(m.To); st != nil {
		st.copyToOthers(m, by)
		o = st.offer(m, by)
	}
	switch {
	case o == offered:
		return Outcome{Status: Delivered}
	case s.forward(m, by, o):
		return Outcome{Status: Pending}
	}
	return s.store(m, by, o)
}

// store puts m into the inbox, after the recipient's session answered o.
func (s *Server) store(m *Message, by origin, o offer) Outcome {
	if s.Inbox == nil || m.Ephemeral {
		if o == overflow {
			return s.refuse(CodeOverloaded)
		}
		return s.refuse(CodeNotHere)
	}
	st := s.router.acquire(m.To)
	if o == absent && st.isCaughtUp() { // The recipient came, or caught up, since it was asked.
		if o = st.offer(m, by); o == offered {
			s.router.release(st)
			return Outcome{Status: Delivered}
		}
	}
	misfit := o == unfitting // waits for a session that can take it; later ones pass it
	s.beginPut(st, misfit)

	lim := by.limits()
	e := s.entry(m, lim)
	e.To = st.addr
	q := inbox.Quota{
		Messages: lim.InboxMessages, Bytes: lim.InboxBytes,
		PerSender: lim.InboxPerSender, SenderTotal: lim.SenderTotal, DropOldest: lim.DropOldest,
	}
	p := &put{s: s, st: st, by: by, id: m.ID, flags: m.Flags, note: bytes.Clone(m.Note), misfit: misfit}
	st.order.RLock()
	s.Inbox.Put(s.ctx, e, q, p.done)
	st.order.RUnlock()
	return p.returned()
}

// entry makes the inbox entry for m. It borrows from m; Put copies.
func (s *Server) entry(m *Message, lim *DialectLimits) *inbox.Entry {
	e := &inbox.Entry{
		To: m.To, From: m.From, ID: m.ID, Form: m.Form, Flags: m.Flags, Data: m.Data,
		Stored: s.start.Add(time.Duration(m.received)),
	}
	ttl := lim.InboxTTL
	if m.TTL > 0 && (ttl == 0 || m.TTL < ttl) {
		ttl = m.TTL
	}
	if ttl > 0 {
		e.Expires = e.Stored.Add(ttl)
	}
	return e
}

// A put is the way of one message into the inbox.
type put struct {
	s      *Server
	st     *seat
	by     origin
	id     ID
	flags  uint8
	note   []byte
	misfit bool

	mu      sync.Mutex
	settled bool
	handed  bool // Pending was returned: the sender is to be told
	outcome Outcome
}

// returned is what route answers: the end if it has come, else Pending.
func (p *put) returned() Outcome {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.settled {
		return p.outcome
	}
	p.handed = true
	return Outcome{Status: Pending}
}

func (p *put) done(r inbox.Result) {
	s := p.s
	s.tally(r)
	o := Outcome{Status: Stored}
	switch {
	case r.Err != nil:
		o = s.refuse(codeOf(r.Err))
	case r.Repeat:
		s.count.accepted.Add(1)
		s.count.dropped[dropRepeat].Add(1)
	default:
		s.count.accepted.Add(1)
		s.count.stored.Add(1)
	}
	s.putDone(p.st, r.Seq, p.misfit)

	p.mu.Lock()
	p.settled, p.outcome = true, o
	handed := p.handed
	p.mu.Unlock()
	if handed {
		p.by.settled(Receipt{To: p.st.addr, ID: p.id, Flags: p.flags, Note: p.note, Outcome: o})
	}
	s.router.release(p.st)
}

// tally counts what a put pushed out of an inbox.
func (s *Server) tally(r inbox.Result) {
	s.count.dropped[dropEvicted].Add(int64(len(r.Dropped)))
	s.count.stored.Add(-int64(len(r.Dropped)))
	s.count.expired.Add(int64(len(r.Expired)))
	s.count.stored.Add(-int64(len(r.Expired)))
	s.tellSenders(r.Dropped, NoticeDropped)
	s.tellSenders(r.Expired, NoticeExpired)
}

func (s *Server) refuse(c Code) Outcome {
	s.count.refused.Add(1)
	return Outcome{Status: Refused, Code: c}
}

func codeOf(err error) Code {
	switch {
	case errors.Is(err, inbox.ErrInboxFull):
		return CodeInboxFull
	case errors.Is(err, inbox.ErrSenderQuota):
		return CodeQuota
	case errors.Is(err, inbox.ErrStorageFull):
		return CodeStorageFull
	case errors.Is(err, inbox.ErrExpired):
		return CodeExpired
	case errors.Is(err, inbox.ErrClosed):
		return CodeGoingAway
	}
	return CodeInternal
}
