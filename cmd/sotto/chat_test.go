package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sotto-relay/sotto/crypto"
)

// A chatter is somebody in chat, who types.
type chatter struct {
	*running
	keys io.WriteCloser
	name string // as others see it
}

func chat(t *testing.T, url string, args ...string) *chatter {
	file, address := person(t)
	key, err := crypto.ParsePublicKey(address)
	require.NoError(t, err)
	in, keys := io.Pipe()
	c := &chatter{keys: keys, name: fmt.Sprintf("%s (%s)", address[:8], key.Fingerprint())}
	c.running = startWith(t, in, nil, append([]string{"chat", "--relay", url, "--identity", file}, args...)...)
	t.Cleanup(func() { keys.Close() })
	c.wants(&c.errOut, "in the room")
	return c
}

func (c *chatter) types(line string) {
	_, err := io.WriteString(c.keys, line+"\n")
	require.NoError(c.t, err)
}

// leaves waits for the program to end by itself.
func (c *chatter) leaves() {
	c.t.Helper()
	code := <-c.done
	c.done <- code
	assert.Zero(c.t, code, c.errOut.String())
}

func TestChat(t *testing.T) {
	home(t)
	r := serve(t)
	ann := chat(t, r.url, "lobby")
	assert.Contains(t, ann.errOut.String(), "in the room lobby with nobody else; the relay can read what is said")
	bob := chat(t, r.url, "lobby")
	assert.Contains(t, bob.errOut.String(), "in the room lobby with 1 other")
	machine := chat(t, r.url, "--json", "lobby")
	elsewhere := chat(t, r.url, "attic")

	ann.types("hello")
	bob.wants(&bob.out, "hello")
	bob.types("")
	bob.types("//not a command \x1b[2J")
	ann.wants(&ann.out, "not a command")
	ann.types("a\xff")
	ann.wants(&ann.errOut, "that line is not UTF-8, and was not sent")
	bob.types("/who")
	bob.wants(&bob.errOut, "1 other when you came")
	bob.types("/wave")
	bob.wants(&bob.errOut, "no command /wave: the commands are /who and /quit, and //text says /text")
	ann.types("bye")
	machine.wants(&machine.out, "bye")
	bob.wants(&bob.out, "bye")

	ann.types("/quit")
	ann.leaves()
	require.NoError(t, bob.keys.Close())
	bob.leaves()
	assert.Zero(t, machine.end(), "interrupted, as it ends")
	assert.Zero(t, elsewhere.end())
	assert.Equal(t, bob.name+`: /not a command \x1b[2J`+"\n", ann.out.String())
	assert.Equal(t, ann.name+": hello\n"+ann.name+": bye\n", bob.out.String())
	assert.Empty(t, elsewhere.out.String())
	var said []string
	for text := range strings.Lines(machine.out.String()) {
		var l struct {
			Room, From, ID, Text string
			Bytes                int
		}
		require.NoError(t, json.Unmarshal([]byte(text), &l))
		assert.Equal(t, "lobby", l.Room)
		assert.Len(t, l.From, 64)
		assert.Len(t, l.ID, 32)
		assert.Len(t, l.Text, l.Bytes)
		said = append(said, l.Text)
	}
	assert.Equal(t, []string{"hello", "/not a command \x1b[2J", "bye"}, said)
	assert.NotContains(t, r.errOut.String(), "hello")
}

// TestChatAgain has the relay die and come back: what is said meanwhile is sent
// then.
func TestChatAgain(t *testing.T) {
	home(t)
	relayFile, _ := person(t)
	ready := filepath.Join(t.TempDir(), "ready")
	dies := process(t, t.TempDir(), nil, "serve", "--identity", relayFile, "--listen", "ws://127.0.0.1:0", "--ready", ready)
	require.NoError(t, dies.Start())
	url := awaitReady(t, ready).Listeners[0].URL
	ann, bob := chat(t, url, "lobby"), chat(t, url, "lobby")
	ann.types("one")
	bob.wants(&bob.out, "one")
	require.NoError(t, dies.Process.Kill())
	require.Error(t, dies.Wait())
	bob.wants(&bob.errOut, "no connection")
	ann.wants(&ann.errOut, "no connection")

	r := start(t, "serve", "--identity", relayFile, "--listen", url)
	r.wants(&r.errOut, "ready")
	bob.wants(&bob.out, "gap: what was said here may be missing")
	ann.wants(&ann.out, "gap: what was said here may be missing")
	ann.types("two")
	bob.wants(&bob.out, `: one\ngap: .*\n.*: two\n$`)
	bob.types("three")
	ann.wants(&ann.out, "three")
	require.NoError(t, ann.keys.Close())
	ann.leaves()
}

func TestChatFails(t *testing.T) {
	home(t)
	r := serve(t, "--limit", "brep-room-members=1")
	full := chat(t, r.url, "full")
	file, _ := person(t)
	got := sotto(t, "chat", "--relay", r.url, "--identity", file, "full")
	assert.Equal(t, exitFailed, got.code)
	assert.Contains(t, got.errOut, "has refused it: ")
	got = sotto(t, "chat", "--relay", r.url, "--identity", file, strings.Repeat("a", 129))
	assert.Equal(t, exitFailed, got.code)

	full.types(strings.Repeat("x", maxContent-1))
	full.wants(&full.errOut, "that line was not sent: .*too large")
	full.types("still here")
	_, _ = io.WriteString(full.keys, strings.Repeat("x", maxContent))
	assert.Equal(t, exitFailed, <-full.done)
	full.done <- exitFailed
	assert.Contains(t, full.errOut.String(), "standard input: ")
}

func TestChatKey(t *testing.T) {
	home(t)
	r := serve(t)
	key := filepath.Join(t.TempDir(), "key")
	ann := chat(t, r.url, "lobby", "--new-key", key)
	bob := chat(t, r.url, "lobby", "--key", key)
	assert.Contains(t, bob.errOut.String(), "in the room lobby with 1 other; who has the key can read what is said")
	eve := chat(t, r.url, "lobby")
	ann.types("secret plans")
	bob.wants(&bob.out, ": secret plans\n$")
	eve.wants(&eve.out, ann.name[:8])
	assert.NotContains(t, eve.out.String(), "secret")
	eve.types("let me in")
	bob.wants(&bob.errOut, "what "+eve.name[:8]+" said was dropped: it is not sealed with this key")
	bob.types("good ones")
	ann.wants(&ann.out, "good ones")
	assert.NotContains(t, ann.out.String()+bob.out.String(), "let me in")

	_, other := person(t)
	text, err := os.ReadFile(key)
	require.NoError(t, err)
	open, damaged := filepath.Join(t.TempDir(), "open"), filepath.Join(t.TempDir(), "damaged")
	require.NoError(t, os.WriteFile(open, text, 0o644))
	require.NoError(t, os.WriteFile(damaged, []byte(other), 0o600))
	for args, want := range map[string]string{
		"--new-key " + key:     "--new-key: .*exists",
		"--key " + key + "x":   "--key: .*no such file",
		"--key " + open:        "chmod 600",
		"--key " + damaged:     "has no key as --new-key makes them",
		"--key " + t.TempDir(): "--key: ",
	} {
		got := sotto(t, append([]string{"chat", "--relay", r.url, "lobby"}, strings.Fields(args)...)...)
		assert.Equal(t, exitFailed, got.code)
		assert.Regexp(t, want, got.errOut)
		assert.NotContains(t, got.errOut, string(text[:20]))
	}
}

func TestChatLongLine(t *testing.T) {
	home(t)
	r := serve(t)
	got := sottoIn(t, strings.Repeat("x", maxContent+1), nil, "chat", "--relay", r.url, "lobby")
	assert.Equal(t, exitFailed, got.code)
	assert.Contains(t, got.errOut, "standard input: a line has more than 4 MiB\n")
}
