package inboxtest

import (
	"math/rand/v2"
	"slices"
	"time"

	"github.com/sotto-relay/sotto/inbox"
)

// A model is what a store must do, in the plainest way: one list of all entries,
// oldest first, and every question answered by looking at all of them.
type model struct {
	entries []*modelEntry
	last    map[inbox.Address]uint64 // highest number given
}

type modelEntry struct {
	inbox.Entry
	leased time.Time
	total  bool // put with a SenderTotal
}

func (e *modelEntry) live(now time.Time) bool {
	return e.Expires.IsZero() || e.Expires.After(now)
}

func (m *model) of(to inbox.Address, keep func(*modelEntry) bool) (es []*modelEntry) {
	for _, e := range m.entries {
		if e.To == to && keep(e) {
			es = append(es, e)
		}
	}
	return es
}

func (m *model) remove(to inbox.Address, seq uint64) (*modelEntry, bool) {
	for i, e := range m.entries {
		if e.To == to && e.Seq == seq {
			m.entries = slices.Delete(m.entries, i, i+1)
			return e, true
		}
	}
	return nil, false
}

// put says what a put must answer; a Seq of 0 stands for a new one.
func (m *model) put(e *inbox.Entry, q inbox.Quota, now time.Time) (res inbox.Result) {
	if !e.Expires.IsZero() && !e.Expires.After(now) {
		return inbox.Result{Err: inbox.ErrExpired}
	}
	live := m.of(e.To, func(e *modelEntry) bool { return e.live(now) })
	messages, bytes, sender := len(live)+1, int64(len(e.Data)), 1
	for _, other := range live {
		if other.From == e.From && other.ID == e.ID && e.ID != (inbox.ID{}) {
			return inbox.Result{Seq: other.Seq, Repeat: true}
		}
		bytes += int64(len(other.Data))
		if other.From == e.From {
			sender++
		}
	}
	if q.PerSender > 0 && sender > q.PerSender {
		return inbox.Result{Err: inbox.ErrSenderQuota}
	}
	total := 1
	for _, other := range m.entries {
		if other.total && other.From == e.From && other.live(now) {
			total++
		}
	}
	if q.Bytes > 0 && int64(len(e.Data)) > q.Bytes {
		return inbox.Result{Err: inbox.ErrInboxFull}
	}
	for (q.Messages > 0 && messages > q.Messages) || (q.Bytes > 0 && bytes > q.Bytes) {
		if !q.DropOldest {
			return inbox.Result{Err: inbox.ErrInboxFull}
		}
		oldest := live[0]
		live = live[1:]
		messages--
		bytes -= int64(len(oldest.Data))
		res.Dropped = append(res.Dropped, &oldest.Entry)
	}
	if q.SenderTotal > 0 && total > q.SenderTotal {
		return inbox.Result{Err: inbox.ErrSenderQuota}
	}
	return res
}

// random does random operations to a store and to the model, and compares.
func (r *rig) random() {
	rnd := r.o.rand(r.T)
	m := &model{last: make(map[inbox.Address]uint64)}
	for range 4000 {
		to := []inbox.Address{alice, bob, {Realm: 2, Name: "bob"}}[rnd.IntN(3)]
		now := r.clock.Now()
		switch rnd.IntN(20) {
		default:
			r.randomPut(m, rnd, to)
		case 0, 1, 2:
			from := uint64(0)
			if rnd.IntN(2) == 0 {
				from = m.seqs(rnd, to, 1)[0]
			}
			want := m.of(to, func(e *modelEntry) bool { return e.Seq >= from && e.live(now) && !e.leased.After(now) })
			got := r.list(to, from)
			equal(r, "entries", len(got), len(want))
			for i, e := range got {
				sameEntry(r, e, &want[i].Entry)
			}
		case 3, 4:
			seqs := m.seqs(rnd, to, rnd.IntN(4))
			want := 0
			for _, seq := range seqs {
				if _, ok := m.remove(to, seq); ok {
					want++
				}
			}
			r.delete(to, want, seqs...)
		case 5:
			r.randomLease(m, rnd, to)
		case 6:
			seqs := m.seqs(rnd, to, 3)
			for _, e := range m.of(to, func(e *modelEntry) bool { return slices.Contains(seqs, e.Seq) }) {
				e.leased = time.Time{}
			}
			r.check(r.s.Release(ctx, to, seqs...))
		case 7:
			limit := rnd.IntN(5)
			want := 0
			for _, e := range m.entries {
				if !e.live(now) {
					want++
				}
			}
			purged := r.purge(limit)
			equal(r, "purged", len(purged), min(limit, want))
			r.gone(m, purged)
		case 8, 9:
			r.clock.Advance(time.Duration(1 + rnd.Int64N(int64(10*time.Second))))
		case 10:
			if r.o.Reopen != nil && rnd.IntN(10) == 0 {
				r.s = r.o.Reopen(r.T, r.s)
				m.reopen()
			}
		}
		r.sums(m, to)
	}
}

// reopen forgets leases, and numbers given to entries that are gone.
func (m *model) reopen() {
	clear(m.last)
	for _, e := range m.entries {
		e.leased = time.Time{}
		m.last[e.To] = max(m.last[e.To], e.Seq)
	}
}

// seqs returns numbers of a recipient's entries, and some that are not there.
func (m *model) seqs(rnd *rand.Rand, to inbox.Address, n int) (seqs []uint64) {
	there := m.of(to, func(*modelEntry) bool { return true })
	for range n {
		if len(there) > 0 && rnd.IntN(5) > 0 {
			seqs = append(seqs, there[rnd.IntN(len(there))].Seq)
		} else {
			seqs = append(seqs, rnd.Uint64N(m.last[to]+3))
		}
	}
	return seqs
}

// gone takes entries that the store reported as expired out of the model.
func (r *rig) gone(m *model, expired []*inbox.Entry) {
	r.Helper()
	for _, e := range expired {
		if e.Data != nil {
			r.Fatalf("expired entry %+v has Data", e)
		}
		was, ok := m.remove(e.To, e.Seq)
		if !ok || was.live(r.clock.Now()) {
			r.Fatalf("entry %+v reported as expired; known: %t", e, ok)
		}
		was.Data = nil
		sameEntry(r, e, &was.Entry)
	}
}

func (r *rig) randomPut(m *model, rnd *rand.Rand, to inbox.Address) {
	r.Helper()
	now := r.clock.Now()
	e := &inbox.Entry{
		To: to, From: []inbox.Address{alice, carol}[rnd.IntN(2)], ID: inbox.ID{byte(rnd.IntN(12))},
		Form: uint8(rnd.Uint32()), Flags: uint8(rnd.Uint32()), Data: make([]byte, rnd.IntN(10)), Stored: now,
	}
	for i := range e.Data {
		e.Data[i] = byte(rnd.Uint32())
	}
	if rnd.IntN(3) > 0 {
		e.Expires = now.Add(time.Duration(rnd.Int64N(int64(60*time.Second))) - 2*time.Second)
		if rnd.IntN(3) == 0 {
			e.Expires = e.Expires.Round(0)
		}
	}
	q := inbox.Quota{DropOldest: rnd.IntN(2) == 0}
	if rnd.IntN(3) > 0 {
		q.Messages = 1 + rnd.IntN(20)
	}
	if rnd.IntN(3) > 0 {
		q.Bytes = 1 + rnd.Int64N(100)
	}
	if rnd.IntN(3) == 0 {
		q.PerSender = 1 + rnd.IntN(10)
	}
	if rnd.IntN(3) == 0 {
		q.SenderTotal = 1 + rnd.IntN(15)
	}
	want := m.put(e, q, now)
	got := r.put(e, q)
	r.gone(m, got.Expired)
	if got.Err != want.Err || got.Repeat != want.Repeat || (want.Repeat && got.Seq != want.Seq) {
		r.Fatalf("put of %+v under %+v: got %+v, want %+v", e, q, got, want)
	}
	sameSeqs(r, "dropped", seqsOf(got.Dropped), seqsOf(want.Dropped))
	for _, d := range want.Dropped {
		m.remove(to, d.Seq)
	}
	if got.Err != nil || got.Repeat {
		return
	}
	if got.Seq <= m.last[to] {
		r.Fatalf("number %d after %d", got.Seq, m.last[to])
	}
	m.last[to] = got.Seq
	e.Seq = got.Seq
	m.entries = append(m.entries, &modelEntry{Entry: *e, total: q.SenderTotal > 0})
}

func (r *rig) randomLease(m *model, rnd *rand.Rand, to inbox.Address) {
	r.Helper()
	now := r.clock.Now()
	until := now.Add(time.Duration(1 + rnd.Int64N(int64(10*time.Second))))
	seqs := m.seqs(rnd, to, 1+rnd.IntN(3))
	var want []uint64
	for _, seq := range seqs {
		for _, e := range m.of(to, func(e *modelEntry) bool { return e.Seq == seq }) {
			if e.live(now) && !e.leased.After(now) {
				e.leased = until
				want = append(want, seq)
			}
		}
	}
	got, err := r.s.Lease(ctx, to, until, seqs...)
	r.check(err)
	slices.Sort(got)
	slices.Sort(want)
	sameSeqs(r, "leased", got, want)
}

func (r *rig) sums(m *model, to inbox.Address) {
	r.Helper()
	now := r.clock.Now()
	messages, bytes := 0, int64(0)
	for _, e := range m.of(to, func(e *modelEntry) bool { return e.live(now) }) {
		messages++
		bytes += int64(len(e.Data))
	}
	r.count(to, messages, bytes)
	bytes = 0
	for _, e := range m.entries {
		bytes += int64(len(e.Data))
	}
	r.totals(len(m.entries), bytes)
}
