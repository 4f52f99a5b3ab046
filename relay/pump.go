package relay

import (
	"context"

	"github.com/sotto-relay/sotto/inbox"
)

// startPump starts the goroutine that flushes the inbox to the session in the
// seat. The caller holds st.mu. It begins when the pump of an earlier session, if
// there is one, has ended, and so has deleted what that session had written.
func (s *Server) startPump(st *seat) {
	p, before, done := st.port, st.pump, make(chan struct{})
	st.pump = done
	if st.wake == nil {
		st.wake = make(chan struct{}, 1)
	}
	p.out.mu.Lock()
	p.out.pump = make(chan struct{}, 1)
	p.out.mu.Unlock()
	s.keep(st)
	s.pumps.Go(func() {
		defer s.router.release(st)
		defer close(done)
		if before != nil {
			<-before
		}
		s.runPump(st, p, done)
	})
}

// runPump queues the recipient's entries in order, a bounded number of bytes at a
// time, deletes what has been written, and lets messages go live once it has
// caught up.
func (s *Server) runPump(st *seat, p *Port, done chan struct{}) {
	next := uint64(1)
	st.mu.Lock()
	wake := st.wake
	st.mu.Unlock()
	for {
		st.mu.Lock()
		upTo, quiet := st.last, st.puts == 0
		// While copies of what is being written are in the inbox, it is not read; and
		// while it is read, nothing is spilled, since only this loop ends a backlog.
		flush := st.port == p && st.backlog && !p.out.spilling()
		st.mu.Unlock()

		s.deleteWritten(st, p)
		if flush {
			last, err := s.pumpEntries(st, p, next)
			if err != nil {
				p.fail(err)
				<-p.ended
			}
			next = max(next, last+1)
			if quiet {
				// Whatever was not seen up to there is expired, leased or deleted.
				next = max(next, upTo+1)
			}
			s.deleteWritten(st, p)
		}

		st.mu.Lock()
		if st.port == p && st.puts == 0 && st.last < next {
			st.backlog = false // caught up; from here the outbox keeps the order
		}
		over := st.port != p || !st.backlog
		if over && !p.out.owes() {
			if st.pump == done {
				st.pump = nil
			}
			st.mu.Unlock()
			return
		}
		again := !over && st.puts == 0 && !p.out.spilling()
		st.mu.Unlock()
		if again {
			continue
		}
		select {
		case <-wake:
		case <-p.out.pump:
		}
	}
}

// pumpEntries queues entries from a number on until there are no more or the
// session goes down, and returns the last number it has dealt with.
func (s *Server) pumpEntries(st *seat, p *Port, from uint64) (last uint64, err error) {
	for e, err := range s.Inbox.Entries(s.ctx, st.addr, from) {
		if err != nil {
			return last, err
		}
		if !s.pumpEntry(st, p, e) {
			return last, nil
		}
		last = e.Seq
	}
	return last, nil
}

// pumpEntry queues one entry, waiting for room. It returns false when the
// session goes down.
func (s *Server) pumpEntry(st *seat, p *Port, e *inbox.Entry) bool {
	m := Message{
		To: e.To, From: e.From, ID: e.ID, Form: e.Form, Flags: e.Flags, Data: e.Data,
		seq: e.Seq,
	}
	for {
		v := full
		if p.out.load() < s.limits.FlushBytes {
			v = p.out.pushMessage(message, &m, p.speaker.dialect, p.form, &s.limits)
		}
		switch v {
		case first:
			p.flush()
			return true
		case pushed, unfit:
			return true
		case stopped:
			return false
		}
		select {
		case <-p.out.pump:
		case <-p.ended:
			return false
		}
		s.deleteWritten(st, p)
	}
}

// deleteWritten removes the entries that p has written. They count as delivered
// now: what expired meanwhile has been counted as that.
func (s *Server) deleteWritten(st *seat, p *Port) {
	seqs := p.out.takeWritten()
	if len(seqs) == 0 {
		return
	}
	// Not the session's context: what was written must go, whatever became of it.
	n, err := s.Inbox.Delete(context.WithoutCancel(s.ctx), st.addr, seqs...)
	if err != nil {
		s.log.Error("inbox: delete", "err", err)
	}
	s.count.stored.Add(-int64(n))
	s.count.delivered.Add(int64(n))
}
