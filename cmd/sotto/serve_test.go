package main

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
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
	"github.com/sotto-relay/sotto/inbox"
	"github.com/sotto-relay/sotto/inbox/disk"
	"github.com/sotto-relay/sotto/relay"
	"github.com/sotto-relay/sotto/relay/dialect/brep"
	"github.com/sotto-relay/sotto/transport"
	"github.com/sotto-relay/sotto/transport/ws"
)

func TestPaths(t *testing.T) {
	r := serve(t)
	base := "http" + strings.TrimPrefix(r.url, "ws")
	for _, c := range []struct {
		method, path string
		status       int
		want         string
	}{
		{"GET", "/", 200, "This is a sotto relay"},
		{"HEAD", "/", 200, ""},
		{"GET", "/healthz", 200, "ok\n"},
		{"GET", "/readyz", 200, "ready\n"},
		{"GET", "/brep", 400, ""},
		{"GET", "/any/other", 400, ""},
		{"GET", "/json", 400, ""},
		{"GET", "/relay/key", 400, ""}, // there is no mailbox
		{"POST", "/", 400, ""},
	} {
		t.Run(c.method+" "+c.path, func(t *testing.T) {
			status, body := request(t, c.method, base+c.path)
			assert.Equal(t, c.status, status)
			assert.Contains(t, body, c.want)
		})
	}
	for path, want := range map[string]bool{"": true, "/": true, "/brep": true, "/any/other?query=1": true, "/json": true, "/blind": true} {
		conn, err := ws.Dialer(r.url+path, nil)(t.Context())
		assert.Equal(t, want, err == nil, "%s: %v", path, err)
		if err == nil {
			_ = conn.Close(transport.CloseNormal, "")
		}
	}
	assert.Zero(t, r.end())
}

// TestDemo holds that the demo is there when it is asked for, and takes no path that
// somebody else needs.
func TestDemo(t *testing.T) {
	file := filepath.Join(t.TempDir(), "own.html")
	require.NoError(t, os.WriteFile(file, []byte("our own page"), 0o600))
	for _, c := range []struct{ flags, path, want string }{
		{"--demo", "/", "<title>sotto</title>"}, // by a redirect
		{"--demo", "/demo/", "<title>sotto</title>"},
		{"--demo", "/demo", "<title>sotto</title>"},
		{"--demo", "/demo/app.js", "import("},
		{"--demo", "/demo/none", "404 page not found"},
		{"--demo", "/demonstration", "Bad Request"},
		{"--demo", "/healthz", "ok"},
		{"--demo --listen ws://127.0.0.1:0?page=" + file, "/", "our own page"},
		{"--demo --listen ws://127.0.0.1:0?page=" + file, "/demo/", "<title>sotto</title>"},
		{"--log-level=info", "/demo/", "Bad Request"},
	} {
		r := serve(t, strings.Fields(c.flags)...)
		_, body := request(t, "GET", "http"+strings.TrimPrefix(r.url, "ws")+c.path)
		assert.Contains(t, body, c.want, "%s %s", c.flags, c.path)
	}
	r := serve(t, "--demo")
	for _, path := range []string{"/brep", "/demo/", "/"} {
		conn, err := ws.Dialer(r.url+path, nil)(t.Context())
		require.NoError(t, err, path)
		require.NoError(t, conn.Close(transport.CloseNormal, ""))
	}
}

func request(t *testing.T, method, url string) (status int, body string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, nil)
	require.NoError(t, err)
	web := &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		TLSClientConfig:   &tls.Config{InsecureSkipVerify: true},
	}}
	resp, err := web.Do(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return resp.StatusCode, string(text)
}

// TestVersions tries newer HTTP and older TLS than there is.
func TestVersions(t *testing.T) {
	cert := newCert(t, t.TempDir(), "relay", time.Hour)
	r := serve(t, "--listen", "wss://127.0.0.1:0"+cert.params())
	web := &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true, ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
	}}
	req, err := http.NewRequestWithContext(t.Context(), "GET", "https"+strings.TrimPrefix(r.url, "wss"), nil)
	require.NoError(t, err)
	resp, err := web.Do(req)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	assert.Equal(t, "HTTP/1.1", resp.Proto, "HTTP/2 has another upgrade, which is not spoken")

	old := &tls.Config{InsecureSkipVerify: true, MaxVersion: tls.VersionTLS11} //nolint:gosec // refused
	_, err = tls.Dial("tcp", strings.TrimPrefix(r.url, "wss://"), old)
	assert.Error(t, err)
}

func TestWebServer(t *testing.T) {
	load := relay.Normal
	h := &health{load: func() relay.Tier { return load }}
	brep := ws.Handler(transport.HandlerFunc(func(transport.Conn) {}), &ws.Options{})
	w := &webServer{health: h, root: "brep", upgrades: map[string]http.Handler{"brep": brep}}
	w.listen(t.Context(), slog.New(slog.DiscardHandler))
	for _, bound := range []time.Duration{w.ReadHeaderTimeout, w.ReadTimeout, w.WriteTimeout, w.IdleTimeout} {
		assert.NotZero(t, bound, "a peer that is slow is not cut")
	}
	assert.Equal(t, 16<<10, w.MaxHeaderBytes)
	get := func(path string) (int, string) {
		answer := httptest.NewRecorder()
		w.Handler.ServeHTTP(answer, httptest.NewRequest("GET", path, nil))
		return answer.Code, answer.Body.String()
	}
	for _, c := range []struct {
		load     relay.Tier
		draining bool
		status   int
		want     string
	}{
		{relay.Normal, false, 200, "ready\n"},
		{relay.Degraded, false, 200, "ready\n"},
		{relay.Overloaded, false, 503, "overloaded\n"},
		{relay.Overloaded, true, 503, "draining\n"},
		{relay.Normal, true, 503, "draining\n"},
	} {
		load = c.load
		h.draining.Store(c.draining)
		status, body := get("/readyz")
		assert.Equal(t, c.status, status)
		assert.Equal(t, c.want, body)
		status, _ = get("/healthz")
		assert.Equal(t, 200, status, "nothing that a restart would mend")
	}
}

func TestReadyAndStore(t *testing.T) {
	db, err := disk.Open(t.TempDir(), &disk.Options{MaxMessages: 1})
	require.NoError(t, err)
	h := &health{load: func() relay.Tier { return relay.Normal }, store: db}
	ask := func() (int, string, string) {
		answer, seen := httptest.NewRecorder(), httptest.NewRecorder()
		h.readyz(answer, nil)
		newMetricsServer(new(relay.Server), nil, h, slog.New(slog.DiscardHandler)).Handler.ServeHTTP(seen, httptest.NewRequest("GET", "/metrics", nil))
		return answer.Code, answer.Body.String(), seen.Body.String()
	}
	status, body, seen := ask()
	assert.Equal(t, 200, status)
	assert.Equal(t, "ready\n", body)
	for _, m := range []string{"full", "failed", "damaged_total"} {
		assert.Contains(t, seen, "\nsotto_store_"+m+" 0\n")
	}

	stored := make(chan error, 1)
	db.Inbox().Put(t.Context(), &inbox.Entry{}, inbox.Quota{}, func(r inbox.Result) { stored <- r.Err })
	require.NoError(t, <-stored)
	status, body, seen = ask()
	assert.Equal(t, 200, status, "those who are connected are served")
	assert.Equal(t, "ready, but the store is full\n", body)
	assert.Contains(t, seen, "\nsotto_store_full 1\n")

	require.NoError(t, db.Close())
	status, body, seen = ask()
	assert.Equal(t, 503, status)
	assert.Equal(t, "the store has failed\n", body)
	assert.Contains(t, seen, "\nsotto_store_failed 1\n")
}

func TestOrigin(t *testing.T) {
	r := serve(t, "--origin", "example.org", "--origin", "https://example.com:8443")
	for origin, want := range map[string]bool{
		"": true, "https://example.org": true, "http://EXAMPLE.org": true, "https://example.com:8443": true,
		"https://example.com": false, "https://example.org.evil": false, "https://evil.example.org": false, "null": false,
	} {
		o := &ws.DialOptions{}
		if origin != "" {
			o.Header = http.Header{"Origin": {origin}}
		}
		conn, err := ws.Dialer(r.url, o)(t.Context())
		assert.Equal(t, want, err == nil, "%s: %v", origin, err)
		if err == nil {
			_ = conn.Close(transport.CloseNormal, "")
		}
	}
}

func TestReady(t *testing.T) {
	file := filepath.Join(t.TempDir(), "relay")
	r := serve(t, "--identity", file, "--listen", "ws://localhost:0/?root=brep")
	id, err := crypto.LoadIdentity(file)
	require.NoError(t, err, "made, with mode 0600")
	assert.Equal(t, id.String(), r.key)
	assert.Regexp(t, `^ws://localhost:\d+$`, r.url)
	assert.Contains(t, r.errOut.String(), "relay_key="+r.key, "for pinning")
	assert.Contains(t, r.errOut.String(), "kept in memory")
	assert.NotContains(t, r.errOut.String(), "fresh identity")
	assert.Zero(t, r.end())

	again := serve(t, "--identity", file)
	assert.Equal(t, r.key, again.key)
	assert.Contains(t, serve(t).errOut.String(), "fresh identity")
}

func TestServeFails(t *testing.T) {
	dir := t.TempDir()
	open := filepath.Join(dir, "open")
	id, err := crypto.GenerateIdentity()
	require.NoError(t, err)
	require.NoError(t, id.Save(open))
	require.NoError(t, os.Chmod(open, 0o640))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "junk"), []byte("junk"), 0o600))
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer taken.Close()
	ann, ben := newCert(t, dir, "ann", time.Hour), newCert(t, dir, "ben", time.Hour)
	secret := filepath.Join(dir, "open-acme")
	require.NoError(t, os.Mkdir(secret, 0o755))
	huge := filepath.Join(dir, "huge.html")
	require.NoError(t, os.WriteFile(huge, make([]byte, maxPage+1), 0o600))
	files := func(cert, key string) string { return "--listen wss://127.0.0.1:0?cert=" + cert + "&key=" + key }
	for _, c := range []struct{ args, want string }{
		{"--listen ws://" + taken.Addr().String(), "cannot listen on ws://127.0.0.1:.*address already in use; choose another"},
		{"--listen ws://127.0.0.1:0 --listen ws://" + taken.Addr().String(), "address already in use"},
		{"--listen ws://no-such-host.invalid:0", "cannot listen"},
		{"--listen tcp://" + taken.Addr().String(), "cannot listen on tcp://127.0.0.1:.*address already in use"},
		{files(ann.cert, ben.key), "cannot listen on wss://127.0.0.1:0: .*does not match"},
		{files(filepath.Join(dir, "none"), ann.key), "no such file"},
		{files(ann.cert, filepath.Join(dir, "none")), "no such file"},
		{files(dir, ann.key), "is a directory"},
		{files(filepath.Join(dir, "junk"), ann.key), "cannot listen on wss://"},
		{files(ann.key, ann.key), "cannot listen on wss://"},
		{"--listen tls://127.0.0.1:0?acme=relay.example&cache=" + secret, "set it to 0700"},
		{"--listen ws://127.0.0.1:0?page=" + filepath.Join(dir, "none"), "the page: .*no such file"},
		{"--listen ws://127.0.0.1:0?page=" + dir, "no regular file"},
		{"--listen ws://127.0.0.1:0?page=" + huge, "more than 1 MiB"},
		{"--listen ws://127.0.0.1:0 --metrics " + taken.Addr().String(), "cannot listen on --metrics 127.0.0.1:.*address already in use"},
		{"--config " + filepath.Join(dir, "none"), "--config: .*no such file"},
		{"--config " + dir, "--config: .*is a directory"},
		{"--config " + huge + " ", "--config: .*more than 1 MiB"},
		{"--identity " + open, "chmod 600"},
		{"--identity " + filepath.Join(dir, "junk"), "no identity file"},
		{"--identity " + dir, "identity file"},
		{"--identity " + filepath.Join(dir, "no", "id"), "identity file"},
		{"--ready " + dir, "no regular file"},
		{"--listen ws://127.0.0.1:0 --ready " + filepath.Join(dir, "no", "ready"), "--ready"},
	} {
		t.Run(c.args, func(t *testing.T) {
			r := sotto(t, append([]string{"serve", "--log-level", "error"}, strings.Fields(c.args)...)...)
			assert.Equal(t, exitFailed, r.code)
			assert.Regexp(t, "^sotto: .*"+c.want+".*\n$", r.errOut)
		})
	}
}

// TestDrain holds that those who are connected are told, and that what cannot be
// kept is counted.
func TestDrain(t *testing.T) {
	home(t)
	r := serve(t, "--metrics", "127.0.0.1:0")
	_, away := person(t)
	require.Zero(t, sotto(t, "send", "--relay", r.url, "-m", "lost", away).code)
	here, address := person(t)
	recv := start(t, "recv", "--relay", r.url, "--follow", "--identity", here)
	require.Eventually(t, func() bool {
		return strings.Contains(sotto(t, "send", "--relay", r.url, "-m", "x", address).out, "handed")
	}, wait, tick)
	require.Eventually(t, func() bool { // what was handed over is acknowledged
		_, body := request(t, "GET", r.ready.Metrics)
		return strings.Contains(body, "\nsotto_messages_held 1\n")
	}, wait, tick)

	conn, err := ws.Dialer(r.url, nil)(t.Context()) // one that never logs in
	require.NoError(t, err)
	_, _, err = conn.Read()
	require.NoError(t, err)

	assert.Zero(t, r.end())
	_, _, err = conn.Read()
	var closed *transport.CloseError
	require.True(t, errors.As(err, &closed), "%v", err)
	assert.Equal(t, uint16(transport.CloseGoingAway), closed.Code)
	recv.wants(&recv.errOut, "no connection to .*, which is tried again: .*going-away")
	assert.Zero(t, recv.end())
	assert.Regexp(t, "messages that waited are lost.*count=1\n", r.errOut.String())
	assert.NotContains(t, r.errOut.String(), "not everything could be written")
	assert.Regexp(t, "ended\n$", r.errOut.String())
}

// TestDrainIsSeen has somebody not read, so that the drain takes all of its time:
// meanwhile the relay lets nobody in, and says so to operators.
func TestDrainIsSeen(t *testing.T) {
	r := serve(t, "--drain", "1s", "--metrics", "127.0.0.1:0", "--listen", "tcp://127.0.0.1:0")
	target, err := parseRemote("URL", r.url, "")
	require.NoError(t, err)
	dial, err := target.dialer()
	require.NoError(t, err)
	conn, err := dial(t.Context())
	require.NoError(t, err)
	id, err := crypto.GenerateIdentity()
	require.NoError(t, err)
	frozen, err := brep.Connect(t.Context(), conn, &brep.ClientOptions{Identity: id})
	require.NoError(t, err)
	defer frozen.Close()
	ann, err := crypto.GenerateIdentity()
	require.NoError(t, err)
	sender, err := login(t.Context(), dial, ann, nil)
	require.NoError(t, err)
	defer sender.close()
	for { // until the sockets are full
		sent, err := sender.send(t.Context(), id.Public(), strings.Repeat("x", 1<<20))
		require.NoError(t, err)
		receipt, err := sender.receipt(t.Context(), sent)
		require.NoError(t, err)
		if receipt.Status == frame.ReceiptStored {
			break
		}
	}
	r.cancel()
	probe := strings.TrimSuffix(r.ready.Metrics, "/metrics") + "/readyz"
	require.Eventually(t, func() bool {
		status, body := request(t, "GET", probe)
		return status == http.StatusServiceUnavailable && body == "draining\n"
	}, wait, tick)
	_, err = dial(t.Context())
	assert.Error(t, err)
	assert.Zero(t, r.end())
	assert.Contains(t, r.errOut.String(), "not everything could be written in time")
}

func TestLog(t *testing.T) {
	key := strings.Repeat("ab12", 16)
	for _, format := range []string{"text", "json"} {
		var out bytes.Buffer
		log, err := newLogger(&out, "info", format)
		require.NoError(t, err)
		log.Debug("unseen")
		log.Info("x", "string", key, "err", errors.New("the key "+key+" is wrong"), relayKeyAttr, key, "n", 7)
		log.With("key", strings.ToUpper(key)).WithGroup("g").Warn("y", "key", []string{key})
		assert.Equal(t, 1, strings.Count(out.String(), key), "the relay's own: %s", out.String())
		assert.NotContains(t, out.String(), strings.ToUpper(key))
		assert.Equal(t, 4, strings.Count(out.String(), "ab12ab12…"), out.String())
		assert.NotContains(t, out.String(), "unseen")
	}
}
