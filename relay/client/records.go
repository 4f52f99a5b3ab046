package client

import (
	"context"
	"encoding/binary"
	"sync"
	"time"

	"github.com/sotto-relay/sotto/inbox"
)

// records keep what seen remembers in Config.Store. Letters that are taken at the
// same time share a record, and its write. The key of a record is its time, u64
// ns; the value is n × (sender 32 ‖ id 16).
type records struct {
	shelf *shelf
	turn  chan struct{} // held by whoever writes

	mu    sync.Mutex
	next  *recording // to be written; nil: none
	last  int64      // time of a record
	stale []string   // keys of records to delete, with the next write
}

// A record is a key with letters that are remembered. left is under the inbound
// queue's mu.
type record struct {
	of   *records
	key  string
	left int // letters that have not been forgotten
}

// A recording is a record to be.
type recording struct {
	value []byte
	done  chan struct{} // closed after the write
	as    *record       // set before; nil: it failed
}

const letterKeySize = 32 + 16

// openRecords has known remember what is recorded.
func openRecords(ctx context.Context, s *shelf, known *seen) (*records, error) {
	r := &records{shelf: s, turn: make(chan struct{}, 1)}
	now := time.Now()
	err := s.load(ctx, func(it inbox.Item) error {
		n := len(it.Value) / letterKeySize
		if len(it.Key) != 8 || n == 0 || len(it.Value)%letterKeySize != 0 {
			return errStored
		}
		r.last = int64(binary.BigEndian.Uint64([]byte(it.Key)))
		at := time.Unix(0, r.last)
		if at.After(now) {
			at = now // the clock was wrong
		}
		if now.Sub(at) >= rememberTime {
			r.stale = append(r.stale, it.Key)
			return nil
		}
		in := &record{of: r, key: it.Key, left: n}
		for b := it.Value; len(b) > 0; b = b[letterKeySize:] {
			known.note(letterKey{[32]byte(b), [16]byte(b[32:])}, at, in)
		}
		return nil
	})
	s.delete(r.stale)
	r.stale = nil
	return r, err
}

// add records a letter, and returns where: nil if that fails. Who comes while
// somebody writes joins those who wait, and one of them writes for all.
func (r *records) add(k letterKey) *record {
	w := r.join(k)
	select {
	case <-w.done:
	case r.turn <- struct{}{}:
		r.write(w)
		<-r.turn
	}
	return w.as
}

func (r *records) join(k letterKey) *recording {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.next == nil {
		r.next = &recording{done: make(chan struct{})}
	}
	w := r.next
	w.value = append(append(w.value, k.sender[:]...), k.id[:]...)
	return w
}

// write writes a recording, unless that has been done. The caller has the turn.
func (r *records) write(w *recording) {
	r.mu.Lock()
	if r.next != w {
		r.mu.Unlock()
		return
	}
	r.next = nil
	r.last = max(r.last+1, time.Now().UnixNano())
	key := string(binary.BigEndian.AppendUint64(nil, uint64(r.last)))
	n := min(len(r.stale), writtenTogether)
	stale := r.stale[:n:n]
	r.stale = r.stale[n:]
	r.mu.Unlock()

	var deleting sync.WaitGroup
	if n > 0 {
		deleting.Go(func() { r.shelf.delete(stale) })
	}
	if r.shelf.put(key, w.value) {
		w.as = &record{of: r, key: key, left: len(w.value) / letterKeySize}
	}
	deleting.Wait()
	close(w.done)
}

// forget says that a letter of a record is not remembered any more.
func (w *record) forget() {
	if w == nil {
		return
	}
	if w.left--; w.left == 0 {
		w.of.mu.Lock()
		defer w.of.mu.Unlock()
		w.of.stale = append(w.of.stale, w.key)
	}
}
