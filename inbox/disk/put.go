package disk

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/sotto-relay/sotto/inbox"
)

// A put is the op of [store.Put].
type put struct {
	db      *DB
	done    func(inbox.Result)
	e       inbox.Entry // without Data
	size    int         // of it
	quota   inbox.Quota
	expires time.Duration
	kept    kept

	// The values as they will be stored, but for the keys' share of their sums.
	// There are parts if the data does not stand in the entry.
	entry draft
	parts []draft

	stored bool
	res    inbox.Result
}

// A draft is a value that lacks the key's share of its sum, and has room for it.
type draft struct {
	body []byte
	sum  sealer
}

func newDraft(body []byte) draft { return draft{body, newSealer(body)} }

func (d draft) seal(key []byte) []byte { return d.sum.seal(d.body, key) }

var (
	errName   = errors.New("disk: name or data is too long")
	errBehind = fmt.Errorf("%w: the disk does not keep up", inbox.ErrStorageFull)
)

// Put implements [inbox.Store].
func (s store) Put(ctx context.Context, e *inbox.Entry, q inbox.Quota, done func(inbox.Result)) {
	p := &put{db: s.DB, done: done, quota: q}
	switch err := ctx.Err(); {
	case err != nil:
		p.res.Err = err
	case len(e.To.Name) > maxName || len(e.From.Name) > maxName || len(e.Data) > maxData:
		p.res.Err = errName
	case !s.queue.room(len(e.Data)):
		p.res.Err = errBehind
	default:
		p.encode(e)
	}
	if !s.queue.push(p) {
		p.finish(s.Err())
	}
}

// encode makes the values: here, since it takes too long for the one goroutine
// that commits.
func (p *put) encode(e *inbox.Entry) {
	c := &p.db.clock
	p.expires = c.expiry(e.Expires)
	p.kept = kept{stored: newStamp(c.fix(e.Stored)), expires: newStamp(c.fix(e.Expires)), form: e.Form, flags: e.Flags}
	h := header{
		form: e.Form, flags: e.Flags, id: e.ID, to: e.To, from: e.From,
		stored: p.kept.stored, expires: p.kept.expires, size: len(e.Data),
	}
	if p.quota.SenderTotal > 0 {
		h.kind |= counted
	}
	p.e = *e
	if n := parts(len(e.Data)); n == 0 {
		b := make([]byte, 0, h.length()+len(e.Data)+sumSize)
		p.entry = newDraft(append(h.append(b), e.Data...))
	} else {
		h.kind |= external
		p.entry = newDraft(h.append(make([]byte, 0, h.length()+sumSize)))
		p.parts = make([]draft, 0, n)
		for part := range slices.Chunk(e.Data, partSize) {
			p.parts = append(p.parts, newDraft(append(make([]byte, 0, len(part)+sumSize), part...)))
		}
	}
	p.size, p.e.Data = len(e.Data), nil // the caller's
}

func (p *put) apply(g *group) {
	if p.res.Err != nil {
		return
	}
	db := p.db
	db.mu.Lock()
	defer db.mu.Unlock()
	a := db.index.Admit(&p.e, p.size, p.expires, p.quota, db.clock.now())
	for _, rec := range a.Expired {
		db.forget(g, rec)
		p.res.Expired = append(p.res.Expired, entry(rec, nil))
	}
	if a.Repeat != nil {
		p.res.Seq, p.res.Repeat = a.Repeat.Seq, true
		return
	}
	if a.Err != nil {
		p.res.Err = a.Err
		return
	}
	more := cost(p.e.To, p.e.From, p.size)
	for _, rec := range a.Dropped {
		more -= costOf(rec)
	}
	if !db.room(more, 1-len(a.Dropped)) {
		db.index.Withdraw(&p.e, p.quota)
		p.res.Err = inbox.ErrStorageFull
		return
	}
	for _, rec := range a.Dropped {
		db.index.Remove(rec)
		db.forget(g, rec)
		p.res.Dropped = append(p.res.Dropped, entry(rec, nil))
	}
	rec := db.index.Add(&p.e, p.size, p.expires, p.quota, p.kept)
	db.used += costOf(rec)
	db.spent += 2 * costOf(rec)
	p.res.Seq, g.last, p.stored = rec.Seq, rec.Seq, true
	p.write(g, rec.Seq)
}

func (p *put) write(g *group, seq uint64) {
	p.db.raise(g, seq)
	key := seqKey(entrySpace, seq)
	_ = g.batch.Set(key, p.entry.seal(key), nil) // a batch in memory does not fail
	for i, part := range p.parts {
		key = partKey(seq, i)
		_ = g.batch.Set(key, part.seal(key), nil)
	}
}

func (p *put) finish(err error) {
	if p.entry.body != nil {
		p.db.queue.leave(p.size)
	}
	if p.res.Repeat && p.db.taken[p.res.Seq] {
		err = inbox.ErrStorageFull
	}
	if err != nil && p.res.Err == nil { // what it pushed out is gone all the same
		p.res.Seq, p.res.Repeat, p.res.Err = 0, false, err
	}
	p.done(p.res)
}
