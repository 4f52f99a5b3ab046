package audit

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestLine(t *testing.T) {
	l := Line{TS: 1700000000123, From: "a", To: "b", Entity: "e", Kind: "update", Bytes: 512}
	assert.Equal(t, `{"ts":1700000000123,"fromConnId":"a","toConnId":"b","entityId":"e","kind":"update","bytes":512}`,
		string(l.Append(nil)))
	l = Line{TS: 1, Lost: 17}
	assert.Equal(t, `{"ts":1,"lost":17}`, string(l.Append(nil)))

	for _, entity := range []string{"ключ/✓", "\"\\\n\x00\x7f", "<&>\u2028"} {
		l = Line{Entity: entity}
		var read struct{ EntityID string }
		require.NoError(t, json.Unmarshal(l.Append(nil), &read))
		assert.Equal(t, entity, read.EntityID)
	}
}

// A lossy is a sink that takes some lines.
type lossy struct {
	mu    sync.Mutex
	room  int // lines that it still takes
	tries int
	lines []Line
}

var errFull = errors.New("no space left")

func (s *lossy) Write(lines []Line) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tries++
	n := min(len(lines), s.room)
	s.lines = append(s.lines, lines[:n]...)
	if s.room -= n; n < len(lines) {
		return n, errFull
	}
	return n, nil
}

// texts returns what was written: numbers of lines, and losses.
func (s *lossy) texts() (texts []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.lines {
		if l.Lost > 0 {
			texts = append(texts, fmt.Sprintf("lost %d", l.Lost))
		} else {
			texts = append(texts, fmt.Sprint(l.Bytes))
		}
	}
	s.lines = nil
	return texts
}

// deliver logs deliveries of frames that have from, from+1, … as their lengths.
func deliver(l *Log, from, to int) {
	for i := from; i < to; i++ {
		l.Delivered(Line{Bytes: i}, []string{"x"})
	}
}

func (s *lossy) tried() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.tries
}

// setRoom sets how many lines the sink still takes.
func (s *lossy) setRoom(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.room = n
}

func numbers(from, to int) (texts []string) {
	for i := from; i < to; i++ {
		texts = append(texts, fmt.Sprint(i))
	}
	return texts
}

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

// TestRecent: the last 10,000 are kept, in order, whatever the queue is.
func TestRecent(t *testing.T) {
	for _, queue := range []int{0, 10, 20_000} {
		l := Log{Queue: queue}
		assert.Empty(t, l.Recent())
		for i := range 40_000 {
			l.Delivered(Line{Bytes: 2 * i}, []string{"a", "b"})
			if i == 1 {
				assert.Equal(t, []Line{{Bytes: 0, To: "a"}, {Bytes: 0, To: "b"}, {Bytes: 2, To: "a"}, {Bytes: 2, To: "b"}}, l.Recent())
			}
		}
		recent := l.Recent()
		require.Len(t, recent, 10_000)
		for i, line := range recent {
			require.Equal(t, Line{Bytes: 2 * (35_000 + i/2), To: []string{"a", "b"}[i%2]}, line)
		}
		require.NoError(t, l.Close())
	}
}

// TestSinks: every sink gets every line, in order, and a goroutine exists only
// while there is something to write.
func TestSinks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var heard []string
		fast, text := &lossy{room: 1 << 30}, new(bytes.Buffer)
		l := &Log{Sinks: []Sink{
			fast,
			Func(func(l Line) { heard = append(heard, l.To) }),
			Slog(slog.New(slog.NewJSONHandler(text, nil))),
		}}
		l.Delivered(Line{TS: 5, From: "f", Entity: "e", Kind: "pairing", Bytes: 9}, []string{"a", "b"})
		synctest.Wait()
		for _, w := range l.writers {
			assert.False(t, w.running)
		}
		deliver(l, 0, 3000)
		require.NoError(t, l.Close())
		assert.Equal(t, append([]string{"9", "9"}, numbers(0, 3000)...), fast.texts())
		assert.Equal(t, []string{"a", "b", "x"}, heard[:3])
		assert.Len(t, heard, 3002)
		line, _, _ := strings.Cut(text.String(), "\n")
		_, line, _ = strings.Cut(line, `"msg"`)
		assert.Equal(t, `:"delivered","ts":5,"fromConnId":"f","toConnId":"a","entityId":"e","kind":"pairing","bytes":9}`, line)

		deliver(l, 0, 1) // after Close: in memory only
		synctest.Wait()
		assert.Empty(t, fast.texts())
		assert.Len(t, l.Recent(), 3003)
		require.NoError(t, l.Close())
	})
}

// TestOutage: nothing is lost of an outage that the queue outlasts; of a longer
// one, the count is written in its place when writing works again, traffic or not.
func TestOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told bytes.Buffer
		sink, other := &lossy{room: 5}, &lossy{room: 1 << 30}
		l := &Log{Sinks: []Sink{sink, other}, Queue: 100, Logger: slog.New(slog.NewTextHandler(&told, nil))}
		wait := func() { time.Sleep(2 * pause); synctest.Wait() }

		deliver(l, 0, 8)
		synctest.Wait()
		assert.Equal(t, numbers(0, 5), sink.texts())
		assert.Equal(t, 1, strings.Count(told.String(), "cannot be written"))
		deliver(l, 8, 90)
		wait()
		sink.setRoom(1 << 30)
		wait()
		assert.Equal(t, numbers(5, 90), sink.texts())
		assert.NotContains(t, told.String(), "lost")

		sink.setRoom(0)
		for i := 90; i < 340; i += 50 {
			deliver(l, i, i+50)
			wait()
		}
		sink.setRoom(1) // for the count, and nothing else
		wait()
		assert.Equal(t, []string{"lost 150"}, sink.texts())
		assert.Contains(t, told.String(), "lost\" count=150")
		deliver(l, 340, 350)
		wait()
		sink.setRoom(1 << 30)
		wait()
		assert.Equal(t, append([]string{"lost 10"}, numbers(250, 350)...), sink.texts())
		assert.Equal(t, 2, strings.Count(told.String(), "cannot be written"))

		sink.setRoom(0)
		deliver(l, 350, 351)
		wait()
		before := sink.tried()
		time.Sleep(100 * pause)
		synctest.Wait()
		assert.InDelta(t, 100, sink.tried()-before, 1, "one try a pause")
		sink.setRoom(1 << 30)
		require.NoError(t, l.Close(), "tries once more")
		assert.Equal(t, numbers(350, 351), sink.texts())
		assert.Equal(t, numbers(0, 351), other.texts(), "the other sink lost nothing")
	})
}

// TestCloseOfFailing: Close does not wait for a sink that fails, and says what is
// lost.
func TestCloseOfFailing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sink := &lossy{room: 2}
		l := &Log{Sinks: []Sink{sink}, Queue: 10, Logger: quiet()}
		deliver(l, 0, 2)
		synctest.Wait()
		deliver(l, 2, 22)
		time.Sleep(pause / 2)
		start := time.Now()
		err := l.Close()
		require.ErrorIs(t, err, errFull)
		assert.EqualError(t, err, "audit: 20 lines are lost: no space left")
		assert.Zero(t, time.Since(start))
	})
}

// TestHanging: a sink that hangs holds up neither who delivers nor the others.
func TestHanging(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		var heard []int
		other := &lossy{room: 1 << 30}
		l := &Log{Queue: 10, Logger: quiet(), Sinks: []Sink{other, Func(func(l Line) {
			<-release
			heard = append(heard, l.Bytes-1000*l.Lost)
		})}}
		deliver(l, 0, 1)
		synctest.Wait()
		for i := 1; i < 1000; i++ {
			deliver(l, i, i+1)
			synctest.Wait()
		}
		assert.Equal(t, numbers(0, 1000), other.texts())
		close(release)
		require.NoError(t, l.Close())
		assert.Equal(t, []int{0, -989000, 990, 991, 992, 993, 994, 995, 996, 997, 998, 999}, heard)
	})
}

// Closing does not wait for a sink that hangs for ever.
func TestCloseOfHanging(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		l := &Log{Logger: quiet(), Sinks: []Sink{Func(func(Line) { <-release })}}
		deliver(l, 0, 3)
		begun := time.Now()
		assert.Equal(t, errHangs, l.Close())
		assert.Equal(t, patience, time.Since(begun))
		close(release)
		synctest.Wait()
	})
}

// A pipe would hold up whoever opens it, until somebody reads.
func TestPipe(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pipe")
	require.NoError(t, syscall.Mkfifo(path, 0o600))
	_, err := OpenFile(path)
	require.ErrorContains(t, err, path)
	require.ErrorIs(t, err, errPipe)
}

// TestDeliveredAllocates: nothing, once the ring is full.
func TestDeliveredAllocates(t *testing.T) {
	l := &Log{Queue: 1}
	to := []string{"a", "b", "c"}
	deliver(l, 0, kept)
	assert.Zero(t, testing.AllocsPerRun(100, func() { l.Delivered(Line{Entity: "e"}, to) }))
}

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	return string(b)
}

func lines(from, to int) (b []byte) {
	for i := from; i < to; i++ {
		b = append((&Line{Bytes: i, To: "x"}).Append(b), '\n')
	}
	return b
}

// TestFile: it appends, for nobody else's eyes, and survives a rename.
func TestFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	f, err := OpenFile(path)
	require.NoError(t, err)
	l := &Log{Sinks: []Sink{f}}
	deliver(l, 0, 1000)
	require.NoError(t, l.Close())
	assert.Equal(t, string(lines(0, 1000)), read(t, path))
	info, err := os.Stat(path)
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o600), info.Mode())

	f, err = OpenFile(path)
	require.NoError(t, err)
	l = &Log{Sinks: []Sink{f}}
	written := func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return !l.writers[0].running
	}
	deliver(l, 1000, 1001)
	require.Eventually(t, written, 10*time.Second, time.Millisecond)
	require.NoError(t, os.Rename(path, path+".1"))
	deliver(l, 1001, 1002)
	require.Eventually(t, written, 10*time.Second, time.Millisecond)
	require.NoError(t, f.Reopen())
	deliver(l, 1002, 1003)
	require.NoError(t, l.Close())
	assert.Equal(t, string(lines(0, 1002)), read(t, path+".1"))
	assert.Equal(t, string(lines(1002, 1003)), read(t, path))
}

func TestOpenFileFails(t *testing.T) {
	_, err := OpenFile(filepath.Join(t.TempDir(), "no", "audit.log"))
	require.ErrorIs(t, err, os.ErrNotExist)
}

// TestReopenFails: the file before stays in use.
func TestReopenFails(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "logs")
	require.NoError(t, os.Mkdir(dir, 0o700))
	f, err := OpenFile(filepath.Join(dir, "audit.log"))
	require.NoError(t, err)
	defer f.Close()
	require.NoError(t, os.Rename(dir, dir+".old"))
	require.Error(t, f.Reopen())
	n, err := f.Write([]Line{{Bytes: 0, To: "x"}})
	require.NoError(t, err)
	assert.Equal(t, 1, n)
	assert.Equal(t, string(lines(0, 1)), read(t, filepath.Join(dir+".old", "audit.log")))
}

// TestTornFile: what a crash left half written is no part of a new line.
func TestTornFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	require.NoError(t, os.WriteFile(path, []byte(`{"ts":1`), 0o600))
	f, err := OpenFile(path)
	require.NoError(t, err)
	defer f.Close()
	for i := range 2 {
		n, err := f.Write([]Line{{Bytes: i, To: "x"}})
		require.NoError(t, err)
		assert.Equal(t, 1, n)
	}
	assert.Equal(t, `{"ts":1`+"\n"+string(lines(0, 2)), read(t, path))
}

// A disk is a file on a disk that is full after so many bytes.
type disk struct {
	*os.File
	left  int
	fixed bool // nothing can be cut off
}

func (d *disk) Write(b []byte) (int, error) {
	n, err := d.File.Write(b[:min(len(b), d.left)])
	if d.left -= n; err == nil && n < len(b) {
		err = errFull
	}
	return n, err
}

func (d *disk) Truncate(size int64) error {
	if d.fixed {
		return errors.New("no regular file")
	}
	info, err := d.Stat()
	if err != nil {
		return err
	}
	d.left += int(info.Size() - size)
	return d.File.Truncate(size)
}

// TestFullDisk: wherever a disk is full, the file has whole lines, each once. If
// what was torn cannot be cut off, it is a line of its own.
func TestFullDisk(t *testing.T) {
	all := lines(0, 3)
	for left := range len(all) + 1 {
		for _, fixed := range []bool{false, true} {
			path := filepath.Join(t.TempDir(), "audit.log")
			d := &disk{left: left, fixed: fixed}
			f := &File{path: path, open: func(path string) (file, error) {
				var err error
				d.File, err = os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
				return d, err
			}}
			require.NoError(t, f.Reopen())
			batch := []Line{{Bytes: 0, To: "x"}, {Bytes: 1, To: "x"}, {Bytes: 2, To: "x"}}
			n, err := f.Write(batch)
			require.Equal(t, left < len(all), err != nil)
			require.Equal(t, bytes.Count(all[:left], []byte("\n")), n)
			if !fixed {
				require.Equal(t, string(lines(0, n)), read(t, path))
			}
			m, err := f.Write(batch[n:]) // still full
			require.Equal(t, n < 3, err != nil)
			require.Zero(t, m)
			d.left = 1 << 20
			_, err = f.Write(batch[n:])
			require.NoError(t, err)
			got := strings.ReplaceAll(read(t, path), "\n\n", "\n")
			if torn := all[len(lines(0, n)):left]; fixed && len(torn) > 0 {
				require.Equal(t, string(all[:left])+"\n"+string(lines(n, 3)), got)
			} else {
				require.Equal(t, string(all), got)
			}
			require.NoError(t, f.Close())
		}
	}
}

// TestNoSpace: a device without any room.
func TestNoSpace(t *testing.T) {
	f, err := OpenFile("/dev/full")
	if err != nil {
		t.Skip("no /dev/full here")
	}
	l := &Log{Sinks: []Sink{f}, Logger: quiet()}
	deliver(l, 0, 3)
	require.ErrorContains(t, l.Close(), "audit: 3 lines are lost")
}

// TestConcurrent: many who deliver, some who look.
func TestConcurrent(t *testing.T) {
	sink := &lossy{room: 1 << 30}
	l := &Log{Sinks: []Sink{sink}}
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			for i := range 1000 {
				l.Delivered(Line{Bytes: g*1000 + i}, []string{"x"})
				if i%100 == 0 {
					l.Recent()
				}
			}
		})
	}
	wg.Wait()
	require.NoError(t, l.Close())
	got, want := sink.texts(), numbers(0, 4000)
	slices.Sort(got)
	slices.Sort(want)
	assert.Equal(t, want, got)
}

var _ io.Closer = (*File)(nil)

func BenchmarkDelivered(b *testing.B) {
	f, err := OpenFile(filepath.Join(b.TempDir(), "audit.log"))
	require.NoError(b, err)
	l := &Log{Sinks: []Sink{f}, Logger: quiet()}
	to := make([]string, 1000)
	for i := range to {
		to[i] = fmt.Sprint(i)
	}
	b.ReportAllocs()
	for b.Loop() {
		l.Delivered(Line{TS: 1, From: "from", Entity: "entity", Kind: "update", Bytes: 1024}, to)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(to)), "ns/line")
	_ = l.Close()
}
