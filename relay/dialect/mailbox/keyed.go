package mailbox

import (
	"context"
	"sync"

	"github.com/sotto-relay/sotto/relay"
)

// keyed are locks by ID, for work that may take long: who waits can give up. The
// zero value has none locked.
type keyed struct {
	mu    sync.Mutex
	locks map[relay.ID]*keyedLock
}

type keyedLock struct {
	users int           // who hold it or wait for it
	free  chan struct{} // has a value while nobody holds it
}

// tryLock locks id if nobody holds it.
func (k *keyed) tryLock(id relay.ID) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.locks[id] != nil {
		return false
	}
	if k.locks == nil {
		k.locks = make(map[relay.ID]*keyedLock)
	}
	k.locks[id] = &keyedLock{users: 1, free: make(chan struct{}, 1)}
	return true
}

// lock waits for id, or until ctx ends.
func (k *keyed) lock(ctx context.Context, id relay.ID) error {
	k.mu.Lock()
	l := k.locks[id]
	if l == nil {
		if k.locks == nil {
			k.locks = make(map[relay.ID]*keyedLock)
		}
		l = &keyedLock{free: make(chan struct{}, 1)}
		l.free <- struct{}{}
		k.locks[id] = l
	}
	l.users++
	k.mu.Unlock()
	select {
	case <-l.free:
		return nil
	case <-ctx.Done():
		k.leave(id)
		return ctx.Err()
	}
}

func (k *keyed) unlock(id relay.ID) {
	k.mu.Lock()
	k.locks[id].free <- struct{}{}
	k.mu.Unlock()
	k.leave(id)
}

func (k *keyed) leave(id relay.ID) {
	k.mu.Lock()
	defer k.mu.Unlock()
	l := k.locks[id]
	if l.users--; l.users == 0 {
		delete(k.locks, id)
	}
}
