package jsonmsg

import (
	"errors"
	"sync"

	"github.com/sotto-relay/sotto/crypto"
)

// A PinStore remembers the key with which each peer was first seen (trust on first
// use). Addresses are compared as they are. All methods may be called concurrently.
type PinStore interface {
	// Lookup returns the key remembered for address; ok is false if there is none.
	Lookup(address string) (key crypto.X25519Key, ok bool, err error)

	// Remember records the key of address, unless there is one. If that is another
	// key, it stays, and the error is a *KeyChangedError.
	Remember(address string, key crypto.X25519Key) error
}

// mostPins bounds a store: strangers fill it.
const mostPins = 10_000

var errPinsFull = errors.New("json: too many pinned keys")

// MemoryPins is a PinStore that forgets when the process ends. It holds 10,000 peers,
// and takes no others then. The zero value is empty and ready to use.
type MemoryPins struct {
	mu   sync.Mutex
	keys map[string]crypto.X25519Key
}

// Lookup implements PinStore. It never fails.
func (m *MemoryPins) Lookup(address string) (crypto.X25519Key, bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	key, ok := m.keys[address]
	return key, ok, nil
}

// Remember implements PinStore.
func (m *MemoryPins) Remember(address string, key crypto.X25519Key) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if old, ok := m.keys[address]; ok {
		return samePin(address, old, key)
	}
	if len(m.keys) >= mostPins {
		return errPinsFull
	}
	if m.keys == nil {
		m.keys = make(map[string]crypto.X25519Key)
	}
	m.keys[address] = key
	return nil
}

// Forget has the next key of address be its first one again. It never fails.
func (m *MemoryPins) Forget(address string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.keys, address)
	return nil
}

func samePin(address string, old, key crypto.X25519Key) error {
	if old != key {
		return &KeyChangedError{address, old, key}
	}
	return nil
}
