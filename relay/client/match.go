package client

import (
	"context"
	"errors"

	"github.com/sotto-relay/sotto/crypto"
	"github.com/sotto-relay/sotto/frame"
)

var errSearching = errors.New("client: somebody is being looked for in this game already")

// A search is for somebody to play with. All but done is guarded by the standing's
// lock.
type search struct {
	game string
	done chan struct{} // closed when it has ended

	asked *call // the latest, unless a reconnect has made another
	waits bool  // the relay has it in its queue
	ended bool
	peer  crypto.PublicKey
	err   error
}

// FindMatch waits for somebody else who looks for a match in the game, first come
// first served, and returns his key, which is the relay's word: what he sends is
// proved by it. The name of a game is one as of a room. When ctx ends, the search
// does; somebody who was found just then waits in vain. Over a reconnect the search
// goes on, at the end of the queue.
//
// One search for a game may run at a time. The error is a [*RefusedError],
// [ErrLegacySession], ctx's, or that of [Client.Err].
func (c *Client) FindMatch(ctx context.Context, game string) (crypto.PublicKey, error) {
	if err := ctx.Err(); err != nil {
		return crypto.PublicKey{}, err
	}
	q := &search{game: game, done: make(chan struct{})}
	if err := c.stand.search(q); err != nil {
		return crypto.PublicKey{}, err
	}
	select {
	case <-q.done:
	case <-ctx.Done():
		c.stand.giveUp(q, ctx.Err())
	}
	return q.peer, q.err
}

func (q *search) body() []byte { return body("find_match", "game", q.game) }

// search begins a search.
func (s *standing) search(q *search) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed != nil:
		return s.closed
	case s.searches[q.game] != nil:
		return errSearching
	}
	var err error
	if q.asked, err = s.ask.add(q.body(), false, s.searched(q)); err != nil {
		return err
	}
	s.searches[q.game] = q
	return nil
}

// searched returns what is done with the relay's answer.
func (s *standing) searched(q *search) func(*frame.Response, error) {
	return func(r *frame.Response, err error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		switch {
		case err != nil:
			s.finish(q, err)
		case r.Type == "matched":
			s.found(q, r)
		default:
			q.waits = true
		}
	}
}

// found ends a search with what the relay says. The caller holds mu.
func (s *standing) found(q *search, r *frame.Response) {
	peer, err := crypto.ParsePublicKey(r.Text("peer"))
	if !q.ended {
		q.peer = peer
	}
	s.finish(q, err)
}

// giveUp ends a search, unless it has just ended, and tells the relay, if that was
// asked: who gives up sooner than requests may be sent leaves none of them behind.
func (s *standing) giveUp(q *search, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if q.ended {
		return
	}
	s.finish(q, err)
	if s.ask.withdraw(q.asked) {
		return
	}
	_, _ = s.ask.add(body("cancel_match", "game", q.game), false, func(*frame.Response, error) {})
}

// finish ends a search. Only the first call counts. The caller holds mu.
func (s *standing) finish(q *search, err error) {
	if q.ended {
		return
	}
	q.ended, q.err = true, err
	delete(s.searches, q.game)
	close(q.done)
}
