package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sotto-relay/sotto/crypto"
	"github.com/sotto-relay/sotto/frame"
	"github.com/sotto-relay/sotto/internal/freeport"
	"github.com/sotto-relay/sotto/relay/client"
	"github.com/sotto-relay/sotto/transport"
	"github.com/sotto-relay/sotto/transport/ws"
)

const idle = "--idle=600ms"

func TestSendAndReceive(t *testing.T) {
	config := home(t)
	r := serve(t)
	bob, to := person(t)
	file := filepath.Join(t.TempDir(), "notes.txt")
	require.NoError(t, os.WriteFile(file, []byte("contents"), 0o644))
	send := func(stdin string, args ...string) result {
		t.Helper()
		return sottoIn(t, stdin, environment{"SOTTO_RELAY": r.url}, append([]string{"send"}, args...)...)
	}

	first := send("hello\nworld\n", to)
	require.Zero(t, first.code, first.errOut)
	assert.Regexp(t, `^the text: stored for `+to[:8]+` \((\w+ ){5}\w+\)\n$`, first.out)
	assert.Contains(t, first.errOut, "made your identity, "+config)
	assert.Contains(t, first.errOut, "first contact with "+r.url)
	assert.Contains(t, first.errOut, r.key)

	second := send("", "--json", to, "-m", "\x1b[2Jevil\u202e", file, file)
	require.Zero(t, second.code, second.errOut)
	assert.Empty(t, second.errOut, "the relay is known")
	var receipts []struct{ To, ID, Status, Type, Name string }
	for line := range strings.Lines(second.out) {
		receipts = append(receipts, struct{ To, ID, Status, Type, Name string }{})
		require.NoError(t, json.Unmarshal([]byte(line), &receipts[len(receipts)-1]))
	}
	require.Len(t, receipts, 3)
	assert.Equal(t, "stored", receipts[2].Status)
	assert.Equal(t, "notes.txt", receipts[2].Name)
	assert.Len(t, receipts[0].ID, 32)
	require.Zero(t, send("", "--signed", "-m", "signed", to).code)
	require.Zero(t, send("", "--clear", "-m", "clear", to).code)

	dir := filepath.Join(t.TempDir(), "made", "later")
	got := sotto(t, "recv", "--relay", r.url, "--identity", bob, "--dir", dir, idle)
	require.Zero(t, got.code, got.errOut)
	var me struct{ Address, Fingerprint string }
	require.NoError(t, json.Unmarshal([]byte(sotto(t, "id", "--json").out), &me))
	from := me.Address[:8] + " (" + me.Fingerprint + ")"
	assert.Equal(t, from+": hello\n    world\n"+
		from+`: \x1b[2Jevil\u202e`+"\n"+
		from+": file of 8 bytes, saved as "+dir+"/notes.txt\n"+
		from+": file of 8 bytes, saved as "+dir+"/notes (2).txt\n"+
		from+" [signed]: signed\n"+
		from+" [clear]: clear\n", got.out)
	saved, err := os.ReadFile(filepath.Join(dir, "notes (2).txt"))
	require.NoError(t, err)
	assert.Equal(t, "contents", string(saved))

	got = sotto(t, "recv", "--relay", r.url, "--identity", bob, idle)
	assert.Equal(t, result{}, got, "nothing twice")

	require.Zero(t, send("", "-m", "\u009b", to, file).code)
	got = sotto(t, "recv", "--relay", r.url, "--identity", bob, "--json", idle)
	require.Zero(t, got.code, got.errOut)
	lines := strings.Split(got.out, "\n")
	require.Len(t, lines, 3)
	assert.Contains(t, lines[0], `"text":"\u009b"`)
	assert.Contains(t, lines[0], me.Address)
	assert.Contains(t, lines[1], filepath.Join(config, "files", "notes.txt"))

	log := r.errOut.String()
	for _, secret := range []string{"hello", "contents", "evil", me.Address, to} {
		assert.NotContains(t, log, secret)
	}
}

// TestFollow has a relay die and come back. (One that drains would tell its clients
// when to come back.)
func TestFollow(t *testing.T) {
	home(t)
	relayFile, _ := person(t)
	bob, to := person(t)
	ready := filepath.Join(t.TempDir(), "ready")
	dies := process(t, t.TempDir(), nil, "serve", "--identity", relayFile, "--listen", "ws://127.0.0.1:0", "--ready", ready)
	require.NoError(t, dies.Start())
	url := awaitReady(t, ready).Listeners[0].URL
	recv := start(t, "recv", "--follow", "--relay", url, "--identity", bob)
	require.Zero(t, sotto(t, "send", "--relay", url, "-m", "one", to).code)
	recv.wants(&recv.out, "one")
	require.NoError(t, dies.Process.Kill())
	require.Error(t, dies.Wait())
	recv.wants(&recv.errOut, "no connection")

	r := start(t, "serve", "--identity", relayFile, "--listen", url)
	r.wants(&r.errOut, "ready")
	recv.wants(&recv.errOut, "connected again")
	require.Zero(t, sotto(t, "send", "--relay", url, "-m", "two", to).code)
	recv.wants(&recv.out, "two")
	assert.Zero(t, recv.end())
}

func TestSendFails(t *testing.T) {
	config := home(t)
	r := serve(t)
	_, to := person(t)
	require.Zero(t, sotto(t, "send", "--relay", r.url, "-m", "x", to).code)
	dir := t.TempDir()
	write := func(name string, size int64, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, nil, 0o600))
		require.NoError(t, os.Truncate(path, size))
		require.NoError(t, os.Chmod(path, mode))
		return path
	}
	huge, full, colon := write("huge", maxContent+1, 0o600), write("full", maxContent, 0o600), write("a:b", 1, 0o600)
	openIdentity, _ := person(t)
	require.NoError(t, os.Chmod(openIdentity, 0o644))
	known := filepath.Join(dir, "known")
	require.NoError(t, os.WriteFile(known, []byte("junk\n"), 0o600))
	closed := freeport.Address(t)
	plain := httptest.NewServer(http.NotFoundHandler())
	defer plain.Close()
	legacy := httptest.NewServer(ws.Handler(transport.HandlerFunc(beLegacy), nil))
	defer legacy.Close()
	_, other := person(t)

	for _, c := range []struct {
		name, stdin, args, want string
	}{
		{"no relay", "x", "--relay ws://" + closed, "cannot reach the relay at ws://127.* connection refused; is it running"},
		{"no such host", "x", "--relay ws://no-such-host.invalid", "cannot reach the relay"},
		{"another server", "x", "--relay ws://" + plain.Listener.Addr().String(), "cannot reach the relay.*status 404"},
		{"legacy relay", "x", "--relay ws://" + legacy.Listener.Addr().String(), "old handshake only"},
		{"pinned key", "x", "--relay-key " + other, "has the key " + r.key + ", not that of --relay-key"},
		{"no text", "", "", "text is empty"},
		{"only a newline", "\n", "", "text is empty"},
		{"no UTF-8", "a\xff", "", "not UTF-8: send it as a file"},
		{"endless text", strings.Repeat("x", maxContent+2), "", "standard input is too large"},
		{"no file", "", filepath.Join(dir, "none"), "cannot send: .*no such file"},
		{"a directory", "", dir, "is a directory"},
		{"a device", "", os.DevNull, "no regular file"},
		{"a large file to somebody who is away", "", "--timeout 1s " + huge, "huge makes no progress: the recipient has to be there"},
		{"one that is too large when sealed", "", "--timeout 1s " + full, "full makes no progress"},
		{"a large file that is signed only", "", "--signed " + huge, "huge is too large"},
		{"one that is too large when signed", "", "--signed " + full, "full is too large"},
		{"a name that is refused", "", colon, "rename it"},
		{"one of two files", "", colon + " " + full, "rename it"},
		{"no identity", "x", "--identity " + filepath.Join(dir, "me"), "make one with sotto id --identity"},
		{"an open identity", "x", "--identity " + openIdentity, "chmod 600"},
		{"an identity that is a directory", "x", "--identity " + dir, "identity file"},
		{"damaged known relays", "x", "--known-relays " + known, "known:1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			args := append([]string{"send", "--relay", r.url, to}, strings.Fields(c.args)...)
			got := sottoIn(t, c.stdin, nil, args...)
			assert.Equal(t, exitFailed, got.code, got.errOut)
			assert.Empty(t, got.out)
			assert.Regexp(t, `^sotto: .*`+c.want+`.*\n$`, got.errOut)
		})
	}

	t.Run("a relay that has changed its key", func(t *testing.T) {
		text, err := os.ReadFile(filepath.Join(config, "known_relays"))
		require.NoError(t, err)
		swapped := strings.ReplaceAll(string(text), r.key, other)
		require.NoError(t, os.WriteFile(filepath.Join(config, "known_relays"), []byte(swapped), 0o600))
		got := sotto(t, "send", "--relay", r.url, "-m", "x", to)
		assert.Equal(t, exitFailed, got.code)
		assert.Regexp(t, `has the key `+r.key+`, and had `+other+` before: .* delete its line in .*known_relays`, got.errOut)
	})
}

// beLegacy announces itself as a relay that speaks v1 does.
func beLegacy(c transport.Conn) {
	defer c.Close(transport.CloseNormal, "")
	challenge := &frame.Brep{Type: frame.TypeHandshake, Payload: make([]byte, 32)}
	if _, err := c.Write(transport.Binary, [][]byte{challenge.Append(nil)}); err == nil {
		_, _, _ = c.Read()
	}
}

// TestSilentRelay holds that --timeout ends what does not end by itself.
func TestSilentRelay(t *testing.T) {
	home(t)
	_, to := person(t)
	silent := httptest.NewServer(ws.Handler(transport.HandlerFunc(func(c transport.Conn) { _, _, _ = c.Read() }), nil))
	defer silent.Close()
	url := "ws://" + silent.Listener.Addr().String()
	for _, args := range [][]string{{"send", "-m", "x", to}, {"recv"}} {
		got := sotto(t, append(args, "--relay", url, "--timeout", "100ms")...)
		assert.Equal(t, exitFailed, got.code)
		assert.Contains(t, got.errOut, "within --timeout")
	}
}

func TestReceiveFails(t *testing.T) {
	home(t)
	r := serve(t)
	me, to := person(t)
	env := environment{"SOTTO_RELAY": r.url, "SOTTO_IDENTITY": me}

	t.Run("replaced", func(t *testing.T) {
		old := start(t, "recv", "--follow", "--relay", r.url, "--identity", me)
		require.Eventually(t, func() bool {
			return strings.Contains(sotto(t, "send", "--relay", r.url, "-m", "here?", to).out, "handed")
		}, wait, tick)
		got := sottoIn(t, "", env, "recv", idle)
		assert.Zero(t, got.code, got.errOut)
		assert.Equal(t, exitFailed, <-old.done)
		old.done <- exitFailed
		assert.Contains(t, old.errOut.String(), "another program has logged in with this identity")
	})
	t.Run("no relay", func(t *testing.T) {
		closed := freeport.Address(t)
		url := "ws://" + closed
		got := sotto(t, "recv", "--relay", url)
		assert.Equal(t, exitFailed, got.code)
		assert.Contains(t, got.errOut, "cannot reach the relay")
		follow := start(t, "recv", "--follow", "--relay", url)
		follow.wants(&follow.errOut, "no connection to "+url)
		assert.Zero(t, follow.end(), "interrupted, as it ends")
	})
	t.Run("nowhere to save", func(t *testing.T) {
		require.Zero(t, sotto(t, "send", "--relay", r.url, to, "main.go").code)
		require.Zero(t, sotto(t, "send", "--relay", r.url, to, "-m", "after it").code)
		got := sottoIn(t, "", env, "recv", "--dir", "main.go", idle)
		assert.Equal(t, exitFailed, got.code)
		assert.Regexp(t, `"main.go", cannot be saved, and stays at the relay: .*not a directory`, got.errOut)
		assert.Contains(t, got.errOut, "1 of the files could not be saved")
		assert.Contains(t, got.out, ": after it\n", "the others are shown")
		got = sottoIn(t, "", env, "recv", "--dir", t.TempDir(), idle)
		assert.Zero(t, got.code, got.errOut)
		assert.Contains(t, got.out, "main.go")
		assert.NotContains(t, got.out, "after it")
	})
	t.Run("nobody reads on", func(t *testing.T) { // as with recv | head -1
		for _, text := range []string{"one", "two", "three"} {
			require.Zero(t, sotto(t, "send", "--relay", r.url, to, "-m", text).code)
		}
		out := &shortWriter{lines: 1}
		code := run(t.Context(), []string{"sotto", "recv", idle}, nil, out, io.Discard, env.lookup)
		assert.Equal(t, exitFailed, code)
		assert.Contains(t, out.String(), ": one\n")
		time.Sleep(readAcks)
		got := sottoIn(t, "", env, "recv", idle)
		assert.Zero(t, got.code, got.errOut)
		assert.Equal(t, 2, strings.Count(got.out, "\n"))
		assert.Regexp(t, `: two\n.*: three\n$`, got.out)
	})
}

// A shortWriter takes so many writes, and then is closed.
type shortWriter struct {
	strings.Builder
	lines int
}

func (w *shortWriter) Write(b []byte) (int, error) {
	if w.lines == 0 {
		return 0, io.ErrClosedPipe
	}
	w.lines--
	return w.Builder.Write(b)
}

// TestSendTakesNothing holds that what waits for an identity is there after it has
// sent, to itself too.
func TestSendTakesNothing(t *testing.T) {
	home(t)
	r := serve(t)
	friend, _ := person(t)
	var me struct{ Address string }
	require.NoError(t, json.Unmarshal([]byte(sotto(t, "id", "--json").out), &me))
	for i := range 10 {
		got := sotto(t, "send", "--relay", r.url, "--identity", friend, "-m", fmt.Sprint("waits ", i), me.Address)
		require.Zero(t, got.code, got.errOut)
	}
	for range 3 {
		got := sotto(t, "send", "--relay", r.url, "-m", "to myself", me.Address)
		require.Zero(t, got.code, got.errOut)
	}
	got := sotto(t, "recv", "--relay", r.url, idle)
	require.Zero(t, got.code, got.errOut)
	var texts []string
	for line := range strings.Lines(got.out) {
		_, text, _ := strings.Cut(line, ": ")
		texts = append(texts, strings.TrimSpace(text))
	}
	var want []string
	for i := range 10 {
		want = append(want, fmt.Sprint("waits ", i))
	}
	assert.Equal(t, append(want, "to myself", "to myself", "to myself"), texts)
	assert.Equal(t, result{}, sotto(t, "recv", "--relay", r.url, idle), "nothing twice")
}

func TestSaveNew(t *testing.T) {
	dir, outside := t.TempDir(), t.TempDir()
	for _, c := range []struct{ name, want string }{
		{"a.txt", "a.txt"}, {"a.txt", "a (2).txt"}, {"a.txt", "a (3).txt"},
		{".bashrc", "_.bashrc"}, {"-rf", "_-rf"}, {"a.tar.gz", "a.tar.gz"}, {"a.tar.gz", "a.tar (2).gz"},
		{strings.Repeat("é", 127), strings.Repeat("é", 127)},
		{strings.Repeat("é", 127), strings.Repeat("é", 125) + " (2)"},
	} {
		got, err := saveNew(dir, c.name, []byte(c.want))
		require.NoError(t, err)
		require.Equal(t, c.want, got)
		data, err := os.ReadFile(filepath.Join(dir, got))
		require.NoError(t, err)
		require.Equal(t, c.want, string(data))
	}
	victim := filepath.Join(outside, "victim")
	require.NoError(t, os.Symlink(victim, filepath.Join(dir, "link")))
	got, err := saveNew(dir, "link", []byte("x"))
	require.NoError(t, err)
	assert.Equal(t, "link (2)", got)
	_, err = os.Lstat(victim)
	assert.ErrorIs(t, err, os.ErrNotExist)
	_, err = saveNew(dir, "../escape", nil)
	assert.Error(t, err)
}

func TestRecord(t *testing.T) {
	for _, c := range []struct {
		letter client.Letter
		want   string
	}{
		{client.Letter{Type: crypto.Text, Data: []byte("a")}, `"type":"text","protection":"clear","text":"a","bytes":1}`},
		{client.Letter{Type: crypto.JSON, Data: []byte("{}"), Protection: client.ProtectionSealed}, `"type":"json","protection":"sealed","text":"{}","bytes":2}`},
		{client.Letter{Type: crypto.Raw, Data: []byte{0xff}}, `"type":"raw","protection":"clear","data":"/w==","bytes":1}`},
		{client.Letter{Type: crypto.File, Name: "n", Data: []byte("abc")}, `"type":"file","protection":"clear","name":"n","path":"p","bytes":3}`},
	} {
		text, err := json.Marshal(newRecord(&c.letter, "p"))
		require.NoError(t, err)
		assert.True(t, strings.HasSuffix(string(text), c.want), string(text))
	}
}

func TestUnencrypted(t *testing.T) {
	var errOut strings.Builder
	a := &account{p: &program{stderr: &errOut}, remote: &remote{address: "ws://relay.example"}}
	a.warnUnencrypted(nil)
	assert.Contains(t, errOut.String(), "the way to ws://relay.example is not encrypted")
	assert.Equal(t, 1, strings.Count(errOut.String(), "\n"))
}
