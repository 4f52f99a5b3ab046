package main

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/sotto-relay/sotto/crypto"
	"github.com/sotto-relay/sotto/relay/client"
)

// arrivals are the large files that come in, in parts. Letters are shown meanwhile,
// by another goroutine.
type arrivals struct {
	mu      sync.Mutex
	began   map[transfer]time.Time // those that are neither whole nor given up
	shown   progress
	step    func() // called for each part; may be nil
	failed  int
	written error // of standard output
}

type transfer struct {
	from crypto.PublicKey
	id   [16]byte
}

// filePolicy is what the user has said of large files.
func (r *collection) filePolicy() *client.FilePolicy {
	accept := func(context.Context, client.FileOffer) (string, error) { return "", client.ErrFileLimit }
	if r.maxFile > 0 && r.maxDir > 0 {
		accept = client.SaveTo(r.dir, client.SaveLimits{Size: r.maxFile, Total: r.maxDir})
	}
	return &client.FilePolicy{Accept: accept, Event: r.part}
}

// part takes note of a step of a file.
func (r *collection) part(e client.FileEvent) {
	a := &r.large
	a.mu.Lock()
	if err := a.take(r, e); a.written == nil {
		a.written = err
	}
	step := a.step
	a.mu.Unlock()
	if step != nil {
		step()
	}
}

func (a *arrivals) take(r *collection, e client.FileEvent) error {
	k := transfer{e.From, e.Transfer}
	start, known := a.began[k]
	switch {
	case e.Err != nil || e.Path != "":
		delete(a.began, k)
		r.p.clear()
	case !known:
		if a.began == nil {
			a.began = make(map[transfer]time.Time)
		}
		start = time.Now()
		a.began[k] = start
	}
	switch {
	case errors.Is(e.Err, client.ErrFileLimit):
		r.p.complain("a file from %v, %q, of %s was refused: it is larger than --max-file, or %s would be larger than --max-dir", e.From, e.Name, inUnits(e.Size), r.dir)
		return nil
	case errors.Is(e.Err, client.ErrFileRoom):
		r.p.complain("a file from %v, %q, of %s was refused: too many are on their way", e.From, e.Name, inUnits(e.Size))
		return nil
	case e.Err != nil:
		a.failed++
		r.p.complain("a file from %v, %q, has failed: %v", e.From, e.Name, e.Err)
		return nil
	case e.Path == "":
		return a.shown.at(e.Name, e.From.String(), e.Done, e.Size, start)
	case r.json:
		return writeJSON(r.p.stdout, &record{
			From: e.From.String(), ID: hex.EncodeToString(e.Transfer[:]), Type: "file",
			Protection: client.ProtectionSealed.String(), Name: e.Name, Path: e.Path, Bytes: int(e.Size),
		})
	}
	_, err := fmt.Fprintf(r.p.stdout, "%.8v (%s): file of %d bytes, saved as %s\n", e.From, e.From.Fingerprint(), e.Size, printable(e.Path))
	return err
}

// onStep has f called for each part.
func (a *arrivals) onStep(f func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.step = f
}

// patienceNow is for how long recv waits for what comes next.
func (r *collection) patienceNow() time.Duration {
	r.large.mu.Lock()
	defer r.large.mu.Unlock()
	if len(r.large.began) > 0 {
		return max(r.idle, r.timeout)
	}
	return r.idle
}

// end tells of files that are not whole, when no more parts come.
func (r *collection) end() error {
	a := &r.large
	a.mu.Lock()
	defer a.mu.Unlock()
	r.p.clear()
	if n := len(a.began); n > 0 {
		r.p.complain("files that are not whole: %d; the next sotto recv goes on with them", n)
	}
	return a.written
}
