package disk

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

const (
	lockName   = "LOCK"
	holderName = "HOLDER"
)

// A lock keeps other processes, and other DBs of this one, away from a directory.
// The system lets go of it when the process ends, however it ends; who holds it
// stands in a file beside it.
type lock struct {
	once sync.Once
	held io.Closer
}

// acquire does not wait.
func acquire(fsys vfs.FS, dir string) (*lock, error) {
	held, err := fsys.Lock(fsys.PathJoin(dir, lockName))
	if err != nil {
		return nil, lockError(fsys, dir, err)
	}
	l := &lock{held: held}
	host, _ := os.Hostname()
	me := fmt.Sprintf("process %d on host %s, since %s\n", os.Getpid(), host, time.Now().UTC().Format(time.RFC3339))
	if err := writeFile(fsys, dir, holderName, []byte(me)); err != nil {
		l.release()
		return nil, unwritable(dir, err)
	}
	return l, nil
}

func (l *lock) release() { l.once.Do(func() { _ = l.held.Close() }) }

func lockError(fsys vfs.FS, dir string, err error) error {
	var onPath *fs.PathError
	switch {
	case errors.As(err, &onPath): // the file could not be made
		return unwritable(dir, err)
	case errors.Is(err, syscall.ENOLCK), errors.Is(err, errors.ErrUnsupported):
		return &openError{path: dir, what: "is on a file system without locks",
			advice: "use a disk of this machine", err: err}
	}
	return &openError{path: dir, what: "is in use by " + readHolder(fsys, dir),
		advice: "end that process first, or use another directory"}
}

func readHolder(fsys vfs.FS, dir string) string {
	b, err := readFile(fsys, fsys.PathJoin(dir, holderName))
	if who := strings.TrimSpace(string(b)); err == nil && who != "" {
		return who
	}
	return "another process"
}
