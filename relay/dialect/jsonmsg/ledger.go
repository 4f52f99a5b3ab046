package jsonmsg

import (
	"context"
	"encoding/binary"
	"errors"
	"sync"
	"time"

	"github.com/sotto-relay/sotto/inbox"
	"github.com/sotto-relay/sotto/internal/striped"
	"github.com/sotto-relay/sotto/relay"
)

// A ledger keeps names that belong to keys, in the state store:
//
//	bucket  that of the ledger
//	key     the name; deleting it frees the name at the next start
//	value   last use, u64 big-endian, seconds since 1970 ‖ key 32 ‖ source as text
//
// It bounds how many there are, in all and from one source, and forgets those that
// have not been used for long. What it counts in memory is less than the store
// holds. Its methods may be called concurrently.
type ledger struct {
	bucket string
	names  striped.Mutexes // held while a name's page is changed

	counting sync.Mutex // held while the bucket is counted
	counted  bool

	mu     sync.Mutex
	counts map[string]int // of names, by source
	total  int

	sweeping sync.Mutex
	next     string // where the next sweep begins
}

// A page is one entry of a ledger.
type page struct {
	used   time.Time
	key    [32]byte
	source string // empty: none that is counted
}

// rules are those of one use of a ledger.
type rules struct {
	state     relay.State
	max       int
	perSource int
	ttl       time.Duration
}

const (
	pageHead = 8 + 32

	// sweepStep is how many names are looked at for each that is added.
	sweepStep = 16
)

// step is how exact the time of the last use is kept, a day for 90: what would
// change it by less writes nothing.
func (r *rules) step() time.Duration { return r.ttl / 90 }

func (p *page) encode() []byte {
	b := binary.BigEndian.AppendUint64(nil, uint64(p.used.Unix()))
	return append(append(b, p.key[:]...), p.source...)
}

// decodePage returns a page that nobody has used for a value that is none.
func decodePage(b []byte) (p page) {
	if len(b) >= pageHead {
		p.used = time.Unix(int64(binary.BigEndian.Uint64(b)), 0)
		p.key = [32]byte(b[8:pageHead])
		p.source = string(b[pageHead:])
	}
	return p
}

// find returns the page of a name, unless it is out of date.
func (l *ledger) find(ctx context.Context, r *rules, name string) (p page, ok bool, err error) {
	b, ok, err := r.state.Get(ctx, l.bucket, name)
	if err != nil || !ok {
		return page{}, false, err
	}
	p = decodePage(b)
	return p, r.hold(&p), nil
}

func (r *rules) hold(p *page) bool { return time.Since(p.used) < r.ttl+r.step() }

// record gives a name to a key, or notes its use by it. It fails with errBound and
// errStorageFull. fresh says that the key did not have it.
func (l *ledger) record(ctx context.Context, r *rules, name string, key [32]byte, source string) (fresh bool, err error) {
	if err := l.count(ctx, r); err != nil {
		return false, err
	}
	if err := l.sweep(ctx, r); err != nil {
		return false, err
	}
	defer l.names.Lock(name)()
	p, ok, err := l.find(ctx, r, name)
	switch {
	case err != nil:
		return false, err
	case ok && p.key != key:
		return false, errBound
	case ok:
		return false, l.use(ctx, r, name, p)
	}
	if err := l.drop(ctx, r, name); err != nil { // one that is out of date
		return false, err
	}
	if !l.reserve(r, source) {
		return false, errStorageFull
	}
	p = page{used: time.Now(), key: key, source: source}
	if err := r.state.Put(ctx, l.bucket, name, p.encode()); err != nil {
		l.add(source, -1)
		if errors.Is(err, inbox.ErrStorageFull) {
			err = errStorageFull
		}
		return false, err
	}
	return true, nil
}

// reserve counts one more name of a source, if there may be one.
func (l *ledger) reserve(r *rules, source string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.total >= r.max || source != "" && l.counts[source] >= r.perSource {
		return false
	}
	l.addLocked(source, 1)
	return true
}

// touch notes that a key still uses a name, if it has it.
func (l *ledger) touch(ctx context.Context, r *rules, name string, key [32]byte) error {
	defer l.names.Lock(name)()
	b, ok, err := r.state.Get(ctx, l.bucket, name)
	if p := decodePage(b); err == nil && ok && p.key == key {
		err = l.use(ctx, r, name, p)
	}
	return err
}

// use notes the use of a name now. The caller holds its lock.
func (l *ledger) use(ctx context.Context, r *rules, name string, p page) error {
	now := time.Now()
	if now.Sub(p.used) < r.step() {
		return nil
	}
	p.used = now
	return r.state.Put(ctx, l.bucket, name, p.encode())
}

// remove frees a name.
func (l *ledger) remove(ctx context.Context, r *rules, name string) error {
	if err := l.count(ctx, r); err != nil { // or it would be counted off first
		return err
	}
	defer l.names.Lock(name)()
	return l.drop(ctx, r, name)
}

// drop is remove for a caller that holds the lock of the name.
func (l *ledger) drop(ctx context.Context, r *rules, name string) error {
	b, ok, err := r.state.Get(ctx, l.bucket, name)
	if err != nil || !ok {
		return err
	}
	if err := r.state.Delete(ctx, l.bucket, name); err != nil {
		return err
	}
	l.add(decodePage(b).source, -1)
	return nil
}

// add counts n more names of a source.
func (l *ledger) add(source string, n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.addLocked(source, n)
}

func (l *ledger) addLocked(source string, n int) {
	l.total += n
	if source == "" {
		return
	}
	if l.counts == nil {
		l.counts = make(map[string]int)
	}
	if l.counts[source] += n; l.counts[source] <= 0 {
		delete(l.counts, source)
	}
}

// count counts what the store holds, once, before anything is changed: who comes
// meanwhile waits.
func (l *ledger) count(ctx context.Context, r *rules) error {
	l.counting.Lock()
	defer l.counting.Unlock()
	if l.counted {
		return nil
	}
	var sources []string
	for it, err := range r.state.Range(ctx, l.bucket, "") {
		if err != nil {
			return err
		}
		sources = append(sources, decodePage(it.Value).source)
	}
	for _, source := range sources {
		l.add(source, 1)
	}
	l.counted = true
	return nil
}

// sweep looks at the next few names, and drops those that are out of date: so all
// are seen in turn. One sweeps at a time, and nobody waits for another's sweep. The
// caller holds no lock.
func (l *ledger) sweep(ctx context.Context, r *rules) error {
	if !l.sweeping.TryLock() {
		return nil
	}
	defer l.sweeping.Unlock()
	n := 0
	for it, err := range r.state.Range(ctx, l.bucket, l.next) {
		if err != nil {
			return err
		}
		if n++; n > sweepStep {
			l.next = it.Key
			return nil
		}
		if p := decodePage(it.Value); !r.hold(&p) {
			if err := l.dropOld(ctx, r, it.Key); err != nil {
				return err
			}
		}
	}
	l.next = ""
	return nil
}

// dropOld drops a name, if it is out of date still.
func (l *ledger) dropOld(ctx context.Context, r *rules, name string) error {
	defer l.names.Lock(name)()
	if _, holds, err := l.find(ctx, r, name); err != nil || holds {
		return err
	}
	return l.drop(ctx, r, name)
}
