package client

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/sotto-relay/sotto/crypto"
	"github.com/sotto-relay/sotto/internal/filename"
)

// ErrFileLimit is the error of SaveTo for an offer that is beyond its limits.
var ErrFileLimit = errors.New("client: the file is beyond the limits")

// SaveLimits bound what SaveTo accepts. Zero fields mean what is said there.
type SaveLimits struct {
	Size  int64                       // bytes of one file (1 GiB)
	Total int64                       // bytes of all that is in the directory, subdirectories aside (8 GiB)
	Files int                         // files in the directory, since empty ones take room too (10,000)
	From  func(crypto.PublicKey) bool // who may send; called by any goroutine (everybody)
}

// SaveTo is for [FilePolicy].Accept: what is within the limits is accepted into
// dir, which is made if need be, for its owner alone.
func SaveTo(dir string, l SaveLimits) func(context.Context, FileOffer) (string, error) {
	orDefault(&l.Size, 1<<30)
	orDefault(&l.Total, 8<<30)
	orDefault(&l.Files, 10_000)
	return func(_ context.Context, o FileOffer) (string, error) {
		switch {
		case l.From != nil && !l.From(o.From):
			return "", ErrFileRefused
		case o.Size > l.Size:
			return "", ErrFileLimit
		}
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return "", err
		}
		files, used, err := usedIn(dir, partialName(transferKey{o.From, o.Transfer}))
		if err != nil {
			return "", err
		}
		if free := l.Total - used; o.Size > free || o.Underway > free-o.Size || files >= l.Files {
			return "", ErrFileLimit
		}
		return dir, nil
	}
}

// usedIn returns how many files are in a directory, and their bytes, but for one.
func usedIn(dir, but string) (files int, n int64, err error) {
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		info, err := e.Info()
		if err == nil && info.Mode().IsRegular() && e.Name() != but { // or it has gone meanwhile
			files++
			n += info.Size()
		}
	}
	return files, n, err
}

// A partial is a hidden file that becomes a file when it is whole.
type partial struct {
	root *os.Root
	name string
	file *os.File
	hash hash.Hash // of what is in it

	size  int64
	whole int64 // parts that it had when it was opened
}

const (
	partialPrefix = ".sotto-"
	partialSuffix = ".part"
)

// partialName is where the next Client looks for the file.
func partialName(k transferKey) string {
	return fmt.Sprintf("%s%x-%x%s", partialPrefix, k.peer[:], k.id, partialSuffix)
}

// openPartial opens the hidden file of a transfer in a directory, or makes it.
func openPartial(ctx context.Context, dir string, k transferKey, l layout) (*partial, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	p := &partial{root: root, name: partialName(k), hash: sha256.New()}
	removeOld(root, p.name)
	if info, err := root.Lstat(p.name); err == nil && !info.Mode().IsRegular() {
		p.close()
		return nil, fmt.Errorf("client: %s is no regular file", filepath.Join(dir, p.name))
	}
	p.file, err = root.OpenFile(p.name, os.O_RDWR|os.O_CREATE, 0o600)
	if err == nil {
		err = p.resume(ctx, l)
	}
	if err != nil {
		p.close()
		return nil, err
	}
	return p, nil
}

// resume keeps the parts that are whole.
func (p *partial) resume(ctx context.Context, l layout) error {
	info, err := p.file.Stat()
	if err != nil {
		return err
	}
	p.whole = l.whole(info.Size())
	p.size = l.offset(p.whole)
	if err := p.file.Truncate(p.size); err != nil {
		return err
	}
	return copyBytes(ctx, p.hash, p.file, p.size)
}

// removeOld removes hidden files that nothing will come for any more.
func removeOld(root *os.Root, but string) {
	entries, err := fs.ReadDir(root.FS(), ".")
	if err != nil {
		return
	}
	for _, e := range entries {
		if e.Name() == but || !strings.HasPrefix(e.Name(), partialPrefix) || !strings.HasSuffix(e.Name(), partialSuffix) {
			continue
		}
		if info, err := e.Info(); err == nil && info.Mode().IsRegular() && time.Since(info.ModTime()) > rememberTime {
			_ = root.Remove(e.Name())
		}
	}
}

func (p *partial) write(data []byte) error {
	if _, err := p.file.Write(data); err != nil {
		return err
	}
	p.hash.Write(data)
	p.size += int64(len(data))
	return nil
}

// finish makes a file of it under that name, or the like that is not taken, and
// returns its path. It is on the disk then, with all that is in it.
func (p *partial) finish(name string, sum [32]byte) (string, error) {
	if !bytes.Equal(p.hash.Sum(nil), sum[:]) {
		return "", ErrFileDamaged
	}
	info, err := p.file.Stat()
	if err = errors.Join(err, p.file.Sync(), p.file.Close()); err != nil {
		return "", err
	}
	const tries = 10_000
	for n := range tries {
		unused := filename.Numbered(name, n+1)
		switch err := p.rename(unused, info); {
		case err == nil:
			p.syncDir()
			_ = p.root.Close()
			return filepath.Join(p.root.Name(), unused), nil
		case !errors.Is(err, fs.ErrExist):
			return "", err
		}
	}
	return "", fmt.Errorf("client: there are %d files of that name in %s", tries, p.root.Name())
}

// rename gives the file its name, unless there is one. Where a file cannot have
// two names, on FAT, an empty file takes it first.
func (p *partial) rename(name string, self fs.FileInfo) error {
	switch err := p.root.Link(p.name, name); {
	case err == nil:
		if err := p.root.Remove(p.name); err != nil {
			return errors.Join(err, p.root.Remove(name))
		}
		return nil
	case errors.Is(err, fs.ErrExist):
		if other, err := p.root.Lstat(name); err == nil && os.SameFile(other, self) {
			return p.root.Remove(p.name) // a crash came between the two steps above
		}
		return err
	}
	f, err := p.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	if err := errors.Join(f.Close(), p.root.Rename(p.name, name)); err != nil {
		return errors.Join(err, p.root.Remove(name))
	}
	return nil
}

// syncDir makes names last through a power cut, where that can be asked for.
func (p *partial) syncDir() {
	if d, err := p.root.Open("."); err == nil {
		_ = d.Sync()
		_ = d.Close()
	}
}

// remove removes it for good.
func (p *partial) remove() {
	if p == nil {
		return
	}
	if p.file != nil {
		_ = p.file.Close()
	}
	_ = p.root.Remove(p.name)
	_ = p.root.Close()
}

// close leaves it as it is, for later.
func (p *partial) close() {
	if p == nil {
		return
	}
	if p.file != nil {
		_ = p.file.Close()
	}
	_ = p.root.Close()
}
