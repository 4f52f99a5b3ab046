package relay

import (
	"context"
	"sync"

	"github.com/sotto-relay/sotto/transport"
)

// A group is a set of sessions that a publication goes to. It exists while it
// has members.
type group struct {
	addr Address

	mu      sync.RWMutex
	members []*Port
	index   map[*Port]int // of members
}

type groupShard struct {
	mu sync.RWMutex
	m  map[Address]*group
}

// A rendered is a publication as one dialect and form has it; nil data does not
// fit.
type rendered struct {
	speaker *speaker
	form    uint8
	kind    transport.Kind
	data    *shared
}

// Join adds the session to a group: it gets what others publish there. Joining
// twice is joining once. The error is a Refusal with CodeQuota past the limit.
func (p *Port) Join(a Address) error {
	if hook := p.s.Policy.Join; hook != nil {
		err := p.ask(func(ctx context.Context) error {
			return hook(ctx, JoinInfo{Conn: p.Info(), From: p.Address(), Group: a})
		})
		if err != nil {
			return AsRefusal(err)
		}
	}
	sh := &p.s.router.groups[p.s.router.shard(a)]
	sh.mu.Lock()
	defer sh.mu.Unlock()
	g := sh.m[a]
	if g != nil {
		if _, in := p.groups[g]; in {
			return nil
		}
	}
	if len(p.groups) >= p.s.limits.Groups {
		return &Refusal{Code: CodeQuota}
	}
	if g == nil {
		a.Name = string([]byte(a.Name)) // it may be borrowed
		g = &group{addr: a, index: make(map[*Port]int)}
		sh.m[a] = g
	}
	if p.groups == nil {
		p.groups = make(map[*group]struct{})
	}
	p.groups[g] = struct{}{}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.index[p] = len(g.members)
	g.members = append(g.members, p)
	return nil
}

// Leave takes the session out of a group. It is no error not to be in it.
func (p *Port) Leave(a Address) {
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

// Publish sends m to the members of the group m.To, this session excepted unless
// echo is set, and returns how many that were. Nothing is stored. A member whose
// outbox is full loses its oldest publications, counted. The error is the
// policy's, a *Refusal.
func (p *Port) Publish(m *Message, echo bool) (n int, err error) {
	m.From = p.Address()
	if hook := p.s.Policy.Publish; hook != nil {
		if r := p.askSend(hook, m); r != nil {
			p.s.refuse(r.Code)
			return 0, r
		}
	}
	sh := &p.s.router.groups[p.s.router.shard(m.To)]
	sh.mu.RLock()
	g := sh.m[m.To]
	sh.mu.RUnlock()
	if g == nil {
		return 0, nil
	}
	if p.openBatch() { // so that nothing is written under the group's lock
		defer p.closeBatch()
	}
	lost := 0
	g.mu.RLock()
	for _, q := range g.members {
		if q != p || echo {
			queued, l := p.publishTo(q, m)
			n += queued
			lost += l
		}
	}
	g.mu.RUnlock()

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
	return n, nil
}

// publishTo queues m for q. It returns how many copies were taken, and how many
// were lost for want of room, this one or older ones.
func (p *Port) publishTo(q *Port, m *Message) (taken, lost int) {
	r := p.render(q.speaker, q.form, m)
	if r.data == nil {
		return 0, 0
	}
	v, lost := q.out.pushPublication(r.kind, r.data, &p.s.limits)
	switch v {
	case first:
		p.flushLater(q)
	case full:
		lost++
	case stopped:
		return 0, lost
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
