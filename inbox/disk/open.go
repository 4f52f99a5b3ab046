package disk

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/sotto-relay/sotto/inbox"
)

// Open opens the store in a directory, which it makes if it is not there. It
// returns at once when another process has it open. Errors are sentences that
// name the path and say what to do; what is damaged is never taken for an empty
// store.
func Open(dir string, o *Options) (*DB, error) {
	db := &DB{o: o.withDefaults(), dir: dir, groups: make(chan *group, 1), taken: make(map[uint64]bool)}
	db.acked, db.idle = make(chan struct{}), make(chan struct{})
	db.log = db.o.Logger
	db.queue.signal, db.turn = make(chan struct{}, 1), make(chan struct{}, 1)
	db.turn <- struct{}{}
	db.index.Totals = &db.totals
	fsys := db.o.FS
	if err := makeDir(fsys, dir); err != nil {
		return nil, unwritable(dir, err)
	}
	if fsys == vfs.Default { // or one directory could be locked under two names
		abs, err := filepath.Abs(dir)
		if err == nil {
			abs, err = filepath.EvalSymlinks(abs)
		}
		if err != nil {
			return nil, unwritable(dir, err)
		}
		db.dir = abs
	}
	l, err := acquire(fsys, db.dir)
	if err != nil {
		return nil, err
	}
	db.lock = l
	if err := db.open(); err != nil {
		l.release()
		return nil, err
	}
	db.fs.patient.Store(true)
	db.ctx, db.cancel = context.WithCancel(context.Background())
	db.running.Store(true)
	go db.commit()
	go db.acknowledge()
	return db, nil
}

func (db *DB) open() error {
	m, err := db.marker()
	if err == nil {
		err = db.openAs(m)
	}
	var open *openError
	if !errors.As(err, &open) || !open.damaged || !db.o.Quarantine {
		return err
	}
	if m, err = db.setAside(open); err != nil {
		return err
	}
	return db.openAs(m)
}

// marker reads the marker, or makes the first one.
func (db *DB) marker() (marker, error) {
	fsys, path := db.o.FS, db.o.FS.PathJoin(db.dir, markerName)
	m, err := readMarker(fsys, db.dir)
	var open *openError
	switch {
	case err == nil, errors.As(err, &open):
		return m, err
	case !errors.Is(err, fs.ErrNotExist):
		return m, unreadable(path, err)
	}
	if _, err := fsys.Stat(fsys.PathJoin(db.dir, dbName)); err == nil {
		return m, &openError{path: path, damaged: true, what: "is missing, while the messages are there"}
	}
	if db.o.Existing {
		return m, &openError{path: db.dir, what: "is no store", advice: "see whether this is the right directory", err: err}
	}
	m = newMarker(stateNew)
	return m, m.write(fsys, db.dir)
}

func unreadable(path string, err error) error {
	e := &openError{path: path, what: "cannot be read", advice: "give this user the right to read it", err: err}
	e.damaged = !environmental(err)
	if errors.Is(err, syscall.EIO) {
		e.advice = "the disk has failed"
	}
	return e
}

// openAs opens what the marker says is there, and makes it ready if it is not.
func (db *DB) openAs(m marker) (err error) {
	fsys, path := db.o.FS, db.o.FS.PathJoin(db.dir, dbName)
	ready := m.state == stateReady
	aside, rescue := strings.CutPrefix(m.state, stateRescue)
	if rescue {
		if db.rescued == nil { // the process that began it did not come to the end
			db.rescued = new(Rescue)
		}
		if !db.exists(aside) && db.exists(dbName) {
			if err := db.move(dbName, aside); err != nil {
				return err
			}
		}
	}
	if !ready {
		if err := fsys.RemoveAll(path); err != nil {
			return unwritable(path, err)
		}
	}
	if ready {
		switch info, err := fsys.Stat(path); {
		case errors.Is(err, fs.ErrNotExist):
			return &openError{path: path, what: "is missing", damaged: true}
		case err != nil:
			return unreadable(path, err)
		case !info.IsDir():
			return &openError{path: path, what: "is no directory", damaged: true}
		}
	}
	if err := db.openPebble(path, ready); err != nil {
		return err
	}
	defer func() {
		if f := db.failed(); f != nil {
			err = unwritable(path, f)
		}
		if err != nil {
			_ = db.pebble.Close()
		}
	}()
	if !ready {
		err = db.begin(m)
	}
	if err == nil && rescue {
		err = db.rescue(aside)
	}
	if err != nil {
		return unwritable(path, err)
	}
	if err := db.load(m, path, rescue); err != nil {
		return err
	}
	db.fs.letGo()
	if ready {
		return nil
	}
	if rescue {
		db.settle() // above all the sum
	}
	m.state = stateReady
	if err := m.write(fsys, db.dir); err != nil {
		return err
	}
	if rescue {
		db.logRescue()
	}
	return nil
}

// openPebble opens Pebble. What it panics about is damage.
func (db *DB) openPebble(path string, ready bool) (err error) {
	db.fs = newGuard(db.o.FS, db.fail)
	db.failure.Store(nil)
	o := &pebble.Options{
		FS:                 db.fs,
		CacheSize:          db.o.CacheBytes,
		MemTableSize:       db.fit(),
		FormatMajorVersion: pebble.FormatTableFormatV6, // the newest without blob files, which are experimental
		ErrorIfExists:      !ready,
		ErrorIfNotExists:   ready,
		Logger:             pebbleLog{db},
		EventListener:      db.events(),
	}
	db.tidy(o)
	// Most of what comes is encrypted and would only take time.
	o.ApplyCompressionSettings(func() pebble.DBCompressionSettings { return pebble.DBCompressionNone })
	if db.o.tune != nil {
		db.o.tune(o)
	}
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%v", p)
		}
		switch f := db.failed(); {
		case err == nil:
		case f != nil:
			err = unwritable(path, f)
		case environmental(err):
			err = unreadable(path, err)
		default:
			err = &openError{path: path, what: "is damaged", damaged: true, err: err}
		}
	}()
	db.pebble, err = pebble.Open(path, o)
	return err
}

// load checks that the marker and Pebble belong together, and that all is there
// that was, and reads what is kept in memory.
func (db *DB) load(m marker, path string, rescued bool) error {
	damaged := func(err error) error {
		file := path
		if info := pebble.ExtractDataCorruptionInfo(err); info != nil {
			file = info.Path
		}
		return &openError{path: file, what: "is damaged", damaged: true, err: err}
	}
	var id []byte
	var recorded time.Time
	var last sum
	for _, err := range []error{
		db.meta("id", func(r *reader) { id = r.take(16) }),
		db.meta("time", func(r *reader) { recorded = r.stamp().time() }),
		db.meta("seq", func(r *reader) { db.ceiling = r.uint64() }),
		db.meta("sum", last.parse),
	} {
		if isDamage(err) {
			return damaged(err)
		} else if err != nil {
			return unreadable(path, err)
		}
	}
	if hex.EncodeToString(id) != m.id {
		return &openError{path: path, what: "is that of another store than " + markerName + " says", damaged: true}
	}
	db.clock = newClock(recorded)
	db.recorded = db.clock.now()
	bad := func(_ []byte, err error) error { return damaged(err) }
	err := db.loadIndex(visitor{bad: bad})
	if err == nil {
		db.values = 0
		err = db.scan([]byte{stateSpace}, visitor{bad: bad, use: func([]byte, []byte) error { db.values++; return nil }})
	}
	var open *openError
	switch {
	case errors.As(err, &open):
		return err
	case err != nil:
		return unreadable(path, err)
	}
	db.group = last.group
	db.acknowledged.Store(last.group)
	if rescued {
		return nil
	}
	n, size := db.index.Sum()
	if !last.holds(n, size, db.values) {
		return &openError{path: path, damaged: true, what: fmt.Sprintf("is damaged: there are %d messages of %d, and %d values of %d",
			n, last.messages, db.values, last.values)}
	}
	if lost := db.lostGroup(path, last); lost > 0 {
		return &openError{path: path, damaged: true, what: fmt.Sprintf("is damaged: its log ends too early, with change %d of %d", last.group, lost)}
	}
	return nil
}

// meta parses a value if it is there.
func (db *DB) meta(name string, parse func(*reader)) error {
	err := db.get(metaKey(name), func(body []byte) error {
		r := reader{b: bytes.Clone(body)}
		if parse(&r); r.short {
			return errDamaged
		}
		return nil
	})
	if errors.Is(err, pebble.ErrNotFound) {
		return nil
	}
	return err
}

// loadIndex reads all entries.
func (db *DB) loadIndex(v visitor) error {
	db.index = inbox.Index[kept]{Totals: &db.totals}
	db.totals.Reset()
	db.used = 0
	v.use = func(key, body []byte) error {
		h, _, err := parseEntry(body)
		if err != nil || len(key) != seqKeySize {
			return errDamaged
		}
		e := inbox.Entry{To: h.to, From: h.from, ID: h.id, Seq: binary.BigEndian.Uint64(key[1:])}
		rec := db.index.Restore(&e, h.size, db.clock.expiry(h.expires.time()), h.kind&counted != 0,
			kept{stored: h.stored, expires: h.expires, form: h.form, flags: h.flags})
		db.used += costOf(rec)
		return nil
	}
	err := db.scan([]byte{entrySpace}, v)
	db.index.Skip(db.ceiling)
	db.ceiling = db.index.Last()
	db.durable.Store(db.ceiling)
	return err
}

// begin makes an empty Pebble the store of a marker.
func (db *DB) begin(m marker) error {
	id, err := hex.DecodeString(m.id)
	if err != nil {
		return err
	}
	key := metaKey("id")
	return db.pebble.Set(key, seal(id, key), pebble.Sync)
}
