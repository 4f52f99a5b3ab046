package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"net"
	"net/http/httptrace"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sotto-relay/sotto/crypto"
	"github.com/sotto-relay/sotto/relay/dialect/jsonmsg"
	"github.com/sotto-relay/sotto/relay/dialect/mailbox"
	"github.com/sotto-relay/sotto/transport"
	"github.com/sotto-relay/sotto/transport/tcp"
	"github.com/sotto-relay/sotto/transport/udp"
	"github.com/sotto-relay/sotto/transport/ws"
)

// A talker says messages to a relay and hears its answers.
type talker struct {
	t *testing.T
	transport.Conn
}

func talk(t *testing.T, dial transport.Dialer) talker {
	t.Helper()
	conn, err := dial(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(transport.CloseNormal, "") })
	return talker{t, conn}
}

func (c talker) say(k transport.Kind, text string) {
	c.t.Helper()
	require.NoError(c.t, c.SetWriteDeadline(time.Now().Add(wait)))
	n, err := c.Write(k, [][]byte{[]byte(text)})
	require.NoError(c.t, err)
	require.Equal(c.t, 1, n)
}

func (c talker) hear() string {
	c.t.Helper()
	require.NoError(c.t, c.SetReadDeadline(time.Now().Add(wait)))
	_, msg, err := c.Read()
	require.NoError(c.t, err)
	return string(msg)
}

// register registers an address, and returns the token that datagrams need.
func (c talker) register(addr string) (token string) {
	c.t.Helper()
	c.say(transport.Text, `{"t":"register","addr":"`+addr+`"}`)
	var registered struct{ T, Addr, Token string }
	require.NoError(c.t, json.Unmarshal([]byte(c.hear()), &registered))
	require.Equal(c.t, "registered", registered.T)
	require.Equal(c.t, addr, registered.Addr)
	return registered.Token
}

// TestJSONEverywhere has everybody write to the next one, over another medium.
func TestJSONEverywhere(t *testing.T) {
	cert := newCert(t, t.TempDir(), "relay", time.Hour)
	r := serve(t, "--listen", "ws://127.0.0.1:0?root=json", "--listen", "tcp://127.0.0.1:0?dialect=json", "--listen", "udp://127.0.0.1:0",
		"--listen", "tls://127.0.0.1:0"+cert.params()+"&dialect=json")
	roots := x509.NewCertPool()
	pem, err := os.ReadFile(cert.cert)
	require.NoError(t, err)
	require.True(t, roots.AppendCertsFromPEM(pem))
	url := func(i int) string { return r.ready.Listeners[i].URL }
	host := func(i int) string { _, h, _ := strings.Cut(url(i), "://"); return h }
	stream := tcp.Dialer(host(2), jsonmsg.Framing{}, nil)
	people := []talker{
		talk(t, ws.Dialer(url(0)+"/json", nil)), talk(t, ws.Dialer(url(1), nil)),
		talk(t, stream), talk(t, udp.Dialer(host(3), nil)),
		talk(t, tcp.Dialer(host(4), jsonmsg.Framing{}, &tcp.DialOptions{TLS: &tls.Config{RootCAs: roots}})),
	}
	name := func(i int) string { return "p" + strconv.Itoa(i%len(people)) }
	tokens := make([]string, len(people))
	pair := func(i int) string {
		if tokens[i] == "" {
			return ""
		}
		return `,"from_addr":"` + name(i) + `","token":"` + tokens[i] + `"`
	}
	for i, p := range people {
		if tokens[i] = p.register(name(i)); tokens[i] != "" { // else what is for it may wait for that
			p.say(transport.Text, `{"t":"unsubscribe","topic":"x"`+pair(i)+`}`)
			assert.Equal(t, `{"t":"unsubscribed","topic":"x"}`, p.hear())
		}
	}
	for i, p := range people {
		p.say(transport.Text, `{"t":"send","to":"`+name(i+1)+`","ct":"hello"`+pair(i)+`}`)
		assert.Equal(t, `{"t":"deliver","from":"`+name(i)+`","ct":"hello"}`, people[(i+1)%len(people)].hear())
	}
	people[0].say(transport.Text, `{"t":"capabilities"}`)
	assert.Contains(t, people[0].hear(), `"transports":["ws","tcp","udp","tls"]`)
	assert.Zero(t, r.end())
}

func TestBlindAndAudit(t *testing.T) {
	log := filepath.Join(t.TempDir(), "audit")
	r := serve(t, "--audit", log)
	sub, pub := talk(t, ws.Dialer(r.url+"/blind", nil)), talk(t, ws.Dialer(r.url+"/blind", nil))
	const header = `{"v":1,"kind":"update","entityId":"doc","sender":"s","nonce":"n","seq":1,"ts":2}`
	frame := "\x01\x00\x00\x00" + string(rune(len(header))) + header + "\x00\x00\x00\x00\x00\x00"
	deliver := func() {
		pub.say(transport.Binary, frame)
		assert.Equal(t, frame, sub.hear())
	}
	sub.say(transport.Binary, "\x00"+`{"op":"subscribe","entityIds":["doc"]}`)
	sub.say(transport.Binary, "\x00"+`{"op":"rotate","from":"x","to":"y"}`)
	assert.Equal(t, "\x00"+`{"op":"rotated","from":"x","to":"y"}`, sub.hear())
	deliver()
	lines := func(file string) int {
		text, _ := os.ReadFile(file)
		return strings.Count(string(text), `"entityId":"doc","kind":"update","bytes":`+strconv.Itoa(len(frame)-1)+"}\n")
	}
	require.Eventually(t, func() bool { return lines(log) == 1 }, wait, tick)

	require.NoError(t, os.Rename(log, log+".1"))
	require.NoError(t, syscall.Kill(os.Getpid(), syscall.SIGHUP))
	require.Eventually(t, func() bool { _, err := os.Stat(log); return err == nil }, wait, tick)
	deliver()
	require.Eventually(t, func() bool { return lines(log) == 1 }, wait, tick)
	assert.Equal(t, 1, lines(log+".1"))
	assert.Zero(t, r.end())
}

// TestData restarts a relay: what it has in its directory is there again.
func TestData(t *testing.T) {
	home(t)
	dir, contacts := filepath.Join(t.TempDir(), "made", "later"), filepath.Join(t.TempDir(), "contacts")
	ann, err := crypto.GenerateIdentity()
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(contacts, []byte(ann.String()+"\n"), 0o600))
	args := []string{"--data", dir, "--contacts", contacts, "--contacts-strict"}
	r := serve(t, args...)
	client := func() *mailbox.Client {
		c, err := mailbox.NewClient(&mailbox.ClientOptions{URL: "http" + strings.TrimPrefix(r.url, "ws"), Identity: ann})
		require.NoError(t, err)
		return c
	}
	alice := talk(t, ws.Dialer(r.url+"/json", nil))
	alice.register("alice")
	alice.say(transport.Text, `{"t":"send","to":"bob","ct":"kept"}`)
	assert.Equal(t, `{"t":"queued","to":"bob"}`, alice.hear())
	alice.say(transport.Text, `{"t":"publish","topic":"a","ct":"retained","retain":true}`)
	alice.say(transport.Text, `{"t":"find_match","game":"x"}`)
	alice.hear()
	_, err = client().Store(t.Context(), ann.Public(), "blob")
	require.NoError(t, err)
	key := r.key
	second := sotto(t, "serve", "--listen", "ws://127.0.0.1:0", "--data", dir)
	assert.Equal(t, exitFailed, second.code)
	assert.Contains(t, second.errOut, dir)
	assert.Zero(t, r.end())

	r = serve(t, args...)
	assert.Equal(t, key, r.key)
	bob := talk(t, ws.Dialer(r.url+"/json", nil))
	bob.say(transport.Text, `{"t":"register","addr":"bob"}`)
	assert.Equal(t, `{"t":"deliver","from":"alice","ct":"kept"}`, bob.hear())
	assert.Equal(t, `{"t":"registered","addr":"bob","queued":1}`, bob.hear())
	bob.say(transport.Text, `{"t":"subscribe","topic":"#"}`)
	assert.Equal(t, `{"t":"subscribed","topic":"#"}`, bob.hear())
	assert.Equal(t, `{"t":"message","topic":"a","from":"alice","ct":"retained","retained":true}`, bob.hear())
	letters, _, err := client().Fetch(t.Context(), mailbox.FetchOptions{})
	require.NoError(t, err)
	require.Len(t, letters, 1)
	assert.Equal(t, "blob", letters[0].Blob)
	assert.Zero(t, r.end())
}

// What has been fetched is removed, also when the relay is told to end at that
// moment.
func TestDrainRemovesFetched(t *testing.T) {
	dir := t.TempDir()
	ann, err := crypto.GenerateIdentity()
	require.NoError(t, err)
	for range 10 {
		r := serve(t, "--data", dir, "--contacts", "open")
		c, err := mailbox.NewClient(&mailbox.ClientOptions{URL: "http" + strings.TrimPrefix(r.url, "ws"), Identity: ann})
		require.NoError(t, err)
		again, _, err := c.Fetch(t.Context(), mailbox.FetchOptions{})
		require.NoError(t, err)
		require.Empty(t, again)
		_, err = c.Store(t.Context(), ann.Public(), r.ready.Listeners[0].URL)
		require.NoError(t, err)
		letters, _, err := c.Fetch(t.Context(), mailbox.FetchOptions{})
		require.NoError(t, err)
		require.Len(t, letters, 1)
		require.Zero(t, r.end())
	}
}

// A long poll does not hold up the end of the relay.
func TestDrainOfLongPolls(t *testing.T) {
	r := serve(t, "--contacts", "open")
	ann, err := crypto.GenerateIdentity()
	require.NoError(t, err)
	c, err := mailbox.NewClient(&mailbox.ClientOptions{URL: "http" + strings.TrimPrefix(r.url, "ws"), Identity: ann})
	require.NoError(t, err)
	_, _, err = c.Fetch(t.Context(), mailbox.FetchOptions{}) // which asks for the relay's key first
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	polled, asked := make(chan struct{}), make(chan struct{})
	once := sync.OnceFunc(func() { close(asked) })
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{WroteRequest: func(httptrace.WroteRequestInfo) { once() }})
	go func() {
		defer close(polled)
		_, _, _ = c.Fetch(ctx, mailbox.FetchOptions{Wait: time.Minute})
	}()
	<-asked
	for range 20 { // by then it has been read
		status, _ := request(t, "GET", "http"+strings.TrimPrefix(r.url, "ws")+"/healthz")
		require.Equal(t, 200, status)
	}
	begun := time.Now()
	assert.Zero(t, r.end())
	assert.Less(t, time.Since(begun), 3*time.Second)
	cancel()
	<-polled
}

func TestUDPPortInUse(t *testing.T) {
	pc, err := net.ListenPacket("udp", "127.0.0.1:0")
	require.NoError(t, err)
	defer pc.Close()
	got := sotto(t, "serve", "--listen", "udp://"+pc.LocalAddr().String())
	assert.Equal(t, exitFailed, got.code)
	assert.Contains(t, got.errOut, "cannot listen on udp://"+pc.LocalAddr().String())
}
