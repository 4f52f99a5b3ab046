package relay

import (
	"container/heap"
	"context"
	"errors"
	"sync"
	"time"
)

// maxHops is how many aliases may lead from a name to where it leads.
const maxHops = 8

// Errors of Move, in a Refusal: with CodeDenied and with CodeQuota.
var (
	ErrMoveConflict   = errors.New("relay: the name leads elsewhere")
	ErrTooManyAliases = errors.New("relay: too many aliases")
)

// An alias is what the name of a group is, for a while, after the group has moved
// to another name.
type alias struct {
	from, to Address // to may be an alias too, of a later move
	expires  time.Time
	made     *int // live aliases of the connection that made it

	// Under router.moves.
	hops  int // of the longest chain of aliases that ends with this one
	index int // in moves.live
}

func (a *alias) isLive(now time.Time) bool { return now.Before(a.expires) }

// moves are the books of the aliases; the aliases themselves are in the shards of
// their names. The lock is held for reading while somebody joins or leaves a
// group, and for writing while groups move: so names and memberships are steady
// under it. It is taken before the locks of shards. Publications go without it.
type moves struct {
	sync.RWMutex
	live   byExpiry
	chains map[Address]*chains // by the name that is led to
	timer  *time.Timer         // of the next expiry
	closed bool
}

// chains counts the aliases that lead to a name at once, by their hops.
type chains [maxHops + 1]int

// longest returns how many hops lead to a name at most.
func (m *moves) longest(a Address) int {
	if c := m.chains[a]; c != nil {
		for n := maxHops; n > 0; n-- {
			if c[n] > 0 {
				return n
			}
		}
	}
	return 0
}

// count notes that there are n more of a's hops.
func (m *moves) count(a *alias, n int) {
	c := m.chains[a.to]
	if c == nil {
		if m.chains == nil {
			m.chains = make(map[Address]*chains)
		}
		c = new(chains)
		m.chains[a.to] = c
	}
	if c[a.hops] += n; *c == (chains{}) {
		delete(m.chains, a.to)
	}
}

// enter and strike book an alias in and out.
func (r *router) enter(a *alias) {
	*a.made++
	heap.Push(&r.moves.live, a)
	a.hops = r.moves.longest(a.from) + 1
	r.moves.count(a, 1)
	r.recount(a.to)
}

func (r *router) strike(a *alias) {
	*a.made--
	heap.Remove(&r.moves.live, a.index)
	r.moves.count(a, -1)
	r.recount(a.to)
}

// recount corrects the hops of the alias with a name, and of those that it leads
// to.
func (r *router) recount(name Address) {
	for a := r.alias(name); a != nil; a = r.alias(a.to) {
		hops := r.moves.longest(a.from) + 1
		if hops == a.hops {
			return
		}
		r.moves.count(a, -1)
		a.hops = hops
		r.moves.count(a, 1)
	}
}

// alias returns the alias with a name, or nil. The caller holds r.moves.
func (r *router) alias(a Address) *alias { return r.groups[r.shard(a)].aliases[a] }

// end returns the name that an alias leads to in the end; for another name, that.
// The caller holds r.moves.
func (r *router) end(name Address) Address {
	for a := r.alias(name); a != nil; a = r.alias(name) {
		name = a.to
	}
	return name
}

// findGroup returns the name that a leads to, and the group there, or nil. It
// takes no lock but those of shards, one at a time: a move takes two, so either
// name leads to the members at any moment.
func (r *router) findGroup(a Address) (Address, *group) {
	for {
		sh := &r.groups[r.shard(a)]
		sh.mu.RLock()
		g, next := sh.m[a], (*alias)(nil)
		if len(sh.aliases) > 0 {
			next = sh.aliases[a]
		}
		sh.mu.RUnlock()
		if next == nil || !next.isLive(time.Now()) {
			return a, g
		}
		a = next.to
	}
}

// rlock locks the group that g's members are in, for reading.
func (g *group) rlock() *group {
	for {
		g.mu.RLock()
		into := g.into
		if into == nil {
			return g
		}
		g.mu.RUnlock()
		g = into
	}
}

// Lead returns the name that the name of a group leads to: itself, unless it is
// an alias (see Move). It may be called by anybody.
func (p *Port) Lead(a Address) Address {
	lead, _ := p.s.router.findGroup(a)
	return lead
}

// Move brings the members of one group into another, which need not exist, and
// makes its name an alias of the other for a time: who joins, leaves or publishes
// under the one does so under the other. No publication under either name is lost
// or comes twice for it. Afterwards the old name is one like any other.
//
// A name that is an alias does not move. If it leads to the other already, that
// is no error; else it is a *Refusal with CodeDenied and ErrMoveConflict. So is
// a destination that is an alias, unless it leads back: then that alias ends. And
// so is a ninth hop. Past a limit of aliases the error is a *Refusal with
// CodeQuota. lead is where the name that is in the way leads, else to. The policy
// is asked as for a Join of both.
func (p *Port) Move(from, to Address, grace time.Duration) (lead Address, err error) {
	if from == to || from.Realm != to.Realm {
		return to, &Refusal{Code: CodeMalformed}
	}
	for _, a := range [...]Address{from, to} {
		if err := p.askJoin(a); err != nil {
			return to, err
		}
	}
	r := &p.s.router
	r.moves.Lock()
	defer r.moves.Unlock()
	now := time.Now()
	r.expire(now)
	if lead = r.end(from); lead == to {
		return to, nil
	}
	if lead == from {
		lead = r.end(to)
	}
	if lead != from && lead != to {
		return lead, errConflict()
	}
	back := r.alias(to) // if there is one, it leads to from
	if back != nil {
		r.strike(back)
	}
	if err := p.mayMove(from); err != nil {
		if back != nil {
			r.enter(back)
		}
		return to, err
	}
	from.Name, to.Name = string([]byte(from.Name)), string([]byte(to.Name)) // they may be borrowed
	a := &alias{from: from, to: to, expires: now.Add(grace), made: p.aliases}
	r.move(a)
	r.enter(a)
	p.s.watchAliases()
	return to, nil
}

func errConflict() error { return &Refusal{Code: CodeDenied, Err: ErrMoveConflict} }

// mayMove says whether one more alias may be made, of a name that is none. The
// caller holds moves.
func (p *Port) mayMove(from Address) error {
	if p.aliases == nil {
		p.aliases = new(int)
	}
	m, l := &p.s.router.moves, p.limits()
	switch {
	case m.longest(from) == maxHops:
		return errConflict()
	case l.Aliases > 0 && *p.aliases >= l.Aliases || len(m.live) >= p.s.limits.Aliases:
		return &Refusal{Code: CodeQuota, Err: ErrTooManyAliases}
	}
	return nil
}

// move moves the group a.from to a.to, and makes the one name an alias, the other
// none. The caller holds moves.
func (r *router) move(a *alias) {
	from, to := &r.groups[r.shard(a.from)], &r.groups[r.shard(a.to)]
	from.mu.Lock()
	defer from.mu.Unlock()
	if to != from {
		to.mu.Lock() // nobody else holds two
		defer to.mu.Unlock()
	}
	if g := from.m[a.from]; g != nil {
		delete(from.m, a.from)
		if h := to.m[a.to]; h != nil {
			g = g.merge(h)
		}
		g.mu.Lock()
		g.addr = a.to
		g.mu.Unlock()
		to.m[a.to] = g
	}
	delete(to.aliases, a.to)
	if from.aliases == nil {
		from.aliases = make(map[Address]*alias)
	}
	from.aliases[a.from] = a
}

// merge moves the members of the smaller of two groups into the other, which it
// returns. The caller holds moves.
func (g *group) merge(h *group) *group {
	if len(g.members) < len(h.members) {
		g, h = h, g
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	h.mu.Lock() // nobody else holds two
	defer h.mu.Unlock()
	for _, p := range h.members {
		delete(p.groups, h)
		if _, in := p.groups[g]; !in {
			g.add(p)
		}
	}
	h.members, h.index, h.into = nil, nil, g
	return g
}

// expire ends the aliases whose time is over. The caller holds moves.
func (r *router) expire(now time.Time) {
	for m := &r.moves; len(m.live) > 0 && !m.live[0].isLive(now); {
		a := m.live[0]
		r.strike(a)
		sh := &r.groups[r.shard(a.from)]
		sh.mu.Lock()
		delete(sh.aliases, a.from)
		sh.mu.Unlock()
	}
}

// watchAliases sets the timer that ends the next alias. The caller holds moves.
func (s *Server) watchAliases() {
	m := &s.router.moves
	if m.closed || len(m.live) == 0 {
		return
	}
	d := time.Until(m.live[0].expires)
	if m.timer != nil {
		m.timer.Reset(d)
		return
	}
	m.timer = time.AfterFunc(d, func() {
		if s.add() != nil {
			return
		}
		defer s.wg.Done()
		m.Lock()
		defer m.Unlock()
		s.router.expire(time.Now())
		s.watchAliases()
	})
}

// stop stops the timer for good.
func (m *moves) stop() {
	m.Lock()
	defer m.Unlock()
	m.closed = true
	if m.timer != nil {
		m.timer.Stop()
	}
}

func (p *Port) askJoin(a Address) error {
	hook := p.s.Policy.Join
	if hook == nil {
		return nil
	}
	err := p.ask(func(ctx context.Context) error {
		return hook(ctx, JoinInfo{Conn: p.Info(), From: p.Address(), Group: a})
	})
	if err != nil {
		return AsRefusal(err)
	}
	return nil
}

// byExpiry is a heap (container/heap): what expires first is the first.
type byExpiry []*alias

func (h byExpiry) Len() int           { return len(h) }
func (h byExpiry) Less(i, j int) bool { return h[i].expires.Before(h[j].expires) }

func (h byExpiry) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

func (h *byExpiry) Push(a any) {
	a.(*alias).index = len(*h)
	*h = append(*h, a.(*alias))
}

func (h *byExpiry) Pop() any {
	last := len(*h) - 1
	a := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	return a
}
