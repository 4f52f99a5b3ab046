package mailbox

import (
	"container/heap"
	"context"
	"encoding/binary"
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/sotto-relay/sotto/crypto"
	"github.com/sotto-relay/sotto/relay"
)

// A ledger remembers ids, each until a time: in memory, and in a bucket of the
// state store, so that a restart does not forget them. It cleans itself as it is
// used. All methods may be called concurrently.
//
// An item of the bucket is a record: its key the last millisecond in which it
// counts, u64, and 8 random bytes; its value the owner's key and the ids, 16 bytes
// each.
type ledger struct {
	state  relay.State
	bucket string
	log    *slog.Logger
	most   int // ids
	each   int // those of one owner

	reading sync.Mutex // held while the bucket is read, before anything else
	ready   bool       // it has been

	mu      sync.Mutex
	failing bool // the last item could not be stored
	until   map[ledgerKey]int64
	owners  map[crypto.PublicKey]int // ids of each
	records recordHeap
	dead    []string // keys of items to be deleted
}

// A ledgerKey is an id of an owner: what others remember does not concern him.
type ledgerKey struct {
	owner crypto.PublicKey
	id    relay.ID
}

// A record is what was added at once.
type record struct {
	key   string // of its item
	until int64  // Unix milliseconds
	owner crypto.PublicKey
	ids   []relay.ID
}

const (
	ledgerMost  = 1 << 20 // at about 200 bytes each
	ledgerEach  = 1 << 14
	sweepAtOnce = 4 // items deleted by one call; it adds one at most, so that keeps up
)

var errLedgerFull = errors.New("mailbox: a ledger is full")

func newLedger(state relay.State, bucket string, log *slog.Logger) *ledger {
	return &ledger{
		state: state, bucket: bucket, log: log, most: ledgerMost, each: ledgerEach,
		until: make(map[ledgerKey]int64), owners: make(map[crypto.PublicKey]int),
	}
}

// has says whether an id of an owner is remembered, and how many of his are. The error
// is that of a state store that cannot be read.
func (l *ledger) has(ctx context.Context, owner crypto.PublicKey, id relay.ID) (has bool, count int, err error) {
	if err := l.read(ctx); err != nil {
		return false, 0, err
	}
	l.sweep(ctx)
	l.mu.Lock()
	defer l.mu.Unlock()
	_, has = l.until[ledgerKey{owner, id}]
	return has, l.owners[owner], nil
}

// add remembers ids until a time, inclusive, unless there are too many or the
// state store cannot be read. One that cannot be written is logged; what it
// did not take is remembered until a restart.
func (l *ledger) add(ctx context.Context, owner crypto.PublicKey, until time.Time, ids ...relay.ID) error {
	if err := l.read(ctx); err != nil {
		return err
	}
	r := newRecord(until.UnixMilli(), owner, ids)
	l.mu.Lock()
	if len(l.until)+len(ids) > l.most || l.owners[owner]+len(ids) > l.each {
		l.mu.Unlock()
		return errLedgerFull
	}
	l.insert(r)
	l.mu.Unlock()

	err := l.state.Put(ctx, l.bucket, r.key, r.value())
	l.mu.Lock()
	changed := (err != nil) != l.failing
	l.failing = err != nil
	l.mu.Unlock()
	switch {
	case changed && err != nil:
		l.log.Error("mailbox: a restart will forget which requests have been answered", "err", err)
	case changed:
		l.log.Info("mailbox: the state store takes what it has to remember again")
	}
	return nil
}

// insert takes a record into memory. The caller holds l.mu.
func (l *ledger) insert(r record) {
	heap.Push(&l.records, r)
	l.owners[r.owner] += len(r.ids)
	for _, id := range r.ids {
		k := ledgerKey{r.owner, id}
		l.until[k] = max(l.until[k], r.until)
	}
}

// sweep forgets what is over, and deletes some of the items for that.
func (l *ledger) sweep(ctx context.Context) {
	now := time.Now().UnixMilli()
	l.mu.Lock()
	for len(l.records) > 0 && l.records[0].until < now {
		r := heap.Pop(&l.records).(record)
		for _, id := range r.ids {
			k := ledgerKey{r.owner, id}
			if l.until[k] == r.until { // else it has been added again
				delete(l.until, k)
			}
		}
		if l.owners[r.owner] -= len(r.ids); l.owners[r.owner] == 0 {
			delete(l.owners, r.owner)
		}
		l.dead = append(l.dead, r.key)
	}
	n := min(len(l.dead), sweepAtOnce)
	dead := l.dead[:n]
	l.dead = l.dead[n:]
	l.mu.Unlock()
	for _, key := range dead {
		// What stays for an error is found again after a restart.
		_ = l.state.Delete(ctx, l.bucket, key)
	}
}

// read reads the bucket, once.
func (l *ledger) read(ctx context.Context) error {
	l.reading.Lock()
	defer l.reading.Unlock()
	if l.ready {
		return nil
	}
	var all []record
	for item, err := range l.state.Range(ctx, l.bucket, "") {
		if err != nil {
			return err
		}
		if r, ok := parseRecord(item.Key, item.Value); ok {
			all = append(all, r)
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range all {
		l.insert(r)
	}
	l.ready = true
	return nil
}

func newRecord(until int64, owner crypto.PublicKey, ids []relay.ID) record {
	key := binary.BigEndian.AppendUint64(nil, uint64(until))
	key = binary.BigEndian.AppendUint64(key, rand.Uint64())
	return record{string(key), until, owner, ids}
}

func (r *record) value() []byte {
	b := append([]byte(nil), r.owner[:]...)
	for _, id := range r.ids {
		b = append(b, id[:]...)
	}
	return b
}

func parseRecord(key string, value []byte) (r record, ok bool) {
	const owner, id = len(r.owner), len(relay.ID{})
	if len(key) != 16 || len(value) < owner+id || (len(value)-owner)%id != 0 {
		return record{}, false
	}
	r.key, r.until = key, int64(binary.BigEndian.Uint64([]byte(key)))
	r.owner = crypto.PublicKey(value[:owner])
	for b := value[owner:]; len(b) > 0; b = b[id:] {
		r.ids = append(r.ids, relay.ID(b))
	}
	return r, true
}

// A recordHeap has the record first that is over first.
type recordHeap []record

func (h recordHeap) Len() int           { return len(h) }
func (h recordHeap) Less(i, j int) bool { return h[i].until < h[j].until }
func (h recordHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *recordHeap) Push(x any)        { *h = append(*h, x.(record)) }
func (h *recordHeap) Pop() any {
	last := len(*h) - 1
	r := (*h)[last]
	(*h)[last] = record{}
	*h = (*h)[:last]
	return r
}
