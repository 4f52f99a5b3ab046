package inboxtest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/sotto-relay/sotto/inbox"
)

// A rig is a store under test with what the cases do to it.
type rig struct {
	*testing.T
	clock Clock
	s     inbox.Store
	o     *Options
}

var (
	ctx   = context.Background()
	alice = inbox.Address{Realm: 1, Name: "alice"}
	bob   = inbox.Address{Realm: 1, Name: "bob"}
	carol = inbox.Address{Realm: 1, Name: "carol"}
)

func (r *rig) check(err error) {
	r.Helper()
	if err != nil {
		r.Fatal(err)
	}
}

func (r *rig) isErr(got, want error) {
	r.Helper()
	if !errors.Is(got, want) {
		r.Fatalf("got error %v, want %v", got, want)
	}
}

func equal[T comparable](r testing.TB, what string, got, want T) {
	r.Helper()
	if got != want {
		r.Fatalf("%s: got %v, want %v", what, got, want)
	}
}

// put puts an entry and waits for the answer.
func (r *rig) put(e *inbox.Entry, q inbox.Quota) inbox.Result {
	r.Helper()
	answer := make(chan inbox.Result, 2)
	r.s.Put(ctx, e, q, func(res inbox.Result) { answer <- res })
	return <-answer
}

// store puts an entry that must be stored and returns its number.
func (r *rig) store(e *inbox.Entry) uint64 {
	r.Helper()
	res := r.put(e, inbox.Quota{})
	r.check(res.Err)
	if res.Repeat {
		r.Fatal("stored as a repeat")
	}
	return res.Seq
}

// fill stores n entries from alice to bob.
func (r *rig) fill(n int) (seqs []uint64) {
	r.Helper()
	for range n {
		seqs = append(seqs, r.store(&inbox.Entry{To: bob, From: alice, Data: []byte("x")}))
	}
	return seqs
}

func (r *rig) list(to inbox.Address, from uint64) (es []*inbox.Entry) {
	r.Helper()
	for e, err := range r.s.Entries(ctx, to, from) {
		r.check(err)
		es = append(es, e)
	}
	return es
}

func (r *rig) has(to inbox.Address, want ...uint64) {
	r.Helper()
	r.hasFrom(to, 0, want...)
}

func (r *rig) hasFrom(to inbox.Address, from uint64, want ...uint64) {
	r.Helper()
	sameSeqs(r, "entries", seqsOf(r.list(to, from)), want)
}

func (r *rig) delete(to inbox.Address, want int, seqs ...uint64) {
	r.Helper()
	n, err := r.s.Delete(ctx, to, seqs...)
	r.check(err)
	equal(r, "deleted", n, want)
}

func (r *rig) lease(d time.Duration, want []uint64, seqs ...uint64) {
	r.Helper()
	got, err := r.s.Lease(ctx, bob, r.clock.Now().Add(d), seqs...)
	r.check(err)
	sameSeqs(r, "leased", got, want)
}

func (r *rig) count(to inbox.Address, messages int, bytes int64) {
	r.Helper()
	m, b, err := r.s.Count(ctx, to)
	r.check(err)
	equal(r, "messages of the recipient", m, messages)
	equal(r, "bytes of the recipient", b, bytes)
}

func (r *rig) totals(messages int, bytes int64) {
	r.Helper()
	m, b, err := r.s.Totals(ctx)
	r.check(err)
	equal(r, "messages in all", m, messages)
	equal(r, "bytes in all", b, bytes)
}

// purge returns what was purged.
func (r *rig) purge(max int) (es []*inbox.Entry) {
	r.Helper()
	n, err := r.s.Purge(ctx, max, func(e *inbox.Entry) { es = append(es, e) })
	r.check(err)
	equal(r, "purged", n, len(es))
	return es
}

func seqsOf(es []*inbox.Entry) (seqs []uint64) {
	for _, e := range es {
		seqs = append(seqs, e.Seq)
	}
	return seqs
}

func sameSeqs(r testing.TB, what string, got, want []uint64) {
	r.Helper()
	same := len(got) == len(want)
	for i := 0; same && i < len(got); i++ {
		same = got[i] == want[i]
	}
	if !same {
		r.Fatalf("%s: got %v, want %v", what, got, want)
	}
}

func sameEntry(r testing.TB, got, want *inbox.Entry) {
	r.Helper()
	if got.To != want.To || got.From != want.From || got.ID != want.ID || got.Form != want.Form ||
		got.Flags != want.Flags || string(got.Data) != string(want.Data) || got.Seq != want.Seq ||
		!got.Stored.Equal(want.Stored) || !got.Expires.Equal(want.Expires) {
		r.Fatalf("got entry %+v, want %+v", got, want)
	}
}
