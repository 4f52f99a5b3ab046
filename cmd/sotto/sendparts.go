package main

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/sotto-relay/sotto/relay/client"
)

// Files that fit into a message are sent as one, which waits for recipients who are
// away, and which all that speak brep understand; larger ones in parts, for which the
// recipient has to be there and to accept.

// sendParts sends a large file, and prints that the recipient has it. --timeout
// begins anew with each step. When ctx ends so does the client, so that the recipient
// keeps what it has, for when the same file is sent again.
func (s *shipment) sendParts(ctx context.Context, c *client.Client, it item) error {
	f, err := os.Open(it.path)
	if err != nil {
		return fmt.Errorf("cannot send: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return fmt.Errorf("cannot send: %w", err)
	}
	transfer, err := s.transfer(it.path, info)
	if err != nil {
		return err
	}
	shown, start := &progress{p: s.p, json: s.json}, time.Now()
	defer s.p.clear()
	defer context.AfterFunc(ctx, func() { _ = c.Close() })()
	alive := func() { s.patience.Reset(s.timeout) }
	err = c.SendFile(context.WithoutCancel(ctx), s.to, client.FileSource{
		Name: it.name, Size: info.Size(), Content: &watchedFile{f, alive}, Transfer: transfer,
		Progress: func(done int64) {
			alive()
			_ = shown.at(it.name, s.to.String(), done, info.Size(), start)
		},
	})
	s.p.clear()
	switch {
	case err == nil:
		return s.print(it, client.Receipt{ID: transfer, Status: client.Read})
	case errors.Is(err, client.ErrFileRefused), errors.Is(err, client.ErrFileCancelled):
		return fmt.Errorf("%s was not accepted by %.8v", it.name, s.to)
	case errors.Is(err, client.ErrClosed) && errors.Is(context.Cause(ctx), context.DeadlineExceeded):
		return fmt.Errorf("%s makes no progress: the recipient has to be there (sotto recv --follow); the same command goes on where this one was", it.name)
	case errors.Is(err, client.ErrClosed):
		return fmt.Errorf("%w; the same command goes on where this one was", s.explain(ctx, ctx.Err()))
	}
	return s.explain(ctx, err)
}

// A watchedFile tells that it is read: a large one is, for its sum, before anything
// is sent.
type watchedFile struct {
	*os.File
	read func()
}

func (w *watchedFile) ReadAt(b []byte, off int64) (int, error) {
	w.read()
	return w.File.ReadAt(b, off)
}

// transfer names the sending of a file, so that it goes on where it was interrupted
// if the file is still the same.
func (s *shipment) transfer(path string, info os.FileInfo) (id [16]byte, err error) {
	if path, err = filepath.Abs(path); err != nil {
		return id, err
	}
	h := sha256.New()
	h.Write(s.to[:])
	h.Write(binary.BigEndian.AppendUint64(nil, uint64(info.Size())))
	h.Write(binary.BigEndian.AppendUint64(nil, uint64(info.ModTime().UnixNano())))
	h.Write([]byte(path))
	return [16]byte(h.Sum(nil)), nil
}
