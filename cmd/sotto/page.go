package main

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"
)

// maxPage bounds a page, which is kept in memory, in bytes.
const maxPage = 1 << 20

// A page is a file that is shown to browsers.
type page struct {
	file    string
	content atomic.Pointer[[]byte]
}

func loadPage(file string) (*page, error) {
	p := &page{file: file}
	return p, p.reload()
}

// reload reads the file again. On an error the old content stays.
func (p *page) reload() error {
	info, err := os.Stat(p.file)
	if err != nil {
		return fmt.Errorf("the page: %w", err)
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("the page: %s is no regular file", p.file)
	}
	f, err := os.Open(p.file)
	if err != nil {
		return fmt.Errorf("the page: %w", err)
	}
	defer f.Close()
	content, err := io.ReadAll(io.LimitReader(f, maxPage+1))
	if err != nil {
		return fmt.Errorf("the page: %w", err)
	}
	if len(content) > maxPage {
		return fmt.Errorf("the page: %s has more than 1 MiB", p.file)
	}
	p.content.Store(&content)
	return nil
}

func (p *page) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("X-Content-Type-Options", "nosniff")
	http.ServeContent(w, r, filepath.Base(p.file), time.Time{}, bytes.NewReader(*p.content.Load()))
}
