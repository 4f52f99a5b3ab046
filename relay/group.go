package relay

import (
	"errors"
	"sync"

	"github.com/sotto-relay/sotto/transport"
)

// A group is a set of sessions that a publication goes to. It exists while it
// has members.
type group struct {
	mu      sync.RWMutex
	addr    Address
	members []*Port
	index   map[*Port]int // of members
	into    *group        // where its members have moved; nil: they are here
}

type groupShard struct {
	mu      sync.RWMutex
	m       map[Address]*group
	aliases map[Address]*alias // nil: there were none yet
}

// A rendered is a publication as one dialect and form has it; nil data does not
// fit.
type rendered struct {
	speaker *speaker
	form    uint8
	kind    transport.Kind
	data    *shared
}

// Errors of Join, in a Refusal with CodeQuota.
var (
	ErrTooManyGroups = errors.New("relay: too many groups") // of the session's
	ErrGroupFull     = errors.New("relay: group is full")
)

// Join adds the session to a group: it gets what others publish there. Joining
// twice is joining once. confirm, if not nil, is called with the number of
// members before anything of the group's can come; it runs under a lock, so all
// it does is to Reply. The error is a *Refusal.
func (p *Port) Join(a Address, confirm func(members int)) error {
	if err := p.askJoin(a); err != nil {
		return err
	}
	p.s.router.moves.RLock()
	defer p.s.router.moves.RUnlock()
	a, _ = p.s.router.findGroup(a)
	sh := &p.s.router.groups[p.s.router.shard(a)]
	sh.mu.Lock()
	defer sh.mu.Unlock()
	g := sh.m[a]
	_, in := p.groups[g]
	l := p.limits()
	switch {
	case in:
	case l.Groups > 0 && len(p.groups) >= l.Groups:
		return &Refusal{Code: CodeQuota, Err: ErrTooManyGroups}
	case g == nil:
		a.Name = string([]byte(a.Name)) // it may be borrowed
		g = &group{addr: a, index: make(map[*Port]int)}
		sh.m[a] = g
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if !in {
		if l.GroupMembers > 0 && len(g.members) >= l.GroupMembers {
			return &Refusal{Code: CodeQuota, Err: ErrGroupFull}
		}
		g.add(p)
	}
	if confirm != nil {
		confirm(len(g.members))
	}
	return nil
}

// add adds p, which is none, to the members. The caller holds g.mu.
func (g *group) add(p *Port) {
	if p.groups == nil {
		p.groups = make(map[*group]struct{})
	}
	p.groups[g] = struct{}{}
	g.index[p] = len(g.members)
	g.members = append(g.members, p)
}

// Member says whether the session is in a group.
func (p *Port) Member(a Address) bool {
	p.s.router.moves.RLock()
	defer p.s.router.moves.RUnlock()
	_, g := p.s.router.findGroup(a)
	_, in := p.groups[g]
	return in
}

// Leave takes the session out of a group. It is no error not to be in it.
func (p *Port) Leave(a Address) {
	p.s.router.moves.RLock()
	defer p.s.router.moves.RUnlock()
	a, _ = p.s.router.findGroup(a)
	sh := &p.s.router.groups[p.s.router.shard(a)]
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if g := sh.m[a]; g != nil {
		if _, in := p.groups[g]; in {
			p.leaveGroup(sh, g)
		}
	}
}

func (p *Port) leaveGroups() {
	p.s.router.moves.RLock()
	defer p.s.router.moves.RUnlock()
	for g := range p.groups {
		sh := &p.s.router.groups[p.s.router.shard(g.addr)]
		sh.mu.Lock()
		p.leaveGroup(sh, g)
		sh.mu.Unlock()
	}
}

// leaveGroup takes p out of g. The caller holds sh.mu.
func (p *Port) leaveGroup(sh *groupShard, g *group) {
	delete(p.groups, g)
	g.mu.Lock()
	defer g.mu.Unlock()
	i, n := g.index[p], len(g.members)-1
	last := g.members[n]
	g.members[i], g.index[last] = last, i
	g.members[n] = nil
	g.members = g.members[:n]
	delete(g.index, p)
	if n == 0 {
		delete(sh.m, g.addr)
	}
}

// PublishOptions say how Publish goes about it.
type PublishOptions struct {
	// Echo has the session itself get a copy, if it is a member.
	Echo bool

	// Whole closes a member whose outbox is full with CodeOverloaded, instead of
	// leaving anything out.
	Whole bool

	// Each, if not nil, is told of each member's Session whose queue m has entered,
	// under locks.
	Each func(Session)

	filter Address // that a subscriber gets it by
}

// Publish sends m to the members of the group m.To, this session excepted, and
// returns how many that were. Nothing is stored. m.To is set to the name that it
// leads to, if there are members, and may be kept. A member whose outbox is full
// loses its oldest publications, counted. The error is the policy's, a *Refusal.
func (p *Port) Publish(m *Message, o PublishOptions) (n int, err error) {
	m.From = p.Address()
	if hook := p.s.Policy.Publish; hook != nil {
		if r := p.askSend(hook, m); r != nil {
			p.s.refuse(r.Code)
			return 0, r
		}
	}
	_, g := p.s.router.findGroup(m.To)
	if g == nil {
		return 0, nil
	}
	if p.openBatch() { // so that nothing is written under the group's lock
		defer p.closeBatch()
	}
	lost := 0
	g = g.rlock()
	m.To = g.addr
	for _, q := range g.members {
		if q != p || o.Echo {
			queued, l := p.publishTo(q, m, &o)
			n += queued
			lost += l
		}
	}
	g.mu.RUnlock()

	p.published(n, lost)
	return n, nil
}

// published ends a publication of which n copies were taken and lost lost.
func (p *Port) published(n, lost int) {
	c := &p.s.count
	c.accepted.Add(int64(n))
	c.queued.Add(int64(n - lost))
	c.dropped[dropSlow].Add(int64(lost))
	for i := range p.renders {
		if r := &p.renders[i]; r.data != nil {
			r.data.release()
		}
	}
	clear(p.renders)
	p.renders = p.renders[:0]
}

// publishTo queues m for q. It returns how many copies were taken, and how many
// were lost for want of room, this one or older ones.
func (p *Port) publishTo(q *Port, m *Message, o *PublishOptions) (taken, lost int) {
	r := p.render(q.speaker, q.form, m)
	if r.data == nil {
		return 0, 0
	}
	v, lost := q.out.pushPublication(r.kind, r.data, o.Whole, o.filter)
	if lost > 0 || v == full {
		q.tellGaps(p)
	}
	switch v {
	case first:
		p.flushLater(q)
	case full, held:
		if o.Whole {
			q.fail(&Refusal{Code: CodeOverloaded, Reason: "too slow"})
		}
		return 1, lost + 1
	case stopped:
		return 0, lost
	}
	if o.Each != nil {
		o.Each(q.session)
	}
	return 1, lost
}

// render returns m as sp has it in a form, made once a publication.
func (p *Port) render(sp *speaker, form uint8, m *Message) *rendered {
	for i := range p.renders {
		if r := &p.renders[i]; r.speaker == sp && r.form == form {
			return r
		}
	}
	sh := sharedPool.Get().(*shared)
	sh.refs.Store(1)
	k, data, err := sp.dialect.Render(sh.data[:0], form, m)
	if err != nil {
		sh.release()
		sh = nil
	} else {
		sh.data = data
	}
	p.renders = append(p.renders, rendered{sp, form, k, sh})
	return &p.renders[len(p.renders)-1]
}
