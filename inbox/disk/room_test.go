package disk

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sotto-relay/sotto/inbox"
	"github.com/sotto-relay/sotto/internal/race"
)

// tableTime is how long a table takes, in which others have their turn.
const tableTime = time.Millisecond

// A sized is a file system with so much room.
type sized struct {
	vfs.FS
	size int64

	mu      sync.Mutex
	used    int64
	files   map[string]*int64 // the length of each
	refused int               // writes for which there was no room
}

func newSized(fs vfs.FS, size int64) *sized {
	return &sized{FS: fs, size: size, files: make(map[string]*int64)}
}

func (s *sized) GetDiskUsage(string) (vfs.DiskUsage, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	free := uint64(max(0, s.size-s.used))
	return vfs.DiskUsage{AvailBytes: free, TotalBytes: uint64(s.size), UsedBytes: uint64(s.used)}, nil
}

// forget frees what a name had. The caller holds s.mu.
func (s *sized) forget(name string) {
	if n := s.files[name]; n != nil {
		s.used -= *n
		delete(s.files, name)
	}
}

func (s *sized) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	if isTable(name) {
		time.Sleep(tableTime)
	}
	f, err := s.FS.Create(name, c)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forget(name)
	s.files[name] = new(int64)
	return &sizedFile{File: f, s: s, length: s.files[name]}, nil
}

func (s *sized) ReuseForWrite(old, name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := s.FS.ReuseForWrite(old, name, c)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.files[name] = s.files[old]
	delete(s.files, old)
	return &sizedFile{File: f, s: s, length: s.files[name]}, nil
}

func (s *sized) Rename(old, name string) error {
	err := s.FS.Rename(old, name)
	if err == nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.forget(name)
		if n := s.files[old]; n != nil {
			s.files[name] = n
			delete(s.files, old)
		}
	}
	return err
}

func (s *sized) Remove(name string) error {
	err := s.FS.Remove(name)
	if err == nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.forget(name)
	}
	return err
}

type sizedFile struct {
	vfs.File
	s      *sized
	length *int64
	at     int64
}

func (f *sizedFile) Write(p []byte) (n int, err error) {
	f.s.mu.Lock()
	more := max(0, f.at+int64(len(p))-*f.length)
	if f.s.used+more > f.s.size {
		f.s.refused++
		f.s.mu.Unlock()
		return 0, syscall.ENOSPC
	}
	f.s.used += more
	*f.length += more
	f.s.mu.Unlock()
	n, err = f.File.Write(p)
	f.at += int64(n)
	return n, err
}

// TestMakeRoom: on a disk that messages have filled, the room of what is deleted is
// there for others soon, whichever that is. Where tidying up keeps up with what comes
// it never uses up the last of it; where it does not, that too comes to an end.
func TestMakeRoom(t *testing.T) {
	if race.Enabled {
		t.Skip("takes a minute with the race detector")
	}
	const people = 20
	half := func(who int) bool { return who%2 == 0 }
	one := func(who int) bool { return who == 7 }
	for _, test := range []struct {
		name    string
		deleted func(who int) bool
		behind  bool // more comes while something is tidied up
	}{
		{"half of the people", half, false},
		{"one of the people", one, false},
		{"half of the people, behind", half, true},
		{"one of the people, behind", one, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				disk := newSized(vfs.NewMem(), 64<<20)
				db := reopen(t, &Options{FS: disk, tune: quiet})
				defer db.Close()
				random := rand.New(rand.NewPCG(1, 2))
				data := make([]byte, 50<<10)
				for i := range data {
					data[i] = byte(random.Uint32())
				}
				to := func(who int) inbox.Address { return inbox.Address{Realm: 1, Name: fmt.Sprint(who)} }
				// fill puts messages until there has been no room for a while.
				fill := func() (seqs [people][]uint64, n int) {
					for full := 0; full < 60; {
						if !test.behind {
							time.Sleep(20 * tableTime)
						}
						who := n % people
						r := putTo(db, to(who), string(data), inbox.Quota{})
						if r.Err != nil {
							require.Equal(t, inbox.ErrStorageFull, r.Err)
							full++
							time.Sleep(time.Second)
							continue
						}
						full = 0
						seqs[who] = append(seqs[who], r.Seq)
						n++
					}
					return seqs, n
				}
				seqs, stored := fill()
				gone := 0
				for who := range seqs {
					if test.deleted(who) {
						n, err := db.Inbox().Delete(ctx, to(who), seqs[who]...)
						require.NoError(t, err)
						gone += n
					}
				}
				_, again := fill()
				t.Logf("%d stored, %d deleted, %d stored again", stored, gone, again)
				assert.Greater(t, stored, 800)
				const logs = 40 // what two of Pebble's logs hold, of which there may be more now
				assert.Greater(t, again, gone*9/10-logs)
				assert.Zero(t, disk.refused, "something found the disk full to the last byte")
				check, err := db.Check(ctx)
				require.NoError(t, err)
				assert.Equal(t, stored-gone+again, check.Messages)
				assert.Empty(t, check.Damaged)
			})
		})
	}
}
