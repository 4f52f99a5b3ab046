package audit

import (
	"bytes"
	"errors"
	"io"
	"os"
	"sync"
)

// A File is a sink that appends to a file: a JSON object a line. The file may be
// renamed at any time; Reopen then begins a new one.
type File struct {
	path string
	open func(path string) (file, error)

	mu   sync.Mutex
	file file
	torn bool // the file ends within a line
	buf  []byte
}

var errPipe = errors.New("is a pipe; the audit log needs a file")

// file is what a File needs of an *os.File.
type file interface {
	io.WriteCloser
	Stat() (os.FileInfo, error)
	Truncate(size int64) error
}

// OpenFile opens a file, or makes it, for nobody else to read. If it ends within a
// line, as after a power cut, what is appended begins with a line feed.
func OpenFile(path string) (*File, error) {
	f := &File{path: path, open: openAppend}
	return f, f.Reopen()
}

func openAppend(path string) (file, error) {
	// A pipe without a reader would hold up whoever opens it.
	if info, err := os.Stat(path); err == nil && info.Mode()&os.ModeNamedPipe != 0 {
		return nil, &os.PathError{Op: "open", Path: path, Err: errPipe}
	}
	return os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
}

// Reopen opens the path anew: after a rename, what comes goes into a new file. If
// it fails the file before stays in use.
func (f *File) Reopen() error {
	file, err := f.open(f.path)
	if err != nil {
		return err
	}
	torn := endsWithin(f.path)
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.file != nil {
		_ = f.file.Close()
	}
	f.file, f.torn = file, torn
	return nil
}

// endsWithin says whether a file ends with something else than a line feed.
func endsWithin(path string) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	var last [1]byte
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() || info.Size() == 0 {
		return false
	}
	_, err = f.ReadAt(last[:], info.Size()-1)
	return err == nil && last[0] != '\n'
}

// Write appends lines.
func (f *File) Write(lines []Line) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.buf = f.buf[:0]
	begin := 0
	if f.torn {
		f.buf, begin = append(f.buf, '\n'), 1
	}
	for i := range lines {
		f.buf = append(lines[i].Append(f.buf), '\n')
	}
	n, err := f.file.Write(f.buf)
	if n == 0 {
		return 0, err
	}
	written := f.buf[begin:max(n, begin)]
	whole := bytes.LastIndexByte(written, '\n') + 1
	f.torn = len(written) > whole && !f.cut(len(written)-whole)
	return bytes.Count(written[:whole], []byte{'\n'}), err
}

// cut takes the last n bytes off the file.
func (f *File) cut(n int) bool {
	info, err := f.file.Stat()
	return err == nil && f.file.Truncate(info.Size()-int64(n)) == nil
}

// Close closes the file.
func (f *File) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.file.Close()
}
