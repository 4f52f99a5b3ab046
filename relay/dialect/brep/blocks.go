package brep

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sotto-relay/sotto/crypto"
	"github.com/sotto-relay/sotto/relay"
)

// The keys that somebody does not want to hear from (spec native.md, "Frame types")
// are kept in the state store, and all of them in memory, where every message
// looks:
//
//	bucket  "brep-blocks"
//	key     the key that blocks 32 ‖ the blocked one 32
//	value   since when: u64 big-endian, seconds since 1970
const blocksBucket = "brep-blocks"

const (
	maxBlocks    = 1_000   // of one key
	maxAllBlocks = 100_000 // of all: some 10 MB
)

// A block keeps what one key sends from another.
type block struct{ by, sender crypto.PublicKey }

func (b *block) stateKey() string { return string(b.by[:]) + string(b.sender[:]) }

// blocks are those of a server. The methods may be called concurrently; changes of
// those of one key one at a time.
type blocks struct {
	count atomic.Int64 // of all, so that where there are none nobody takes the lock

	mu  sync.RWMutex
	all map[block]struct{}
	per map[crypto.PublicKey]int // how many a key has

	loading sync.Mutex
	loaded  bool
}

// load reads what is in the store, unless that has been done.
func (b *blocks) load(ctx context.Context, state relay.State) error {
	b.loading.Lock()
	defer b.loading.Unlock()
	if b.loaded {
		return nil
	}
	for it, err := range state.Range(ctx, blocksBucket, "") {
		if err != nil {
			return err
		}
		if len(it.Key) == 64 {
			_ = b.note(block{crypto.PublicKey([]byte(it.Key[:32])), crypto.PublicKey([]byte(it.Key[32:]))})
		}
	}
	b.loaded = true
	return nil
}

// has says whether what a sender sends to a key is blocked.
func (b *blocks) has(by, sender crypto.PublicKey) bool {
	if b.count.Load() == 0 {
		return false
	}
	b.mu.RLock()
	defer b.mu.RUnlock()
	_, ok := b.all[block{by, sender}]
	return ok
}

// note adds a block in memory, if there is room.
func (b *blocks) note(x block) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	_, known := b.all[x]
	switch {
	case known:
		return nil
	case b.per[x.by] >= maxBlocks:
		return errBlocks
	case len(b.all) >= maxAllBlocks:
		return &relay.Refusal{Code: relay.CodeStorageFull}
	case b.all == nil:
		b.all, b.per = make(map[block]struct{}), make(map[crypto.PublicKey]int)
	}
	b.all[x] = struct{}{}
	b.per[x.by]++
	b.count.Add(1)
	return nil
}

func (b *blocks) forget(x block) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, known := b.all[x]; !known {
		return
	}
	delete(b.all, x)
	if b.per[x.by]--; b.per[x.by] == 0 {
		delete(b.per, x.by)
	}
	b.count.Add(-1)
}

func (b *blocks) add(ctx context.Context, state relay.State, x block) error {
	if b.has(x.by, x.sender) {
		return nil
	}
	if err := b.note(x); err != nil {
		return err
	}
	err := state.Put(ctx, blocksBucket, x.stateKey(), encodeTime(time.Now()))
	if err != nil {
		b.forget(x)
	}
	return err
}

func (b *blocks) remove(ctx context.Context, state relay.State, x block) error {
	err := state.Delete(ctx, blocksBucket, x.stateKey())
	if err == nil {
		b.forget(x)
	}
	return err
}

// clear removes all blocks of a key.
func (b *blocks) clear(ctx context.Context, state relay.State, by crypto.PublicKey) error {
	for it, err := range state.Range(ctx, blocksBucket, string(by[:])) {
		if err != nil {
			return err
		}
		if len(it.Key) != 64 || it.Key[:32] != string(by[:]) {
			break
		}
		if err := b.remove(ctx, state, block{by, crypto.PublicKey([]byte(it.Key[32:]))}); err != nil {
			return err
		}
	}
	return nil
}

func (s *session) block(ctx context.Context, q *request) error {
	return s.setBlock(q, func(x block) error { return s.common.blocks.add(ctx, s.port.State(), x) })
}

func (s *session) unblock(ctx context.Context, q *request) error {
	return s.setBlock(q, func(x block) error { return s.common.blocks.remove(ctx, s.port.State(), x) })
}

func (s *session) setBlock(q *request, set func(block) error) error {
	sender, err := q.key()
	if err != nil {
		return err
	}
	defer s.common.lock(s.key)()
	if err := set(block{by: s.key, sender: sender}); err != nil {
		return s.kept(err)
	}
	return s.done(q)
}
