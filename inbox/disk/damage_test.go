package disk

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"path"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sotto-relay/sotto/inbox"
	"github.com/sotto-relay/sotto/internal/race"
)

var full = flag.Bool("full", false, "full sizes: more damages, a million entries")

// A sample is a store to damage: in tables and, as if its process had been
// killed, in the log.
type sample struct {
	fs    *vfs.MemFS
	files []string
	there []string // names of the messages, oldest first
}

const inLog = 250 // the first message that is in the log

func newSample(t *testing.T) (s sample) {
	s.fs = vfs.NewMem()
	mem := vfs.NewMem()
	db := reopen(t, &Options{FS: mem, tune: func(o *pebble.Options) { quiet(o); o.DisableAutomaticCompactions = true }})
	put := func(from, to int) {
		for n := from; n < to; n++ {
			name := messageName("bob", "alice", n)
			done := make(chan inbox.Result, 1)
			e := message(name)
			db.Inbox().Put(ctx, e, inbox.Quota{}, func(r inbox.Result) { done <- r })
			res := <-done
			require.NoError(t, res.Err)
			if n%7 == 0 { // some are gone
				_, err := db.Inbox().Delete(ctx, e.To, res.Seq)
				require.NoError(t, err)
				continue
			}
			s.there = append(s.there, name)
		}
	}
	put(1, 150)
	require.NoError(t, db.State().Put(ctx, "history", "k", []byte("1")))
	require.NoError(t, db.pebble.Flush())
	put(150, inLog)
	require.NoError(t, db.pebble.Flush())
	put(inLog, 400)
	_, err := vfs.Clone(mem, s.fs, "data", "data")
	require.NoError(t, err)
	require.NoError(t, db.Close())
	for _, dir := range []string{"data", "data/db"} {
		names, err := s.fs.List(dir)
		require.NoError(t, err)
		for _, n := range names {
			if n != dbName {
				s.files = append(s.files, path.Join(dir, n))
			}
		}
	}
	slices.Sort(s.files)
	return s
}

func read(t *testing.T, fs vfs.FS, name string) []byte {
	f, err := fs.Open(name)
	require.NoError(t, err)
	defer f.Close()
	b, err := io.ReadAll(f)
	require.NoError(t, err)
	return b
}

// spoil returns a copy of the sample with one file changed.
func (s *sample) spoil(t *testing.T, name string, change func([]byte) []byte) vfs.FS {
	mem := vfs.NewMem()
	_, err := vfs.Clone(s.fs, mem, "data", "data")
	require.NoError(t, err)
	b := change(read(t, s.fs, name))
	require.NoError(t, mem.Remove(name))
	if b != nil {
		f, err := mem.Create(name, vfs.WriteCategoryUnspecified)
		require.NoError(t, err)
		_, err = f.Write(b)
		require.NoError(t, err)
		require.NoError(t, f.Close())
	}
	return mem
}

var damages = []struct {
	name   string
	change func(b []byte) []byte
}{
	{"empty", func([]byte) []byte { return []byte{} }},
	{"missing", func([]byte) []byte { return nil }},
	{"cut in half", func(b []byte) []byte { return b[:len(b)/2] }},
	{"without its last byte", func(b []byte) []byte { return b[:max(0, len(b)-1)] }},
	{"bit flipped at the beginning", flip(0)},
	{"bit flipped at a tenth", flip(0.1)},
	{"bit flipped in the middle", flip(0.5)},
	{"bit flipped near the end", flip(0.9)},
	{"bit flipped at the end", flip(1)},
	{"page zeroed", func(b []byte) []byte {
		clear(b[len(b)/3 : min(len(b), len(b)/3+4096)])
		return b
	}},
	{"all zeros", func(b []byte) []byte { clear(b); return b }},
	{"garbage", func(b []byte) []byte {
		rnd := rand.New(rand.NewPCG(uint64(len(b)), 1))
		for i := range b {
			b[i] = byte(rnd.Uint32())
		}
		return b
	}},
	{"garbage behind", func(b []byte) []byte { return append(b, "some more that does not belong here"...) }},
	{"another file", func([]byte) []byte { return []byte("#!/bin/sh\necho this is something else\n") }},
}

func flip(where float64) func([]byte) []byte {
	return func(b []byte) []byte {
		if len(b) > 0 {
			b[int(where*float64(len(b)-1))] ^= 0x10
		}
		return b
	}
}

// missing returns which of the sample's messages a store does not have any more,
// oldest first; the others are as they were and in order. Where the log was
// damaged, what it deleted may be back.
func (s *sample) missing(t *testing.T, db *DB, what string) (missing []string) {
	boxes, _, err := contents(db, []string{"bob"})
	require.NoError(t, err, what)
	rest := s.there
	for _, name := range boxes["bob"] {
		if _, _, n := split(name); n%7 == 0 && n >= inLog && strings.Contains(what, ".log ") {
			continue
		}
		at := slices.Index(rest, name)
		require.GreaterOrEqual(t, at, 0, "%s: %s is there, which was deleted, or is out of order", what, name)
		missing = append(missing, rest[:at]...)
		rest = rest[at+1:]
	}
	return append(missing, rest...)
}

// standAlone says whether the data of all these messages is apart from them.
func standAlone(names []string) bool {
	for _, name := range names {
		if len(message(name).Data) <= inlineMax {
			return false
		}
	}
	return true
}

// damaged opens a damaged store, both ways, and returns how many messages it
// cost.
func (s *sample) damaged(t *testing.T, spoiled func() vfs.FS, file, how string) (lost int) {
	what := file + " " + how
	db, err := Open("data", &Options{FS: spoiled(), tune: quiet})
	if err != nil {
		var open *openError
		require.True(t, errors.As(err, &open), "%s: %v", what, err)
		assert.True(t, open.damaged, "%s: %v", what, err)
		assert.ErrorContains(t, err, "data/", what)
	} else {
		// Either it did not matter, or a log was cut off where nobody can tell its
		// end from a torn one, or it is data that nobody reads before it is wanted.
		missing := s.missing(t, db, what)
		youngest := s.there[len(s.there)-len(missing):]
		switch {
		case len(missing) == 0:
		case strings.HasSuffix(file, ".log"):
			assert.Equal(t, youngest, missing, "%s: opened with a gap", what)
		default:
			assert.True(t, standAlone(missing), "%s: opened as if nothing were missing: %v", what, missing)
			assert.Positive(t, db.Damaged(), what)
			check, err := db.Check(ctx)
			require.NoError(t, err, what)
			assert.NotEmpty(t, check.Damaged, what)
			assert.Equal(t, len(s.there)-len(missing), check.Messages, what)
		}
		assert.NoError(t, db.Close(), what)
	}

	db, err2 := Open("data", &Options{FS: spoiled(), tune: quiet, Quarantine: true})
	require.NoError(t, err2, what)
	defer db.Close()
	assert.Equal(t, err != nil, db.Rescued() != nil, what)
	missing := s.missing(t, db, what)
	if r := db.Rescued(); r != nil {
		assert.GreaterOrEqual(t, r.Messages, len(s.there)-len(missing), what)
		assert.NotEmpty(t, r.Moved, what)
		if len(missing) > 0 && how != "missing" && !strings.HasPrefix(how, "replaced") { // then nobody knows what it held
			assert.NotEmpty(t, r.Lost, what)
		}
		check, err := db.Check(ctx)
		require.NoError(t, err)
		assert.Empty(t, check.Damaged, what)
		assert.GreaterOrEqual(t, check.Messages, len(s.there)-len(missing), what)
	}
	assert.NoError(t, putTo(db, alice, "new", inbox.Quota{}).Err, what)
	require.NoError(t, db.Close(), what)
	return len(missing)
}

// TestDamage damages each file in each way. It is refused with a sentence, or
// does not matter; with Quarantine what can be read is there.
func TestDamage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSample(t)
		next, step := some(t, 25)
		i := 0
		run := func(file, how string, spoiled func() vfs.FS) {
			if i++; i-1 != next {
				return
			}
			next += step
			lost := s.damaged(t, spoiled, file, how)
			if lost > 0 && testing.Verbose() {
				t.Logf("%s %s: %d of %d messages lost", file, how, lost, len(s.there))
			}
			if strings.HasPrefix(how, "bit flipped") && !strings.HasSuffix(how, "beginning") && !strings.HasSuffix(how, "end") {
				assert.Less(t, lost, len(s.there)/2, "%s %s: takes its neighbours along", file, how)
			}
		}
		for _, file := range s.files {
			for _, d := range damages {
				run(file, d.name, func() vfs.FS {
					return s.spoil(t, file, func(b []byte) []byte { return d.change(slices.Clone(b)) })
				})
			}
			for _, other := range s.files { // one in place of another
				if other != file && path.Ext(other) == path.Ext(file) && path.Dir(other) == path.Dir(file) {
					run(file, "replaced by "+other, func() vfs.FS {
						return s.spoil(t, file, func([]byte) []byte { return read(t, s.fs, other) })
					})
				}
			}
			run(file, "a directory", func() vfs.FS {
				mem := s.spoil(t, file, func([]byte) []byte { return nil })
				require.NoError(t, mem.MkdirAll(file, 0o700))
				return mem
			})
		}
	})
}

// TestDamageRandom damages a file in a random way, over and over.
func TestDamageRandom(t *testing.T) {
	n := 40
	switch {
	case *full:
		n = 2000
	case race.Enabled:
		n = 3
	}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	synctest.Test(t, func(t *testing.T) {
		s := newSample(t)
		for range n {
			file := s.files[rnd.IntN(len(s.files))]
			seed := rnd.Uint64()
			spoiled := func() vfs.FS {
				return s.spoil(t, file, func(b []byte) []byte {
					rnd := rand.New(rand.NewPCG(seed, 0))
					b = slices.Clone(b)
					for range 1 + rnd.IntN(8) {
						if len(b) == 0 {
							break
						}
						at := rnd.IntN(len(b))
						switch rnd.IntN(3) {
						case 0:
							b[at] ^= 1 << rnd.IntN(8)
						case 1:
							clear(b[at:min(len(b), at+rnd.IntN(600))])
						case 2:
							b = slices.Delete(b, at, min(len(b), at+rnd.IntN(20)))
						}
					}
					return b
				})
			}
			s.damaged(t, spoiled, file, fmt.Sprintf("at random with %d", seed))
		}
	})
}
