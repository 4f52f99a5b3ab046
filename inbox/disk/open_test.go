package disk

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sotto-relay/sotto/inbox"
)

// filled makes a store with some messages in a directory.
func filled(t *testing.T, dir string) {
	t.Helper()
	db, err := Open(dir, nil)
	require.NoError(t, err)
	for i := range 20 {
		require.NoError(t, putTo(db, bob, fmt.Sprint(i), inbox.Quota{}).Err)
	}
	require.NoError(t, db.State().Put(ctx, "b", "k", []byte("v")))
	require.NoError(t, db.Close())
}

// TestOpenErrors: what is not a store, or one that cannot be used, is refused
// with a sentence that names the path; nothing of it is changed.
func TestOpenErrors(t *testing.T) {
	write := func(text string) func(*testing.T, string) {
		return func(t *testing.T, dir string) {
			require.NoError(t, os.WriteFile(filepath.Join(dir, markerName), []byte(text), 0o600))
		}
	}
	for _, c := range []struct {
		name  string
		spoil func(t *testing.T, dir string)
		path  string // that the error names, below the directory
		want  string
	}{
		{"marker empty", write(""), markerName, "damaged, or belongs to another program"},
		{"marker of somebody else", write("some other program\n"), markerName, "damaged, or belongs to another program"},
		{"marker cut off", write("sotto store\nversion 1\nid 00112233445566778899aabbccddeeff\n"), markerName, "damaged"},
		{"marker with a state that there is not", write("sotto store\nversion 1\nid 00112233445566778899aabbccddeeff\nstate rEady\n"), markerName, "damaged"},
		{"marker with a bad id", write("sotto store\nversion 1\nid 0011\nstate ready\n"), markerName, "damaged"},
		{"marker of version 0", write("sotto store\nversion 0\nid 00112233445566778899aabbccddeeff\nstate ready\n"), markerName, "damaged"},
		{"newer version", write("sotto store\nversion 2\nid 00112233445566778899aabbccddeeff\nstate ready\n"), markerName, "version 2, this program knows 1; use a newer program"},
		{"marker of another store", write("sotto store\nversion 1\nid 00112233445566778899aabbccddeeff\nstate ready\n"), dbName, "that of another store"},
		{"marker is a directory", func(t *testing.T, dir string) {
			require.NoError(t, os.Remove(filepath.Join(dir, markerName)))
			require.NoError(t, os.Mkdir(filepath.Join(dir, markerName), 0o700))
		}, markerName, "cannot be read"},
		{"no marker", func(t *testing.T, dir string) {
			require.NoError(t, os.Remove(filepath.Join(dir, markerName)))
		}, markerName, "missing, while the messages are there"},
		{"no messages", func(t *testing.T, dir string) {
			require.NoError(t, os.RemoveAll(filepath.Join(dir, dbName)))
		}, dbName, "is missing"},
		{"messages' directory is empty", func(t *testing.T, dir string) {
			require.NoError(t, os.RemoveAll(filepath.Join(dir, dbName)))
			require.NoError(t, os.Mkdir(filepath.Join(dir, dbName), 0o700))
		}, dbName, "damaged"},
		{"messages' directory is a file", func(t *testing.T, dir string) {
			require.NoError(t, os.RemoveAll(filepath.Join(dir, dbName)))
			require.NoError(t, os.WriteFile(filepath.Join(dir, dbName), nil, 0o600))
		}, dbName, "is no directory"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			filled(t, dir)
			c.spoil(t, dir)
			before := listing(t, dir)
			_, err := Open(dir, nil)
			require.Error(t, err)
			assert.Contains(t, err.Error(), filepath.Join(dir, c.path)+" ")
			assert.Contains(t, err.Error(), c.want)
			assert.Contains(t, err.Error(), "; ", "says what to do")
			if c.name != "marker of another store" { // which only Pebble can tell, who tidies up
				assert.Equal(t, before, listing(t, dir))
			}
			if strings.Contains(c.name, "newer") { // no damage: quarantine does not touch it
				_, err := Open(dir, &Options{Quarantine: true})
				assert.ErrorContains(t, err, c.want)
				return
			}
			db, err := Open(dir, &Options{Quarantine: true})
			require.NoError(t, err)
			defer db.Close()
			require.NotNil(t, db.Rescued())
			assert.NotEmpty(t, db.Rescued().Why)
			for _, moved := range db.Rescued().Moved {
				_, err := os.Stat(moved)
				assert.NoError(t, err)
				assert.Regexp(t, `\.bad-\d{8}T\d{6}Z$`, moved)
			}
			want := 20
			if strings.HasPrefix(c.name, "no messages") || strings.HasPrefix(c.name, "messages'") {
				want = 0
			}
			assert.Len(t, held(t, db, bob), want)
			assert.Equal(t, want, db.Rescued().Messages)
			assert.NoError(t, putTo(db, bob, "new", inbox.Quota{}).Err)
		})
	}
}

// listing returns all names below a directory, but those of the lock.
func listing(t *testing.T, dir string) (names []string) {
	require.NoError(t, filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if base := filepath.Base(path); base != lockName && base != holderName {
			names = append(names, path)
		}
		return err
	}))
	return names
}

func TestOpenFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(path, nil, 0o600))
	for _, dir := range []string{path, filepath.Join(path, "below")} {
		_, err := Open(dir, nil)
		require.Error(t, err)
		assert.Contains(t, err.Error(), dir+" cannot be written; it, or one above it, is no directory")
	}
}

// TestOpenForeign: a directory with other files in it is fine; they are left
// alone.
func TestOpenForeign(t *testing.T) {
	dir := t.TempDir()
	other := filepath.Join(dir, "identity")
	require.NoError(t, os.WriteFile(other, []byte("other"), 0o600))
	filled(t, dir)
	b, err := os.ReadFile(other)
	require.NoError(t, err)
	assert.Equal(t, "other", string(b))
}

// TestUnwritable: a directory without the rights, a disk that is read-only, full,
// or has no locks, is a sentence, and never damage.
func TestUnwritable(t *testing.T) {
	for _, c := range []struct {
		err  error
		want string
	}{
		{&os.PathError{Op: "open", Path: "data/x", Err: syscall.EACCES}, "give this user the right to write there"},
		{&os.PathError{Op: "open", Path: "data/x", Err: syscall.EROFS}, "mounted read-only"},
		{&os.PathError{Op: "open", Path: "data/x", Err: syscall.ENOSPC}, "make room on the disk"},
		{&os.PathError{Op: "open", Path: "data/x", Err: syscall.EIO}, "the disk has failed"},
	} {
		for _, first := range []bool{true, false} {
			mem := vfs.NewMem()
			if !first {
				require.NoError(t, reopen(t, &Options{FS: mem}).Close())
			}
			fsys := errorfs.Wrap(mem, changes(func(int64, errorfs.Op) error { return c.err }))
			_, err := Open("data", &Options{FS: fsys, Quarantine: true})
			assert.ErrorContains(t, err, "data", "%v", c.err)
			assert.ErrorContains(t, err, c.want, "%v", c.err)
			names, err := mem.List("")
			require.NoError(t, err)
			assert.NotContains(t, strings.Join(names, " "), ".bad-")
		}
	}
	for err, want := range map[error]string{
		syscall.ENOLCK:  "file system without locks; use a disk of this machine",
		syscall.ENOTSUP: "file system without locks; use a disk of this machine",
		&os.PathError{Op: "open", Path: "data/LOCK", Err: syscall.EACCES}: "data cannot be written; give this user the right",
	} {
		fsys := errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
			if op.Kind == errorfs.OpLock {
				return err
			}
			return nil
		}))
		_, got := Open("data", &Options{FS: fsys})
		assert.ErrorContains(t, got, want)
	}
}

// TestUnreadable: what may not be read is a sentence, and never damage.
func TestUnreadable(t *testing.T) {
	for _, errno := range []error{syscall.EACCES, syscall.EIO} {
		for _, name := range []string{markerName, "MANIFEST", ".sst"} {
			mem := vfs.NewMem()
			db := reopen(t, &Options{FS: mem})
			require.NoError(t, putTo(db, bob, "x", inbox.Quota{}).Err)
			require.NoError(t, db.Close())
			fsys := errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
				if (op.Kind == errorfs.OpOpen || op.Kind == errorfs.OpFileRead || op.Kind == errorfs.OpFileReadAt) && strings.Contains(op.Path, name) {
					return &os.PathError{Op: "read", Path: op.Path, Err: errno}
				}
				return nil
			}))
			_, err := Open("data", &Options{FS: fsys, Quarantine: true})
			assert.ErrorContains(t, err, "cannot be read; ", "%s: %v", name, errno)
			assert.ErrorIs(t, err, errno)
		}
	}
}

const holderEnv = "SOTTO_DISK_TEST_HOLDER"

// hold is a process that holds the lock.
func hold(dir string) {
	db, err := Open(dir, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer db.Close()
	fmt.Println("open")
	_, _ = os.Stdin.Read(make([]byte, 1))
}

// TestSecondProcess: it is refused at once, with a sentence that names the first,
// and the first does not notice; when that has been killed the way is free.
func TestSecondProcess(t *testing.T) {
	dir := t.TempDir()
	filled(t, dir)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), holderEnv+"="+dir)
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	defer in.Close()
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	line := make([]byte, 4)
	_, err = out.Read(line)
	require.NoError(t, err)
	require.Equal(t, "open", string(line))

	link := filepath.Join(t.TempDir(), "link")
	require.NoError(t, os.Symlink(dir, link))
	host, err := os.Hostname()
	require.NoError(t, err)
	for _, dir := range []string{dir, link} {
		start := time.Now()
		_, err = Open(dir, &Options{Quarantine: true})
		assert.Less(t, time.Since(start), 2*time.Second)
		assert.ErrorContains(t, err, fmt.Sprintf("is in use by process %d on host %s, since 20", cmd.Process.Pid, host))
	}
	require.NoError(t, cmd.Process.Kill())
	_ = cmd.Wait()

	db, err := Open(dir, nil)
	require.NoError(t, err)
	defer db.Close()
	for _, dir := range []string{dir, link} {
		_, err = Open(dir, nil)
		assert.ErrorContains(t, err, fmt.Sprintf("is in use by process %d on host %s", os.Getpid(), host))
	}
	assert.Len(t, held(t, db, bob), 20)
	assert.NoError(t, putTo(db, bob, "x", inbox.Quota{}).Err)
}

// TestFirstOpenCut: wherever the first Open is cut off, the next one succeeds.
func TestFirstOpenCut(t *testing.T) {
	for i := int64(1); ; i++ {
		end := false
		synctest.Test(t, func(t *testing.T) {
			mem := vfs.NewCrashableMem()
			var after *vfs.MemFS
			fsys := errorfs.Wrap(mem, changes(func(n int64, _ errorfs.Op) error {
				if n == i {
					after = mem.CrashClone(vfs.CrashCloneCfg{})
				}
				return nil
			}))
			require.NoError(t, reopen(t, &Options{FS: fsys, tune: quiet}).Close())
			if end = after == nil; end {
				after = mem
			}
			db := reopen(t, &Options{FS: after, tune: quiet})
			assert.NoError(t, putTo(db, bob, "x", inbox.Quota{}).Err)
			assert.NoError(t, db.Close())
		})
		if end {
			t.Logf("cut off at %d moments", i-1)
			return
		}
	}
}

// TestClock: a wall clock that is behind the last recorded time at Open is not
// believed, so what has expired does not come back.
func TestClock(t *testing.T) {
	mem := vfs.NewMem()
	for _, crash := range []bool{false, true} {
		var copied vfs.FS
		synctest.Test(t, func(t *testing.T) { // begins on 2000-01-01, each time
			db := reopen(t, &Options{FS: mem, tune: quiet})
			e := &inbox.Entry{To: bob, From: alice, Expires: db.clock.wall().Add(time.Hour)}
			done := make(chan inbox.Result, 1)
			db.Inbox().Put(ctx, e, inbox.Quota{}, func(r inbox.Result) { done <- r })
			require.NoError(t, (<-done).Err)
			require.Len(t, held(t, db, bob), 1)
			time.Sleep(2 * time.Hour)
			require.Empty(t, held(t, db, bob))
			require.NoError(t, putTo(db, alice, "x", inbox.Quota{}).Err) // records the time on the way
			if crash {
				copied = vfs.NewMem()
				_, err := vfs.Clone(mem, copied, "data", "data")
				require.NoError(t, err)
			}
			require.NoError(t, db.Close())
		})
		if crash {
			mem = copied.(*vfs.MemFS)
		}
		synctest.Test(t, func(t *testing.T) {
			db := reopen(t, &Options{FS: mem, tune: quiet})
			defer db.Close()
			assert.Empty(t, held(t, db, bob))
			n, err := db.Inbox().Purge(ctx, 10, nil)
			assert.NoError(t, err)
			assert.Equal(t, 1, n)
		})
	}
}

// TestClockShifted: on a store whose recorded time is ahead, an hour from now is
// an hour from now, and stays that. It runs on the real clock, since bubbles have
// no monotonic one.
func TestClockShifted(t *testing.T) {
	mem := vfs.NewMem()
	db := reopen(t, &Options{FS: mem})
	key := metaKey("time")
	ahead := time.Now().Add(48 * time.Hour)
	require.NoError(t, db.pebble.Set(key, seal(newStamp(ahead).append(nil), key), pebble.Sync))
	db.recorded = time.Hour // or Close would record another
	require.NoError(t, db.Close())
	for i := range 2 {
		db = reopen(t, &Options{FS: mem})
		if i == 0 {
			done := make(chan inbox.Result, 1)
			e := &inbox.Entry{To: bob, From: alice, Expires: time.Now().Add(time.Hour)}
			db.Inbox().Put(ctx, e, inbox.Quota{}, func(r inbox.Result) { done <- r })
			require.NoError(t, (<-done).Err)
			e.Expires = time.Now().Add(time.Hour).Round(0) // as it stands: past
			db.Inbox().Put(ctx, e, inbox.Quota{}, func(r inbox.Result) { done <- r })
			require.Equal(t, inbox.ErrExpired, (<-done).Err)
		}
		for rec := range db.index.Of(bob) {
			assert.InDelta(t, time.Hour, rec.Expires-db.clock.now(), float64(time.Minute))
			assert.WithinDuration(t, ahead.Add(time.Hour), rec.Value.expires.time(), time.Minute)
		}
		assert.Len(t, held(t, db, bob), 1)
		require.NoError(t, db.Close())
	}
}

// TestNumbers: no number is given twice, in all lives of a store.
func TestNumbers(t *testing.T) {
	mem := vfs.NewMem()
	last := uint64(0)
	for range 3 {
		db := reopen(t, &Options{FS: mem})
		for range 3 {
			res := putTo(db, bob, "x", inbox.Quota{})
			require.NoError(t, res.Err)
			assert.Greater(t, res.Seq, last)
			last = res.Seq
			_, err := db.Inbox().Delete(ctx, bob, res.Seq)
			require.NoError(t, err)
		}
		require.NoError(t, db.Close())
	}
}
