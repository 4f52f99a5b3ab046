package policy

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sotto-relay/sotto/crypto"
	"github.com/sotto-relay/sotto/relay"
)

// A KeyFile is a set of Ed25519 keys that is read from a file: one key a line, as
// 64 hex digits. Empty lines are skipped, and so is everything from a
// "#" to the end of its line. A file without keys lets nobody in.
//
// All methods may be called concurrently. None starts a goroutine.
type KeyFile struct {
	path string
	keys atomic.Pointer[keySet]

	// reload is held while the file is read, so that who reads last also stores
	// last. Nobody who logs in waits for it.
	reload sync.Mutex
	seen   os.FileInfo // of the last attempt to read; nil: there was no file
}

// OpenKeyFile reads the keys in the file at path. The error names the file and,
// of a line that is no key, the number: never what stands there, which may be a
// secret that came into the wrong file.
func OpenKeyFile(path string) (*KeyFile, error) {
	f := &KeyFile{path: path}
	f.keys.Store(new(keySet))
	if _, err := f.Reload(); err != nil {
		return nil, err
	}
	return f, nil
}

// Policy returns the policy that lets the holders of the keys log in, as
// [AllowKeys] does, and follows the file as it is read again. Sessions that have
// logged in stay; see Reload.
func (f *KeyFile) Policy() relay.Policy {
	return allow(func() keySet { return *f.keys.Load() })
}

// Known says whether k is in the file: a contact list for the mailbox dialect.
func (f *KeyFile) Known(_ context.Context, k crypto.PublicKey) (bool, error) {
	_, ok := (*f.keys.Load())[k]
	return ok, nil
}

// Reload reads the file again, and returns the keys that are not allowed any
// more, in no order, for the program to end their sessions (relay.Server.Kick). A
// login that is under way at that moment may still pass, so revocation that has
// to be certain kicks once more after relay.Limits.HookTimeout. On an error,
// which is as that of [OpenKeyFile], the old set stays.
func (f *KeyFile) Reload() (removed []crypto.PublicKey, err error) {
	f.reload.Lock()
	defer f.reload.Unlock()
	f.seen = look(f.path)
	text, err := os.ReadFile(f.path)
	if err != nil {
		return nil, fmt.Errorf("policy: %w", err)
	}
	set, err := parseKeys(string(text))
	if err != nil {
		return nil, fmt.Errorf("policy: %s: %w", f.path, err)
	}
	for k := range *f.keys.Swap(&set) {
		if _, still := set[k]; !still {
			removed = append(removed, k)
		}
	}
	return removed, nil
}

// watchInterval is the time between two looks at a file that is watched.
const watchInterval = time.Second

// Watch looks at the file every second until ctx ends, and reloads it once it has
// changed and stayed the same for a second: a file that is being written is left
// alone. It calls changed, on this goroutine, with the results of each Reload.
//
// A change is one of the file's identity, size, mode or time of modification.
func (f *KeyFile) Watch(ctx context.Context, changed func(removed []crypto.PublicKey, err error)) {
	tick := time.NewTicker(watchInterval)
	defer tick.Stop()
	last := look(f.path)
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		now := look(f.path)
		if same(now, last) && !same(now, f.lastSeen()) {
			changed(f.Reload())
		}
		last = now
	}
}

func (f *KeyFile) lastSeen() os.FileInfo {
	f.reload.Lock()
	defer f.reload.Unlock()
	return f.seen
}

// look returns what tells a changed file; nil when there is none to be seen.
func look(path string) os.FileInfo {
	info, err := os.Stat(path)
	if err != nil {
		return nil
	}
	return info
}

func same(a, b os.FileInfo) bool {
	if a == nil || b == nil {
		return a == b
	}
	return os.SameFile(a, b) && a.Size() == b.Size() && a.Mode() == b.Mode() && a.ModTime().Equal(b.ModTime())
}

func parseKeys(text string) (keySet, error) {
	set := make(keySet)
	n := 0
	for line := range strings.Lines(text) {
		n++
		field, _, _ := strings.Cut(line, "#")
		field = strings.TrimSpace(field)
		if field == "" {
			continue
		}
		k, err := crypto.ParsePublicKey(strings.ToLower(field))
		if err != nil {
			return nil, fmt.Errorf("line %d: not a key of 64 hex digits", n)
		}
		set[k] = struct{}{}
	}
	return set, nil
}
