// Package striped locks by name, for work that takes as long as a disk does: who
// works on one name does not hold up who works on another, as a rule.
package striped

import (
	"hash/maphash"
	"sync"
)

// Mutexes are locks by name. Names share 64 of them, so who holds one must not
// lock a second. The zero value has none locked.
type Mutexes struct {
	once  sync.Once
	seed  maphash.Seed
	locks [64]sync.Mutex
}

// Lock locks a name, and returns what unlocks it.
func (m *Mutexes) Lock(name string) (unlock func()) {
	m.once.Do(func() { m.seed = maphash.MakeSeed() })
	l := &m.locks[maphash.String(m.seed, name)%uint64(len(m.locks))]
	l.Lock()
	return l.Unlock
}
