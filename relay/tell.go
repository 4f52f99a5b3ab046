package relay

import (
	"slices"
	"time"

	"github.com/sotto-relay/sotto/inbox"
)

// A Follower is told what became of messages whose sender has no session just then.
// It is what sessions share under their Realm as the key (Port.Shared). Follow is
// called from any goroutine and must not block.
type Follower interface {
	Follow(sender Address, n Notice)
}

// A Screener says which messages from other relays a recipient does not want. It is
// what sessions share under the Realm of the recipient. Screens must not block.
type Screener interface {
	Screens(to, from Address) bool
}

// screens says whether nobody is to get m.
func (s *Server) screens(m *Message) bool {
	shared, _ := s.shared.Load(m.To.Realm)
	c, ok := shared.(Screener)
	return ok && c.Screens(m.To, m.From)
}

// tell tells the sessions of an address something, or else what follows its realm.
// by sees to the flushing.
func (s *Server) tell(a Address, by origin, n Notice) {
	var p *Port
	var others []*Port
	if st := s.router.find(a); st != nil {
		st.mu.Lock()
		p, others = st.port, slices.Clone(st.others)
		st.mu.Unlock()
	}
	if p == nil {
		if s.Mesh != nil {
			s.Mesh.Follow(a, n)
		}
		if f, ok := s.shared.Load(a.Realm); ok {
			if f, ok := f.(Follower); ok {
				f.Follow(a, n)
			}
		}
		return
	}
	p.notifyBy(by, n)
	for _, q := range others {
		q.notifyBy(by, n)
	}
}

// tellSenders tells the senders of entries what became of them.
func (s *Server) tellSenders(entries []*inbox.Entry, what NoticeKind) {
	if len(entries) == 0 {
		return
	}
	var by outsider
	by.openBatch()
	defer by.closeBatch()
	for _, e := range entries {
		s.tell(e.From, &by, Notice{Kind: what, Peer: e.To, ID: e.ID, Flags: e.Flags})
	}
}

// watchUnacked has storeUnacked look at the window in time.
func (p *Port) watchUnacked() {
	if p.s.Inbox == nil {
		return
	}
	p.out.mu.Lock()
	defer p.out.mu.Unlock()
	if p.ending.Load() {
		return
	}
	if p.unacked == nil {
		p.unacked = time.AfterFunc(p.s.limits.AckTimeout, p.storeUnacked)
	} else {
		p.unacked.Reset(p.s.limits.AckTimeout)
	}
}

func (p *Port) unwatch() {
	p.out.mu.Lock()
	defer p.out.mu.Unlock()
	if p.unacked != nil {
		p.unacked.Stop()
	}
}

// storeUnacked stores copies of what the session was sent and has not
// acknowledged for too long: until it does, or ends, they are the same message.
func (p *Port) storeUnacked() {
	s := p.s
	p.loop.Lock()
	st := p.seat
	p.loop.Unlock()
	if st == nil || s.add() != nil {
		return
	}
	defer s.wg.Done()
	st.order.Lock()
	defer st.order.Unlock()
	st.mu.Lock()
	if st.port != p {
		st.mu.Unlock()
		return
	}
	var left []leftover
	next := time.Now()
	if !st.backlog { // else copies would come behind what is unread in the inbox
		left, next = p.out.copyUnacked(next.Add(-s.limits.AckTimeout))
	}
	st.puts += len(left)
	if len(left) > 0 && st.pump == nil {
		s.startPump(st, new(backlog)) // to delete what is acknowledged after all
	}
	st.mu.Unlock()
	s.putBack(st, p, left)
	if next.IsZero() {
		return
	}
	p.out.mu.Lock()
	defer p.out.mu.Unlock()
	if !p.ending.Load() {
		p.unacked.Reset(time.Until(next.Add(s.limits.AckTimeout)))
	}
}
