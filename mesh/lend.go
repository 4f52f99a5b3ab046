package mesh

import (
	"context"
	"errors"
	"time"

	"github.com/sotto-relay/sotto/crypto"
	"github.com/sotto-relay/sotto/frame"
	"github.com/sotto-relay/sotto/inbox"
	"github.com/sotto-relay/sotto/relay"
)

// A lending is the moving of a client's mail to the relay where it is. Entries are
// leased, sent, and deleted when the other relay says that it has stored them: so
// each is on one relay at least.
type lending struct {
	client crypto.PublicKey
	l      *link
	left   int       // entries that may be sent
	until  time.Time // the attachment ends
	runs   bool      // there is a goroutine
	stop   bool
	out    map[*lent]struct{}
	bytes  int // of out
	done   []uint64
	tries  map[uint64]int // by number in the inbox
	poke   chan struct{}  // with room for one
}

// A lent is an entry under way.
type lent struct {
	x      *lending
	number uint64 // on the link
	seq    uint64 // in the inbox
	size   int
	ends   time.Time // the lease
}

const (
	leaseFor  = 60 * time.Second
	lentMost  = 64
	lentBytes = 2 << 20 // of one client
	lentAll   = 8 << 20 // on one link
	triesMost = 3       // then it stays here; others pass it
)

// mayLend says whether mail may go over a link: not from where it survives a crash to
// where it does not.
func (m *Mesh) mayLend(l *link) bool { return l.durable || !m.cfg.Durable }

// fetch takes FETCH from the relay where a client is.
func (l *link) fetch(payload []byte, now time.Time) error {
	f, err := frame.DecodeFetch(payload)
	if err != nil {
		return err
	}
	a, err := attachment(&f.Attachment, now)
	switch {
	case errors.Is(err, errAttachment): // clocks differ
		l.port.Ignored("attachment of another time")
		return nil
	case err != nil || a.Relay != l.key:
		l.misbehaves(3, "mail asked for without an attachment")
		return nil
	}
	m := l.m
	m.mu.Lock()
	defer m.mu.Unlock()
	l.used = now
	h := m.mail[a.Client]
	if h == nil || m.phase != running || !m.mayLend(l) {
		return nil
	}
	x := h.lending
	if x != nil && !x.stop && !x.l.ended && x.l.key != l.key && x.until.After(a.NotAfter) || m.attachedLater(&a, now) {
		l.port.Ignored("attachment to a relay that the client has left") // the one that ends last counts
		return nil
	}
	if x == nil || x.l != l || x.stop {
		m.stopped(x)
		x = &lending{
			client: a.Client, l: l, poke: make(chan struct{}, 1),
			out: make(map[*lent]struct{}), tries: make(map[uint64]int),
		}
		h.lending = x
		l.lendings[x] = struct{}{}
	}
	x.left, x.until = int(min(f.Max, 1<<16)), a.NotAfter
	m.resume(x)
	return nil
}

// attachedLater says whether we know that a client has attached to another relay for
// longer.
func (m *Mesh) attachedLater(a *crypto.Attachment, now time.Time) bool {
	o := m.owned[a.Client]
	if o == nil {
		return false
	}
	for at, p := range o.places {
		if at != a.Relay && p.notAfter.After(now) && p.notAfter.After(a.NotAfter) {
			return true
		}
	}
	return false
}

// resume has a lending go on, and stopped has it end.
func (m *Mesh) resume(x *lending) {
	switch {
	case x == nil || x.stop:
	case x.runs:
		signal(x.poke)
	default:
		x.runs = true
		m.wg.Go(func() { m.lend(x) })
	}
}

func (m *Mesh) stopped(x *lending) {
	if x != nil {
		x.stop = true
		signal(x.poke)
	}
}

// stopLending ends what was lent over a link that is gone.
func (m *Mesh) stopLending(l *link) {
	for x := range l.lendings {
		m.stopped(x)
		if !x.runs {
			m.rest(x)
		}
	}
}

// lend moves entries until there are none, or nobody wants them any more.
func (m *Mesh) lend(x *lending) {
	to := addressOf(x.client)
	ctx := context.WithoutCancel(m.ctx)
	for {
		m.mu.Lock()
		now := time.Now()
		over := x.stop || x.l.ended || m.phase != running || !now.Before(x.until)
		done := x.done
		x.done = nil
		var release []uint64
		for e := range x.out {
			if over || !now.Before(e.ends) {
				x.gone(e)
				release = append(release, e.seq)
			}
		}
		room, bytes := min(x.left, lentMost-len(x.out)), min(lentBytes-x.bytes, lentAll-x.l.lent)
		wait := leaseFor / 4
		if x.l.lent >= lentAll { // others have it
			wait = tick
		}
		m.mu.Unlock()

		m.check(m.remove(ctx, to, done))
		m.check(m.srv.Inbox.Release(ctx, to, release...))
		if over {
			if m.lent(x, true) {
				return
			}
			continue
		}
		more, err := m.lendSome(ctx, x, room, bytes, now)
		m.check(err)
		if m.lent(x, !more) {
			return
		}
		timer := time.NewTimer(wait)
		select {
		case <-x.poke:
		case <-timer.C:
		case <-m.ctx.Done():
		}
		timer.Stop()
	}
}

func (m *Mesh) remove(ctx context.Context, to relay.Address, seqs []uint64) error {
	if len(seqs) == 0 {
		return nil
	}
	_, err := m.srv.Remove(ctx, to, seqs...)
	return err
}

// lendSome leases and sends entries. more says that there are others, or may be soon.
func (m *Mesh) lendSome(ctx context.Context, x *lending, room, bytes int, now time.Time) (more bool, err error) {
	to := addressOf(x.client)
	for e, err := range m.srv.Inbox.Entries(ctx, to, 1) {
		if err != nil {
			return false, err
		}
		hops := e.Flags & frame.FlagHops >> 4
		if x.tries[e.Seq] >= triesMost || hops == frame.FlagHops>>4 || len(e.Data) < frame.BrepHeaderSize || len(e.Data) > messageMost {
			continue
		}
		if room <= 0 || bytes <= 0 {
			return true, nil
		}
		switch lent, err := m.lendOne(ctx, x, e, now); {
		case err != nil:
			return false, err
		case lent:
			room--
			bytes -= len(e.Data)
			more = true
		}
	}
	return more, nil
}

// lendOne leases and sends an entry, unless it is leased or the lending is to end.
func (m *Mesh) lendOne(ctx context.Context, x *lending, e *inbox.Entry, now time.Time) (ok bool, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if x.stop {
		return true, nil // the next round ends it
	}
	leased, err := m.srv.Inbox.Lease(ctx, addressOf(x.client), now.Add(leaseFor), e.Seq)
	if err != nil || len(leased) == 0 {
		return false, err
	}
	x.tries[e.Seq]++
	l := x.l
	flags := e.Flags
	if e.Form == frame.FormLegacy {
		flags = 0
	}
	l.entry++
	lends := &lent{x: x, number: l.entry, seq: e.Seq, size: len(e.Data), ends: now.Add(leaseFor)}
	x.out[lends] = struct{}{}
	x.bytes += lends.size
	l.lent += lends.size
	x.left--
	if l.ended { // the next round releases it
		return true, nil
	}
	if from, ok := clientOf(e.From); ok {
		key := message{from, e.ID}
		if flags&frame.FlagReceipt != 0 {
			// Now, since it may be read before DONE is here.
			m.out.put(key, &departure{l.key, frame.ReceiptStored}, now.Add(crossedFor))
		}
		if a, ok := m.in.get(key, now); ok {
			a.left = true
		}
	}
	l.entries[lends.number] = lends
	l.used = now
	entry := frame.Entry{Number: lends.number, Expires: e.Expires, Frame: onLink(e.Data, flags+1<<4, e.ID)}
	m.send(l, frame.TypeEntry, entry.Append(nil))
	return true, nil
}

// gone takes an entry out of those under way.
func (x *lending) gone(e *lent) {
	delete(x.out, e)
	delete(x.l.entries, e.number)
	x.bytes -= e.size
	x.l.lent -= e.size
}

// lent says whether a lending rests: there is nothing to send, and nothing under way,
// which the next round gives back if the lending is over. It goes on when there is
// something (resume).
func (m *Mesh) lent(x *lending, may bool) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !may || len(x.out)+len(x.done) > 0 {
		return false
	}
	x.runs = false
	m.rest(x)
	return true
}

// rest is for a lending that has no goroutine, for now or for good.
func (m *Mesh) rest(x *lending) {
	to := addressOf(x.client)
	over := x.stop || x.l.ended || !time.Now().Before(x.until)
	if over {
		delete(x.l.lendings, x)
	}
	h := m.mail[x.client]
	switch {
	case h == nil: // the client is here, or was
		m.later(func() { m.srv.Flush(to) })
	case h.lending != x: // another one, which did not see what was leased
		m.resume(h.lending)
	case !m.srv.Waiting(to):
		m.heldNoMore(x.client)
	case over: // the owners are told again
		h.lending = nil
		clear(h.told)
		m.voters.changed()
	}
}

// done takes DONE: entries are stored on the other relay.
func (l *link) done(payload []byte, now time.Time) error {
	m := l.m
	m.mu.Lock()
	defer m.mu.Unlock()
	l.used = now
	for rest := payload; ; {
		number, more, err := frame.DecodeEntryNumber(rest)
		if err != nil {
			return err
		}
		if e := l.entries[number]; e != nil {
			e.x.gone(e)
			e.x.done = append(e.x.done, e.seq)
			signal(e.x.poke)
		} else { // its lease has run out
			l.wasted(now)
		}
		if rest = more; len(rest) == 0 {
			return nil
		}
	}
}
