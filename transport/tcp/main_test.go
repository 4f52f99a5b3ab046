package tcp

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"errors"
	"math/big"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/sotto-relay/sotto/frame"
	"github.com/sotto-relay/sotto/transport"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	errLong = errors.New("message too large")
)

// A prefixed stream has a big-endian u32 length before each message.
type prefixed struct{}

func (prefixed) Next(b []byte, max int) (skip, n int, err error) {
	if len(b) < 4 {
		return 0, 0, nil
	}
	size := binary.BigEndian.Uint32(b)
	switch {
	case size == 0:
		return 4, 0, transport.ErrEmpty
	case uint64(size) > uint64(max):
		return 4, int(size), errLong
	case int(size) > len(b)-4:
		return 0, 0, nil
	}
	return 4, int(size), nil
}

func (prefixed) Head(dst []byte, n int) []byte { return binary.BigEndian.AppendUint32(dst, uint32(n)) }

// brep frames delimit themselves.
type brep struct{}

func (brep) Next(b []byte, max int) (skip, n int, err error) { return frame.NextBrep(b, max) }
func (brep) Head(dst []byte, _ int) []byte                   { return dst }

// newCertificate is good for "a.example" and 127.0.0.1.
func newCertificate(t testing.TB) (server, client *tls.Config) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		NotAfter:              time.Now().Add(time.Hour),
		DNSNames:              []string{"a.example"},
		IPAddresses:           []net.IP{net.IPv4(127, 0, 0, 1)},
		IsCA:                  true,
		BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	require.NoError(t, err)
	leaf, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	pool := x509.NewCertPool()
	pool.AddCert(leaf)
	return &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}, &tls.Config{RootCAs: pool}
}

// listen returns a listener on loopback and its address.
func listen(t testing.TB, wrap func(net.Listener) net.Listener, f transport.Framing, o *Options) (transport.Listener, string) {
	nl, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	if wrap != nil {
		nl = wrap(nl)
	}
	l := NewListener(nl, f, o)
	t.Cleanup(func() { l.Close() })
	return l, l.Addr().String()
}

// connect returns the two ends of a connection over loopback.
func connect(t testing.TB, secure bool, wrap func(net.Listener) net.Listener, f transport.Framing) (client, server *conn) {
	var o Options
	var do DialOptions
	if secure {
		o.TLS, do.TLS = newCertificate(t)
	}
	l, address := listen(t, wrap, f, &o)
	dialled := make(chan transport.Conn, 1)
	go func() {
		c, err := Dialer(address, f, &do)(t.Context())
		if err != nil {
			t.Error(err)
			l.Close()
		}
		dialled <- c
	}()
	s, err := l.Accept()
	require.NoError(t, err)
	c := <-dialled
	t.Cleanup(func() {
		c.Close(transport.CloseNormal, "")
		s.Close(transport.CloseNormal, "")
	})
	return c.(*conn), s.(*conn)
}

// wire returns a client that is not ours and the server's end.
func wire(t testing.TB, f transport.Framing, o *Options) (net.Conn, *conn) {
	l, address := listen(t, nil, f, o)
	c, err := net.Dial("tcp", address)
	require.NoError(t, err)
	c.SetDeadline(time.Now().Add(10 * time.Second)) // a test that fails must not hang
	s, err := l.Accept()
	require.NoError(t, err)
	t.Cleanup(func() {
		c.Close()
		s.Close(0, "")
	})
	return c, s.(*conn)
}

func send(c transport.Conn, msgs ...[]byte) error {
	for len(msgs) > 0 {
		n, err := c.Write(transport.Binary, msgs)
		if err != nil {
			return err
		}
		msgs = msgs[n:]
	}
	return nil
}
