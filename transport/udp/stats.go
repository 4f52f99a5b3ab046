package udp

import "sync/atomic"

// Stats are what a Listener has counted, in datagrams.
type Stats struct {
	Received int64 // all that came in
	Sent     int64 // what the sockets took

	// What was dropped of that which came in, by reason.
	Limited    int64 // over the rate of its source
	WrongPair  int64 // the session of its name and token is none
	Unanswered int64 // neither open nor of a session, and without an answer
	Refused    int64 // open, with too many sessions waiting for Accept, or after Close
	TooLarge   int64 // open, over MaxDatagram
	Overrun    int64 // its session had not read what came before
	Empty      int64 // of no bytes

	// What was dropped of that which sessions wrote.
	Unproven int64 // over three times what came in from an unproven source
	Unsent   int64 // what the network did not want
}

type counters struct {
	received, sent                                                              atomic.Int64
	limited, wrongPair, unanswered, refused, tooLarge, overrun, empty, unproven atomic.Int64
	unsent                                                                      atomic.Int64
}

// Stats returns the numbers so far. It may be called by anybody at any time.
func (l *Listener) Stats() Stats {
	c := &l.count
	return Stats{
		Received: c.received.Load(), Sent: c.sent.Load(),
		Limited: c.limited.Load(), WrongPair: c.wrongPair.Load(), Unanswered: c.unanswered.Load(),
		Refused: c.refused.Load(), TooLarge: c.tooLarge.Load(), Overrun: c.overrun.Load(), Empty: c.empty.Load(),
		Unproven: c.unproven.Load(), Unsent: c.unsent.Load(),
	}
}
