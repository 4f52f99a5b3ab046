package client

import (
	"context"
	"fmt"
	"iter"

	"github.com/sotto-relay/sotto/crypto"
	"github.com/sotto-relay/sotto/inbox"
)

// A safe is a bucket with encrypted values: keys, and what they are trusted for.
// The names of its items are not encrypted.
type safe struct {
	*shelf
	vault *crypto.Vault
}

// newSafe returns a safe in a store, which need not be cfg.Store.
func newSafe(cfg *Config, bucket string, store inbox.State) (*safe, error) {
	vault, err := cfg.Identity.Vault()
	if err != nil {
		return nil, err
	}
	s := newShelf(cfg, bucket)
	s.state = store
	return &safe{s, vault}, nil
}

// place is what a value is bound to.
func (s *safe) place(key string) string { return s.bucket + "\x00" + key }

// get returns a value; nil: there is none.
func (s *safe) get(ctx context.Context, key string) ([]byte, error) {
	sealed, ok, err := s.state.Get(ctx, s.bucket, key)
	if err != nil {
		return nil, storeError(err)
	}
	if !ok {
		return nil, nil
	}
	return s.vault.Open(s.place(key), sealed)
}

func (s *safe) put(ctx context.Context, key string, value []byte) error {
	return storeError(s.state.Put(ctx, s.bucket, key, s.vault.Seal(s.place(key), value)))
}

func (s *safe) delete(ctx context.Context, key string) error {
	return storeError(s.state.Delete(ctx, s.bucket, key))
}

// all yields all items, in order of the keys. The value is nil for what does not
// open. An error ends the loop.
func (s *safe) all(ctx context.Context) iter.Seq2[inbox.Item, error] {
	return func(yield func(inbox.Item, error) bool) {
		for item, err := range s.state.Range(ctx, s.bucket, "") {
			if err != nil {
				yield(inbox.Item{}, storeError(err))
				return
			}
			if item.Value, err = s.vault.Open(s.place(item.Key), item.Value); err != nil {
				item.Value = nil
			}
			if !yield(item, nil) {
				return
			}
		}
	}
}

func storeError(err error) error {
	if err != nil {
		err = fmt.Errorf("client: store: %w", err)
	}
	return err
}
