// Package atomicfile replaces files as a whole.
package atomicfile

import (
	"errors"
	"os"
	"path/filepath"
)

// Write replaces the file at path, or makes it, with mode 0600: whoever reads it
// sees the old content or the new one, also after a crash.
func Write(path string, content []byte) (err error) {
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*.tmp") // mode 0600
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(f.Name()))
		}
	}()
	_, err = f.Write(content)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}
