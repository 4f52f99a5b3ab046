package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sotto-relay/sotto/relay/dialect/brep"
	"github.com/sotto-relay/sotto/transport"
	"github.com/sotto-relay/sotto/transport/tcp"
	"github.com/sotto-relay/sotto/transport/ws"
)

func TestParseListen(t *testing.T) {
	for raw, want := range map[string]endpoint{
		"ws://127.0.0.1:0":                           {scheme: "ws", host: "127.0.0.1:0", dialect: "brep"},
		"ws://:80/?root=brep&page=a%2Cb.html":        {scheme: "ws", host: ":80", dialect: "brep", page: "a,b.html"},
		"wss://[::1]:443?cert=a&key=b":               {scheme: "wss", host: "[::1]:443", dialect: "brep", cert: "a", key: "b"},
		"wss://:443?acme=a.b&acme=c.d&cache=e":       {scheme: "wss", host: ":443", dialect: "brep", acme: []string{"a.b", "c.d"}, cache: "e"},
		"tcp://localhost:1?dialect=brep":             {scheme: "tcp", host: "localhost:1", dialect: "brep"},
		"tls://localhost:1?cert=a&key=b":             {scheme: "tls", host: "localhost:1", dialect: "brep", cert: "a", key: "b"},
		"tcp://localhost:1?dialect=json":             {scheme: "tcp", host: "localhost:1", dialect: "json"},
		"ws://localhost:1?root=blind":                {scheme: "ws", host: "localhost:1", dialect: "blind"},
		"udp://:9":                                   {scheme: "udp", host: ":9", dialect: "json"},
		"tls://localhost:1?acme=a.b&dialect=brep":    {scheme: "tls", host: "localhost:1", dialect: "brep", acme: []string{"a.b"}},
		"WSS://localhost:1?page=p&key=../k&cert=%3F": {scheme: "wss", host: "localhost:1", dialect: "brep", page: "p", cert: "?", key: "../k"},
	} {
		e, err := parseListen(raw)
		require.NoError(t, err, raw)
		assert.Equal(t, &want, e, raw)
	}
}

func TestParseProxy(t *testing.T) {
	for raw, want := range map[string]string{
		"10.0.0.0/8": "10.0.0.0/8", "10.1.2.3": "10.1.2.3/32", "fd00::/8": "fd00::/8", "::1": "::1/128", "::ffff:10.1.2.3": "10.1.2.3/32",
	} {
		p, err := parseProxy(raw)
		require.NoError(t, err, raw)
		assert.Equal(t, netip.MustParsePrefix(want), p)
	}
}

// TestMedia sends over one medium and receives over another.
func TestMedia(t *testing.T) {
	home(t)
	cert := newCert(t, t.TempDir(), "relay", time.Hour)
	r := serve(t, "--listen", "tcp://127.0.0.1:0?dialect=brep", "--listen", "tls://localhost:0"+cert.params(),
		"--listen", "wss://127.0.0.1:0"+cert.params())
	overWS, overTCP, overTLS, overWSS := r.ready.Listeners[0].URL, r.ready.Listeners[1].URL, r.ready.Listeners[2].URL, r.ready.Listeners[3].URL
	for i, way := range []struct{ from, to []string }{
		{[]string{overWS}, []string{overTCP}},
		{[]string{overTCP + "?dialect=brep"}, []string{overTLS, "--ca", cert.cert}},
		{[]string{overTLS, "--ca", cert.cert}, []string{overWSS, "--ca", cert.cert}},
		{[]string{overWSS, "--ca", cert.cert}, []string{overWS}},
	} {
		bob, to := person(t)
		text := fmt.Sprintf("message %d", i)
		sent := sotto(t, append([]string{"send", "-m", text, to, "--relay"}, way.from...)...)
		require.Zero(t, sent.code, sent.errOut)
		got := sotto(t, append([]string{"recv", idle, "--identity", bob, "--relay"}, way.to...)...)
		require.Zero(t, got.code, got.errOut)
		assert.Contains(t, got.out, text)
	}
	_, to := person(t)
	for _, c := range []struct{ args, want string }{
		{"--relay " + overTLS, "certificate"},
		{"--relay " + overTLS + " --ca " + cert.key, "has no certificate in PEM"},
		{"--relay " + overTLS + " --ca none", "--ca: .*no such file"},
		{"--relay tls" + strings.TrimPrefix(overTCP, "tcp"), "cannot reach the relay"},
	} {
		got := sotto(t, append([]string{"send", "-m", "x", "--timeout", "5s", to}, strings.Fields(c.args)...)...)
		assert.Equal(t, exitFailed, got.code, c.args)
		assert.Regexp(t, c.want, got.errOut)
	}
}

// TestStreamsArePinged: TCP does not notice by itself that a peer is gone (spec
// brep.md, "Errors seen by a peer").
func TestStreamsArePinged(t *testing.T) {
	s := &service{v2: true, sealedOnly: true}
	assert.Equal(t, 30*time.Second, s.streamBrep(nil).PingInterval)
	assert.Zero(t, s.brep(nil).PingInterval, "a WebSocket has pings of its own")
}

// A crowd connects from addresses that proxies name.
type crowd struct {
	t    *testing.T
	dial func(header, forwarded string) (transport.Conn, error)
}

// admits says whether a connection got as far as the challenge, and keeps it open
// until the end of the test.
func (c *crowd) admits(header, forwarded string) bool {
	conn, err := c.dial(header, forwarded)
	if err != nil {
		return false
	}
	c.t.Cleanup(func() { _ = conn.Close(transport.CloseNormal, "") })
	_, _, err = conn.Read()
	return err == nil
}

// ends says whether a connection that begins with header does not last.
func (c *crowd) ends(header string) bool {
	conn, err := c.dial(header, "")
	if err != nil {
		return true
	}
	defer conn.Close(transport.CloseNormal, "")
	require.NoError(c.t, conn.SetReadDeadline(time.Now().Add(wait)))
	for err == nil {
		_, _, err = conn.Read()
	}
	return !errors.Is(err, os.ErrDeadlineExceeded)
}

func overWS(t *testing.T, url string) *crowd {
	return &crowd{t, func(header, forwarded string) (transport.Conn, error) {
		o := &ws.DialOptions{Dial: dialWith(header)}
		if forwarded != "" {
			o.Header = http.Header{"X-Forwarded-For": {forwarded}}
		}
		return ws.Dialer(url, o)(t.Context())
	}}
}

func overTCP(t *testing.T, url string) *crowd {
	return &crowd{t, func(header, _ string) (transport.Conn, error) {
		return tcp.Dialer(strings.TrimPrefix(url, "tcp://"), brep.Framing{}, &tcp.DialOptions{Dial: dialWith(header)})(t.Context())
	}}
}

// dialWith begins connections with a header.
func dialWith(header string) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := new(net.Dialer).DialContext(ctx, network, address)
		if err == nil && header != "" {
			_, err = c.Write([]byte(header))
		}
		return c, err
	}
}

// TestProxies holds that the limit of one connection a source counts those that
// trusted proxies name, and nobody else.
func TestProxies(t *testing.T) {
	const one, two = "PROXY TCP4 192.0.2.1 192.0.2.9 1 2\r\n", "PROXY TCP4 192.0.2.2 192.0.2.9 1 2\r\n"
	t.Run("X-Forwarded-For of a trusted proxy", func(t *testing.T) {
		r := serve(t, "--limit", "brep-connections=1", "--trusted-proxy", "127.0.0.0/8")
		c := overWS(t, r.url)
		assert.True(t, c.admits("", "192.0.2.1"))
		assert.True(t, c.admits("", "192.0.2.2"))
		assert.False(t, c.admits("", "192.0.2.7, 192.0.2.1"), "what a client makes up")
	})
	t.Run("X-Forwarded-For of a stranger", func(t *testing.T) {
		r := serve(t, "--limit", "brep-connections=1", "--trusted-proxy", "192.0.2.0/24")
		c := overWS(t, r.url)
		assert.True(t, c.admits("", "192.0.2.1"))
		assert.False(t, c.admits("", "192.0.2.2"))
	})
	for scheme, over := range map[string]func(*testing.T, string) *crowd{"ws": overWS, "tcp": overTCP} {
		t.Run("PROXY of a trusted proxy over "+scheme, func(t *testing.T) {
			r := serve(t, "--limit", "brep-connections=1", "--trusted-proxy", "127.0.0.1", "--proxy-protocol", "--listen", scheme+"://127.0.0.1:0")
			c := over(t, r.url)
			assert.True(t, c.admits(one, ""))
			assert.True(t, c.admits(two, ""))
			assert.False(t, c.admits(one, ""))
		})
		t.Run("PROXY of a stranger over "+scheme, func(t *testing.T) {
			r := serve(t, "--trusted-proxy", "192.0.2.0/24", "--proxy-protocol", "--listen", scheme+"://127.0.0.1:0")
			c := over(t, r.url)
			assert.True(t, c.ends(one))
			assert.True(t, c.admits("", ""), "direct connections go on")
		})
		t.Run("PROXY that nobody asked for over "+scheme, func(t *testing.T) {
			r := serve(t, "--trusted-proxy", "127.0.0.1", "--listen", scheme+"://127.0.0.1:0")
			assert.True(t, over(t, r.url).ends(one))
		})
	}
}

// TestTurnedAway holds that a request is refused before the upgrade, with when to
// come back.
func TestTurnedAway(t *testing.T) {
	r := serve(t, "--limit", "brep-connections=1")
	first, err := ws.Dialer(r.url, nil)(t.Context())
	require.NoError(t, err)
	_, _, err = first.Read() // the challenge: it is counted by now
	require.NoError(t, err)
	req, err := http.NewRequestWithContext(t.Context(), "GET", "http"+strings.TrimPrefix(r.url, "ws"), nil)
	require.NoError(t, err)
	for name, value := range map[string]string{
		"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==",
	} {
		req.Header.Set(name, value)
	}
	web := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := web.Do(req)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	assert.Equal(t, http.StatusServiceUnavailable, resp.StatusCode)
	assert.Equal(t, "1", resp.Header.Get("Retry-After"))

	require.NoError(t, first.Close(transport.CloseNormal, ""))
	require.Eventually(t, func() bool {
		c, err := ws.Dialer(r.url, nil)(t.Context())
		if err == nil {
			_ = c.Close(transport.CloseNormal, "")
		}
		return err == nil
	}, wait, tick, "the slot is free again")
}

func TestCleartext(t *testing.T) {
	home(t)
	r := serve(t, "--allow-cleartext=false")
	_, to := person(t)
	for args, want := range map[string]int{"": 0, "--signed": exitFailed, "--clear": exitFailed} {
		got := sotto(t, append([]string{"send", "--relay", r.url, "-m", "x", to}, strings.Fields(args)...)...)
		assert.Equal(t, want, got.code, "%s: %s", args, got.errOut)
	}
}

func TestPage(t *testing.T) {
	file := filepath.Join(t.TempDir(), "page.html")
	require.NoError(t, os.WriteFile(file, []byte("<p>welcome"), 0o600))
	r := serve(t, "--listen", "ws://127.0.0.1:0?page="+file)
	base := "http" + strings.TrimPrefix(r.url, "ws")
	resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Get(base)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	assert.Equal(t, "text/html; charset=utf-8", resp.Header.Get("Content-Type"))
	assert.Equal(t, "nosniff", resp.Header.Get("X-Content-Type-Options"))
	_, body := request(t, "GET", base+"/")
	assert.Equal(t, "<p>welcome", body)
	_, body = request(t, "GET", "http"+strings.TrimPrefix(r.ready.Listeners[0].URL, "ws"))
	assert.Contains(t, body, "This is a sotto relay", "each listener has its own")
	c, err := ws.Dialer(r.url, nil)(t.Context())
	require.NoError(t, err, "and still upgrades")
	_ = c.Close(transport.CloseNormal, "")
}

func TestMetrics(t *testing.T) {
	home(t)
	r := serve(t, "--metrics", "127.0.0.1:0")
	_, to := person(t)
	require.Zero(t, sotto(t, "send", "--relay", r.url, "-m", "x", to).code)
	status, body := request(t, "GET", r.ready.Metrics)
	assert.Equal(t, 200, status)
	for _, want := range []string{"\nsotto_messages_held 1\n", "\ngo_goroutines ", "\nprocess_open_fds "} {
		assert.Contains(t, body, want)
	}
	assert.NotContains(t, body, to[:8], "whose message it is")
	operators := strings.TrimSuffix(r.ready.Metrics, "/metrics")
	for path, want := range map[string]int{
		"/healthz": 200, "/readyz": 200, "/debug/pprof/": 200, "/debug/pprof/goroutine": 200, "/": 404,
	} {
		status, _ := request(t, "GET", operators+path)
		assert.Equal(t, want, status, path)
	}
	public := "http" + strings.TrimPrefix(r.url, "ws")
	for _, path := range []string{"/metrics", "/debug/pprof/"} {
		status, _ := request(t, "GET", public+path)
		assert.Equal(t, 400, status, "not for everybody: %s", path)
	}
	assert.NotContains(t, r.errOut.String(), "other machines reach the metrics")
	assert.Zero(t, r.end())

	open := serve(t, "--metrics", "0.0.0.0:0", "--listen", "tcp://0.0.0.0:0")
	assert.Contains(t, open.errOut.String(), "other machines reach the metrics")
	assert.Contains(t, open.errOut.String(), "other machines reach this listener without TLS")
}

func TestACME(t *testing.T) {
	cache := t.TempDir()
	t.Setenv("XDG_CACHE_HOME", cache)
	r := serve(t, "--listen", "wss://127.0.0.1:0?acme=relay.example", "--listen", "tls://127.0.0.1:0?acme=relay.example&cache="+filepath.Join(cache, "named"))
	for _, dir := range []string{"sotto/acme", "named"} {
		info, err := os.Stat(filepath.Join(cache, dir))
		require.NoError(t, err)
		assert.Equal(t, os.FileMode(0o700), info.Mode().Perm())
	}
	assert.Equal(t, 2, strings.Count(r.errOut.String(), "the authority asks at port 443"))
	_, err := tls.Dial("tcp", strings.TrimPrefix(r.url, "tls://"), &tls.Config{InsecureSkipVerify: true, ServerName: "other.example"})
	assert.Error(t, err, "a name that is not ours is not asked for")
}

// A failingListener accepts nothing, for these reasons, and then is closed.
type failingListener struct {
	net.Listener
	errs []error
}

func (l *failingListener) Accept() (net.Conn, error) {
	if len(l.errs) == 0 {
		return nil, net.ErrClosed
	}
	err := l.errs[0]
	l.errs = l.errs[1:]
	return nil, err
}

// TestAcceptFails holds that an operator hears of a web listener that has no files
// left, and nothing of one that is closed.
func TestAcceptFails(t *testing.T) {
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer inner.Close()
	var errOut strings.Builder
	log, err := newLogger(&errOut, "warn", "text")
	require.NoError(t, err)
	full := &net.OpError{Op: "accept", Net: "tcp", Err: os.NewSyscallError("accept4", syscall.EMFILE)}
	l := &listener{Listener: &failingListener{inner, []error{full, full}}, endpoint: &endpoint{scheme: "ws"}}
	web := new(webServer)
	web.listen(t.Context(), log)
	assert.ErrorIs(t, web.Serve(l.overTLS(log)), net.ErrClosed)
	assert.Equal(t, 2, strings.Count(errOut.String(), "too many open files"), errOut.String())
	assert.Equal(t, 2, strings.Count(errOut.String(), "\n"), errOut.String())
}
