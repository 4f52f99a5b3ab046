package client

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/sotto-relay/sotto/inbox"
)

// Names of the buckets in Config.Store begin so; the identity's key follows.
const (
	outboxBucket = "client/outbox/"
	seenBucket   = "client/seen/"
)

// storeTime bounds what the Client does with the Store of its own accord, and with
// that its end.
const storeTime = 10 * time.Second

// writtenTogether is how many changes are made at once, so that a store can make
// them durable with one write.
const writtenTogether = 64

var errStored = errors.New("client: not an entry of a client's, or damaged")

// A shelf is a bucket of Config.Store.
type shelf struct {
	state  inbox.State
	bucket string
	failed func(error)
}

func newShelf(cfg *Config, bucket string) *shelf {
	return &shelf{cfg.Store, bucket + cfg.Identity.Public().String(), func(err error) {
		cfg.Logger.Error("client: store", "bucket", bucket, "err", err)
		cfg.Trace.StoreFailed(err)
	}}
}

// load calls take for all items, and deletes those that it refuses.
func (s *shelf) load(ctx context.Context, take func(inbox.Item) error) error {
	var refused []string
	for it, err := range s.state.Range(ctx, s.bucket, "") {
		if err != nil {
			return fmt.Errorf("client: store: %w", err)
		}
		if err := take(it); err != nil {
			s.failed(err)
			refused = append(refused, it.Key)
		}
	}
	s.delete(refused)
	return nil
}

// put writes an item, and says whether it has.
func (s *shelf) put(key string, value []byte) bool {
	ctx, cancel := context.WithTimeout(context.Background(), storeTime)
	defer cancel()
	err := s.state.Put(ctx, s.bucket, key, value)
	if err != nil {
		s.failed(err)
	}
	return err == nil
}

// delete deletes items, as many at once as may share a write.
func (s *shelf) delete(keys []string) { s.deleteIn(context.Background(), keys) }

func (s *shelf) deleteIn(ctx context.Context, keys []string) {
	ctx, cancel := context.WithTimeout(ctx, storeTime)
	defer cancel()
	for some := range slices.Chunk(keys, writtenTogether) {
		var deleting sync.WaitGroup
		for _, k := range some {
			deleting.Go(func() {
				if err := s.state.Delete(ctx, s.bucket, k); err != nil {
					s.failed(err)
				}
			})
		}
		deleting.Wait()
	}
}

// openStore takes over what was left in Config.Store.
func (c *Client) openStore(ctx context.Context) error {
	if c.cfg.Store == nil {
		return nil
	}
	j, left, err := openJournal(ctx, newShelf(&c.cfg, outboxBucket), c.cfg.Identity.Public())
	if err != nil {
		return err
	}
	c.out.restore(j, left)
	if c.in.records, err = openRecords(ctx, newShelf(&c.cfg, seenBucket), c.in.seen); err != nil {
		return err
	}
	return c.files.finished.open(ctx, newShelf(&c.cfg, filesBucket))
}
