package disk

import (
	"context"
	"errors"
	"iter"

	"github.com/cockroachdb/pebble/v2"

	"github.com/sotto-relay/sotto/inbox"
)

// state is the [inbox.State] of a DB.
type state struct{ *DB }

var _ inbox.State = state{}

// get calls use with the body of a value, which is valid during the call.
func (db *DB) get(key []byte, use func(body []byte) error) (err error) {
	if err := db.enter(); err != nil {
		return err
	}
	defer db.readers.Done()
	defer db.recover()
	value, c, err := db.pebble.Get(key)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	body, err := unseal(value, key)
	if err != nil {
		return err
	}
	return use(body)
}

// Get implements [inbox.State].
func (s state) Get(ctx context.Context, bucket, key string) (value []byte, ok bool, err error) {
	if err := s.check(ctx); err != nil {
		return nil, false, err
	}
	if len(bucket) > maxName {
		return nil, false, nil
	}
	err = s.get(stateKey(bucket, key), func(body []byte) error {
		value = append([]byte{}, body...)
		return nil
	})
	switch {
	case errors.Is(err, pebble.ErrNotFound):
		return nil, false, nil
	case isDamage(err):
		s.damage("a value of the state cannot be read", err)
	}
	return value, err == nil, err
}

// Put implements [inbox.State].
func (s state) Put(ctx context.Context, bucket, key string, value []byte) error {
	if len(bucket) > maxName {
		return errName
	}
	k := stateKey(bucket, key)
	v := seal(append(make([]byte, 0, len(value)+sumSize), value...), k)
	var full bool
	ended, err := s.run(ctx, func(g *group) {
		// It is little, and what it remembers must not be forgotten just because
		// messages have filled the disk.
		if full = s.diskFull(s.o.Reserve / 2); !full {
			s.there(g, k, true)
			_ = g.batch.Set(k, v, nil)
		}
	})
	if ended && full {
		return inbox.ErrStorageFull
	}
	return err
}

// Delete implements [inbox.State].
func (s state) Delete(ctx context.Context, bucket, key string) error {
	if len(bucket) > maxName {
		return nil
	}
	k := stateKey(bucket, key)
	_, err := s.run(ctx, func(g *group) {
		s.there(g, k, false)
		_ = g.batch.Delete(k, nil)
	})
	return err
}

// there counts a value that is there from now on or is not.
func (s state) there(g *group, key []byte, is bool) {
	was, known := g.values[string(key)]
	if !known {
		_, c, err := s.pebble.Get(key)
		if was = !errors.Is(err, pebble.ErrNotFound); err == nil {
			_ = c.Close()
		}
	}
	switch {
	case is && !was:
		s.values++
	case was && !is:
		s.values--
	}
	if g.values == nil {
		g.values = make(map[string]bool)
	}
	g.values[string(key)] = is
}

// rangeBytes and rangeItems bound what Range reads at once.
const (
	rangeItems = 64
	rangeBytes = 256 << 10
)

// Range implements [inbox.State].
func (s state) Range(ctx context.Context, bucket, from string) iter.Seq2[inbox.Item, error] {
	return func(yield func(inbox.Item, error) bool) {
		for more := len(bucket) <= maxName; more; {
			var items []inbox.Item
			err := s.check(ctx)
			if err == nil {
				items, more, err = s.list(bucket, from)
			}
			for _, it := range items {
				if err := s.check(ctx); err != nil {
					yield(inbox.Item{}, err)
					return
				}
				if !yield(it, nil) {
					return
				}
				from = it.Key + "\x00"
			}
			if err != nil {
				yield(inbox.Item{}, err)
				return
			}
		}
	}
}

// list reads some items of a bucket. more says that there may be others.
func (s state) list(bucket, from string) (items []inbox.Item, more bool, err error) {
	if err := s.enter(); err != nil {
		return nil, false, err
	}
	defer s.readers.Done()
	defer s.recover()
	prefix := stateKey(bucket, "")
	it, err := s.pebble.NewIter(&pebble.IterOptions{LowerBound: stateKey(bucket, from), UpperBound: successor(prefix)})
	if err != nil {
		return nil, false, err
	}
	defer func() {
		if cerr := it.Close(); err == nil {
			err = cerr
		}
		if isDamage(err) {
			s.damage("values of the state cannot be read", err)
		}
	}()
	size := 0
	for ok := it.First(); ok; ok = it.Next() {
		if len(items) == rangeItems || size > rangeBytes {
			return items, true, nil
		}
		value, err := it.ValueAndErr()
		if err != nil {
			return items, false, err
		}
		body, err := unseal(value, it.Key())
		if err != nil {
			return items, false, err
		}
		items = append(items, inbox.Item{Key: string(it.Key()[len(prefix):]), Value: append([]byte{}, body...)})
		size += len(value)
	}
	return items, false, it.Error()
}

// successor returns the first key after all that begin with k, or nil.
func successor(k []byte) []byte {
	s := append([]byte(nil), k...)
	for i := len(s) - 1; i >= 0; i-- {
		if s[i]++; s[i] != 0 {
			return s[:i+1]
		}
	}
	return nil
}
