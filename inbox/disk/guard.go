package disk

import (
	"errors"
	"io/fs"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// A guard stands between Pebble and the file system, because Pebble ends the
// process when a write to its log or its manifest fails, in goroutines of its own
// where nobody can recover.
//
// It goes dark at the first write or fsync that fails: from then on nothing
// reaches the disk, as if the power had been cut at that moment, while Pebble is
// told that all is well and can be closed in peace. The caller of fail sees to it
// that nothing is acknowledged any more.
//
// Where there is no room (or no file descriptor left) it waits for some instead,
// and tries again from the byte where it got to. Tables are an exception: Pebble
// takes back a flush or a compaction that fails, which makes room, and begins it
// anew.
type guard struct {
	vfs.FS
	fail    func(error) // is told of failures; must not block
	dark    atomic.Bool
	end     chan struct{} // closed when it goes dark
	patient atomic.Bool   // waits for room, else fails at once

	mu      sync.Mutex
	keep    bool          // what is to be removed is only noted, until
	kept    []string      // it is clear that Pebble knows what it does
	waiting int           // calls that wait for room
	since   time.Time     // when the first of them began to
	full    chan struct{} // closed when that is too long ago
}

const (
	roomPause = 100 * time.Millisecond
	stuckFor  = time.Second
)

// scarce says whether an error may pass by itself.
func scarce(err error) bool {
	for _, e := range []error{syscall.ENOSPC, syscall.EDQUOT, syscall.EMFILE, syscall.ENFILE} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

func isTable(name string) bool { return strings.HasSuffix(name, ".sst") }

// try calls f, which changes the file of a name, until that has an outcome that
// Pebble may see. When the guard is dark it calls nothing.
func (g *guard) try(name string, f func() error) error {
	waits := false
	defer func() {
		if waits {
			g.leave()
		}
	}()
	for !g.dark.Load() {
		err := f()
		switch {
		case err == nil, errors.Is(err, fs.ErrNotExist), errors.Is(err, fs.ErrExist):
			return err
		case !scarce(err) || !g.patient.Load():
			g.fails(err)
		case isTable(name):
			g.pause() // Pebble makes none
			return err
		default:
			if !waits {
				waits = true
				g.enter()
			}
			g.pause()
			g.look()
		}
	}
	return nil
}

func newGuard(fsys vfs.FS, fail func(error)) *guard {
	return &guard{FS: fsys, fail: fail, keep: true, end: make(chan struct{}), full: make(chan struct{})}
}

func (g *guard) fails(err error) {
	g.fail(err) // first: whoever is told that all is well must find the failure
	g.goDark()
}

func (g *guard) goDark() {
	if g.dark.CompareAndSwap(false, true) {
		close(g.end)
	}
}

// pause lets time pass, in which there may come to be room.
func (g *guard) pause() {
	t := time.NewTimer(roomPause)
	defer t.Stop()
	select {
	case <-t.C:
	case <-g.end:
	}
}

func (g *guard) enter() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.waiting++; g.waiting == 1 {
		g.since = time.Now()
	}
}

func (g *guard) look() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if time.Since(g.since) >= stuckFor {
		select {
		case <-g.full:
		default:
			close(g.full)
		}
	}
}

func (g *guard) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.waiting--; g.waiting == 0 {
		select {
		case <-g.full:
			g.full = make(chan struct{})
		default:
		}
	}
}

// waits says whether something waits for room. stuck is closed when it has done
// so for long.
func (g *guard) waits() (waits bool, stuck <-chan struct{}) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.waiting > 0, g.full
}

// file wraps what open returns.
func (g *guard) file(name string, open func() (vfs.File, error)) (f vfs.File, err error) {
	err = g.try(name, func() (err error) {
		f, err = open()
		return err
	})
	if err != nil {
		return nil, err
	}
	if f == nil { // dark
		f = vfs.NewMemFile(nil)
	}
	return &guardedFile{File: f, g: g, name: name}, nil
}

// Create, and all that follows, are those of vfs.FS.
func (g *guard) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := g.file(name, func() (vfs.File, error) { return g.FS.Create(name, c) })
	if err == nil {
		f.(*guardedFile).nameless = true
	}
	return f, err
}

// Open takes its time for what the dark has swallowed: Pebble takes none before it
// tries a compaction again that cannot succeed.
func (g *guard) Open(name string, opts ...vfs.OpenOption) (vfs.File, error) {
	f, err := g.FS.Open(name, opts...)
	if err != nil && g.dark.Load() {
		time.Sleep(roomPause)
	}
	return f, err
}

func (g *guard) OpenReadWrite(name string, c vfs.DiskWriteCategory, opts ...vfs.OpenOption) (vfs.File, error) {
	return g.file(name, func() (vfs.File, error) { return g.FS.OpenReadWrite(name, c, opts...) })
}

func (g *guard) ReuseForWrite(old, name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	return g.file(name, func() (vfs.File, error) { return g.FS.ReuseForWrite(old, name, c) })
}

func (g *guard) OpenDir(name string) (vfs.File, error) {
	return g.file(name, func() (vfs.File, error) { return g.FS.OpenDir(name) })
}

func (g *guard) Link(old, name string) error {
	return g.try(name, func() error { return g.FS.Link(old, name) })
}

func (g *guard) Remove(name string) error {
	g.mu.Lock()
	if g.keep {
		g.kept = append(g.kept, name)
		g.mu.Unlock()
		return nil
	}
	g.mu.Unlock()
	return g.try(name, func() error { return g.FS.Remove(name) })
}

// letGo removes what was to be removed so far. Before it, a Pebble that takes a
// damaged manifest for the whole truth removes nothing.
func (g *guard) letGo() {
	g.mu.Lock()
	kept := g.kept
	g.keep, g.kept = false, nil
	g.mu.Unlock()
	for _, name := range kept {
		_ = g.Remove(name) // Pebble looks for what it left behind at each start
	}
}

func (g *guard) RemoveAll(name string) error {
	return g.try(name, func() error { return g.FS.RemoveAll(name) })
}

func (g *guard) Rename(old, name string) error {
	return g.try(name, func() error { return g.FS.Rename(old, name) })
}

func (g *guard) MkdirAll(name string, perm os.FileMode) error {
	return g.try(name, func() error { return g.FS.MkdirAll(name, perm) })
}

func (g *guard) Unwrap() vfs.FS { return g.FS }

type guardedFile struct {
	vfs.File
	g    *guard
	name string

	// Its name is not durable yet. Pebble goes by what most file systems do, and
	// no standard promises, that it is once the file was synced.
	nameless bool
}

func (f *guardedFile) Write(p []byte) (n int, err error) {
	err = f.g.try(f.name, func() error {
		m, err := f.File.Write(p[n:])
		n += m
		return err
	})
	if err != nil {
		return n, err
	}
	return len(p), nil
}

func (f *guardedFile) WriteAt(p []byte, off int64) (n int, err error) {
	err = f.g.try(f.name, func() error {
		m, err := f.File.WriteAt(p[n:], off+int64(n))
		n += m
		return err
	})
	if err != nil {
		return n, err
	}
	return len(p), nil
}

// Preallocate only makes later writes faster.
func (f *guardedFile) Preallocate(off, length int64) error {
	if !f.g.dark.Load() {
		_ = f.File.Preallocate(off, length)
	}
	return nil
}

// sync is for the calls that may lose what was written before when they fail:
// there is no trying again.
func (f *guardedFile) sync(do func() error) error {
	if f.g.dark.Load() {
		return nil
	}
	err := do()
	if err == nil && f.nameless {
		f.nameless = false
		err = syncDir(f.g.FS, f.g.FS.PathDir(f.name))
	}
	if err != nil {
		f.g.fails(err)
	}
	return nil
}

func (f *guardedFile) Sync() error     { return f.sync(f.File.Sync) }
func (f *guardedFile) SyncData() error { return f.sync(f.File.SyncData) }

func (f *guardedFile) SyncTo(length int64) (full bool, err error) {
	err = f.sync(func() (err error) {
		full, err = f.File.SyncTo(length)
		return err
	})
	return full, err
}

func (f *guardedFile) Close() error {
	err := f.File.Close()
	if err != nil {
		f.g.fails(err)
	}
	return nil
}
