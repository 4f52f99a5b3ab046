package brep

import "context"

// erase removes what the relay keeps of the session's identity: what waits in its
// inbox, its card, the values that it has published to be retained, and the keys
// that it has blocked. What fails does not keep the rest.
func (s *session) erase(ctx context.Context, q *request) error {
	defer s.common.lock(s.key)()
	state := s.port.State()
	_, err := s.port.EraseInbox(ctx)
	s.port.EraseRetained()
	for _, e := range []error{
		state.Delete(ctx, cardsBucket, string(s.key[:])),
		s.common.blocks.clear(ctx, state, s.key),
	} {
		if err == nil {
			err = e
		}
	}
	if err != nil {
		return s.kept(err)
	}
	return s.done(q)
}
