package inboxtest

import (
	"context"
	"slices"
	"time"

	"github.com/sotto-relay/sotto/inbox"
)

// addressees is for stores that are Listers.
func (r *rig) addressees() {
	if _, ok := r.s.(inbox.Lister); !ok {
		r.Skip("no Lister")
	}
	listed := func(want ...inbox.Address) {
		r.Helper()
		all, err := r.s.(inbox.Lister).Addressees(ctx)
		r.check(err)
		equal(r, "recipients", len(all), len(want))
		for _, to := range want {
			equal(r, to.Name+" is listed", slices.Contains(all, to), true)
		}
	}
	listed()
	seqs := r.fill(2)
	other := inbox.Address{Realm: 2, Name: "bob"}
	r.store(&inbox.Entry{To: other, From: alice})
	r.store(&inbox.Entry{To: carol, From: bob})
	r.lease(time.Hour, seqs, seqs...)
	listed(bob, other, carol)
	if r.o.Reopen != nil {
		r.s = r.o.Reopen(r.T, r.s)
		listed(bob, other, carol)
	}
	r.delete(bob, 1, seqs[0])
	listed(bob, other, carol)
	r.delete(bob, 1, seqs[1])
	listed(other, carol)
	ended, cancel := context.WithCancel(ctx)
	cancel()
	_, err := r.s.(inbox.Lister).Addressees(ended)
	r.isErr(err, context.Canceled)
	r.check(r.s.Close())
	_, err = r.s.(inbox.Lister).Addressees(ctx)
	r.isErr(err, inbox.ErrClosed)
}
