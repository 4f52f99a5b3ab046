package main

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"io"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sotto-relay/sotto/internal/freeport"
	"github.com/sotto-relay/sotto/relay/client"
)

func TestPublishAndSubscribe(t *testing.T) {
	home(t)
	r := serve(t)
	sub := func(args ...string) *running {
		file, _ := person(t)
		return start(t, append([]string{"sub", "--relay", r.url, "--identity", file}, args...)...)
	}
	pub := func(stdin string, args ...string) result {
		t.Helper()
		return sottoIn(t, stdin, environment{"SOTTO_RELAY": r.url}, append([]string{"pub"}, args...)...)
	}
	var me struct{ Address, Fingerprint string }
	require.NoError(t, json.Unmarshal([]byte(sotto(t, "id", "--json").out), &me))
	from := me.Address[:8] + " (" + me.Fingerprint + ")"

	got := pub("cold\n", "--retain", "home/attic")
	require.Zero(t, got.code, got.errOut)
	assert.Equal(t, "home/attic: published and retained\n", got.out)
	require.Zero(t, pub("", "elsewhere", "not for them").code)

	people := sub("home/+", "nowhere")
	machines := sub("home/#", "--json", "--count", "4")
	people.wants(&people.out, "cold")
	machines.wants(&machines.out, "cold")
	assert.Equal(t, "home/attic: published\n", pub("", "home/attic", "warm").out)
	assert.Equal(t, "home/b\\x1b: published\n", pub("", "-m", "a\nb\u202e", "home/b\x1b").out)
	require.Zero(t, pub("\xff\x00\n", "home/c").code)
	require.Zero(t, pub("", "home/c/d", "deeper").code)
	people.wants(&people.out, "home/c")
	assert.Zero(t, people.end(), "interrupted, as it ends")
	assert.Equal(t, from+" [retained] home/attic: cold\n"+
		from+" home/attic: warm\n"+
		from+` home/b\x1b: a`+"\n    b"+`\u202e`+"\n"+
		from+` home/c: \xff\x00`+"\n", people.out.String())

	assert.Zero(t, <-machines.done, "after as many as --count")
	machines.done <- 0
	type line struct {
		Filter, Topic, From, ID, Text, Data string
		Retained                            bool
		Bytes                               int
	}
	var all []line
	for text := range strings.Lines(machines.out.String()) {
		var l line
		require.NoError(t, json.Unmarshal([]byte(text), &l))
		all = append(all, l)
	}
	require.Len(t, all, 4)
	assert.Equal(t, "home/#", all[0].Filter)
	assert.Equal(t, "home/attic", all[0].Topic)
	assert.Equal(t, me.Address, all[0].From)
	assert.Len(t, all[0].ID, 32)
	assert.True(t, all[0].Retained)
	assert.False(t, all[1].Retained)
	assert.Equal(t, "warm", all[1].Text)
	assert.Equal(t, 4, all[1].Bytes)
	assert.Equal(t, base64.StdEncoding.EncodeToString([]byte("\xff\x00")), all[3].Data)
	assert.Empty(t, all[3].Text)

	t.Run("clear", func(t *testing.T) {
		for _, args := range [][]string{{"--clear-retained", "home/attic"}, {"--retain", "home/attic", ""}} {
			require.Zero(t, pub("", "--retain", "home/attic", "value").code)
			assert.Equal(t, "home/attic: cleared\n", pub("", args...).out)
			require.Zero(t, pub("", "--retain", "home/z", "last").code)
			s := sub("home/#", "--count", "1")
			assert.Zero(t, <-s.done)
			s.done <- 0
			assert.Contains(t, s.out.String(), "home/z: last")
		}
	})
	t.Run("json", func(t *testing.T) {
		got := pub("", "--json", "--retain", "home/x", "value")
		assert.Regexp(t, `^{"topic":"home/x","id":"[0-9a-f]{32}","status":"handed","retained":true,"bytes":5}\n$`, got.out)
	})
}

// TestSubscribeAgain has the relay die and come back: retained values come again,
// after a line that tells of the gap.
func TestSubscribeAgain(t *testing.T) {
	home(t)
	relayFile, _ := person(t)
	url := "ws://" + freeport.Address(t)
	args := []string{"serve", "--identity", relayFile, "--data", t.TempDir(), "--listen", url}
	ready := filepath.Join(t.TempDir(), "ready")
	dies := process(t, t.TempDir(), nil, append(args, "--ready", ready)...)
	require.NoError(t, dies.Start())
	awaitReady(t, ready)
	listener, _ := person(t)
	require.Zero(t, sotto(t, "pub", "--relay", url, "--retain", "a", "one").code)
	sub := start(t, "sub", "--relay", url, "--identity", listener, "a")
	sub.wants(&sub.out, "one")
	require.NoError(t, dies.Process.Kill())
	require.Error(t, dies.Wait())
	sub.wants(&sub.errOut, "no connection")

	r := start(t, args...)
	r.wants(&r.errOut, "ready")
	sub.wants(&sub.out, `: one\ngap in a: here some may be missing\n[0-9a-f]{8} \([a-z ]+\) \[retained\] a: one\n`)
	require.Zero(t, sotto(t, "pub", "--relay", url, "a", "two").code)
	sub.wants(&sub.out, ` a: two\n$`)
	assert.Zero(t, sub.end())
	assert.Contains(t, sub.errOut.String(), "connected again")
}

func TestPublishFails(t *testing.T) {
	home(t)
	r := serve(t)
	long := strings.Repeat("a", 1000)
	for _, c := range []struct{ name, stdin, args, want string }{
		{"no text", "", "pub a", "text is empty, and nothing was published: .*--clear-retained"},
		{"too much text", strings.Repeat("x", maxContent+2), "pub a", "standard input is too large"},
		{"a message that is too large", strings.Repeat("x", maxContent), "pub a", "the text is too large"},
		{"a long topic", "x", "pub " + long, "has refused it: .*invalid-topic"},
		{"a long filter", "", "sub a " + long, "has refused it: .*invalid-filter"},
		{"nobody there", "x", "pub a --relay ws://127.0.0.1:1", "cannot reach the relay"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := sottoIn(t, c.stdin, environment{"SOTTO_RELAY": r.url}, strings.Fields(c.args)...)
			assert.Equal(t, exitFailed, got.code, got.errOut)
			assert.Empty(t, got.out)
			assert.Regexp(t, `sotto: .*`+c.want+`.*\n$`, got.errOut)
		})
	}
	t.Run("nobody reads on", func(t *testing.T) {
		env := environment{"SOTTO_RELAY": r.url}
		require.Zero(t, sottoIn(t, "", env, "pub", "--retain", "a", "x").code)
		out := &shortWriter{}
		assert.Equal(t, exitFailed, run(t.Context(), []string{"sotto", "sub", "a"}, nil, out, io.Discard, env.lookup))
	})
}

// TestCount holds that --count bounds what all filters show together.
func TestCount(t *testing.T) {
	var out bytes.Buffer
	w := &watch{account: &account{p: &program{stdout: &out}}, count: 1}
	for i, c := range []struct{ gap, enough bool }{{true, false}, {false, true}, {false, true}} {
		enough, err := w.show(&client.Publication{Topic: "a", Gap: c.gap}, "a")
		require.NoError(t, err)
		assert.Equal(t, c.enough, enough, i)
	}
	assert.Equal(t, 2, strings.Count(out.String(), "\n"))
}
