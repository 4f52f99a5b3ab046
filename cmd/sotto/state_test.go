package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sotto-relay/sotto/crypto"
	"github.com/sotto-relay/sotto/inbox/disk"
)

// TestStateKeeps holds that what cannot be sent is sent by the next command.
func TestStateKeeps(t *testing.T) {
	home(t)
	me, _ := person(t)
	bob, to := person(t)
	const nowhere = "ws://127.0.0.1:1"
	got := sotto(t, "send", "--relay", nowhere, "--identity", me, "--state", "--timeout", "3s", to, "-m", "for later", "parts_test.go")
	assert.Equal(t, exitFailed, got.code)
	assert.Contains(t, got.errOut, "no connection to "+nowhere+", which is tried again")
	assert.Regexp(t, `the message is kept in .*identity.state, and sent again by the next command with this identity, .*; from parts_test.go on nothing was sent\n$`, got.errOut)
	got = sotto(t, "send", "--relay", nowhere, "--identity", me, "--timeout", "3s", to, "-m", "this too")
	assert.Equal(t, exitFailed, got.code, "a state that is there is used")
	assert.Contains(t, got.errOut, "is kept in")
	got = sotto(t, "pub", "--relay", nowhere, "--identity", me, "topic", "not this")
	assert.Equal(t, exitFailed, got.code)
	assert.Contains(t, got.errOut, "cannot reach the relay")

	r := serve(t)
	got = sotto(t, "recv", "--relay", r.url, "--identity", me, idle)
	require.Zero(t, got.code, got.errOut)
	assert.Contains(t, got.errOut, "a message from before, to "+to[:8]+", is stored now")
	got = sotto(t, "recv", "--relay", r.url, "--identity", bob, idle)
	assert.Regexp(t, `: for later\n.*: this too\n$`, got.out)
	got = sotto(t, "recv", "--relay", r.url, "--identity", me, idle)
	require.Zero(t, got.code, got.errOut)
	got = sotto(t, "recv", "--relay", r.url, "--identity", bob, idle)
	assert.Equal(t, result{}, got, "nothing twice")
}

// TestStateOpens holds that what was sealed to the keys in a state can be opened, as
// long as there is the state.
func TestStateOpens(t *testing.T) {
	home(t)
	r := serve(t)
	bob, to := person(t)
	require.Zero(t, sotto(t, "recv", "--state", "--relay", r.url, "--identity", bob, idle).code)
	require.Zero(t, sotto(t, "send", "--relay", r.url, to, "-m", "one").code)
	got := sotto(t, "pub", "--relay", r.url, "--identity", bob, "topic", "x")
	require.Zero(t, got.code, got.errOut)
	got = sotto(t, "recv", "--relay", r.url, "--identity", bob, idle)
	assert.Contains(t, got.out, ": one\n")
	assert.NotContains(t, got.errOut, "dropped")
}

func TestStateFails(t *testing.T) {
	home(t)
	r := serve(t)
	me, to := person(t)
	send := func() result { return sotto(t, "send", "--relay", r.url, "--identity", me, "--state", to, "-m", "x") }
	db, err := disk.Open(me+stateSuffix, nil)
	require.NoError(t, err)
	got := send()
	assert.Equal(t, exitFailed, got.code)
	assert.Regexp(t, `^sotto: the state of the identity: .*\.state is in use by process \d+`, got.errOut)
	require.NoError(t, db.Close())
	require.Zero(t, send().code)

	require.NoError(t, os.RemoveAll(me+stateSuffix))
	require.NoError(t, os.WriteFile(me+stateSuffix, []byte("x"), 0o600))
	got = send()
	assert.Equal(t, exitFailed, got.code)
	assert.Contains(t, got.errOut, "the state of the identity: ")
}

func TestUntil(t *testing.T) {
	home(t)
	r := serve(t)
	bob, to := person(t)
	got := sotto(t, "send", "--relay", r.url, "--until", "stored", "-m", "x", to)
	require.Zero(t, got.code, got.errOut)
	assert.Contains(t, got.out, "stored for "+to[:8])
	got = sotto(t, "send", "--relay", r.url, "--until", "read", "--timeout", "500ms", to, "-m", "x")
	assert.Equal(t, exitFailed, got.code)
	assert.Contains(t, got.errOut, "the text was not read within --timeout; it may have arrived or not")
	recv := start(t, "recv", "--follow", "--relay", r.url, "--identity", bob)
	recv.wants(&recv.out, "x")
	got = sotto(t, "send", "--relay", r.url, "--until", "read", "-m", "x", to)
	require.Zero(t, got.code, got.errOut)
	assert.Contains(t, got.out, "read by "+to[:8])
}

func TestSendToPairing(t *testing.T) {
	home(t)
	r := serve(t)
	bob, to := person(t)
	show := func(args ...string) result {
		return sotto(t, append([]string{"id", "--pairing", "--identity", bob}, args...)...)
	}
	got := show("--relay", r.url)
	require.Zero(t, got.code, got.errOut)
	assert.Regexp(t, `(?m)^address      `+to+`$`, got.out)
	_, text, _ := strings.Cut(strings.TrimSpace(got.out), "pairing      ")
	pairing, err := crypto.ParsePairing(text)
	require.NoError(t, err)
	assert.Equal(t, to, pairing.Key.String())
	assert.Equal(t, r.key, pairing.Relay.String())
	assert.Equal(t, r.url, pairing.URL())
	assert.NotZero(t, pairing.Card)
	got = show("--relay", r.url, "--json", "--relay-key", r.key)
	require.Zero(t, got.code, got.errOut)
	assert.Contains(t, got.out, `"pairing":"sotto://`)
	got = show("--relay", r.url+"/%41")
	assert.Equal(t, exitFailed, got.code)
	assert.Contains(t, got.errOut, "has no room for "+r.url+"/%41")

	known := filepath.Join(t.TempDir(), "known")
	got = sotto(t, "send", "--known-relays", known, text, "-m", "hello")
	require.Zero(t, got.code, got.errOut)
	assert.NotContains(t, got.errOut, "first contact with", "its key is in the string")
	got = sotto(t, "recv", "--relay", r.url, "--identity", bob, idle)
	assert.Contains(t, got.out, ": hello\n")

	wrong := pairing
	wrong.Relay = pairing.Key
	got = sotto(t, "send", wrong.String(), "-m", "hello")
	assert.Equal(t, exitFailed, got.code)
	assert.Contains(t, got.errOut, "has the key "+r.key)

	promised := pairing
	promised.Card = 1 << 62
	got = sotto(t, "send", promised.String(), "-m", "hello")
	assert.Equal(t, exitFailed, got.code)
	assert.Contains(t, got.errOut, "nothing was sent to "+to[:8]+": ")
	assert.Contains(t, got.errOut, "give --forget-card")
}
