package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/sotto-relay/sotto/internal/filename"
	"github.com/sotto-relay/sotto/relay/client"
)

// findDir finds the default directory for files.
func (r *collection) findDir() error {
	if r.dir != "" {
		return nil
	}
	dir, err := configFile("files")
	if err != nil {
		return fmt.Errorf("%w; give --dir a directory", err)
	}
	r.dir = dir
	return nil
}

// save writes a file that came in, and returns where.
func (r *collection) save(l *client.Letter) (string, error) {
	if err := os.MkdirAll(r.dir, 0o700); err != nil {
		return "", err
	}
	name, err := saveNew(r.dir, l.Name, l.Data)
	return filepath.Join(r.dir, name), err
}

// saveNew writes a new file into dir, and nothing outside of it, under name or
// the like that is not taken.
func saveNew(dir, name string, data []byte) (string, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return "", err
	}
	defer root.Close()
	const tries = 10_000
	for n := range tries {
		unused := filename.Numbered(name, n+1)
		f, err := root.OpenFile(unused, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		if err != nil {
			return "", err
		}
		_, err = f.Write(data)
		if err = errors.Join(err, f.Close()); err != nil {
			return "", errors.Join(err, root.Remove(unused))
		}
		return unused, nil
	}
	return "", fmt.Errorf("there are %d files of that name: tidy up %s", tries, dir)
}
