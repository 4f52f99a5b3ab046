package main

import (
	"context"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sotto-relay/sotto/crypto"
	"github.com/sotto-relay/sotto/frame"
	"github.com/sotto-relay/sotto/internal/freeport"
	"github.com/sotto-relay/sotto/relay/client"
	"github.com/sotto-relay/sotto/transport/ws"
)

func TestMeshPeers(t *testing.T) {
	a, b := meshed(t)
	itself, other := a.key+"  "+a.url+"  (itself)\n", a.key+"  "+a.url+"\n"
	assert.Equal(t, result{out: itself}, sotto(t, "mesh", "peers", "--relay", a.url))
	assert.Equal(t, result{out: other}, sotto(t, "mesh", "peers", "--relay", b.url, "--relay-key", b.key))
	got := sotto(t, "mesh", "peers", "--json", "--relay", a.url)
	assert.JSONEq(t, `{"key":"`+a.key+`","address":"`+a.url+`","self":true}`, got.out)

	alone := serve(t)
	got = sotto(t, "mesh", "peers", "--relay", alone.url)
	assert.Zero(t, got.code)
	assert.Empty(t, got.out)
	assert.Contains(t, got.errOut, "tells of none")
}

func TestMeshFind(t *testing.T) {
	home(t)
	id, err := crypto.GenerateIdentity()
	require.NoError(t, err)
	_, nobody := person(t)
	open, shut := serve(t, "--presence-queries"), serve(t)
	for _, r := range []*running{open, shut} {
		c, err := client.New(t.Context(), &client.Config{Identity: id, Dial: ws.Dialer(r.url, nil), Logger: slog.New(slog.DiscardHandler)})
		require.NoError(t, err)
		defer c.Close()
	}
	find := func(args ...string) result { return sotto(t, append([]string{"mesh", "find"}, args...)...) }
	assert.Equal(t, result{out: "found at the relay " + open.key + "\n"}, find(id.String(), "--relay", open.url))
	assert.Equal(t, result{out: "not found\n"}, find(nobody, "--relay", open.url))
	assert.Equal(t, result{out: "not found\n"}, find(id.String(), "--relay", shut.url), "it does not tell clients")
	assert.JSONEq(t, `{"key":"`+id.String()+`","found":true,"relay":"`+open.key+`"}`, find("--json", "--relay", open.url, id.String()).out)
	assert.JSONEq(t, `{"key":"`+nobody+`","found":false}`, find("--json", "--relay", open.url, nobody).out)
}

// Whoever has a relay's own identity hears where clients of other relays are, and nobody
// else does.
func TestMeshFindAsOperator(t *testing.T) {
	home(t)
	own, err := crypto.GenerateIdentity()
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "identity")
	require.NoError(t, own.Save(file))
	a := serve(t, "--identity", file, "--mesh", "open", "--mesh-private-addresses")
	b := serve(t, "--peer", a.url, "--mesh-private-addresses", "--presence-queries")
	id, err := crypto.GenerateIdentity()
	require.NoError(t, err)
	c, err := client.New(t.Context(), &client.Config{Identity: id, Dial: ws.Dialer(b.url, nil), Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	defer c.Close()
	find := func(args ...string) result {
		return sotto(t, append([]string{"mesh", "find", id.String()}, args...)...)
	}
	require.Eventually(t, func() bool { // they link
		got := find("--relay", a.url, "--identity", file)
		return got == result{out: "found at the relay " + b.key + "\n"}
	}, wait, tick)
	assert.Equal(t, result{out: "not found\n"}, find("--relay", a.url))
	assert.Equal(t, result{out: "found at the relay " + b.key + "\n"}, find("--relay", b.url))
	other, _ := person(t)
	assert.Equal(t, result{out: "not found\n"}, find("--relay", a.url, "--identity", other))
	got := find("--relay", a.url, "--identity", filepath.Join(t.TempDir(), "none"))
	assert.Equal(t, exitFailed, got.code)
	assert.Contains(t, got.errOut, "identity file")
}

func TestMeshAskFails(t *testing.T) {
	home(t)
	r := serve(t)
	_, other := person(t)
	for want, args := range map[string][]string{
		"mesh wants one of peers and find": {},
		"mesh peers takes no argument":     {"peers", "x"},
		"wants one argument, the KEY":      {"find"},
		`KEY: "x" is no key`:               {"find", "x"},
		"--relay is no URL":                {"peers", "--relay", "http://x"},
	} {
		got := sotto(t, append([]string{"mesh"}, args...)...)
		assert.Equal(t, exitUsage, got.code, want)
		assert.Contains(t, got.errOut, want)
	}
	for want, args := range map[string][]string{
		"cannot reach the relay":     {"--relay", "ws://" + freeport.Address(t)},
		"not that of --relay-key":    {"--relay", r.url, "--relay-key", other},
		"no answer from ws://127.0.": {"--relay", r.url, "--timeout", "1ns"},
	} {
		got := sotto(t, append([]string{"mesh", "peers"}, args...)...)
		assert.Equal(t, exitFailed, got.code, want)
		assert.Contains(t, got.errOut, want)
	}
}

// What a relay says that was not asked is no answer.
func TestNodeInfoAnswer(t *testing.T) {
	home(t)
	r := serve(t, "--presence-queries")
	id, err := crypto.GenerateIdentity()
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	p, err := login(ctx, ws.Dialer(r.url, nil), id, nil)
	require.NoError(t, err)
	defer p.close()
	say := func(n frame.NodeInfo) {
		payload, err := n.Append(nil)
		require.NoError(t, err)
		require.NoError(t, p.client.Send(ctx, &frame.Brep{Type: frame.TypeNodeInfo, Payload: payload}))
	}
	say(frame.NodeInfo{Subtype: frame.NodeInfoRequestServers})
	say(frame.NodeInfo{Subtype: frame.NodeInfoQueryClient, Client: [32]byte{1}})
	n, err := p.nodeInfo(ctx, frame.NodeInfo{Subtype: frame.NodeInfoQueryClient, Client: id.Public()}, frame.NodeInfoQueryResponse)
	require.NoError(t, err)
	assert.True(t, n.Found)
	assert.Equal(t, r.key, crypto.PublicKey(n.Relay).String())
}
