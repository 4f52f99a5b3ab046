package relay

import (
	"context"
	"slices"
)

// An outsider sends one message that comes from no connection.
type outsider struct {
	batcher
	lim  DialectLimits
	done chan Receipt // with room for one
}

func (o *outsider) limits() *DialectLimits { return &o.lim }
func (o *outsider) settled(r Receipt)      { o.done <- r }

// Deliver brings a message of the embedding program's to its recipient, as if a
// session of d had sent it: m.Data is in d's wire form, m.From whoever the caller
// says. It waits until the message is delivered, stored or refused, or until ctx
// ends, with ctx's error; then it may have been stored all the same. The Policy is
// not asked.
func (s *Server) Deliver(ctx context.Context, d Dialect, m *Message) (Outcome, error) {
	if err := s.add(); err != nil {
		return Outcome{Code: CodeGoingAway}, err
	}
	defer s.wg.Done()
	by := &outsider{lim: s.limits.ForDialect(d), done: make(chan Receipt, 1)}
	m.received = 0
	o := s.route(m, by)
	if o.Status != Pending {
		return o, nil
	}
	select {
	case r := <-by.done:
		return r.Outcome, nil
	case <-ctx.Done():
		return o, ctx.Err()
	}
}

// Remove deletes entries of an inbox that have been handed over outside of a
// session, and counts them as delivered. It returns how many were there.
func (s *Server) Remove(ctx context.Context, to Address, seqs ...uint64) (int, error) {
	if err := s.add(); err != nil {
		return 0, err
	}
	defer s.wg.Done()
	if s.Inbox == nil {
		return 0, nil
	}
	n, err := s.Inbox.Delete(ctx, to, seqs...)
	s.count.stored.Add(-int64(n))
	s.count.delivered.Add(int64(n))
	return n, err
}

// Watch returns a channel that gets a value after something has been stored for
// an address, one for all that was since the last. cancel ends it.
func (s *Server) Watch(a Address) (stored <-chan struct{}, cancel func()) {
	s.init()
	c := make(chan struct{}, 1)
	st := s.router.acquire(a)
	st.mu.Lock()
	st.watchers = append(st.watchers, c)
	st.mu.Unlock()
	return c, func() {
		st.mu.Lock()
		i := slices.Index(st.watchers, c)
		if i >= 0 {
			st.watchers = slices.Delete(st.watchers, i, i+1)
		}
		st.mu.Unlock()
		if i >= 0 {
			s.router.release(st)
		}
	}
}
