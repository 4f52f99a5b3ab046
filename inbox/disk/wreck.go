package disk

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/batchrepr"
	logrecord "github.com/cockroachdb/pebble/v2/record"
	"github.com/cockroachdb/pebble/v2/sstable"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// A wreck is a directory of Pebble's that cannot be opened, or not be trusted.
type wreck struct {
	fs    vfs.FS
	dir   string
	files []string                     // tables and logs
	lost  func(what string, err error) // is told what cannot be read
}

// A revision is one of the values that a key has had, or its deletion.
type revision struct {
	number  pebble.SeqNum // Pebble's
	file    int           // in wreck.files
	deletes bool
}

func (r revision) before(s revision) bool {
	return r.number < s.number || r.number == s.number && r.file < s.file
}

// list finds the files of a kind.
func (w *wreck) list(kind func(name string) bool) error {
	names, err := w.fs.List(w.dir)
	if err != nil {
		return err
	}
	slices.Sort(names)
	for _, n := range names {
		if kind(n) {
			w.files = append(w.files, n)
		}
	}
	return nil
}

func isLog(name string) bool { return strings.HasSuffix(name, ".log") }

// read calls use for each revision that can be read. An error of use ends it.
func (w *wreck) read(use func(r revision, key, value []byte) error) error {
	for i, name := range w.files {
		var failed error // of use, so none of the file
		each := func(r revision, key, value []byte) error {
			r.file = i
			failed = use(r, key, value)
			return failed
		}
		err := w.open(name, func(f vfs.File) error {
			if isLog(name) {
				return w.log(name, f, each)
			}
			return w.table(name, f, each)
		})
		if failed != nil {
			return failed
		}
		if err != nil {
			w.lost(w.fs.PathJoin(w.dir, name), err)
		}
	}
	return nil
}

// open has a file read, and closed. What Pebble panics about is an error.
func (w *wreck) open(name string, read func(vfs.File) error) (err error) {
	f, err := w.fs.Open(w.fs.PathJoin(w.dir, name))
	if err != nil {
		return err
	}
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%v", p)
		}
	}()
	return read(f)
}

func (w *wreck) table(name string, f vfs.File, use func(r revision, key, value []byte) error) error {
	file, err := sstable.NewSimpleReadable(f)
	if err != nil {
		_ = f.Close()
		return err
	}
	o := &pebble.Options{FS: w.fs}
	o.EnsureDefaults()
	table, err := sstable.NewReader(context.Background(), file, o.MakeReaderOptions())
	if err != nil {
		_ = file.Close()
		return err
	}
	defer table.Close()
	for _, space := range []byte{entrySpace, dataSpace, stateSpace, metaSpace} {
		if err := w.space(name, table, []byte{space}, use); err != nil {
			return err
		}
	}
	return nil
}

// space reads the keys of a table that begin with a prefix.
func (w *wreck) space(name string, table *sstable.Reader, prefix []byte, use func(r revision, key, value []byte) error) error {
	it, err := table.NewIter(sstable.NoTransforms, prefix, successor(prefix), sstable.AssertNoBlobHandles)
	if err != nil {
		return err
	}
	defer it.Close()
	kv := it.First()
	c := cursorFuncs{
		seek: func(key []byte) bool { kv = it.SeekGE(key, 0); return kv != nil },
		next: func() bool { kv = it.Next(); return kv != nil },
		key:  func() []byte { return kv.K.UserKey },
		err:  it.Error,
	}
	bad := func(_ []byte, err error) error {
		w.lost("a part of "+w.fs.PathJoin(w.dir, name), err)
		return nil
	}
	return walk(c, prefix, bad, func() error {
		value, _, err := kv.Value(nil)
		if err != nil {
			return err
		}
		return use(revision{number: kv.SeqNum(), deletes: deletes(kv.Kind())}, kv.K.UserKey, value)
	})
}

func deletes(k pebble.InternalKeyKind) bool {
	return k != pebble.InternalKeyKindSet && k != pebble.InternalKeyKindSetWithDelete
}

// cursorFuncs are a cursor made of functions, since what iterators of tables
// return has a type that Pebble keeps to itself.
type cursorFuncs struct {
	seek func([]byte) bool
	next func() bool
	key  func() []byte
	err  func() error
}

func (c cursorFuncs) SeekGE(key []byte) bool { return c.seek(key) }
func (c cursorFuncs) Next() bool             { return c.next() }
func (c cursorFuncs) Key() []byte            { return c.key() }
func (c cursorFuncs) Error() error           { return c.err() }

const (
	logBlock  = 32 << 10
	logFaults = 64 // are passed over in one log, each at the cost of reading the rest
)

// log reads the records of a log. Behind one that is damaged it goes on with the
// first one that begins in a later block.
func (w *wreck) log(name string, f vfs.File, use func(r revision, key, value []byte) error) error {
	defer f.Close()
	number, err := strconv.ParseUint(strings.TrimSuffix(name, ".log"), 10, 32)
	if err != nil {
		return err
	}
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if info.IsDir() {
		return errDamaged
	}
	faults := 0
	for begin := int64(0); begin < info.Size(); {
		n, err := readLog(io.NewSectionReader(f, begin, info.Size()-begin), number, use)
		begin = (begin + n + logBlock) / logBlock * logBlock
		switch {
		case errors.Is(err, io.EOF): // or what looks like it, since a number was damaged
		case !isInvalid(err) && !isDamage(err):
			return err
		case begin < info.Size():
			w.lost("a part of "+w.fs.PathJoin(w.dir, name), err)
			if faults++; faults == logFaults {
				return errDamaged
			}
		}
	}
	return nil
}

// isInvalid is logrecord.IsInvalidRecord for errors that were wrapped.
func isInvalid(err error) bool {
	return errors.Is(err, logrecord.ErrInvalidChunk) || errors.Is(err, logrecord.ErrZeroedChunk) || errors.Is(err, logrecord.ErrUnexpectedEOF)
}

// readLog reads records until there is an error, io.EOF at the end, and returns
// the offset of the record where that is.
func readLog(r io.Reader, number uint64, use func(r revision, key, value []byte) error) (offset int64, err error) {
	var ofThisType pebble.ManifestCreateInfo // Pebble keeps the type's name to itself
	records := logrecord.NewReader(r, as(ofThisType.FileNum, number))
	for {
		offset = records.Offset()
		one, err := records.Next()
		if err != nil {
			return offset, err
		}
		batch, err := io.ReadAll(one)
		if err != nil {
			return offset, err
		}
		h, ok := batchrepr.ReadHeader(batch)
		if !ok {
			return offset, errDamaged
		}
		ops := batchrepr.Read(batch)
		for n := h.SeqNum; ; n++ {
			kind, key, value, ok, err := ops.Next()
			if err != nil {
				return offset, errDamaged
			}
			if !ok {
				break
			}
			if err := use(revision{number: n, deletes: deletes(kind)}, key, value); err != nil {
				return offset, err
			}
		}
	}
}

func as[T ~uint64](_ T, v uint64) T { return T(v) }
