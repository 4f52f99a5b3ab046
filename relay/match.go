package relay

import (
	"container/list"
	"sync"
)

// games are the queues of sessions that wait for somebody to play with, by game.
type games struct {
	mu     sync.Mutex
	queues map[Address]*list.List // of *Port, first come first; none is empty
}

// Match puts the session into the queue for a game, or brings it together with
// the first one there that has another address. The answers come by Notify, in
// order: NoticeWaiting, also to one that waits already, and NoticeMatched to both.
// The error is a *Refusal with CodeQuota for one that waits for too many games.
func (p *Port) Match(game Address) error {
	peer, err := p.match(game)
	if peer == nil {
		return err
	}
	peer.notify(Notice{Kind: NoticeMatched, Name: game, Peer: p.Address()})
	return nil
}

// match returns the peer, which has to be told, or nil for a session that waits.
func (p *Port) match(game Address) (peer *Port, err error) {
	g := &p.s.games
	g.mu.Lock()
	defer g.mu.Unlock()
	if p.games[game] != nil {
		p.notify(Notice{Kind: NoticeWaiting, Name: game, Asked: true})
		return nil, nil
	}
	if q := g.queues[game]; q != nil {
		for e := q.Front(); e != nil; e = e.Next() {
			other := e.Value.(*Port)
			if a := other.address.Load(); !other.ending.Load() && a != nil && *a != p.Address() {
				g.remove(other, game)
				p.notify(Notice{Kind: NoticeMatched, Name: game, Peer: *a, Asked: true})
				return other, nil
			}
		}
	}
	if max := p.limits().Matches; max > 0 && len(p.games) >= max {
		return nil, &Refusal{Code: CodeQuota}
	}
	g.add(p, game)
	p.notify(Notice{Kind: NoticeWaiting, Name: game, Asked: true}) // here, since the peer may come at once
	return nil, nil
}

// CancelMatch takes the session out of the queue for a game. It is no error not
// to be in it.
func (p *Port) CancelMatch(game Address) {
	g := &p.s.games
	g.mu.Lock()
	defer g.mu.Unlock()
	g.remove(p, game)
}

func (p *Port) leaveGames() {
	g := &p.s.games
	g.mu.Lock()
	defer g.mu.Unlock()
	for game := range p.games {
		g.remove(p, game)
	}
}

func (g *games) add(p *Port, game Address) {
	game.Name = string([]byte(game.Name)) // it may be borrowed
	q := g.queues[game]
	if q == nil {
		q = list.New()
		if g.queues == nil {
			g.queues = make(map[Address]*list.List)
		}
		g.queues[game] = q
	}
	if p.games == nil {
		p.games = make(map[Address]*list.Element)
	}
	p.games[game] = q.PushBack(p)
}

func (g *games) remove(p *Port, game Address) {
	e := p.games[game]
	if e == nil {
		return
	}
	delete(p.games, game)
	q := g.queues[game]
	q.Remove(e)
	if q.Len() == 0 {
		delete(g.queues, game)
	}
}
