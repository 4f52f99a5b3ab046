package inboxtest

import (
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sotto-relay/sotto/inbox"
)

// answers puts without waiting: the answers come once each, in order.
func (r *rig) answers() {
	const n = 500
	var mu sync.Mutex
	var order []int
	var seqs []uint64
	var wg sync.WaitGroup
	wg.Add(n)
	data := make([]byte, 4)
	for i := range n {
		binary.BigEndian.PutUint32(data, uint32(i))
		r.s.Put(ctx, &inbox.Entry{To: bob, From: alice, Data: data}, inbox.Quota{}, func(res inbox.Result) {
			mu.Lock()
			defer mu.Unlock()
			defer wg.Done() // panics when called too often
			if res.Err != nil {
				r.Error(res.Err)
			}
			order = append(order, i)
			seqs = append(seqs, res.Seq)
		})
	}
	wg.Wait()
	if !slices.IsSorted(order) || !slices.IsSorted(seqs) {
		r.Fatal("answers out of order")
	}
	r.has(bob, seqs...)
	for i, e := range r.list(bob, 0) {
		equal(r, "data", binary.BigEndian.Uint32(e.Data), uint32(i))
	}
}

// putters has senders put to the same recipients at once: what each sends
// arrives in the order sent.
func (r *rig) putters() {
	const senders, each = 8, 200
	to := []inbox.Address{alice, bob, carol}
	var senderWG, answerWG sync.WaitGroup
	answerWG.Add(senders * each)
	for i := range senders {
		senderWG.Go(func() {
			from := inbox.Address{Name: string(rune('0' + i))}
			for j := range each {
				e := &inbox.Entry{To: to[j%len(to)], From: from, Data: binary.BigEndian.AppendUint32(nil, uint32(j))}
				r.s.Put(ctx, e, inbox.Quota{}, func(res inbox.Result) {
					defer answerWG.Done()
					if res.Err != nil {
						r.Error(res.Err)
					}
				})
			}
		})
	}
	senderWG.Wait()
	answerWG.Wait()
	for k, name := range to {
		next := make(map[inbox.Address]int)
		var last uint64
		for _, e := range r.list(name, 0) {
			if e.Seq <= last {
				r.Fatalf("number %d after %d", e.Seq, last)
			}
			last = e.Seq
			equal(r, "place among its sender's", int(binary.BigEndian.Uint32(e.Data)), k+next[e.From])
			next[e.From] += len(to)
		}
		equal(r, "senders", len(next), senders)
	}
	r.totals(senders*each, 4*senders*each)
}

// totalAtOnce has one sender put to many recipients at once: as many as his
// quota are stored, no more and no less.
func (r *rig) totalAtOnce() {
	const recipients, limit = 16, 100
	var stored atomic.Int64
	var putting, answered sync.WaitGroup
	answered.Add(recipients * limit)
	for i := range recipients {
		putting.Go(func() {
			to := inbox.Address{Name: string(rune('a' + i))}
			for range limit {
				r.s.Put(ctx, &inbox.Entry{To: to, From: alice}, inbox.Quota{SenderTotal: limit}, func(res inbox.Result) {
					defer answered.Done()
					switch res.Err {
					case nil:
						stored.Add(1)
					case inbox.ErrSenderQuota:
					default:
						r.Error(res.Err)
					}
				})
			}
		})
	}
	putting.Wait()
	answered.Wait()
	equal(r, "stored", stored.Load(), limit)
	r.totals(limit, 0)
}

// stress does everything at once and then checks the sum: what was stored was
// deleted, has expired, was dropped, or is there.
func (r *rig) stress() {
	to := []inbox.Address{alice, bob, carol}
	var stored, deleted, expired, dropped atomic.Int64
	var answered, workers sync.WaitGroup
	worker := func(steps int, step func(*rand.Rand, inbox.Address)) {
		rnd := rand.New(rand.NewPCG(uint64(steps), rand.Uint64()))
		workers.Go(func() {
			for i := range steps {
				step(rnd, to[rnd.IntN(len(to))])
				if i%50 == 0 {
					r.clock.Advance(time.Millisecond)
				}
			}
		})
	}
	for range 4 {
		worker(500, func(rnd *rand.Rand, to inbox.Address) {
			e := &inbox.Entry{To: to, From: bob, ID: inbox.ID{byte(rnd.IntN(100))}, Data: make([]byte, rnd.IntN(10))}
			if rnd.IntN(2) == 0 {
				e.Expires = r.clock.Now().Add(time.Duration(1+rnd.IntN(20)) * time.Millisecond)
			}
			q := inbox.Quota{Messages: 40, PerSender: 50, DropOldest: rnd.IntN(2) == 0}
			answered.Add(1)
			r.s.Put(ctx, e, q, func(res inbox.Result) {
				defer answered.Done()
				expired.Add(int64(len(res.Expired)))
				dropped.Add(int64(len(res.Dropped)))
				switch res.Err {
				case nil:
					if !res.Repeat {
						stored.Add(1)
					}
				case inbox.ErrInboxFull, inbox.ErrSenderQuota, inbox.ErrExpired:
				default:
					r.Error(res.Err)
				}
			})
		})
		worker(100, func(rnd *rand.Rand, to inbox.Address) {
			var last uint64
			for e, err := range r.s.Entries(ctx, to, 0) {
				if err != nil || e.Seq <= last {
					r.Errorf("entry %+v after %d: %v", e, last, err)
					return
				}
				last = e.Seq
				if rnd.IntN(10) == 0 {
					n, err := r.s.Delete(ctx, to, e.Seq)
					if err != nil {
						r.Error(err)
					}
					deleted.Add(int64(n))
				}
			}
		})
	}
	worker(200, func(rnd *rand.Rand, to inbox.Address) {
		if _, err := r.s.Purge(ctx, rnd.IntN(20), func(*inbox.Entry) { expired.Add(1) }); err != nil {
			r.Error(err)
		}
		if _, _, err := r.s.Count(ctx, to); err != nil {
			r.Error(err)
		}
		if _, _, err := r.s.Totals(ctx); err != nil {
			r.Error(err)
		}
		if _, err := r.s.Lease(ctx, to, r.clock.Now().Add(time.Millisecond), rnd.Uint64N(500)); err != nil {
			r.Error(err)
		}
	})
	workers.Wait()
	answered.Wait()
	r.clock.Advance(time.Second)
	expired.Add(int64(len(r.purge(1 << 20))))
	held, bytes := 0, int64(0)
	for _, to := range to {
		sum := int64(0)
		es := r.list(to, 0)
		for _, e := range es {
			sum += int64(len(e.Data))
		}
		r.count(to, len(es), sum)
		held += len(es)
		bytes += sum
	}
	r.totals(held, bytes)
	equal(r, "stored", stored.Load(), deleted.Load()+expired.Load()+dropped.Load()+int64(held))
}
