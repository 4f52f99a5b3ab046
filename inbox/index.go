package inbox

import (
	"iter"
	"math"
	"strings"
	"time"
)

// Never is the time of what does not expire: 292 years after the start.
const Never = time.Duration(math.MaxInt64)

// An Index keeps the accounts of a store: which entries are in which inbox, in
// which order, from whom and until when, and what a [Quota] leaves room for. The
// bytes are its user's matter; V is what he wants to find with an entry. It is
// for those who implement a [Store], and not safe for concurrent use. The zero
// value is empty.
//
// Time is counted from wherever the user likes.
type Index[V any] struct {
	// Totals are the counts for Quota.SenderTotal, which several indices may
	// share. Nil makes Admit ignore that quota.
	Totals *SenderTotals[V]

	boxes    table[Address, *box[V]]
	senders  table[senderKey[V], *sender]
	ids      table[idKey, *Record[V]]
	expiring heap[*box[V]]
	last     uint64 // the last Seq given
	messages int
	bytes    int64
}

// A Record is an entry in an [Index]. Its fields are for reading, but Leased.
type Record[V any] struct {
	Seq     uint64
	ID      ID
	Size    int // len(Entry.Data)
	Expires time.Duration
	Leased  time.Duration // not visible until then
	Value   V

	box     *box[V]
	from    *sender
	place   int32 // in box.expiring
	inTotal int32 // in account.expiring; under the lock of the totals
	total   bool  // was counted in a total
}

// To returns the recipient.
func (rec *Record[V]) To() Address { return rec.box.to }

// From returns the sender.
func (rec *Record[V]) From() Address { return rec.from.address }

func (rec *Record[V]) due() time.Duration { return rec.Expires }
func (rec *Record[V]) at() *int32         { return &rec.place }

// A sender has entries in one box.
type sender struct {
	address Address
	count   int
}

type senderKey[V any] struct {
	to   *box[V]
	from Address
}

type idKey struct {
	from *sender
	id   ID
}

// An Admission is the answer to [Index.Admit].
type Admission[V any] struct {
	Expired []*Record[V] // were in the inbox, and have been removed
	Repeat  *Record[V]   // the entry that is stored already
	Dropped []*Record[V] // must be removed before the new one is added
	Err     error        // nil, ErrExpired, ErrInboxFull, ErrSenderQuota
}

// Admit says what becomes of e, which has a number of bytes and expires at a time.
// Unless that is a repeat or an error, the caller removes what is to be dropped and
// adds e, or calls Withdraw.
func (x *Index[V]) Admit(e *Entry, size int, expires time.Duration, q Quota, now time.Duration) (a Admission[V]) {
	if expires <= now {
		a.Err = ErrExpired
		return a
	}
	if b := x.boxes.get(e.To); b != nil {
		for rec := b.expired(now); rec != nil; rec = b.expired(now) {
			x.Remove(rec)
			a.Expired = append(a.Expired, rec)
		}
	}
	b := x.boxes.get(e.To)
	from := x.senders.get(senderKey[V]{b, e.From})
	if a.Repeat = x.ids.get(idKey{from, e.ID}); a.Repeat != nil {
		return a
	}
	if from != nil && q.PerSender > 0 && from.count >= q.PerSender {
		a.Err = ErrSenderQuota
		return a
	}
	dropped, ok := b.victims(q, int64(size))
	if !ok {
		a.Err = ErrInboxFull
		return a
	}
	if !x.Totals.take(e.From, q.SenderTotal, now) {
		a.Err = ErrSenderQuota
		return a
	}
	a.Dropped = dropped
	return a
}

// Withdraw undoes an Admit that is not followed by Add.
func (x *Index[V]) Withdraw(e *Entry, q Quota) { x.Totals.untake(e.From, q.SenderTotal) }

// Add adds an entry of a number of bytes that Admit let in.
func (x *Index[V]) Add(e *Entry, size int, expires time.Duration, q Quota, v V) *Record[V] {
	x.last++
	return x.add(e, x.last, size, expires, q.SenderTotal > 0, v)
}

// Restore adds an entry that was stored before, with its number. A recipient's
// come in order of their numbers. counted says whether a SenderTotal applied.
func (x *Index[V]) Restore(e *Entry, size int, expires time.Duration, counted bool, v V) *Record[V] {
	if counted {
		x.Totals.take(e.From, math.MaxInt, 0)
	}
	x.Skip(e.Seq)
	return x.add(e, e.Seq, size, expires, counted, v)
}

// Skip makes the numbers to come greater than one.
func (x *Index[V]) Skip(seq uint64) { x.last = max(x.last, seq) }

func (x *Index[V]) add(e *Entry, seq uint64, size int, expires time.Duration, counted bool, v V) *Record[V] {
	b := x.boxes.get(e.To)
	if b == nil {
		b = &box[V]{to: e.To}
		b.to.Name = strings.Clone(e.To.Name) // may be a part of something large
		x.boxes.set(b.to, b)
	}
	from := x.senders.get(senderKey[V]{b, e.From})
	if from == nil {
		from = &sender{address: e.From}
		from.address.Name = strings.Clone(e.From.Name)
		x.senders.set(senderKey[V]{b, from.address}, from)
	}
	rec := &Record[V]{Seq: seq, ID: e.ID, Size: size, Expires: expires, Value: v, box: b, from: from}
	from.count++
	if rec.ID != (ID{}) {
		x.ids.set(idKey{from, rec.ID}, rec)
	}
	b.slots = append(b.slots, slot[V]{seq, rec})
	b.live++
	b.bytes += int64(size)
	x.messages++
	x.bytes += int64(size)
	if expires != Never {
		b.expiring.set(rec)
		x.expiring.set(b)
	}
	if counted {
		x.Totals.add(rec)
	}
	return rec
}

// Remove takes out a record that is there.
func (x *Index[V]) Remove(rec *Record[V]) {
	b := rec.box
	if rec.Expires != Never {
		b.expiring.remove(rec)
		if len(b.expiring) == 0 {
			x.expiring.remove(b)
		} else {
			x.expiring.set(b)
		}
	}
	b.empty(rec.Seq)
	b.bytes -= int64(rec.Size)
	x.messages--
	x.bytes -= int64(rec.Size)
	if rec.ID != (ID{}) {
		x.ids.delete(idKey{rec.from, rec.ID})
	}
	if rec.from.count--; rec.from.count == 0 {
		x.senders.delete(senderKey[V]{b, rec.from.address})
	}
	if b.live == 0 {
		x.boxes.delete(b.to)
	}
	x.Totals.remove(rec)
}

// Find returns a record of a recipient, or nil.
func (x *Index[V]) Find(to Address, seq uint64) *Record[V] {
	if b := x.boxes.get(to); b != nil {
		if i, ok := b.search(seq); ok {
			return b.slots[i].Record
		}
	}
	return nil
}

// Visible fills batch with a recipient's records from a Seq to a last one that are
// neither expired nor leased, and returns how many it found.
func (x *Index[V]) Visible(batch []*Record[V], to Address, from, last uint64, now time.Duration) (n int) {
	b := x.boxes.get(to)
	if b == nil {
		return 0
	}
	i, _ := b.search(from)
	for _, sl := range b.slots[i:] {
		if n == len(batch) || sl.seq > last {
			break
		}
		if sl.Record != nil && sl.Expires > now && sl.Leased <= now {
			batch[n] = sl.Record
			n++
		}
	}
	return n
}

// All yields all records, expired and leased ones included: recipient after
// recipient, each one's in order of their numbers.
func (x *Index[V]) All() iter.Seq[*Record[V]] {
	return func(yield func(*Record[V]) bool) {
		for _, b := range x.boxes.m {
			if !b.all(yield) {
				return
			}
		}
	}
}

// Addressees returns all recipients that have records.
func (x *Index[V]) Addressees() []Address {
	all := make([]Address, 0, len(x.boxes.m))
	for to := range x.boxes.m {
		all = append(all, to)
	}
	return all
}

// Of yields a recipient's records, in order of their numbers.
func (x *Index[V]) Of(to Address) iter.Seq[*Record[V]] {
	return func(yield func(*Record[V]) bool) {
		if b := x.boxes.get(to); b != nil {
			b.all(yield)
		}
	}
}

// Last returns the greatest Seq so far.
func (x *Index[V]) Last() uint64 { return x.last }

// Expired returns a record that has expired, or nil.
func (x *Index[V]) Expired(now time.Duration) *Record[V] {
	if len(x.expiring) == 0 {
		return nil
	}
	return x.expiring[0].expired(now)
}

// Count returns how many unexpired records a recipient has, and the sum of their
// sizes.
func (x *Index[V]) Count(to Address, now time.Duration) (messages int, bytes int64) {
	b := x.boxes.get(to)
	if b == nil {
		return 0, 0
	}
	messages, bytes = b.live, b.bytes
	b.expiring.until(now, func(rec *Record[V]) {
		messages--
		bytes -= int64(rec.Size)
	})
	return messages, bytes
}

// Sum returns how many records there are, and the sum of their sizes.
func (x *Index[V]) Sum() (messages int, bytes int64) { return x.messages, x.bytes }
