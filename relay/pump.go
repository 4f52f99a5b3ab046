package relay

import (
	"context"
	"time"

	"github.com/sotto-relay/sotto/inbox"
)

// startPump starts the goroutine that flushes the inbox to the session in the
// seat. The caller holds st.mu. It begins when the pump of an earlier session, if
// there is one, has ended, and so has deleted what that session had written.
func (s *Server) startPump(st *seat, found *backlog) {
	p, before, done := st.port, st.pump, make(chan struct{})
	st.pump = done
	found.tenure = st.tenure
	if st.wake == nil {
		st.wake = make(chan struct{}, 1)
	}
	p.out.mu.Lock()
	if p.out.pump == nil {
		p.out.pump = make(chan struct{}, 1)
	}
	moved := p.out.moved // the pump of the seat that p has left
	p.out.moved = nil
	p.out.mu.Unlock()
	s.keep(st)
	s.pumps.Go(func() {
		defer s.router.release(st)
		defer close(done)
		for _, earlier := range []chan struct{}{before, moved} {
			if earlier != nil {
				<-earlier
			}
		}
		s.runPump(st, p, found, done)
	})
}

// A backlog is what was in an inbox when it was claimed; its end is confirmed to
// the session, once.
type backlog struct {
	tenure  uint64           // of the seat, that it is of
	confirm func(queued int) // nil: nobody wants to know, or knows already
	claimed time.Time
	queued  int
}

func (b *backlog) end() {
	if b.confirm != nil {
		b.confirm(b.queued)
		b.confirm = nil
	}
}

// runPump queues the recipient's entries in order, a bounded number of bytes at a
// time, deletes what has been written, and lets messages go live once it has
// caught up.
func (s *Server) runPump(st *seat, p *Port, found *backlog, done chan struct{}) {
	next := uint64(1)
	st.mu.Lock()
	wake := st.wake
	st.mu.Unlock()
	for {
		st.mu.Lock()
		upTo, quiet := st.last, st.puts == 0
		// What the outbox holds copies of is not read again. While the inbox is read
		// there are no new ones, since only this loop ends a backlog.
		copied, copying := p.out.copies()
		flush := st.tenure == found.tenure && st.backlog && !copying
		st.mu.Unlock()

		s.deleteWritten(st, p)
		if flush {
			next = max(next, copied+1)
			last, err := s.pumpEntries(st, p, found, next)
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

		opened := p.openBatch() // so that nothing is written under the lock
		st.mu.Lock()
		if st.tenure == found.tenure && st.puts == 0 && st.last < next {
			st.backlog = false // caught up; from here the outbox keeps the order
			found.end()        // under the lock, so that nothing goes live before
		}
		if st.again && st.tenure == found.tenure && !st.backlog && !p.out.owes() {
			// Nothing is queued that is still in the inbox, so it can be read again.
			st.again, st.backlog, next = false, true, 1
			p.out.forgetCopies()
		}
		over := st.tenure != found.tenure || !st.backlog
		if over && !p.out.owes() {
			if st.pump == done {
				st.pump = nil
			}
			p.out.forgetCopies()
			st.mu.Unlock()
			if opened {
				p.closeBatch()
			}
			return
		}
		again := !over && st.puts == 0
		st.mu.Unlock()
		if opened {
			p.closeBatch()
		}
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
func (s *Server) pumpEntries(st *seat, p *Port, found *backlog, from uint64) (last uint64, err error) {
	for e, err := range s.Inbox.Entries(s.ctx, st.addr, from) {
		if err != nil {
			return last, err
		}
		if e.Stored.After(found.claimed) {
			found.end()
		}
		queued, on := s.pumpEntry(st, p, e, found.tenure)
		if !on {
			return last, nil
		}
		if queued {
			found.queued++
		}
		last = e.Seq
	}
	return last, nil
}

// pumpEntry queues one entry, waiting for room, unless it does not fit the
// session. It is not to go on when the session has left the seat.
func (s *Server) pumpEntry(st *seat, p *Port, e *inbox.Entry, tenure uint64) (queued, on bool) {
	m := Message{
		To: e.To, From: e.From, ID: e.ID, Form: e.Form, Flags: e.Flags, Data: e.Data,
		seq: e.Seq,
	}
	for {
		v := full
		if p.out.load() < s.limits.FlushBytes {
			st.mu.Lock()
			v = stopped
			if st.tenure == tenure {
				v = p.out.pushMessage(message, &m, p.speaker.dialect, p.form)
			}
			st.mu.Unlock()
		}
		switch v {
		case first:
			p.flush()
			return true, true
		case pushed:
			return true, true
		case unfit:
			return false, true
		case stopped:
			return false, false
		}
		select {
		case <-p.out.pump:
		case <-p.ended:
			return false, false
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
