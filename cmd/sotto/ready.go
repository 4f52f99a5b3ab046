package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// removeReady removes what an earlier run has left: its ports are not ours.
func removeReady(file string) error {
	if file == "" {
		return nil
	}
	if info, err := os.Lstat(file); err == nil && !info.Mode().IsRegular() {
		return fmt.Errorf("--ready %s is there and no regular file; choose another", file)
	}
	if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("--ready: %w", err)
	}
	return nil
}

// readiness is what the file of --ready says.
type readiness struct {
	Key       string          `json:"key"`
	Listeners []readyListener `json:"listeners"`
	Metrics   string          `json:"metrics,omitempty"` // a URL
}

type readyListener struct {
	URL string `json:"url"`
}

func (l readyListener) String() string { return l.URL }

// writeReady writes the file of --ready in one rename: whoever sees it sees all
// of it.
func writeReady(file string, content *readiness) (err error) {
	if file == "" {
		return nil
	}
	text, err := json.Marshal(content)
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(file), ".ready-*")
	if err != nil {
		return fmt.Errorf("--ready: %w", err)
	}
	defer os.Remove(f.Name()) // in vain once it has been renamed
	_, err = f.Write(append(text, '\n'))
	if err = errors.Join(err, f.Chmod(0o644), f.Close()); err == nil {
		err = os.Rename(f.Name(), file)
	}
	if err != nil {
		return fmt.Errorf("--ready: %w", err)
	}
	return nil
}
