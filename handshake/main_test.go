package handshake

import (
	"bytes"
	"errors"
	"io"
	"testing"

	"github.com/sotto-relay/sotto/crypto"
	"github.com/sotto-relay/sotto/frame"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// testIdentity returns identity number n.
func testIdentity(t testing.TB, n byte) *crypto.Identity {
	t.Helper()
	return identityFromSeed(t, bytes.Repeat([]byte{n}, 32))
}

func identityFromSeed(t testing.TB, seed []byte) *crypto.Identity {
	t.Helper()
	id, err := crypto.IdentityFromSeed(seed)
	require.NoError(t, err)
	return id
}

// decode returns the frame that f is on the wire, so that nothing is shared with
// the machine that made it.
func decode(t testing.TB, b []byte) *frame.Brep {
	t.Helper()
	f, err := frame.DecodeBrep(b)
	require.NoError(t, err)
	return &f
}

func clone(t testing.TB, f *frame.Brep) *frame.Brep {
	t.Helper()
	return decode(t, f.Append(nil))
}

// random returns a source of exactly these bytes.
func random(parts ...[]byte) io.Reader { return bytes.NewReader(bytes.Join(parts, nil)) }

type failingReader struct{}

var errRandom = errors.New("out of order")

func (failingReader) Read([]byte) (int, error) { return 0, errRandom }

// A machine is any of the three.
type machine interface {
	Receive(*frame.Brep) (*frame.Brep, error)
}

// must has m take f and returns the reply.
func must(t testing.TB, m machine, f *frame.Brep) *frame.Brep {
	t.Helper()
	reply, err := m.Receive(clone(t, f))
	require.NoError(t, err)
	if reply == nil {
		return nil
	}
	return clone(t, reply)
}

func requireCode(t testing.TB, want frame.Code, err error) {
	t.Helper()
	var e *Error
	require.ErrorAs(t, err, &e)
	require.Equal(t, want, e.Code, "%v", err)
}

func newAcceptor(t testing.TB, cfg *AcceptorConfig) *Acceptor {
	t.Helper()
	a, err := NewAcceptor(cfg)
	require.NoError(t, err)
	return a
}

func newDialler(t testing.TB, cfg *DiallerConfig) *Dialler {
	t.Helper()
	d, err := NewDialler(cfg)
	require.NoError(t, err)
	return d
}

func admitAll(crypto.PublicKey) bool { return true }

func requireNoPeer(t testing.TB, a *Acceptor) {
	t.Helper()
	_, ok := a.Peer()
	require.False(t, ok)
	require.False(t, a.Done())
}
