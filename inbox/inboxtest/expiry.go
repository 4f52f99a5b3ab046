package inboxtest

import (
	"math"
	"time"

	"github.com/sotto-relay/sotto/inbox"
)

// until stores an entry from alice to bob that expires after d.
func (r *rig) until(d time.Duration) uint64 {
	r.Helper()
	return r.store(&inbox.Entry{To: bob, From: alice, Data: []byte("x"), Expires: r.clock.Now().Add(d)})
}

func (r *rig) expiry() {
	head, never, late := r.until(time.Second), r.fill(1)[0], r.until(time.Minute)
	bare := r.store(&inbox.Entry{To: bob, From: alice, Expires: r.clock.Now().Add(time.Second).Round(0)})
	r.clock.Advance(time.Second - 1)
	r.has(bob, head, never, late, bare)
	equal(r, "purged", len(r.purge(10)), 0)
	r.clock.Advance(1)
	r.has(bob, never, late) // an expired head holds nothing up
	r.count(bob, 2, 2)
	r.totals(4, 3)
	r.lease(time.Hour, nil, head, bare)
	equal(r, "purged", len(r.purge(10)), 2)
	r.totals(2, 2)
	r.clock.Advance(time.Minute)
	r.has(bob, never)
	r.clock.Advance(1000 * time.Hour)
	r.has(bob, never)
	r.delete(bob, 1, late) // it is there until it is purged
	equal(r, "purged", len(r.purge(10)), 0)
	r.totals(1, 1)
}

func (r *rig) expiryMeanwhile() {
	first, second := r.until(time.Hour), r.until(time.Second)
	third := r.until(time.Hour)
	var got []uint64
	for e, err := range r.s.Entries(ctx, bob, 0) {
		r.check(err)
		got = append(got, e.Seq)
		if e.Seq == first {
			r.clock.Advance(time.Second)
		}
		if e.Seq == second {
			r.Fatal("handed out after its time")
		}
	}
	sameSeqs(r, "entries", got, []uint64{first, third})
}

func (r *rig) expiredQuota() {
	q := inbox.Quota{Messages: 3, Bytes: 3, PerSender: 3}
	e := &inbox.Entry{To: bob, From: alice, Data: []byte("x")}
	gone := []uint64{r.until(time.Second), r.until(2 * time.Second)}
	kept := r.until(time.Hour)
	equal(r, "full", r.put(e, inbox.Quota{Messages: 3}).Err, inbox.ErrInboxFull)
	r.clock.Advance(2 * time.Second)

	q.DropOldest = true
	var reported []uint64
	for range 2 {
		res := r.put(e, q)
		r.check(res.Err)
		equal(r, "dropped", len(res.Dropped), 0)
		reported = append(reported, seqsOf(res.Expired)...)
		for _, e := range res.Expired {
			if e.Data != nil || e.To != bob || e.From != alice {
				r.Fatalf("expired %+v", e)
			}
		}
	}
	equal(r, "one more of the sender", r.put(e, q).Err, inbox.ErrSenderQuota)
	r.count(bob, 3, 3)
	reported = append(reported, seqsOf(r.purge(10))...)
	sameSeqs(r, "expired, each reported once", reported, gone)
	equal(r, "first entry", r.list(bob, 0)[0].Seq, kept)
	r.totals(3, 3)
}

func (r *rig) extremeTimes() {
	now := r.clock.Now()
	var want []uint64
	for _, c := range []struct {
		name    string
		expires time.Time
		err     error
	}{
		{"zero", time.Time{}, nil},
		{"now", now, inbox.ErrExpired},
		{"a second ago", now.Add(-time.Second), inbox.ErrExpired},
		{"long ago", time.Date(1, 1, 2, 0, 0, 0, 0, time.UTC), inbox.ErrExpired},
		{"1970", time.Unix(0, 0), inbox.ErrExpired},
		{"1970 as a negative ttl of everything", now.Add(math.MinInt64), inbox.ErrExpired},
		{"the longest duration", now.Add(math.MaxInt64), nil},
		{"the year 2262 and over", time.Unix(0, math.MaxInt64).Add(time.Second), nil},
		{"the year 9999", time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC), nil},
	} {
		res := r.put(&inbox.Entry{To: bob, From: alice, Stored: now, Expires: c.expires}, inbox.Quota{})
		if res.Err != c.err {
			r.Fatalf("%s: got %v, want %v", c.name, res.Err, c.err)
		}
		if res.Err == nil {
			want = append(want, res.Seq)
			es := r.list(bob, res.Seq)
			if len(es) != 1 || !es[0].Expires.Equal(c.expires) {
				r.Fatalf("%s: got %v", c.name, es)
			}
		}
	}
	r.clock.Advance(50 * 365 * 24 * time.Hour)
	r.has(bob, want...)
	equal(r, "purged", len(r.purge(10)), 0)

	// One that came too late pushes nothing out.
	res := r.put(&inbox.Entry{To: bob, From: alice, Expires: now}, inbox.Quota{Messages: 1, DropOldest: true})
	equal(r, "error", res.Err, inbox.ErrExpired)
	r.has(bob, want...)
}

func (r *rig) purges() {
	const recipients, each = 20, 15
	for i := range recipients {
		to := inbox.Address{Name: string(rune('a' + i))}
		for j := range each {
			e := &inbox.Entry{To: to, From: alice, ID: inbox.ID{byte(i), byte(j)}, Data: []byte("xx")}
			if j%3 != 0 {
				e.Expires = r.clock.Now().Add(time.Duration(j) * time.Second)
			}
			r.store(e)
		}
	}
	equal(r, "purged", len(r.purge(1000)), 0)
	r.clock.Advance(each * time.Second)
	seen := make(map[inbox.ID]bool)
	total := 0
	for _, limit := range []int{0, -1, 1, 7, 150, 1000, 1000} {
		left := recipients*each*2/3 - total
		es := r.purge(limit)
		equal(r, "purged at once", len(es), min(left, max(0, limit)))
		total += len(es)
		for _, e := range es {
			if e.Data != nil || e.ID[1]%3 == 0 || seen[e.ID] {
				r.Fatalf("purged %+v", e)
			}
			seen[e.ID] = true
		}
		r.totals(recipients*each-total, int64(2*(recipients*each-total)))
	}
	r.count(inbox.Address{Name: "a"}, each/3, 2*each/3)
}
