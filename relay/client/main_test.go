package client

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/sotto-relay/sotto/crypto"
	"github.com/sotto-relay/sotto/frame"
	"github.com/sotto-relay/sotto/handshake"
	"github.com/sotto-relay/sotto/inbox"
	"github.com/sotto-relay/sotto/internal/race"
	"github.com/sotto-relay/sotto/relay"
	"github.com/sotto-relay/sotto/relay/dialect/brep"
	"github.com/sotto-relay/sotto/transport"
	"github.com/sotto-relay/sotto/transport/pipe"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(s)
	require.NoError(t, err)
	return b
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

const relaySeed = 200

var errDown = errors.New("nobody listens")

// A rig is a relay that can be killed and started again with the same inbox.
type rig struct {
	t       testing.TB
	dialect brep.Dialect
	store   inbox.Store // nil: none
	state   inbox.State // nil: each start has its own
	limits  relay.Limits
	policy  relay.Policy
	pipes   pipe.Options

	mu     sync.Mutex
	server *relay.Server // nil: down
	dials  int
	conns  []transport.Conn // the clients' ends
}

func newRig(t testing.TB) *rig {
	r := &rig{t: t, dialect: brep.Dialect{Identity: identity(t, relaySeed)}, store: inbox.NewMemory(nil)}
	t.Cleanup(r.stop)
	return r
}

func (r *rig) start() *rig {
	s := &relay.Server{Inbox: r.store, State: r.state, Limits: r.limits, Policy: r.policy, Logger: slog.New(slog.DiscardHandler)}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.server = s
	return r
}

func (r *rig) stop() {
	r.mu.Lock()
	s := r.server
	r.server = nil
	r.mu.Unlock()
	if s != nil {
		_ = s.Close()
	}
}

// skip sleeps without the relay, whose own doings take too long when days go by.
func (r *rig) skip(d time.Duration) {
	r.stop()
	time.Sleep(d - time.Minute)
	r.start()
	time.Sleep(time.Minute)
}

// few returns n, or a quarter with the race detector.
func few(n int) int {
	if race.Enabled {
		return n / 4
	}
	return n
}

// skipInRace skips a test that takes long with the race detector, and does at once no
// more than others do.
func skipInRace(t *testing.T) {
	if race.Enabled {
		t.Skip("long, and no race that others have not")
	}
}

// dial is a transport.Dialer.
func (r *rig) dial(context.Context) (transport.Conn, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.dials++
	if r.server == nil {
		return nil, errDown
	}
	near, far := r.pipes.New()
	r.conns = append(r.conns, near)
	r.server.Speak(r.dialect).HandleConn(far)
	return near, nil
}

func (r *rig) dialled() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.dials
}

// client returns a Client that is logged in, unless set has it start offline.
func (r *rig) client(id *crypto.Identity, set func(*Config)) *Client {
	r.t.Helper()
	cfg := &Config{Identity: id, Dial: r.dial, Logger: slog.New(slog.DiscardHandler)}
	if set != nil {
		set(cfg)
	}
	c, err := New(r.t.Context(), cfg)
	require.NoError(r.t, err)
	r.t.Cleanup(func() { _ = c.Close() })
	return c
}

// opener returns what opens for somebody without a relay.
func testOpener(t testing.TB, id *crypto.Identity) *opener {
	t.Helper()
	keys, err := newKeyring(t.Context(), id, nil, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	return &opener{id, keys}
}

// next returns the next letter.
func next(t testing.TB, c *Client) *Letter {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	for l, err := range c.Messages(ctx) {
		require.NoError(t, err)
		return l
	}
	return nil
}

// none makes sure that there is no letter.
func none(t testing.TB, c *Client) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for l, err := range c.Messages(ctx) {
		require.ErrorIs(t, err, context.DeadlineExceeded, "%+v", l)
	}
}

// send sends a text.
func send(t testing.TB, c *Client, to *crypto.Identity, text string, o ...SendOption) Receipt {
	t.Helper()
	r, err := c.Send(t.Context(), to.Public(), Text(text), o...)
	require.NoError(t, err)
	return r
}

// A fakeRelay is a relay by hand. Each connection runs script after the
// handshake, and is closed when that returns.
type fakeRelay struct {
	t      testing.TB
	seed   byte
	legacy bool
	script func(*fakeConn)

	running sync.WaitGroup
	mu      sync.Mutex
	dials   []time.Time
}

// A fakeConn is a fakeRelay's end of a connection.
type fakeConn struct {
	*fakeRelay
	transport.Conn
	n int // of the connection, from 0
}

func (r *fakeRelay) dial(context.Context) (transport.Conn, error) {
	near, far := pipe.New()
	r.mu.Lock()
	c := &fakeConn{r, far, len(r.dials)}
	r.dials = append(r.dials, time.Now())
	r.mu.Unlock()
	r.running.Go(func() {
		defer far.Close(0, "")
		if c.login() {
			r.script(c)
		}
	})
	return near, nil
}

func (r *fakeRelay) dialled() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.dials)
}

func (c *fakeConn) login() bool {
	a, err := handshake.NewAcceptor(&handshake.AcceptorConfig{Identity: identity(c.t, c.seed)})
	require.NoError(c.t, err)
	challenge := a.Challenge()
	if c.legacy {
		challenge.Sender = [32]byte{}
	}
	c.write(challenge)
	answer, err := c.read()
	if err != nil {
		return false
	}
	confirmation, err := a.Receive(&answer)
	require.NoError(c.t, err)
	c.write(confirmation)
	return true
}

func (c *fakeConn) write(f *frame.Brep) { c.writeBytes(f.Append(nil)) }

func (c *fakeConn) writeBytes(b []byte) { _, _ = c.Write(transport.Binary, [][]byte{b}) }

// read returns the next frame but for requests that a Client makes by itself.
func (c *fakeConn) read() (frame.Brep, error) {
	for {
		f, err := c.readAny()
		if err != nil || f.Type != frame.TypeRequest || !c.answerOwn(f.Payload) {
			return f, err
		}
	}
}

func (c *fakeConn) readAny() (frame.Brep, error) {
	_, b, err := c.Read()
	if err != nil {
		return frame.Brep{}, err
	}
	return frame.DecodeBrep(bytes.Clone(b))
}

// answerOwn answers a request that a Client makes by itself, as a relay does that has
// no cards and is in no mesh.
func (c *fakeConn) answerOwn(request []byte) bool {
	q := readRequest(c.t, request)
	switch q.Verb {
	case "put_card":
		c.answer(frame.AppendResponse(nil, q.Number, frame.AppendDone(nil, q.Verb)))
	case "get_card":
		c.answer(frame.AppendRefusal(nil, q.Number, frame.CodeNotFound, ""))
	case "attach":
		c.answer(frame.AppendRefusal(nil, q.Number, frame.CodeUnknownVerb, ""))
	default:
		return false
	}
	return true
}

// A fakeRequest is a REQUEST as a fakeRelay reads it.
type fakeRequest struct {
	Verb   string `json:"t"`
	Number int64  `json:"req"`
	Key    string
	Card   []byte
}

func readRequest(t testing.TB, payload []byte) (q fakeRequest) {
	require.NoError(t, json.Unmarshal(payload, &q))
	return q
}

func (c *fakeConn) answer(response []byte) {
	c.write(&frame.Brep{Type: frame.TypeResponse, Payload: response})
}

func (c *fakeConn) fail(code frame.Code, closeCode uint16) {
	e := frame.Error{Code: code, Sentence: code.String()}
	c.write(&frame.Brep{Type: frame.TypeError, Payload: e.Append(nil)})
	_ = c.Close(closeCode, code.String())
}

func (c *fakeConn) receipt(r *frame.Receipt) {
	c.write(&frame.Brep{Type: frame.TypeReceipt, Payload: r.Append(nil)})
}

// hold reads until the client goes.
func (c *fakeConn) hold() {
	for {
		if _, err := c.read(); err != nil {
			return
		}
	}
}

// client returns a Client of the fake relay's.
func (r *fakeRelay) client(set func(*Config)) (*Client, error) {
	cfg := &Config{
		Identity: identity(r.t, 1), Dial: r.dial, AllowLegacy: r.legacy,
		Logger: slog.New(slog.DiscardHandler),
	}
	if set != nil {
		set(cfg)
	}
	c, err := New(r.t.Context(), cfg)
	r.t.Cleanup(func() {
		if c != nil {
			_ = c.Close()
		}
		r.running.Wait()
	})
	return c, err
}

// A cutConn breaks before one of its next writes or reads, by chance.
type cutConn struct {
	transport.Conn
	mu   sync.Mutex
	left int
}

// cutting returns a Dialer whose connections break after up to most operations,
// until stop says so.
func cutting(dial transport.Dialer, random *rand.Rand, most int, stop func() bool) transport.Dialer {
	var mu sync.Mutex
	return func(ctx context.Context) (transport.Conn, error) {
		c, err := dial(ctx)
		if err != nil || stop() {
			return c, err
		}
		mu.Lock()
		defer mu.Unlock()
		return &cutConn{Conn: c, left: 1 + random.IntN(most)}, nil
	}
}

func (c *cutConn) cut() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.left--
	if c.left > 0 {
		return false
	}
	_ = c.Close(0, "")
	return true
}

func (c *cutConn) Read() (transport.Kind, []byte, error) {
	k, b, err := c.Conn.Read()
	if c.cut() {
		return 0, nil, net.ErrClosed
	}
	return k, b, err
}

func (c *cutConn) Write(k transport.Kind, msgs [][]byte) (int, error) {
	if c.cut() {
		return 0, net.ErrClosed
	}
	return c.Conn.Write(k, msgs)
}

// bubble runs f in a synctest bubble with a relay that is up.
func bubble(t *testing.T, f func(t *testing.T, r *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(t, newRig(t).start()) })
}
