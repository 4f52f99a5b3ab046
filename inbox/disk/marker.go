package disk

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"syscall"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// A directory holds, beside the lock:
//
//	STORE   the marker: four lines that say whose directory this is
//	db      Pebble's own
//
//	sotto store
//	version 1
//	id <32 hex digits, also in db>
//	state new | ready | rescue <name>
//
// The marker is written before db is made, with new, so that a crash between the
// two is no damage; a directory with one of the two alone is.
const (
	markerName = "STORE"
	dbName     = "db"
	magic      = "sotto store"
	version    = 1
)

const (
	stateNew    = "new"     // what is in db may be thrown away
	stateReady  = "ready"   // nothing may
	stateRescue = "rescue " // and a name: as new, and what is there is to be brought over
)

type marker struct {
	id    string // hex
	state string
}

func newMarker(state string) marker {
	var id [16]byte
	_, _ = rand.Read(id[:]) // never fails
	return marker{hex.EncodeToString(id[:]), state}
}

func (m marker) write(fsys vfs.FS, dir string) error {
	text := fmt.Sprintf("%s\nversion %d\nid %s\nstate %s\n", magic, version, m.id, m.state)
	if err := writeFile(fsys, dir, markerName, []byte(text)); err != nil {
		return unwritable(dir, err)
	}
	return nil
}

// readMarker returns fs.ErrNotExist when there is none.
func readMarker(fsys vfs.FS, dir string) (m marker, err error) {
	path := fsys.PathJoin(dir, markerName)
	b, err := readFile(fsys, path)
	if err != nil {
		return m, err
	}
	lines := strings.Split(string(b), "\n")
	damaged := &openError{path: path, damaged: true, what: "is damaged, or belongs to another program"}
	if len(lines) != 5 || lines[0] != magic || lines[4] != "" {
		return m, damaged
	}
	var v int
	if n, err := fmt.Sscanf(lines[1], "version %d", &v); n != 1 || err != nil || v < 1 {
		return m, damaged
	}
	if v > version {
		return m, &openError{path: path, what: fmt.Sprintf("is of version %d, this program knows %d", v, version),
			advice: "use a newer program, or a backup from before"}
	}
	m.id, m.state = strings.TrimPrefix(lines[2], "id "), strings.TrimPrefix(lines[3], "state ")
	if raw, err := hex.DecodeString(m.id); err != nil || len(raw) != 16 {
		return m, damaged
	}
	if m.state != stateNew && m.state != stateReady && !strings.HasPrefix(m.state, stateRescue) {
		return m, damaged
	}
	return m, nil
}

// An openError is a sentence for operators: which file, what about it, and what
// to do.
type openError struct {
	path, what, advice string
	damaged            bool // Quarantine helps
	err                error
}

func (e *openError) Error() string {
	advice := e.advice
	if e.damaged {
		advice = "restore a backup, or start with quarantine (sotto serve --quarantine), which moves it aside and keeps what can be read"
	}
	s := fmt.Sprintf("inbox store: %s %s; %s", e.path, e.what, advice)
	if e.err != nil {
		s += " (" + line(e.err) + ")"
	}
	return s
}

func (e *openError) Unwrap() error { return e.err }

func unwritable(path string, err error) error {
	e := &openError{path: path, what: "cannot be written", advice: "give this user the right to write there", err: err}
	switch {
	case scarce(err):
		e.advice = "make room on the disk"
	case errors.Is(err, syscall.EROFS):
		e.advice = "it is mounted read-only: see whether the disk has failed"
	case errors.Is(err, syscall.EIO):
		e.advice = "the disk has failed"
	case errors.Is(err, syscall.ENOTDIR), errors.Is(err, fs.ErrExist):
		e.advice = "it, or one above it, is no directory"
	}
	return e
}

// environmental says whether an error is about rights, room or the disk, and so
// says nothing about what stands there.
func environmental(err error) bool {
	return scarce(err) || errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EROFS) || errors.Is(err, syscall.EIO)
}

// readFile reads a small file; of a larger one its beginning.
func readFile(fsys vfs.FS, path string) ([]byte, error) {
	f, err := fsys.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, 4096))
}

// writeFile replaces a file durably, or leaves it as it was.
func writeFile(fsys vfs.FS, dir, name string, b []byte) (err error) {
	path := fsys.PathJoin(dir, name)
	f, err := fsys.Create(path+".tmp", vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	if err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = fsys.Rename(path+".tmp", path)
	}
	if err != nil {
		return err
	}
	return syncDir(fsys, dir)
}

// makeDir makes a directory and those above it, durably, if they are not there.
func makeDir(fsys vfs.FS, dir string) error {
	if info, err := fsys.Stat(dir); err == nil && info.IsDir() {
		return nil
	}
	if err := fsys.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	for above := fsys.PathDir(dir); ; dir, above = above, fsys.PathDir(above) {
		if err := syncDir(fsys, above); err != nil || above == dir {
			return err
		}
	}
}

func syncDir(fsys vfs.FS, dir string) error {
	d, err := fsys.OpenDir(dir)
	if err != nil {
		return err
	}
	err = d.Sync()
	if cerr := d.Close(); err == nil {
		err = cerr
	}
	return err
}
