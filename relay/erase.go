package relay

import "context"

// EraseInbox deletes what waits in the inbox of the session's address and returns
// how many messages that were. Those that are on their way to the peer already may
// still come.
func (p *Port) EraseInbox(ctx context.Context) (n int, err error) {
	s, a := p.s, p.Address()
	if s.Inbox == nil || a == (Address{}) {
		return 0, nil
	}
	const batch = 1000
	for more := true; more; {
		var seqs []uint64
		for e, err := range s.Inbox.Entries(ctx, a, 0) {
			if err != nil {
				return n, err
			}
			if seqs = append(seqs, e.Seq); len(seqs) == batch {
				break
			}
		}
		deleted, err := s.Inbox.Delete(ctx, a, seqs...)
		s.count.dropped[dropErased].Add(int64(deleted))
		s.count.stored.Add(-int64(deleted))
		n += deleted
		if err != nil {
			return n, err
		}
		more = len(seqs) == batch
	}
	return n, nil
}
