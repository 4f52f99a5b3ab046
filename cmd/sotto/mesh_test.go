package main

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sotto-relay/sotto/crypto"
	"github.com/sotto-relay/sotto/internal/freeport"
	"github.com/sotto-relay/sotto/relay/client"
	"github.com/sotto-relay/sotto/transport/ws"
)

func TestMeshUsage(t *testing.T) {
	home(t)
	for want, args := range map[string][]string{
		"no ws or wss URL":           {"--peer", "http://relay.example"},
		"private network":            {"--peer", "ws://127.0.0.1:1"},
		"--advertise":                {"--advertise", "relay.example"},
		"--mesh is closed or open":   {"--mesh", "ajar"},
		"--mesh-allow is for":        {"--mesh", "open", "--mesh-allow", "x"},
		"--mesh-allow: policy: open": {"--mesh-allow", filepath.Join(t.TempDir(), "none")},
	} {
		r := sotto(t, append([]string{"serve", "--listen", "ws://127.0.0.1:0"}, args...)...)
		assert.NotZero(t, r.code, want)
		assert.Contains(t, r.errOut, want)
	}
}

// TestMeshProcesses has three relays that are killed and started again, one after the
// other, while sealed messages go from a client of one to a client of another: none
// that was acknowledged is lost, and none comes twice.
func TestMeshProcesses(t *testing.T) {
	dir := t.TempDir()
	names := []string{"a", "b", "c"}
	at, files := make(map[string]string), make(map[string]string)
	keys := make(map[string]string)
	for _, n := range names {
		id, err := crypto.GenerateIdentity()
		require.NoError(t, err)
		files[n] = filepath.Join(dir, n+".identity")
		require.NoError(t, id.Save(files[n]))
		at[n], keys[n] = freeport.Address(t), id.String()
	}
	running := make(map[string]*exec.Cmd)
	start := func(n string) {
		ready := filepath.Join(dir, n+".ready")
		_ = os.Remove(ready)
		args := []string{"serve", "--listen", "ws://" + at[n], "--ready", ready, "--data", filepath.Join(dir, n), "--identity", files[n],
			"--advertise", "ws://" + at[n] + "/", "--mesh-private-addresses"}
		for _, other := range names {
			if other != n {
				args = append(args, "--peer", "ws://"+at[other]+"/#"+keys[other])
			}
		}
		running[n] = process(t, dir, nil, args...)
		require.NoError(t, running[n].Start())
		awaitReady(t, ready)
	}
	for _, n := range names {
		start(n)
	}
	t.Cleanup(func() {
		for n, p := range running {
			_ = p.Process.Kill()
			_ = p.Wait()
			if t.Failed() {
				t.Log(n, p.Stderr)
			}
		}
	})

	ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
	defer cancel()
	user := func(n string, id *crypto.Identity) *client.Client {
		c, err := client.New(ctx, &client.Config{
			Identity: id, Dial: ws.Dialer("ws://"+at[n]+"/", nil), BackoffMax: time.Second, Logger: slog.New(slog.DiscardHandler),
		})
		require.NoError(t, err)
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	bobID, err := crypto.GenerateIdentity()
	require.NoError(t, err)
	annID, err := crypto.GenerateIdentity()
	require.NoError(t, err)
	bob, ann := user("c", bobID), user("a", annID)
	got := make(map[[16]byte]int)
	var mu sync.Mutex
	var wg sync.WaitGroup
	defer wg.Wait()
	listens, stop := context.WithCancel(ctx)
	defer stop()
	wg.Go(func() {
		for l, err := range bob.Messages(listens) {
			if err != nil {
				return
			}
			mu.Lock()
			got[l.ID]++
			mu.Unlock()
		}
	})
	var acknowledged [][16]byte
	talk := func(n int) {
		for range n {
			r, err := ann.Send(ctx, bobID.Public(), client.Text("hello"))
			require.NoError(t, err)
			acknowledged = append(acknowledged, r.ID)
		}
	}
	talk(5)
	for _, n := range []string{"b", "c", "a"} {
		require.NoError(t, running[n].Process.Kill())
		_ = running[n].Wait()
		if n != "a" {
			talk(5)
		}
		start(n)
		talk(5)
	}
	require.Eventually(t, func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(got) >= len(acknowledged)
	}, 60*time.Second, 50*time.Millisecond)
	assert.Len(t, acknowledged, 30)
	stop()
	wg.Wait()
	for _, id := range acknowledged {
		assert.Equal(t, 1, got[id], "%x", id)
	}
	for n, p := range running {
		require.NoError(t, p.Process.Kill())
		_ = p.Wait() // it writes no more
		assert.NotContains(t, p.Stderr.(*bytes.Buffer).String(), "panic", n)
		assert.False(t, strings.Contains(p.Stderr.(*bytes.Buffer).String(), "misbehaves"), n)
	}
}

// meshed starts two relays that link.
func meshed(t *testing.T) (a, b *running) {
	t.Helper()
	home(t)
	port := freeport.Address(t)
	a = serve(t, "--listen", "ws://"+port, "--mesh", "open", "--mesh-private-addresses", "--advertise", "ws://"+port, "--metrics", "127.0.0.1:0")
	b = serve(t, "--peer", a.url, "--mesh-private-addresses", "--metrics", "127.0.0.1:0")
	for _, r := range []*running{a, b} {
		require.Eventually(t, func() bool {
			_, body := request(t, "GET", r.ready.Metrics)
			return strings.Contains(body, "\nsotto_mesh_links 1\n")
		}, wait, tick)
	}
	return a, b
}

func TestMeshMetrics(t *testing.T) {
	a, b := meshed(t)
	_, to := person(t)
	require.Zero(t, sotto(t, "send", "--relay", b.url, "-m", "x", to).code)
	var body string
	require.Eventually(t, func() bool { // the sender has gone
		_, body = request(t, "GET", b.ready.Metrics)
		return strings.Contains(body, "\nsotto_connections 1\n") && strings.Contains(body, "\nsotto_mesh_clients_attached 0\n")
	}, wait, tick)
	for _, want := range []string{
		`relays 1`, `clients_with_mail 1`, `cache_total{result="hit"} 0`, `cache_total{result="miss"} 1`,
		`lookups_total 1`, `lookups_ended_total{result="found"} 0`, `lookups_ended_total{result="missing"} 1`,
		`queries_total 1`, `messages_carried_total 0`, `messages_not_here_total 0`,
		`clients_attached 0`, `clients_owned 1`, `clients_looked_for 0`, `waiting_bytes 0`, `cached_places 1`,
	} {
		assert.Contains(t, body, "\nsotto_mesh_"+want+"\n")
	}
	assert.NotContains(t, body, to[:8], "whose message it is")
	assert.Zero(t, a.end())
	assert.Zero(t, b.end())
	plain := serve(t, "--metrics", "127.0.0.1:0")
	_, body = request(t, "GET", plain.ready.Metrics)
	assert.NotContains(t, body, "sotto_mesh_")
}
