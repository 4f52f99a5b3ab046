package handshake

import (
	"sync"

	"github.com/sotto-relay/sotto/crypto"
)

// A TrustStore remembers which key a relay proved to have when it was first
// reached at an address (trust on first use). Only v2 proves a key: that one is
// remembered also means that the relay speaks v2, and is never to be spoken to
// in v1 again. Addresses are compared as they are; they are not empty and hold
// no white space or control characters. All methods may be called concurrently.
type TrustStore interface {
	// Lookup returns the key remembered for address; ok is false if there is
	// none.
	Lookup(address string) (key crypto.PublicKey, ok bool, err error)

	// Remember records the key of address, unless there is one. If that is
	// another key, it stays, and the error is a *KeyMismatchError.
	Remember(address string, key crypto.PublicKey) error
}

// Expect returns the key to expect of the relay at address: pin if it is not
// nil, else the one that store, unless nil, remembers, else nil. When the
// handshake has been done in v2, the caller has store remember the key.
func Expect(pin *crypto.PublicKey, store TrustStore, address string) (*crypto.PublicKey, error) {
	if pin != nil || store == nil {
		return pin, nil
	}
	key, ok, err := store.Lookup(address)
	if err != nil || !ok {
		return nil, err
	}
	return &key, nil
}

// A MemoryTrust is a TrustStore that forgets when the process ends. The zero
// value is empty and ready to use.
type MemoryTrust struct {
	mu   sync.Mutex
	keys map[string]crypto.PublicKey
}

// Lookup implements TrustStore. It never fails.
func (m *MemoryTrust) Lookup(address string) (crypto.PublicKey, bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	key, ok := m.keys[address]
	return key, ok, nil
}

// Remember implements TrustStore.
func (m *MemoryTrust) Remember(address string, key crypto.PublicKey) error {
	if err := checkAddress(address); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if old, ok := m.keys[address]; ok {
		return sameKey(old, key)
	}
	if m.keys == nil {
		m.keys = make(map[string]crypto.PublicKey)
	}
	m.keys[address] = key
	return nil
}

func sameKey(old, key crypto.PublicKey) error {
	if old != key {
		return &KeyMismatchError{Want: old, Got: key}
	}
	return nil
}
