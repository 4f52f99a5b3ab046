package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sotto-relay/sotto/internal/race"
	"github.com/sotto-relay/sotto/relay/client"
)

// large makes a file that fits into no message.
func large(t *testing.T, size int) (path string, data []byte) {
	t.Helper()
	data = make([]byte, size)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(data)
	path = filepath.Join(t.TempDir(), "film.mp4")
	require.NoError(t, os.WriteFile(path, data, 0o600))
	return path, data
}

func TestSendLargeFile(t *testing.T) {
	if race.Enabled {
		t.Skip("long, and no race that others have not")
	}
	home(t)
	r := serve(t)
	bob, to := person(t)
	dir := filepath.Join(t.TempDir(), "films")
	path, data := large(t, 9<<20)
	recv := start(t, "recv", "--follow", "--json", "--relay", r.url, "--identity", bob, "--dir", dir)
	got := sotto(t, "send", "--relay", r.url, "--timeout", "10s", to, path)
	require.Zero(t, got.code, got.errOut)
	assert.Regexp(t, `^film.mp4: received by `+to[:8]+` \((\w+ ){5}\w+\)\n$`, got.out)
	recv.wants(&recv.out, `"path"`)
	saved, err := os.ReadFile(filepath.Join(dir, "film.mp4"))
	require.NoError(t, err)
	assert.Equal(t, sha256.Sum256(data), sha256.Sum256(saved))
	lines := strings.Split(strings.TrimSpace(recv.out.String()), "\n")
	var first struct {
		Type, Peer, Name string
		Done, Size       int64
	}
	require.NoError(t, json.Unmarshal([]byte(lines[0]), &first))
	assert.Equal(t, "progress", first.Type)
	assert.Equal(t, "film.mp4", first.Name)
	assert.EqualValues(t, len(data), first.Size)
	assert.Len(t, first.Peer, 64)
	var last record
	require.NoError(t, json.Unmarshal([]byte(lines[len(lines)-1]), &last))
	assert.Equal(t, record{
		From: first.Peer, ID: last.ID, Type: "file", Protection: "sealed",
		Name: "film.mp4", Path: filepath.Join(dir, "film.mp4"), Bytes: len(data),
	}, last)
	assert.Len(t, last.ID, 32)
	assert.Zero(t, recv.end())
}

// TestSendLargeFileAgain has recv end in the middle, and then send.
func TestSendLargeFileAgain(t *testing.T) {
	if race.Enabled {
		t.Skip("long, and no race that others have not")
	}
	home(t)
	r := serve(t)
	bob, to := person(t)
	dir := t.TempDir()
	path, data := large(t, 40<<20)
	receive := func() *running {
		return start(t, "recv", "--follow", "--relay", r.url, "--identity", bob, "--dir", dir)
	}
	send := func() *running { return start(t, "send", "--json", "--relay", r.url, to, path) }
	some := func() bool {
		found, err := filepath.Glob(filepath.Join(dir, ".sotto-*.part"))
		if err != nil || len(found) != 1 {
			return false
		}
		info, err := os.Stat(found[0])
		return err == nil && info.Size() > 1<<20
	}
	first, s := receive(), send()
	require.Eventually(t, some, wait, tick)
	assert.Zero(t, first.end())
	assert.Contains(t, first.errOut.String(), "files that are not whole: 1; the next sotto recv goes on with them")
	assert.Equal(t, exitFailed, s.end())
	assert.Contains(t, s.errOut.String(), "interrupted")

	second, s := receive(), send()
	require.Eventually(t, func() bool { return len(s.done) > 0 }, wait, tick)
	assert.Zero(t, s.end(), s.errOut.String())
	second.wants(&second.out, "saved as")
	assert.NotContains(t, s.out.String(), `"done":16384`, "it went on where it was")
	saved, err := os.ReadFile(filepath.Join(dir, "film.mp4"))
	require.NoError(t, err)
	assert.True(t, bytes.Equal(data, saved))
	assert.Zero(t, second.end())
}

func TestReceiveRefuses(t *testing.T) {
	home(t)
	r := serve(t)
	bob, to := person(t)
	path, data := large(t, 5<<20)
	for _, limit := range []string{"--max-file=4M", "--max-file=0", "--max-dir=4M"} {
		dir := filepath.Join(t.TempDir(), "none")
		recv := start(t, "recv", "--follow", "--relay", r.url, "--identity", bob, "--dir", dir, limit)
		got := sotto(t, "send", "--relay", r.url, to, path)
		assert.Equal(t, exitFailed, got.code)
		assert.Contains(t, got.errOut, "film.mp4 was not accepted by "+to[:8])
		recv.wants(&recv.errOut, `"film.mp4", of 5.0 MiB was refused: it is larger than --max-file, or `+dir)
		assert.Zero(t, recv.end())
		assert.NoDirExists(t, filepath.Join(dir, "film.mp4"))
		found, err := filepath.Glob(filepath.Join(dir, ".*"))
		assert.NoError(t, err)
		assert.Empty(t, found, "nothing is written before it is accepted")
	}

	small := filepath.Join(t.TempDir(), "small")
	require.NoError(t, os.WriteFile(small, data[:2000], 0o600))
	require.Zero(t, sotto(t, "send", "--relay", r.url, to, small).code)
	got := sotto(t, "recv", "--relay", r.url, "--identity", bob, "--dir", t.TempDir(), "--max-file=1K", idle)
	assert.Equal(t, exitFailed, got.code)
	assert.Contains(t, got.errOut, `"small", cannot be saved, and stays at the relay: it is larger than --max-file`)
	got = sotto(t, "recv", "--relay", r.url, "--identity", bob, "--dir", t.TempDir(), "--max-file=2K", idle)
	assert.Zero(t, got.code, got.errOut)
}

// TestOthersLeaveFiles holds that a command that is not recv neither takes nor
// refuses a file.
func TestOthersLeaveFiles(t *testing.T) {
	if race.Enabled {
		t.Skip("long, and no race that others have not")
	}
	home(t)
	r := serve(t)
	bob, to := person(t)
	path, _ := large(t, 5<<20)
	sub := start(t, "sub", "--relay", r.url, "--identity", bob, "a")
	s := start(t, "send", "--relay", r.url, to, path)
	require.Never(t, func() bool { return len(s.done) > 0 }, time.Second, 100*time.Millisecond, "it waits")
	assert.Zero(t, sub.end())
	recv := start(t, "recv", "--relay", r.url, "--identity", bob, "--dir", t.TempDir(), "--idle", "5s")
	recv.wants(&recv.out, "saved as")
	require.Eventually(t, func() bool { return len(s.done) > 0 }, wait, tick)
	assert.Zero(t, s.end(), s.errOut.String())
}

func TestProgress(t *testing.T) {
	var errOut bytes.Buffer
	g := &progress{p: &program{stderr: &errOut, terminal: true}}
	start := time.Now().Add(-time.Second)
	require.NoError(t, g.at("a\x1bb", "peer", 1<<20, 4<<20, start))
	require.NoError(t, g.at("not so soon", "peer", 2<<20, 4<<20, start))
	g.p.complain("no bar before this")
	g.p.clear()
	assert.Regexp(t, `^\r\x1b\[K`+`a\\x1bb \[#####               \]  25 % of 4.0 MiB, 10\d\d.\d KiB/s`+`\r\x1b\[Ksotto: no bar before this\n$`, errOut.String())
	for _, name := range []string{"", strings.Repeat("é", 200)} {
		for _, size := range []int64{0, 1, 1 << 45} {
			b := bar(name, size, size, time.Second)
			assert.Less(t, utf8.RuneCountInString(b), 80, b)
		}
	}
	silent := &progress{p: &program{stderr: &errOut}}
	errOut.Reset()
	require.NoError(t, silent.at("a", "peer", 1, 2, start))
	assert.Empty(t, errOut.String())
}

// TestTooManyFiles holds that recv says so when a file was refused for others, and that
// this is no failure.
func TestTooManyFiles(t *testing.T) {
	var errOut bytes.Buffer
	r := &collection{account: &account{p: &program{stderr: &errOut}}}
	r.part(client.FileEvent{FileOffer: client.FileOffer{Name: "a\x1b", Size: 2}, Err: client.ErrFileRoom})
	assert.Contains(t, errOut.String(), `"a\x1b", of 2 B was refused: too many are on their way`)
	assert.Zero(t, r.large.failed)
}

// TestPatience holds that recv waits for longer in the middle of a file.
func TestPatience(t *testing.T) {
	var out bytes.Buffer
	r := &collection{account: &account{p: &program{stdout: &out}}, idle: time.Second, timeout: time.Minute}
	r.large.shown = progress{p: r.p}
	steps := 0
	r.large.onStep(func() { steps++ })
	assert.Equal(t, time.Second, r.patienceNow())
	r.part(client.FileEvent{FileOffer: client.FileOffer{Size: 2}, Done: 1})
	assert.Equal(t, time.Minute, r.patienceNow())
	r.part(client.FileEvent{FileOffer: client.FileOffer{Size: 2}, Done: 2, Path: "dir/\x1b"})
	assert.Equal(t, time.Second, r.patienceNow())
	assert.Equal(t, 2, steps)
	assert.Contains(t, out.String(), `file of 2 bytes, saved as dir/\x1b`)
}
