package disk

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/sotto-relay/sotto/inbox"
)

// What follows is for operators, mostly while no relay runs. None of it shows
// what messages hold. Expired entries that have not been purged are included.

// A Recipient is somebody who has messages.
type Recipient struct {
	Address  inbox.Address
	Messages int
	Bytes    int64 // of data
	Oldest   time.Time
}

// A Message is what is known of a message.
type Message struct {
	Seq     uint64
	From    inbox.Address
	Bytes   int // of data
	Stored  time.Time
	Expires time.Time // zero: never
}

// Recipients lists all recipients, in order of their addresses.
func (db *DB) Recipients(ctx context.Context) ([]Recipient, error) {
	if err := db.check(ctx); err != nil {
		return nil, err
	}
	db.mu.Lock()
	defer db.mu.Unlock()
	var list []Recipient
	for rec := range db.index.All() {
		if n := len(list); n == 0 || list[n-1].Address != rec.To() {
			list = append(list, Recipient{Address: rec.To(), Oldest: rec.Value.stored.time()})
		}
		r := &list[len(list)-1]
		r.Messages++
		r.Bytes += int64(rec.Size)
	}
	slices.SortFunc(list, func(a, b Recipient) int {
		return cmp.Or(cmp.Compare(a.Address.Realm, b.Address.Realm), cmp.Compare(a.Address.Name, b.Address.Name))
	})
	return list, nil
}

// Messages lists a recipient's messages, oldest first.
func (db *DB) Messages(ctx context.Context, to inbox.Address) ([]Message, error) {
	if err := db.check(ctx); err != nil {
		return nil, err
	}
	db.mu.Lock()
	defer db.mu.Unlock()
	var list []Message
	for rec := range db.index.Of(to) {
		list = append(list, Message{
			Seq: rec.Seq, From: rec.From(), Bytes: rec.Size,
			Stored: rec.Value.stored.time(), Expires: rec.Value.expires.time(),
		})
	}
	return list, nil
}

// Remove deletes all of a recipient's messages, and returns how many there were.
// Those that have expired of all recipients go with Purge of [DB.Inbox].
func (db *DB) Remove(ctx context.Context, to inbox.Address) (removed int, err error) {
	list, err := db.Messages(ctx, to)
	for chunk := range slices.Chunk(list, purgeBatch) {
		var seqs []uint64
		for _, m := range chunk {
			seqs = append(seqs, m.Seq)
		}
		n, err := db.Inbox().Delete(ctx, to, seqs...)
		removed += n
		if err != nil {
			return removed, err
		}
	}
	return removed, err
}

// A Check says what [DB.Check] found.
type Check struct {
	Messages int
	Bytes    int64    // of their data
	Values   int      // of the state
	Damaged  []string // a sentence for each thing
}

// Check reads everything and compares the checksums, changing nothing. What is
// damaged is left out of everything else too: to be rid of it, restore a backup,
// or open with Options.Quarantine. It reads message by message, as recipients do:
// who goes through Pebble's tables in order meets the damage of one in others.
func (db *DB) Check(ctx context.Context) (c Check, err error) {
	if err := db.check(ctx); err != nil {
		return c, err
	}
	db.mu.Lock()
	all := slices.Collect(db.index.All())
	db.mu.Unlock()
	last := db.durable.Load() // Pebble may not have those behind it yet
	all = slices.DeleteFunc(all, func(rec *record) bool { return rec.Seq > last })
	slices.SortFunc(all, func(a, b *record) int { return cmp.Compare(a.Seq, b.Seq) })
	for _, rec := range all {
		err := db.verify(ctx, rec)
		switch {
		case err == nil:
			c.Messages++
			c.Bytes += int64(rec.Size)
		case isDamage(err):
			c.Damaged = append(c.Damaged, fmt.Sprintf("message %d cannot be read: %s", rec.Seq, blame(err)))
		default:
			return c, err
		}
	}
	err = db.scan([]byte{stateSpace}, visitor{
		use: func([]byte, []byte) error { c.Values++; return ctx.Err() },
		bad: func(_ []byte, err error) error {
			c.Damaged = append(c.Damaged, "a part of the state cannot be read: "+blame(err))
			return ctx.Err()
		},
	})
	return c, err
}

// blame says in words for operators what is damaged.
func blame(err error) string {
	if info := pebble.ExtractDataCorruptionInfo(err); info != nil {
		return "the file " + info.Path + " is damaged"
	}
	if pebble.IsCorruptionError(err) {
		return "a file of the store is damaged"
	}
	return "what is stored is not what was written"
}

// verify reads a message. One that is gone meanwhile is fine.
func (db *DB) verify(ctx context.Context, rec *record) error {
	if err := db.check(ctx); err != nil {
		return err
	}
	err := db.get(seqKey(entrySpace, rec.Seq), func(body []byte) error {
		_, _, err := parseEntry(body)
		return err
	})
	if err == nil {
		_, err = store{db}.data(rec)
	}
	if err == nil {
		return nil
	}
	if errors.Is(err, pebble.ErrNotFound) {
		err = errDamaged // the index has it
	}
	db.mu.Lock()
	defer db.mu.Unlock()
	if db.index.Find(rec.To(), rec.Seq) != rec {
		return nil
	}
	return err
}
