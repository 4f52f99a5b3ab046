package main

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/sotto-relay/sotto/crypto"
	"github.com/sotto-relay/sotto/relay/client"
	"github.com/sotto-relay/sotto/transport/ws"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestRun opens the page, logs in at the relay that it would use, and writes to somebody
// who is away.
func TestRun(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r, w := io.Pipe()
	ended := make(chan error, 1)
	identity := filepath.Join(t.TempDir(), "identity")
	go func() { ended <- run(ctx, w, "127.0.0.1:0", identity) }()
	line, err := bufio.NewReader(r).ReadString('\n')
	require.NoError(t, err)
	url := strings.TrimSpace(strings.TrimPrefix(line, "open "))

	req, err := http.NewRequestWithContext(ctx, "GET", url, nil)
	require.NoError(t, err)
	web := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := web.Do(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	page, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	assert.Equal(t, "/demo/", resp.Request.URL.Path)
	assert.Contains(t, string(page), "<title>sotto</title>")
	assert.Contains(t, resp.Header.Get("Content-Security-Policy"), "default-src 'none'")

	relay, err := crypto.LoadOrCreateIdentity(identity)
	require.NoError(t, err)
	key := relay.Public()
	login := func(id *crypto.Identity) *client.Client {
		c, err := client.New(ctx, &client.Config{Identity: id, Dial: ws.Dialer("ws"+strings.TrimPrefix(url, "http")+"/brep", nil), Relay: &key})
		require.NoError(t, err)
		return c
	}
	ann, err := crypto.GenerateIdentity()
	require.NoError(t, err)
	ben, err := crypto.GenerateIdentity()
	require.NoError(t, err)
	c := login(ann)
	receipt, err := c.Send(ctx, ben.Public(), client.Text("for later"))
	require.NoError(t, err)
	assert.Equal(t, client.Stored, receipt.Status)
	require.NoError(t, c.Close())
	c = login(ben)
	for letter, err := range c.Messages(ctx) {
		require.NoError(t, err)
		assert.Equal(t, "for later", letter.Text())
		break
	}
	require.NoError(t, c.Close())
	cancel()
	assert.NoError(t, <-ended)
}

func TestRunFails(t *testing.T) {
	dir := t.TempDir()
	junk := filepath.Join(dir, "junk")
	require.NoError(t, os.WriteFile(junk, []byte("junk"), 0o600))
	assert.ErrorContains(t, run(t.Context(), io.Discard, "127.0.0.1:0", junk), "identity")
	assert.ErrorContains(t, run(t.Context(), io.Discard, "127.0.0.1:no-port", filepath.Join(dir, "id")), "listen")
}
