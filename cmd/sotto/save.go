package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"github.com/sotto-relay/sotto/relay/client"
)

// save writes a file that came in, and returns where.
func (r *collection) save(l *client.Letter) (string, error) {
	if r.dir == "" {
		dir, err := configFile("files")
		if err != nil {
			return "", fmt.Errorf("%w; give --dir a directory", err)
		}
		r.dir = dir
	}
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
		unused := fileName(name, n+1)
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

const maxName = 255 // bytes that file systems take

// fileName returns name as the n-th of its kind, from 1: "a (2).txt". It is not
// hidden, and no command takes it for a flag.
func fileName(name string, n int) string {
	if strings.HasPrefix(name, ".") || strings.HasPrefix(name, "-") {
		name = "_" + name
	}
	ext := filepath.Ext(name)
	if len(ext) > maxName/2 {
		ext = ""
	}
	stem, number := strings.TrimSuffix(name, ext), ""
	if n > 1 {
		number = fmt.Sprintf(" (%d)", n)
	}
	for len(stem)+len(number)+len(ext) > maxName {
		_, size := utf8.DecodeLastRuneInString(stem)
		stem = stem[:len(stem)-size]
	}
	return stem + number + ext
}
