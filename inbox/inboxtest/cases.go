package inboxtest

import (
	"context"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/sotto-relay/sotto/inbox"
)

var storeCases = []struct {
	name string
	run  func(*rig)
}{
	{"empty", (*rig).empty},
	{"fields and copies", (*rig).fields},
	{"names", (*rig).names},
	{"from a number", (*rig).from},
	{"delete by exact numbers", (*rig).deletes},
	{"numbers are not reused", (*rig).numbers},
	{"changes while iterating", (*rig).changing},
	{"quotas", (*rig).quotas},
	{"quotas of the specification", (*rig).specQuotas},
	{"quotas of senders in all", (*rig).senderTotals},
	{"repeats", (*rig).repeats},
	{"leases", (*rig).leases},
	{"expiry", (*rig).expiry},
	{"expiry while iterating", (*rig).expiryMeanwhile},
	{"expired entries and quotas", (*rig).expiredQuota},
	{"extreme times", (*rig).extremeTimes},
	{"purge", (*rig).purges},
	{"contexts", (*rig).contexts},
	{"close", (*rig).closes},
	{"reopen", (*rig).reopens},
	{"addressees", (*rig).addressees},
	{"quotas under concurrent putters", (*rig).totalAtOnce},
	{"order of answers", (*rig).answers},
	{"order under concurrent putters", (*rig).putters},
	{"everything at once", (*rig).stress},
	{"random operations", (*rig).random},
}

func (r *rig) empty() {
	r.has(bob)
	r.delete(bob, 0)
	r.delete(bob, 0, 0, 1, math.MaxUint64)
	r.lease(time.Hour, nil, 0, 1)
	r.check(r.s.Release(ctx, bob, 0, 1))
	r.count(bob, 0, 0)
	r.totals(0, 0)
	equal(r, "purged", len(r.purge(10)), 0)
	n, err := r.s.Purge(ctx, 10, nil)
	r.check(err)
	equal(r, "purged", n, 0)
}

func (r *rig) fields() {
	now := r.clock.Now()
	put := &inbox.Entry{
		To: bob, From: alice, ID: inbox.ID{1, 15: 2}, Form: 255, Flags: 254, Data: []byte("\x00data\xff"),
		Stored: now.Add(-time.Second), Expires: now.Add(time.Hour), Seq: 99,
	}
	want := *put
	want.Data = slices.Clone(put.Data)
	want.Seq = r.store(put)
	if want.Seq == 0 {
		r.Fatal("number 0")
	}
	equal(r, "Seq of the caller's entry", put.Seq, 99)
	put.Data[0] = 'X'
	put.To, put.From = carol, carol
	got := r.list(bob, 0)
	equal(r, "entries", len(got), 1)
	sameEntry(r, got[0], &want)
	got[0].Seq, got[0].To = 0, carol // it belongs to the caller
	sameEntry(r, r.list(bob, 0)[0], &want)

	bare := &inbox.Entry{To: carol}
	seq := r.store(bare)
	got = r.list(carol, 0)
	equal(r, "entries", len(got), 1)
	sameEntry(r, got[0], &inbox.Entry{To: carol, Seq: seq})
	if !got[0].Expires.IsZero() || !got[0].Stored.IsZero() {
		r.Fatalf("zero times came back as %v and %v", got[0].Stored, got[0].Expires)
	}
	r.count(carol, 1, 0)
	r.totals(2, int64(len(want.Data)))
}

// names puts to names that a careless key encoding mixes up.
func (r *rig) names() {
	names := []string{"", "\x00", "a", "a\x00", "a\x00\x00", "a/b", "ab", "\xff", "\xff\xff", "A", "a ",
		strings.Repeat("k", 32), strings.Repeat("\xff", 32), strings.Repeat("n", 512)}
	seqs := make(map[inbox.Address]uint64)
	for _, realm := range []inbox.Realm{0, 1, 255} {
		for _, name := range names {
			to := inbox.Address{Realm: realm, Name: name}
			seqs[to] = r.store(&inbox.Entry{To: to, From: to, ID: inbox.ID{1}, Data: []byte{1}})
		}
	}
	for to, seq := range seqs {
		r.has(to, seq)
		equal(r, "recipient", r.list(to, 0)[0].To, to)
		equal(r, "sender", r.list(to, 0)[0].From, to)
		r.count(to, 1, 1)
	}
	for to, seq := range seqs {
		r.delete(to, 1, seq)
	}
	r.totals(0, 0)
}

func (r *rig) from() {
	seqs := r.fill(200)
	r.store(&inbox.Entry{To: carol, From: alice})
	if !slices.IsSorted(seqs) {
		r.Fatalf("numbers do not grow: %v", seqs)
	}
	r.hasFrom(bob, 0, seqs...)
	r.hasFrom(bob, seqs[0], seqs...)
	r.hasFrom(bob, seqs[70], seqs[70:]...)
	r.hasFrom(bob, seqs[199]+1)
	r.hasFrom(bob, math.MaxUint64)
	r.delete(bob, 1, seqs[70])
	r.hasFrom(bob, seqs[70], seqs[71:]...)
	for range r.s.Entries(ctx, bob, 0) {
		break
	}
}

func (r *rig) deletes() {
	seqs := r.fill(5)
	other := r.store(&inbox.Entry{To: carol, From: alice, Data: []byte("xyz")})
	r.delete(bob, 1, seqs[2])
	r.delete(bob, 0, seqs[2])
	r.has(bob, seqs[0], seqs[1], seqs[3], seqs[4])
	r.delete(bob, 2, seqs[4], seqs[0], seqs[4], 0, seqs[4]+1, math.MaxUint64)
	r.has(bob, seqs[1], seqs[3])
	r.count(bob, 2, 2)
	r.lease(time.Hour, []uint64{seqs[1]}, seqs[1])
	r.delete(bob, 1, seqs[1])
	r.delete(bob, 1, seqs[3])
	r.has(carol, other)
	r.totals(1, 3)
}

func (r *rig) numbers() {
	var last uint64
	for range 20 {
		for _, seq := range r.fill(3) {
			if seq <= last {
				r.Fatalf("number %d after %d", seq, last)
			}
			last = seq
			r.delete(bob, 1, seq)
		}
		r.store(&inbox.Entry{To: carol, From: alice})
	}
}

func (r *rig) changing() {
	seqs := r.fill(300)
	var seen []uint64
	for e, err := range r.s.Entries(ctx, bob, 0) {
		r.check(err)
		if len(seen) > 0 && e.Seq <= seen[len(seen)-1] {
			r.Fatalf("number %d after %d", e.Seq, seen[len(seen)-1])
		}
		seen = append(seen, e.Seq)
		r.delete(bob, 1, e.Seq)
		if len(seen) <= 300 {
			r.fill(1)
		}
		r.count(bob, 300-max(0, len(seen)-300), int64(300-max(0, len(seen)-300)))
	}
	if len(seen) < 300 || !slices.Equal(seen[:300], seqs) {
		r.Fatalf("saw %d entries, not all that had been there", len(seen))
	}
}

func (r *rig) quotas() {
	entry := func(size int) *inbox.Entry { return &inbox.Entry{To: bob, From: alice, Data: make([]byte, size)} }
	for _, c := range []struct {
		name    string
		sizes   []int // what is there
		size    int   // the new one
		q       inbox.Quota
		err     error
		dropped int
	}{
		{"no bounds", []int{1, 2}, 1 << 20, inbox.Quota{}, nil, 0},
		{"room for one", []int{1, 1}, 1, inbox.Quota{Messages: 3}, nil, 0},
		{"full", []int{1, 1, 1}, 1, inbox.Quota{Messages: 3}, inbox.ErrInboxFull, 0},
		{"more than full", []int{1, 1, 1}, 1, inbox.Quota{Messages: 1}, inbox.ErrInboxFull, 0},
		{"drop one", []int{1, 1, 1}, 1, inbox.Quota{Messages: 3, DropOldest: true}, nil, 1},
		{"drop several", []int{1, 1, 1}, 1, inbox.Quota{Messages: 1, DropOldest: true}, nil, 3},
		{"bytes to the last", []int{4, 4}, 2, inbox.Quota{Bytes: 10}, nil, 0},
		{"a byte too many", []int{4, 4}, 3, inbox.Quota{Bytes: 10}, inbox.ErrInboxFull, 0},
		{"no bytes in a full one", []int{5, 5}, 0, inbox.Quota{Bytes: 10}, nil, 0},
		{"drop bytes", []int{1, 1, 8}, 2, inbox.Quota{Bytes: 10, DropOldest: true}, nil, 2},
		{"drop empty ones on the way", []int{0, 5, 5}, 5, inbox.Quota{Bytes: 10, DropOldest: true}, nil, 2},
		{"drop all", []int{1, 1, 8}, 10, inbox.Quota{Bytes: 10, DropOldest: true}, nil, 3},
		{"too large by itself", []int{1, 1}, 11, inbox.Quota{Bytes: 10, DropOldest: true}, inbox.ErrInboxFull, 0},
		{"too large for an empty one", nil, 11, inbox.Quota{Bytes: 10}, inbox.ErrInboxFull, 0},
		{"both", []int{1, 9}, 5, inbox.Quota{Messages: 2, Bytes: 10, DropOldest: true}, nil, 2},
		{"sender", []int{1, 1}, 1, inbox.Quota{PerSender: 2}, inbox.ErrSenderQuota, 0},
		{"sender and drop", []int{1, 1}, 1, inbox.Quota{PerSender: 2, Messages: 2, DropOldest: true}, inbox.ErrSenderQuota, 0},
	} {
		var there []uint64
		var sum int64
		for _, size := range c.sizes {
			there = append(there, r.store(entry(size)))
			sum += int64(size)
		}
		res := r.put(entry(c.size), c.q)
		if res.Err != c.err {
			r.Fatalf("%s: got %v, want %v", c.name, res.Err, c.err)
		}
		sameSeqs(r, c.name+": dropped", seqsOf(res.Dropped), there[:c.dropped])
		for i, d := range res.Dropped {
			sum -= int64(c.sizes[i])
			if d.Data != nil || d.To != bob || d.From != alice {
				r.Fatalf("%s: dropped %+v", c.name, d)
			}
		}
		there = there[c.dropped:]
		if res.Err == nil {
			there = append(there, res.Seq)
			sum += int64(c.size)
		}
		r.has(bob, there...)
		r.count(bob, len(there), sum)
		r.delete(bob, len(there), there...)
	}
	r.totals(0, 0)
}

// specQuotas are default quotas of spec "inbox", met and exceeded by one.
func (r *rig) specQuotas() {
	q := inbox.Quota{Messages: 500, DropOldest: true}
	var seqs []uint64
	for range 501 {
		res := r.put(&inbox.Entry{To: bob, From: alice, Data: []byte("m")}, q)
		r.check(res.Err)
		if len(seqs) == 500 {
			sameSeqs(r, "dropped by the 501st", seqsOf(res.Dropped), seqs[:1])
		}
		seqs = append(seqs, res.Seq)
	}
	r.has(bob, seqs[1:]...)

	q = inbox.Quota{Messages: 10_000, Bytes: 64 << 20, PerSender: 1_000}
	for range 1_000 {
		r.check(r.put(&inbox.Entry{To: carol, From: alice}, q).Err)
	}
	equal(r, "1,001st of a sender", r.put(&inbox.Entry{To: carol, From: alice}, q).Err, inbox.ErrSenderQuota)
	r.check(r.put(&inbox.Entry{To: carol, From: bob}, q).Err)
	r.check(r.put(&inbox.Entry{To: alice, From: alice}, q).Err)
	r.delete(carol, 1, r.list(carol, 0)[0].Seq)
	r.check(r.put(&inbox.Entry{To: carol, From: alice}, q).Err)
	equal(r, "one more", r.put(&inbox.Entry{To: carol, From: alice}, q).Err, inbox.ErrSenderQuota)
}

func (r *rig) senderTotals() {
	q := inbox.Quota{SenderTotal: 3}
	put := func(to, from inbox.Address, d time.Duration, q inbox.Quota, want error) (seq uint64) {
		r.Helper()
		e := &inbox.Entry{To: to, From: from, Data: []byte("x")}
		if d != 0 {
			e.Expires = r.clock.Now().Add(d)
		}
		res := r.put(e, q)
		equal(r, "error", res.Err, want)
		return res.Seq
	}
	put(alice, alice, 0, inbox.Quota{}, nil) // put without it, so not counted
	toBob := put(bob, alice, 0, q, nil)
	put(carol, alice, time.Minute, q, nil)
	put(alice, alice, time.Hour, q, nil)
	for _, to := range []inbox.Address{alice, bob, carol, {Realm: 2, Name: "dave"}} {
		put(to, alice, 0, q, inbox.ErrSenderQuota)
	}
	put(bob, alice, 0, inbox.Quota{SenderTotal: 4}, nil)
	put(bob, inbox.Address{Realm: 2, Name: "alice"}, 0, q, nil) // another sender
	put(bob, carol, 0, q, nil)

	// What is deleted or has expired makes room, purged or not; what was refused
	// took none.
	put(bob, alice, 0, q, inbox.ErrSenderQuota)
	r.delete(bob, 1, toBob)
	put(bob, alice, 0, inbox.Quota{SenderTotal: 4, Messages: 1}, inbox.ErrInboxFull)
	put(bob, alice, 0, inbox.Quota{SenderTotal: 4}, nil)
	put(bob, alice, 0, inbox.Quota{SenderTotal: 4}, inbox.ErrSenderQuota)
	r.clock.Advance(time.Minute)
	put(bob, alice, 0, inbox.Quota{SenderTotal: 4}, nil)
	put(bob, alice, 0, inbox.Quota{SenderTotal: 4}, inbox.ErrSenderQuota)
	equal(r, "purged", len(r.purge(10)), 1)
	put(bob, alice, 0, inbox.Quota{SenderTotal: 4}, inbox.ErrSenderQuota)
	r.clock.Advance(time.Hour)
	equal(r, "purged", len(r.purge(10)), 1)
	put(bob, alice, 0, inbox.Quota{SenderTotal: 4}, nil)
	put(bob, alice, 0, inbox.Quota{SenderTotal: 4}, inbox.ErrSenderQuota)

	// A repeat is no other entry, and dropping makes room, but not for the one
	// that drops.
	id := &inbox.Entry{To: carol, From: carol, ID: inbox.ID{1}}
	equal(r, "error", r.put(id, q).Err, nil)
	equal(r, "error", r.put(id, inbox.Quota{SenderTotal: 1}).Repeat, true)
	full := inbox.Quota{SenderTotal: 2, Messages: 1, DropOldest: true}
	equal(r, "error", r.put(&inbox.Entry{To: carol, From: carol}, full).Err, inbox.ErrSenderQuota)
	equal(r, "dropped", len(r.put(&inbox.Entry{To: carol, From: bob}, full).Dropped), 1)
	put(carol, carol, 0, inbox.Quota{SenderTotal: 2}, nil)

	if r.o.Reopen != nil {
		r.s = r.o.Reopen(r.T, r.s)
		put(bob, alice, 0, inbox.Quota{SenderTotal: 4}, inbox.ErrSenderQuota)
		put(bob, alice, 0, inbox.Quota{SenderTotal: 5}, nil)
	}
}

func (r *rig) repeats() {
	id := inbox.ID{7}
	e := &inbox.Entry{To: bob, From: alice, ID: id, Data: []byte("first")}
	seq := r.store(e)
	again := *e
	again.Data = []byte("second")
	for _, q := range []inbox.Quota{{}, {Messages: 1}, {Bytes: 1}, {PerSender: 1}, {Messages: 1, DropOldest: true}} {
		res := r.put(&again, q)
		if res.Err != nil || !res.Repeat || res.Seq != seq || len(res.Dropped) != 0 {
			r.Fatalf("repeat under quota %+v: got %+v", q, res)
		}
	}
	equal(r, "data", string(r.list(bob, 0)[0].Data), "first")
	r.lease(time.Hour, []uint64{seq}, seq)
	equal(r, "repeat of a leased one", r.put(e, inbox.Quota{}).Repeat, true)

	r.store(&inbox.Entry{To: bob, From: carol, ID: id})
	r.store(&inbox.Entry{To: bob, From: alice, ID: inbox.ID{15: 7}})
	r.store(&inbox.Entry{To: carol, From: alice, ID: id})
	r.store(&inbox.Entry{To: bob, From: alice})
	r.store(&inbox.Entry{To: bob, From: alice}) // no id, no repeat
	r.count(bob, 5, 5)

	r.delete(bob, 1, seq)
	if next := r.store(e); next <= seq {
		r.Fatalf("number %d after %d", next, seq)
	}

	// One that was dropped, and one that has expired, are not stored any more.
	e.To = alice
	r.store(e)
	r.check(r.put(&inbox.Entry{To: alice, From: bob}, inbox.Quota{Messages: 1, DropOldest: true}).Err)
	e.Expires = r.clock.Now().Add(time.Second)
	r.store(e)
	r.clock.Advance(time.Second)
	e.Expires = time.Time{}
	r.store(e)
	equal(r, "repeat", r.put(e, inbox.Quota{}).Repeat, true)
}

func (r *rig) leases() {
	s := r.fill(5)
	r.lease(time.Minute, []uint64{s[1], s[3]}, s[1], s[3], s[3], 0, s[4]+1)
	r.has(bob, s[0], s[2], s[4])
	r.count(bob, 5, 5)
	r.lease(time.Hour, []uint64{s[0]}, s[0], s[1], s[3])
	r.check(r.s.Release(ctx, bob, s[3], s[3], s[2], 0))
	r.has(bob, s[2], s[3], s[4])
	r.clock.Advance(time.Minute - 1)
	r.has(bob, s[2], s[3], s[4])
	r.clock.Advance(1)
	r.has(bob, s[1], s[2], s[3], s[4])
	r.lease(time.Minute, []uint64{s[1]}, s[1])
	r.delete(bob, 1, s[1])
	r.has(bob, s[2], s[3], s[4])
	r.clock.Advance(time.Hour)
	r.has(bob, s[0], s[2], s[3], s[4])

	// A lease into the past has lapsed already, one into a far future has not.
	r.lease(-time.Hour, []uint64{s[0]}, s[0])
	got, err := r.s.Lease(ctx, bob, time.Time{}, s[2])
	r.check(err)
	sameSeqs(r, "leased", got, s[2:3])
	got, err = r.s.Lease(ctx, bob, time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC), s[3])
	r.check(err)
	sameSeqs(r, "leased", got, s[3:4])
	r.has(bob, s[0], s[2], s[4])

	// A leased entry expires.
	seq := r.store(&inbox.Entry{To: bob, From: alice, Expires: r.clock.Now().Add(time.Second)})
	r.lease(time.Hour, []uint64{seq}, seq)
	r.clock.Advance(time.Second)
	r.lease(time.Hour, nil, seq)
	r.count(bob, 4, 4)
	sameSeqs(r, "purged", seqsOf(r.purge(10)), []uint64{seq})

	res := r.put(&inbox.Entry{To: bob, From: alice, Data: []byte("x")}, inbox.Quota{Messages: 1, DropOldest: true})
	r.check(res.Err)
	sameSeqs(r, "dropped, leased or not", seqsOf(res.Dropped), []uint64{s[0], s[2], s[3], s[4]})
}

func (r *rig) contexts() {
	seqs := r.fill(3)
	ended, cancel := context.WithCancel(ctx)
	cancel()
	answer := make(chan inbox.Result, 2)
	r.s.Put(ended, &inbox.Entry{To: bob, From: alice}, inbox.Quota{}, func(res inbox.Result) { answer <- res })
	r.isErr((<-answer).Err, context.Canceled)
	for name, err := range r.all(ended) {
		if err != context.Canceled {
			r.Fatalf("%s with a context that has ended: %v", name, err)
		}
	}
	r.has(bob, seqs...)

	running, cancel := context.WithCancel(ctx)
	defer cancel()
	var got []error
	for _, err := range r.s.Entries(running, bob, 0) {
		got = append(got, err)
		cancel()
	}
	equal(r, "iterations", len(got), 2)
	r.isErr(got[1], context.Canceled)
}

// all calls everything but Put and Close.
func (r *rig) all(ctx context.Context) map[string]error {
	errs := make(map[string]error)
	for _, err := range r.s.Entries(ctx, bob, 0) {
		errs["Entries"] = err
	}
	_, errs["Delete"] = r.s.Delete(ctx, bob, 1)
	_, errs["Lease"] = r.s.Lease(ctx, bob, r.clock.Now().Add(time.Hour), 1)
	errs["Release"] = r.s.Release(ctx, bob, 1)
	_, _, errs["Count"] = r.s.Count(ctx, bob)
	_, _, errs["Totals"] = r.s.Totals(ctx)
	_, errs["Purge"] = r.s.Purge(ctx, 1, nil)
	return errs
}

func (r *rig) closes() {
	r.fill(100)
	n := 0
	for _, err := range r.s.Entries(ctx, bob, 0) {
		if n++; err != nil {
			r.isErr(err, inbox.ErrClosed)
		}
		r.check(r.s.Close())
	}
	if n > 101 {
		r.Fatalf("%d iterations", n)
	}
	r.check(r.s.Close())
	res := r.put(&inbox.Entry{To: bob, From: alice}, inbox.Quota{})
	r.isErr(res.Err, inbox.ErrClosed)
	for name, err := range r.all(ctx) {
		if err != inbox.ErrClosed {
			r.Fatalf("%s after Close: %v", name, err)
		}
	}
}

func (r *rig) reopens() {
	if r.o.Reopen == nil {
		r.Skip("nothing outlives Close")
	}
	seqs := r.fill(5)
	soon := r.store(&inbox.Entry{To: bob, From: alice, Expires: r.clock.Now().Add(time.Second)})
	r.lease(time.Hour, seqs[:2], seqs[:2]...)
	r.delete(bob, 1, seqs[3])
	r.s = r.o.Reopen(r.T, r.s)
	r.has(bob, seqs[0], seqs[1], seqs[2], seqs[4], soon)
	r.clock.Advance(time.Second)
	r.s = r.o.Reopen(r.T, r.s)
	r.has(bob, seqs[0], seqs[1], seqs[2], seqs[4])
	sameSeqs(r, "purged", seqsOf(r.purge(10)), []uint64{soon})
	r.totals(4, 4)
	if seq := r.store(&inbox.Entry{To: bob, From: alice}); seq <= seqs[4] {
		r.Fatalf("number %d after %d", seq, seqs[4])
	}
}
