package client

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/sotto-relay/sotto/frame"
	"github.com/sotto-relay/sotto/pubsub"
)

// A standing holds what a relay forgets with a session, and is asked for again in
// the next: subscriptions, rooms, and searches for somebody to play with. All
// methods may be called by any goroutine.
type standing struct {
	ask *calls

	mu       sync.Mutex // and calls are added under it, so that the relay is asked in the order of changes
	feeds    map[feedKey][]*feed
	leaving  map[feedKey][]*feed // those of feeds that have left a name for another, which the relay has not answered for
	searches map[string]*search  // by game
	closed   error               // nothing is taken any more
}

func newStanding(ask *calls) *standing {
	return &standing{ask: ask, feeds: make(map[feedKey][]*feed), leaving: make(map[feedKey][]*feed), searches: make(map[string]*search)}
}

// body returns a request.
func body(verb, field, value string) []byte {
	b := frame.AppendText([]byte(`{"t":`), verb)
	b = frame.AppendText(append(b, ','), field)
	return append(frame.AppendText(append(b, ':'), value), '}')
}

// enter returns the request for publications.
func (k feedKey) enter() []byte {
	if k.as == frame.TypeRoomSend {
		return body("join_room", "room", k.name)
	}
	return body("subscribe", "topic", k.name)
}

// leave returns the request for no more of them.
func (k feedKey) leave() []byte {
	if k.as == frame.TypeRoomSend {
		return body("leave_room", "room", k.name)
	}
	return body("unsubscribe", "topic", k.name)
}

// begin begins a connection: everything is asked for again. The channel is closed
// when all of it has been answered.
func (s *standing) begin() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ask.begin()
	clear(s.leaving)
	answered := make(chan struct{})
	left := new(atomic.Int64)
	left.Store(1)
	count := func() {
		if left.Add(-1) == 0 {
			close(answered)
		}
	}
	again := func(body []byte, then func(*frame.Response, error)) {
		left.Add(1)
		_, err := s.ask.add(body, false, func(r *frame.Response, err error) {
			then(r, err)
			count()
		})
		if err != nil { // the Client has ended
			count()
		}
	}
	for k, feeds := range s.feeds {
		again(k.enter(), s.entered(slices.Clone(feeds)...))
	}
	for _, q := range s.searches {
		again(q.body(), s.searched(q))
	}
	count()
	return answered
}

// sever ends a connection.
func (s *standing) sever() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ask.sever()
	for _, feeds := range s.feeds {
		for _, f := range feeds {
			f.stop()
		}
	}
	for _, q := range s.searches {
		q.waits = false
	}
}

// enter asks for the publications of a feed.
func (s *standing) enter(f *feed) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed != nil {
		return s.closed
	}
	var err error
	if f.key, err = f.wire(); err != nil { // under mu, so that rename sees it or it sees the new name
		return err
	}
	if f.asking, err = s.ask.add(f.key.enter(), false, s.entered(f)); err != nil {
		return err
	}
	f.alone = s.feeds[f.key] == nil
	s.feeds[f.key] = append(s.feeds[f.key], f)
	return nil
}

// entered returns what is done with the relay's answer for feeds.
func (s *standing) entered(feeds ...*feed) func(*frame.Response, error) {
	return func(r *frame.Response, err error) {
		for _, f := range feeds {
			if err != nil {
				s.remove(f)
				f.end(err, false)
			} else {
				f.start(r.Int("members"))
			}
		}
	}
}

// rename has all feeds go on whose names for the relay are others than before.
func (s *standing) rename() {
	s.mu.Lock()
	defer s.mu.Unlock()
	moves := make(map[*feed]feedKey)
	for k, feeds := range s.feeds {
		for _, f := range feeds {
			if to, err := f.wire(); err == nil && to != k {
				moves[f] = to
			}
		}
	}
	for f, to := range moves {
		s.move(f, to)
	}
}

// move has a feed go on under another name, with a gap between. The old one is left
// first, so that a relay that allows no more subscriptions agrees; what is on the way
// from there still comes. The caller holds mu.
func (s *standing) move(f *feed, to feedKey) {
	from := f.key
	s.drop(f)
	if s.feeds[from] == nil {
		_, _ = s.ask.add(from.leave(), false, func(*frame.Response, error) {})
	}
	f.key.name, f.asking = to.name, nil
	s.feeds[to] = append(s.feeds[to], f)
	s.leaving[from] = append(s.leaving[from], f)
	_, _ = s.ask.add(to.enter(), false, func(r *frame.Response, err error) {
		s.hasLeft(f, from)
		f.stop()
		s.entered(f)(r, err)
	})
}

// hasLeft says that nothing more comes for a feed under an old name.
func (s *standing) hasLeft(f *feed, from feedKey) {
	s.mu.Lock()
	defer s.mu.Unlock()
	remove(s.leaving, from, f)
}

// leave ends a feed that the application does not want any more. What the relay was
// not asked for is not asked for, so that who gives up sooner than requests may be sent
// leaves none of them behind.
func (s *standing) leave(f *feed) {
	f.end(ErrClosed, true)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.drop(f) && !(s.ask.withdraw(f.asking) && f.alone) && s.feeds[f.key] == nil {
		_, _ = s.ask.add(f.key.leave(), false, func(*frame.Response, error) {})
	}
}

// remove forgets a feed.
func (s *standing) remove(f *feed) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drop(f)
}

// drop forgets a feed, and says whether it was known. The caller holds mu.
func (s *standing) drop(f *feed) bool { return remove(s.feeds, f.key, f) }

func remove(feeds map[feedKey][]*feed, k feedKey, f *feed) bool {
	i := slices.Index(feeds[k], f)
	if i < 0 {
		return false
	}
	if rest := slices.Delete(feeds[k], i, i+1); len(rest) > 0 {
		feeds[k] = rest
	} else {
		delete(feeds, k)
	}
	return true
}

// deliver brings a publication to the feeds that it is for.
func (s *standing) deliver(b *frame.Brep) {
	p, err := frame.DecodePublication(b.Payload)
	if err != nil {
		return
	}
	name := string(p.Name)
	s.mu.Lock()
	defer s.mu.Unlock()
	if b.Type == frame.TypeRoomMessage {
		for _, f := range s.feeds[feedKey{frame.TypeRoomSend, name}] {
			f.push(b)
		}
		return
	}
	for _, all := range []map[feedKey][]*feed{s.feeds, s.leaving} {
		for k, feeds := range all {
			if k.as != frame.TypePublish || !pubsub.Match(k.name, name) {
				continue
			}
			for _, f := range feeds {
				f.push(b)
			}
		}
	}
}

// notice takes a RESPONSE that was not asked for.
func (s *standing) notice(r *frame.Response) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch r.Type {
	case "gap":
		for _, f := range s.feeds[feedKey{frame.TypePublish, r.Text("topic")}] {
			f.gap()
		}
	case "matched":
		if q := s.searches[r.Text("game")]; q != nil && q.waits {
			s.found(q, r)
		}
	}
}

// close ends everything with err.
func (s *standing) close(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = err
	for _, feeds := range s.feeds {
		for _, f := range feeds {
			f.end(err, false)
		}
	}
	for _, q := range s.searches {
		s.finish(q, err)
	}
	clear(s.feeds)
	clear(s.leaving)
}
