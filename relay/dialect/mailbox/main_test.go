package mailbox

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/sotto-relay/sotto/crypto"
	"github.com/sotto-relay/sotto/inbox"
	"github.com/sotto-relay/sotto/internal/ecma"
	"github.com/sotto-relay/sotto/relay"
)

func TestMain(m *testing.M) {
	// A server waits half a second after it has closed its side, which is longer than goleak looks.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("net/http.(*conn).closeWriteAndWait"))
}

func readVectors(t testing.TB, name string, cases any) {
	t.Helper()
	data, err := os.ReadFile("testdata/" + name)
	require.NoError(t, err)
	file := struct{ Cases any }{cases}
	require.NoError(t, json.Unmarshal(data, &file))
}

// identity returns identity number n.
func identity(t testing.TB, n byte) *crypto.Identity {
	t.Helper()
	id, err := crypto.IdentityFromSeed(bytes.Repeat([]byte{n}, 32))
	require.NoError(t, err)
	return id
}

// A rig is a relay with a mailbox, on an http.Server in memory.
type rig struct {
	t        testing.TB
	server   *relay.Server
	contacts Contacts
	Options
	log  lockedBuffer
	base context.Context // of all requests; nil: the background

	mailbox  *handler
	listener *memoryListener
	web      *http.Server
	client   *http.Client
	alice    *crypto.Identity
	bob      *crypto.Identity
}

const relaySeed = 200

// A lockedBuffer is a bytes.Buffer for concurrent use.
type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// newRig returns a rig that runs until the test ends. set may be nil.
func newRig(t testing.TB, set func(*rig)) *rig {
	key := identity(t, relaySeed).Public()
	r := &rig{
		t: t, server: &relay.Server{Inbox: inbox.NewMemory(nil)}, contacts: Open{}, Options: Options{Relay: &key},
		alice: identity(t, 1), bob: identity(t, 2),
	}
	r.server.Logger = slog.New(slog.NewTextHandler(&r.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	if set != nil {
		set(r)
	}
	r.start()
	t.Cleanup(r.stop)
	return r
}

func (r *rig) start() {
	mux := http.NewServeMux()
	h := Handler(r.server, r.contacts, &r.Options)
	r.mailbox = h.(*handler)
	mux.Handle("/relay/", h)
	// Timeouts as a program sets them, which a long poll has to survive.
	r.web = &http.Server{
		Handler: mux, ReadTimeout: 10 * time.Second, WriteTimeout: 10 * time.Second,
		ErrorLog: slog.NewLogLogger(r.server.Logger.Handler(), slog.LevelError),
	}
	if r.base != nil {
		r.web.BaseContext = func(net.Listener) context.Context { return r.base }
	}
	r.listener = newMemoryListener()
	go func() { _ = r.web.Serve(r.listener) }()
	r.client = &http.Client{Transport: &http.Transport{
		DialContext: func(context.Context, string, string) (net.Conn, error) { return r.listener.dial() },
	}}
}

func (r *rig) stop() {
	r.client.CloseIdleConnections()
	_ = r.web.Close()
	_ = r.server.Close()
}

// restart has a new server and handler on what the old ones stored.
func (r *rig) restart() {
	r.stop()
	r.server = &relay.Server{Inbox: r.server.Inbox, State: r.server.State, Limits: r.server.Limits, Logger: r.server.Logger}
	r.start()
}

// bubble runs f with a rig in a synctest bubble, in the year 2026: in the year 2000
// a timestamp has 12 digits.
func bubble(t *testing.T, set func(*rig), f func(t *testing.T, r *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Until(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)))
		t.Cleanup(func() { time.Sleep(time.Second) }) // net/http lingers over what it has not read
		f(t, newRig(t, set))
	})
}

// A memoryListener accepts net.Pipes: without a buffer between, so that a write is
// over when it has been read.
type memoryListener struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

func newMemoryListener() *memoryListener {
	return &memoryListener{conns: make(chan net.Conn), done: make(chan struct{})}
}

func (l *memoryListener) dial() (net.Conn, error) {
	client, server := net.Pipe()
	select {
	case l.conns <- tcpConn{server}:
		return client, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

func (l *memoryListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

func (l *memoryListener) Close() error {
	l.once.Do(func() { close(l.done) })
	return nil
}

func (l *memoryListener) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 80} }

// A tcpConn says that it comes from an IP address.
type tcpConn struct{ net.Conn }

func (tcpConn) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 1234} }

// A reply is what came back.
type reply struct {
	status int
	header http.Header
	body   string
}

// do makes a request; header are names and values. It fails the test if there is
// no answer.
func (r *rig) do(method, target, body string, header ...string) reply {
	r.t.Helper()
	rep, err := r.try(context.Background(), method, target, body, header...)
	require.NoError(r.t, err)
	return rep
}

func (r *rig) try(ctx context.Context, method, target, body string, header ...string) (reply, error) {
	req, err := http.NewRequestWithContext(ctx, method, "http://relay"+target, strings.NewReader(body))
	require.NoError(r.t, err)
	if body == "" {
		req.Body = nil
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := r.client.Do(req)
	if err != nil {
		return reply{}, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return reply{resp.StatusCode, resp.Header, string(b)}, err
}

// requireRefused holds that a reply is an error of a status, in the form of all
// errors.
func (rep reply) requireRefused(t testing.TB, status int, msg ...any) {
	t.Helper()
	require.Equal(t, status, rep.status, "%s %v", rep.body, msg)
	var answer map[string]string
	require.NoError(t, json.Unmarshal([]byte(rep.body), &answer), rep.body)
	require.Len(t, answer, 1)
	require.NotEmpty(t, answer["error"])
	require.Equal(t, "application/json", rep.header.Get("Content-Type"))
	if status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable {
		require.NotEmpty(t, rep.header.Get("Retry-After"))
	}
}

// quote returns s as JSON.stringify writes it.
func quote(s string) string { return string(ecma.AppendEscaped([]byte{'"'}, []byte(s))) + `"` }

// storeBody returns the body that stores a blob, given as JSON, as version 1 has it.
func storeBody(from *crypto.Identity, to crypto.PublicKey, blob string) string {
	sig := from.Sign([]byte(fmt.Sprintf(`{"recipient":"%s","blob":%s}`, to, blob)))
	return fmt.Sprintf(`{"recipient":"%s","blob":%s,"signature":"%x","senderPubkey":"%s"}`, to, blob, sig, from)
}

// store stores a blob that is a string.
func (r *rig) store(from *crypto.Identity, to crypto.PublicKey, blob string) reply {
	r.t.Helper()
	return r.do("POST", "/relay/store", storeBody(from, to, quote(blob)))
}

func (r *rig) mustStore(from *crypto.Identity, to crypto.PublicKey, blobs ...string) {
	r.t.Helper()
	for _, b := range blobs {
		rep := r.store(from, to, b)
		require.Equal(r.t, http.StatusOK, rep.status, rep.body)
	}
}

// query returns a signed query for what is to be read with a key.
func query(id *crypto.Identity, at time.Time) string {
	stamp := fmt.Sprint(at.UnixMilli())
	return fmt.Sprintf("?pubkey=%s&timestamp=%s&signature=%x", id, stamp, id.Sign([]byte(id.String()+":"+stamp)))
}

// An item is a blob of an answer.
type item struct {
	Blob      string
	Sender    string
	Timestamp int64
	ID        string
}

// list reads an answer to a fetch.
func (rep reply) list(t testing.TB) (items []item, more bool) {
	t.Helper()
	require.Equal(t, http.StatusOK, rep.status, rep.body)
	var answer struct {
		Blobs []item
		Count *int
		More  bool
	}
	require.NoError(t, json.Unmarshal([]byte(rep.body), &answer))
	require.NotNil(t, answer.Blobs)
	require.NotNil(t, answer.Count)
	require.Len(t, answer.Blobs, *answer.Count)
	return answer.Blobs, answer.More
}

// fetch fetches with a timestamp of now, which has to be a new one.
func (r *rig) fetch(id *crypto.Identity, params string) []item {
	r.t.Helper()
	items, _ := r.do("GET", "/relay/fetch"+query(id, time.Now())+params, "").list(r.t)
	return items
}

func blobs(items []item) (s []string) {
	for _, i := range items {
		s = append(s, i.Blob)
	}
	return s
}

// ack acknowledges as version 1 has it.
func (r *rig) ack(id *crypto.Identity, ids ...string) reply {
	r.t.Helper()
	stamp := fmt.Sprint(time.Now().UnixMilli())
	sig := id.Sign([]byte(id.String() + ":" + stamp + ":ack:" + strings.Join(ids, ",")))
	body, err := json.Marshal(map[string]any{
		"pubkey": id.String(), "timestamp": stamp, "ids": append([]string{}, ids...), "signature": hex.EncodeToString(sig[:]),
	})
	require.NoError(r.t, err)
	return r.do("POST", "/relay/ack", string(body))
}

// authorization returns the header that signs a request.
func authorization(id *crypto.Identity, relayKey crypto.PublicKey, method, target, body string, at time.Time, nonce []byte) string {
	stamp := fmt.Sprint(at.UnixMilli())
	sig := id.Sign(headerText(relayKey, method, target, []byte(body), stamp, nonce))
	return fmt.Sprintf("Sotto key=%s,ts=%s,nonce=%x,sig=%x", id, stamp, nonce, sig)
}

// pending returns what is stored for a key, leased blobs aside.
func (r *rig) pending(id *crypto.Identity) (s []string) {
	r.t.Helper()
	for e, err := range r.server.Inbox.Entries(context.Background(), address(id.Public()), 0) {
		require.NoError(r.t, err)
		s = append(s, string(e.Data))
	}
	return s
}

// taken returns how much is taken of a share, and by how many.
func (s *share[User]) taken() (sum int64, users int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sum, len(s.used)
}

// requireFree holds that nothing is taken.
func requireFree[User comparable](t testing.TB, s *share[User]) {
	t.Helper()
	sum, users := s.taken()
	require.Zero(t, sum)
	require.Zero(t, users)
}

var errTest = errors.New("test")
