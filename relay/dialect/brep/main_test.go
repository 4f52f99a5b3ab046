package brep

import (
	"bytes"
	"context"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/sotto-relay/sotto/crypto"
	"github.com/sotto-relay/sotto/frame"
	"github.com/sotto-relay/sotto/relay"
	"github.com/sotto-relay/sotto/transport"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// identity returns identity number n.
func identity(t testing.TB, n byte) *crypto.Identity {
	t.Helper()
	id, err := crypto.IdentityFromSeed(bytes.Repeat([]byte{n}, 32))
	require.NoError(t, err)
	return id
}

const relaySeed = 200 // of the relay under test

// A rig is a relay that speaks brep, and keeps hold of its sessions.
type rig struct {
	t       testing.TB
	bubbled bool // the test is in a synctest bubble
	server  *relay.Server
	Dialect

	mu       sync.Mutex
	came     sync.Cond // on mu: a session has been added
	sessions []*session
}

// newRig returns a rig that is closed with the test. set may be nil.
func newRig(t testing.TB, set func(*rig)) *rig {
	r := &rig{
		t:       t,
		server:  &relay.Server{Logger: slog.New(slog.DiscardHandler)},
		Dialect: Dialect{Identity: identity(t, relaySeed)},
	}
	r.came.L = &r.mu
	if set != nil {
		set(r)
	}
	t.Cleanup(func() { _ = r.server.Close() })
	return r
}

// bubble runs f with a rig in a synctest bubble.
func bubble(t *testing.T, set func(*rig), f func(t *testing.T, r *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, set)
		r.bubbled = true
		f(t, r)
	})
}

// NewSession is the Dialect's, and notes the session.
func (r *rig) NewSession(p *relay.Port) (relay.Session, error) {
	s, err := r.Dialect.NewSession(p)
	if err == nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.sessions = append(r.sessions, s.(*session))
		r.came.Broadcast()
	}
	return s, err
}

func (r *rig) session(i int) *session {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.sessions[i]
}

// take waits for the next session and removes it from those noted.
func (r *rig) take() *session {
	r.mu.Lock()
	defer r.mu.Unlock()
	for len(r.sessions) == 0 {
		r.came.Wait()
	}
	s := r.sessions[0]
	r.sessions = r.sessions[1:]
	return s
}

// dial opens a connection that has read nothing yet.
func (r *rig) dial() transport.Conn { return r.server.Dial(r) }

// login connects a client in the given form.
func (r *rig) login(id *crypto.Identity, form uint8) *peer {
	r.t.Helper()
	p, err := r.tryLogin(id, form)
	require.NoError(r.t, err)
	if r.bubbled {
		synctest.Wait() // until then what comes for them is stored
	}
	return p
}

// tryLogin connects a client. One of formLegacy is served a challenge without
// the relay's key, as from a legacy relay, so that it answers with v1.
func (r *rig) tryLogin(id *crypto.Identity, form uint8) (*peer, error) {
	conn := &tap{Conn: r.dial(), keyless: form == formLegacy}
	c, err := Connect(context.Background(), conn, &ClientOptions{Identity: id, AllowLegacy: conn.keyless})
	if err != nil {
		return nil, err
	}
	return &peer{Client: c, t: r.t, id: id, raw: conn}, nil
}

// A tap is a Conn that notes what reading ended with, and can hide the sender of
// the first message, as a legacy relay does.
type tap struct {
	transport.Conn
	keyless bool
	read    bool
	end     error
}

func (c *tap) Read() (transport.Kind, []byte, error) {
	k, msg, err := c.Conn.Read()
	if err != nil {
		c.end = err
	} else if c.keyless && !c.read {
		msg = bytes.Clone(msg)
		clear(msg[24:56])
	}
	c.read = true
	return k, msg, err
}

// A peer is a Client in a test.
type peer struct {
	*Client
	t   testing.TB
	id  *crypto.Identity
	raw *tap
}

// put writes bytes as one message, past the Client.
func (p *peer) put(k transport.Kind, msg []byte) {
	p.t.Helper()
	n, err := p.raw.Write(k, [][]byte{msg})
	require.NoError(p.t, err)
	require.Equal(p.t, 1, n)
}

// frame returns a frame of this peer's.
func (p *peer) frame(typ frame.Type, payload ...[]byte) *frame.Brep {
	return &frame.Brep{Type: typ, Sender: p.id.Public(), Payload: bytes.Join(payload, nil)}
}

// send sends as a Client does, which patches flags and id in a legacy session.
func (p *peer) send(f *frame.Brep) {
	p.t.Helper()
	require.NoError(p.t, p.Send(context.Background(), f))
}

// data sends DATA with this text.
func (p *peer) data(to *crypto.Identity, text string) {
	p.t.Helper()
	key := to.Public()
	p.send(p.frame(frame.TypeData, key[:], []byte(text)))
}

// next returns the next frame, which shares nothing with the conn.
func (p *peer) next() frame.Brep {
	p.t.Helper()
	f, err := p.Receive()
	require.NoError(p.t, err)
	f.Payload = bytes.Clone(f.Payload)
	return f
}

// text returns the text of the next frame, which is DATA.
func (p *peer) text() string {
	p.t.Helper()
	f := p.next()
	require.Equal(p.t, frame.TypeData, f.Type, "%+v", f)
	return string(f.Payload[recipientSize:])
}

// closed returns the close code that the connection ended with, and the error
// that the Client made of it.
func (p *peer) closed() (code uint16, err error) {
	p.t.Helper()
	_, err = p.Receive()
	require.Error(p.t, err)
	var ce *transport.CloseError
	require.ErrorAs(p.t, p.raw.end, &ce)
	return ce.Code, err
}

// closeOf reads until the connection ends and returns the close code.
func closeOf(t testing.TB, c transport.Conn) uint16 {
	t.Helper()
	for {
		if _, _, err := c.Read(); err != nil {
			var ce *transport.CloseError
			require.ErrorAs(t, err, &ce)
			return ce.Code
		}
	}
}

func withID(f *frame.Brep, id byte, flags uint8) *frame.Brep {
	f.ID, f.Flags = [16]byte{0: id, 15: id}, flags
	return f
}

// sealedMinSize is the least that a SEALED payload has.
const sealedMinSize = 32 + 1 + 8 + 32 + 16
