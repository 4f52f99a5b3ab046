package main

import (
	"context"
	"encoding/json"
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
	"github.com/sotto-relay/sotto/handshake"
	"github.com/sotto-relay/sotto/inbox"
	"github.com/sotto-relay/sotto/internal/freeport"
	"github.com/sotto-relay/sotto/relay"
	"github.com/sotto-relay/sotto/relay/client"
	"github.com/sotto-relay/sotto/relay/dialect/brep"
	"github.com/sotto-relay/sotto/transport"
	"github.com/sotto-relay/sotto/transport/ws"
)

// doctor returns the findings, by check.
func doctor(t *testing.T, args ...string) (code int, found map[string]finding) {
	t.Helper()
	got := sotto(t, append([]string{"doctor", "--json"}, args...)...)
	found = make(map[string]finding)
	for line := range strings.Lines(got.out) {
		var f finding
		require.NoError(t, json.Unmarshal([]byte(line), &f))
		found[f.Check] = f
		assert.Equal(t, f.Status == statusOK, f.Advice == "", "advice is for what is wrong: %+v", f)
	}
	return got.code, found
}

func TestDoctor(t *testing.T) {
	config := home(t)
	cert := newCert(t, t.TempDir(), "relay", 365*24*time.Hour)
	r := serve(t, "--listen", "wss://127.0.0.1:0"+cert.params(), "--listen", "tcp://127.0.0.1:0", "--listen", "tls://localhost:0"+cert.params())
	for i, want := range []string{
		"name connect tls clock ready login key live inbox request ack card topic close",
		"name connect tls expiry clock ready login key live inbox request ack card topic close",
		"name connect tls login key live inbox request ack card topic close",
		"name connect tls expiry login key live inbox request ack card topic close",
	} {
		url := r.ready.Listeners[i].URL
		args := []string{"--relay-key", r.key, url}
		if strings.HasPrefix(url, "wss") || strings.HasPrefix(url, "tls") {
			args = append(args, "--ca", cert.cert)
		}
		code, found := doctor(t, args...)
		assert.Zero(t, code)
		for _, check := range strings.Fields(want) {
			assert.Equal(t, statusOK, found[check].Status, "%s: %s: %+v", url, check, found[check])
		}
		assert.Len(t, found, len(strings.Fields(want)))
	}

	code, found := doctor(t, r.ready.Listeners[0].URL)
	assert.Zero(t, code)
	assert.Equal(t, statusWarn, found["key"].Status)
	assert.Contains(t, found["key"].Text, r.key)
	_, err := os.Stat(filepath.Join(config, "known_relays"))
	assert.ErrorIs(t, err, os.ErrNotExist, "nothing is remembered")
	got := sotto(t, "doctor", r.ready.Listeners[0].URL)
	assert.Regexp(t, `(?m)^ok    connect    127.0.0.1:\d+ accepts`, got.out)
	assert.Regexp(t, `(?m)^warn  key        `+r.key, got.out)
}

func TestDoctorFinds(t *testing.T) {
	home(t)
	dir := t.TempDir()
	good, stale, soon := newCert(t, dir, "good", 365*24*time.Hour), newCert(t, dir, "stale", -time.Hour), newCert(t, dir, "soon", 24*time.Hour)
	r := serve(t, "--listen", "wss://0.0.0.0:0"+good.params(), "--listen", "wss://127.0.0.1:0"+stale.params(),
		"--listen", "tls://127.0.0.1:0"+soon.params(), "--listen", "tcp://127.0.0.1:0")
	plain, withGood, withStale, withSoon, overTCP := r.ready.Listeners[0].URL, r.ready.Listeners[1].URL, r.ready.Listeners[2].URL, r.ready.Listeners[3].URL, r.url
	elsewhere := strings.Replace(withGood, "0.0.0.0", "127.0.0.2", 1)
	withGood = strings.Replace(withGood, "0.0.0.0", "127.0.0.1", 1)
	closed := freeport.Address(t)
	_, other := person(t)
	key, err := crypto.ParsePublicKey(other)
	require.NoError(t, err)
	known := filepath.Join(dir, "known")
	require.NoError(t, handshake.NewFileTrust(known).Remember(plain, key))
	notFound := httptest.NewServer(http.NotFoundHandler())
	defer notFound.Close()
	legacy := httptest.NewServer(ws.Handler(transport.HandlerFunc(beLegacy), nil))
	defer legacy.Close()
	silent := httptest.NewServer(ws.Handler(transport.HandlerFunc(func(c transport.Conn) { _, _, _ = c.Read() }), nil))
	defer silent.Close()
	url := func(s *httptest.Server) string { return "ws://" + s.Listener.Addr().String() }

	for _, c := range []struct {
		name, args  string
		code        int
		check, what string
		status      string
	}{
		{"no such name", "ws://no-such-host.invalid", 1, "name", "no-such-host", statusFail},
		{"nobody there", "ws://" + closed, 1, "connect", "refused", statusFail},
		{"an unknown authority", withGood, 1, "tls", "unknown authority", statusFail},
		{"another authority", withGood + " --ca " + soon.cert, 1, "tls", "unknown authority", statusFail},
		{"another name", elsewhere + " --ca " + good.cert, 1, "tls", "is for localhost, 127.0.0.1", statusFail},
		{"no authority", withGood + " --ca " + good.key, 1, "tls", "no certificate in PEM", statusFail},
		{"an expired certificate", withStale + " --ca " + stale.cert, 1, "tls", "expired", statusFail},
		{"one that expires soon", withSoon + " --ca " + soon.cert, 0, "expiry", "valid until", statusWarn},
		{"no TLS there", "wss" + strings.TrimPrefix(plain, "ws"), 1, "tls", "", statusFail},
		{"no relay there", url(notFound), 1, "login", "404", statusFail},
		{"no probes there", url(notFound), 1, "ready", "404", statusWarn},
		{"an old relay", url(legacy), 1, "login", "old handshake", statusFail},
		{"a silent relay", url(silent) + " --timeout 300ms", 1, "login", "deadline", statusFail},
		{"another dialect", "tcp" + strings.TrimPrefix(plain, "ws") + " --timeout 300ms", 1, "login", "deadline", statusFail},
		{"another key", plain + " --relay-key " + other, 1, "login", r.key, statusFail},
		{"a changed key", plain + " --known-relays " + known, 1, "login", "had " + other, statusFail},
		{"a damaged memory", plain + " --known-relays " + good.cert, 1, "login", "good.crt", statusFail},
		{"a good one", overTCP, 0, "inbox", "in memory", statusOK},
	} {
		t.Run(c.name, func(t *testing.T) {
			code, found := doctor(t, strings.Fields(c.args)...)
			assert.Equal(t, c.code, code, "%+v", found)
			assert.Equal(t, c.status, found[c.check].Status, "%+v", found)
			assert.Contains(t, found[c.check].Text, c.what)
		})
	}
}

// TestDoctorAndOthers examines relays that are not this program's.
func TestDoctorAndOthers(t *testing.T) {
	home(t)
	id, err := crypto.GenerateIdentity()
	require.NoError(t, err)
	date := time.Duration(0)
	examine := func(srv *relay.Server) (int, map[string]finding) {
		defer srv.Close()
		upgrade := ws.Handler(srv.Speak(brep.Dialect{Identity: id, Durable: srv.Inbox != nil}), nil)
		web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Date", time.Now().Add(date).UTC().Format(http.TimeFormat))
			if r.URL.Path == "/readyz" {
				w.WriteHeader(http.StatusServiceUnavailable)
				return
			}
			upgrade.ServeHTTP(w, r)
		}))
		defer web.Close()
		return doctor(t, "ws://"+web.Listener.Addr().String(), "--timeout", "5s")
	}
	code, found := examine(&relay.Server{Inbox: inbox.NewMemory(nil)})
	assert.Equal(t, exitFailed, code)
	assert.Equal(t, statusFail, found["ready"].Status)
	assert.NotContains(t, found["inbox"].Text, "memory", "it says that it is durable")

	date = -time.Minute
	_, found = examine(&relay.Server{})
	assert.Equal(t, statusWarn, found["clock"].Status)
	assert.Equal(t, statusWarn, found["inbox"].Status, "%+v", found)

	date = time.Hour
	_, found = examine(&relay.Server{Policy: relay.Policy{Send: func(ctx context.Context, _ relay.SendInfo) error {
		return &relay.Refusal{Code: relay.CodeDenied}
	}}})
	assert.Equal(t, statusFail, found["clock"].Status)
	assert.Equal(t, statusFail, found["live"].Status, "%+v", found)
	assert.Contains(t, found["live"].Text, "refused")
	assert.Equal(t, statusFail, found["ack"].Status, "%+v", found)
	assert.Equal(t, statusOK, found["topic"].Status, "%+v", found)

	_, found = examine(&relay.Server{Policy: relay.Policy{Publish: func(context.Context, relay.SendInfo) error {
		return &relay.Refusal{Code: relay.CodeDenied}
	}}})
	assert.Equal(t, statusFail, found["topic"].Status, "%+v", found)
	assert.Contains(t, found["topic"].Text, "denied")
	assert.Equal(t, statusOK, found["ack"].Status, "without an inbox too: %+v", found)
	assert.Equal(t, statusOK, found["card"].Status)
	assert.Contains(t, found["request"].Text, "requests are answered in")
}

// TestDoctorAndOldRelays holds that what a relay does not know is no failure.
func TestDoctorAndOldRelays(t *testing.T) {
	status, text, advice := unanswered("keep a card", "it is worse", &client.RefusedError{Code: frame.CodeUnknownVerb})
	assert.Equal(t, statusWarn, status)
	assert.Equal(t, "it does not know how to keep a card", text)
	assert.Contains(t, advice, "without that it is worse")
}
