package inbox

import (
	"strings"
	"sync"
	"time"
)

// SenderTotals count the unexpired entries of each sender that were put with a
// Quota.SenderTotal. The indices that share them go by the same time, and each
// may be under a lock of its own. The zero value is empty.
type SenderTotals[V any] struct {
	mu       sync.Mutex
	accounts table[Address, *account[V]]
}

// An account is there while its count is not zero.
type account[V any] struct {
	count    int // taken, and not known to have expired
	expiring heap[totalled[V]]
}

// A totalled is a record in the heap of an account.
type totalled[V any] struct{ *Record[V] }

func (t totalled[V]) at() *int32 { return &t.inTotal }

const neverExpires = -1 // for Record.inTotal

// take counts one more entry of a sender, unless that would be too many.
func (t *SenderTotals[V]) take(from Address, limit int, now time.Duration) bool {
	if t == nil || limit <= 0 {
		return true
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	a := t.accounts.get(from)
	if a == nil {
		a = new(account[V])
		from.Name = strings.Clone(from.Name)
		t.accounts.set(from, a)
	}
	for len(a.expiring) > 0 && a.expiring[0].Expires <= now {
		a.expiring.remove(a.expiring[0])
		a.count--
	}
	if a.count >= limit {
		return false
	}
	a.count++
	return true
}

// untake undoes a take that let an entry in.
func (t *SenderTotals[V]) untake(from Address, limit int) {
	if t == nil || limit <= 0 {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.less(from)
}

// add ties a record that was taken to its account.
func (t *SenderTotals[V]) add(rec *Record[V]) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	rec.total = true
	if rec.Expires == Never {
		rec.inTotal = neverExpires
		return
	}
	t.accounts.get(rec.From()).expiring.set(totalled[V]{rec})
}

// remove takes a record out of its account, if it still counts there.
func (t *SenderTotals[V]) remove(rec *Record[V]) {
	if !rec.total {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if rec.inTotal == 0 {
		return
	}
	if rec.inTotal != neverExpires {
		t.accounts.get(rec.From()).expiring.remove(totalled[V]{rec})
	}
	t.less(rec.From())
}

func (t *SenderTotals[V]) less(from Address) {
	a := t.accounts.get(from)
	if a.count--; a.count == 0 {
		t.accounts.delete(from)
	}
}

// Reset empties t, after all indices that share it.
func (t *SenderTotals[V]) Reset() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.accounts = table[Address, *account[V]]{}
}
