package disk

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"

	"github.com/cockroachdb/pebble/v2"
)

// A Rescue says what Open moved aside, and what could be brought over from it.
type Rescue struct {
	Why      error    // what was found
	Moved    []string // what is not used any more; nobody removes it
	Messages int      // brought over
	Values   int      // of the state, brought over
	Lost     []string // what could not be read, in words for operators
}

// Rescued returns what Options.Quarantine made Open do, nil if nothing.
func (db *DB) Rescued() *Rescue { return db.rescued }

// setAside moves the marker aside and makes one that has what is in db brought
// over, by this or, should it not come to its end, by the next Open.
func (db *DB) setAside(why *openError) (marker, error) {
	fsys := db.o.FS
	suffix := ".bad-" + time.Now().UTC().Format("20060102T150405Z")
	for n, again := 1, suffix; db.exists(dbName+suffix) || db.exists(markerName+suffix); n++ {
		suffix = fmt.Sprintf("%s-%d", again, n)
	}
	db.rescued = &Rescue{Why: why}
	if db.exists(markerName) {
		if err := db.move(markerName, markerName+suffix); err != nil {
			return marker{}, err
		}
	}
	m := newMarker(stateRescue + dbName + suffix)
	return m, m.write(fsys, db.dir)
}

func (db *DB) exists(name string) bool {
	_, err := db.o.FS.Stat(db.o.FS.PathJoin(db.dir, name))
	return !errors.Is(err, fs.ErrNotExist)
}

func (db *DB) move(name, aside string) error {
	from, to := db.o.FS.PathJoin(db.dir, name), db.o.FS.PathJoin(db.dir, aside)
	err := db.o.FS.Rename(from, to)
	if err == nil {
		err = syncDir(db.o.FS, db.dir)
	}
	if err != nil {
		return unwritable(from, err)
	}
	db.rescued.Moved = append(db.rescued.Moved, to)
	return nil
}

// rescue brings over what can be read of a directory of Pebble's that may be
// damaged in any way. It does not open it, but reads its tables and logs as they
// are: of each key the youngest version that is found counts. Where what deleted
// an entry is lost, the entry is back.
func (db *DB) rescue(name string) error {
	r := db.rescued
	dir := db.o.FS.PathJoin(db.dir, name)
	w := wreck{fs: db.o.FS, dir: dir, lost: func(what string, err error) {
		r.Lost = append(r.Lost, fmt.Sprintf("%s: %v", what, err))
	}}
	if err := w.list(func(n string) bool { return isTable(n) || isLog(n) }); err != nil {
		w.lost(dir, err)
		return nil
	}
	youngest := make(map[string]revision)
	w.read(func(rev revision, key, _ []byte) error {
		if old, ok := youngest[string(key)]; !ok || old.before(rev) {
			youngest[string(key)] = rev
		}
		return nil
	})
	w.lost = func(string, error) {} // they were told already
	batch := db.pebble.NewBatch()
	err := w.read(func(rev revision, key, value []byte) error {
		if youngest[string(key)] != rev || rev.deletes || ofStore(key) {
			return nil
		}
		if _, err := unseal(value, key); err != nil {
			r.Lost = append(r.Lost, fmt.Sprintf("a value in %s: %v", w.files[rev.file], err))
			return nil
		}
		if key[0] == stateSpace {
			r.Values++
		}
		if err := batch.Set(key, value, nil); err != nil || batch.Len() < groupBytes {
			return err
		}
		err := db.pebble.Apply(batch, pebble.NoSync)
		batch = db.pebble.NewBatch()
		return err
	})
	if err == nil {
		err = db.pebble.Apply(batch, pebble.NoSync)
	}
	if err == nil {
		err = db.pairUp()
	}
	return err
}

// ofStore says whether a key says something of a store as a whole that is not true
// for what was rescued of it.
func ofStore(key []byte) bool {
	return string(key) == string(metaKey("id")) || string(key) == string(metaKey("sum"))
}

// pairUp removes entries without all of their data, and data without its entry.
func (db *DB) pairUp() error {
	batch := db.pebble.NewBatch()
	bad := func(_ []byte, err error) error { return err } // it was written just now
	sizes := make(map[uint64]int)                         // of data that stands alone
	err := db.scan([]byte{dataSpace}, visitor{bad: bad, use: func(key, body []byte) error {
		if len(key) == partKeySize {
			sizes[binary.BigEndian.Uint64(key[1:])] += len(body)
		}
		return nil
	}})
	if err != nil {
		return err
	}
	whole := make(map[uint64]bool)
	err = db.scan([]byte{entrySpace}, visitor{bad: bad, use: func(key, body []byte) error {
		h, _, err := parseEntry(body)
		if err != nil || len(key) != seqKeySize {
			return batch.Delete(key, nil)
		}
		seq := binary.BigEndian.Uint64(key[1:])
		if h.kind&external != 0 && sizes[seq] != h.size {
			db.rescued.Lost = append(db.rescued.Lost, fmt.Sprintf("message %d, whose data is not all there", seq))
			return batch.Delete(key, nil)
		}
		whole[seq] = true
		db.rescued.Messages++
		return nil
	}})
	if err != nil {
		return err
	}
	for seq := range sizes {
		if !whole[seq] {
			if err := batch.DeleteRange(seqKey(dataSpace, seq), seqKey(dataSpace, seq+1), nil); err != nil {
				return err
			}
		}
	}
	return db.pebble.Apply(batch, pebble.NoSync)
}

// logRescue tells operators of it.
func (db *DB) logRescue() {
	r := db.rescued
	db.log.Warn("inbox store: was damaged, has been moved aside, and what could be read was brought over",
		"dir", db.dir, "why", line(r.Why), "moved", strings.Join(r.Moved, " "), "messages", r.Messages, "values", r.Values, "lost", len(r.Lost))
	for _, l := range r.Lost {
		db.log.Warn("inbox store: lost", "dir", db.dir, "what", l)
	}
}
