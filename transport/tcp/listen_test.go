package tcp

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sotto-relay/sotto/internal/acceptor"
	"github.com/sotto-relay/sotto/transport"
)

func TestValue(t *testing.T) {
	client, server := connect(t, true, nil, prefixed{})
	for _, c := range []*conn{client, server} {
		assert.True(t, c.Value(TLSKey).(*tls.ConnectionState).HandshakeComplete)
		assert.Nil(t, c.Value("something else"))
		assert.Equal(t, "tcp", c.RemoteAddr().Network())
	}
	_, server = connect(t, false, nil, prefixed{})
	assert.Nil(t, server.Value(TLSKey))
}

// TestHandshakes has strangers that say nothing, or nonsense, beside a client.
func TestHandshakes(t *testing.T) {
	server, client := newCertificate(t)
	refused := make(chan error, 100)
	l, address := listen(t, nil, prefixed{}, &Options{
		TLS:        server,
		Handshakes: 5,
		Refused:    func(_ net.Addr, err error) { refused <- err },
	})
	accepted := make(chan transport.Conn, 10)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				close(accepted)
				return
			}
			accepted <- c
		}
	}()
	silent := make([]net.Conn, 5)
	for i := range silent {
		c, err := net.Dial("tcp", address)
		require.NoError(t, err)
		defer c.Close()
		silent[i] = c
	}
	nonsense, err := net.Dial("tcp", address)
	require.NoError(t, err)
	defer nonsense.Close()
	_, err = io.WriteString(nonsense, "GET / HTTP/1.1\r\n\r\n")
	require.NoError(t, err)
	io.Copy(io.Discard, nonsense)
	assert.Equal(t, acceptor.ErrCrowded, <-refused, "the oldest")
	assert.NotEqual(t, acceptor.ErrCrowded, <-refused, "nonsense")

	c, err := Dialer(address, prefixed{}, &DialOptions{TLS: client})(t.Context())
	require.NoError(t, err)
	defer c.Close(0, "")
	s := <-accepted
	defer s.Close(0, "")
	go send(s, []byte("hello"))
	_, b, err := c.Read()
	require.NoError(t, err)
	assert.Equal(t, "hello", string(b))

	require.NoError(t, l.Close())
	_, open := <-accepted
	assert.False(t, open)
	for _, c := range silent {
		io.Copy(io.Discard, c) // closed
	}
	_, err = l.Accept()
	assert.ErrorIs(t, err, net.ErrClosed)
}

func TestDial(t *testing.T) {
	server, client := newCertificate(t)
	l, address := listen(t, nil, prefixed{}, &Options{TLS: server})
	go func() {
		for c, err := l.Accept(); err == nil; c, err = l.Accept() {
			c.Close(0, "")
		}
	}()
	for name, o := range map[string]*DialOptions{
		"unknown authority": {TLS: &tls.Config{}},
		"other name":        {TLS: &tls.Config{RootCAs: client.RootCAs, ServerName: "b.example"}},
		"no connection": {Dial: func(context.Context, string, string) (net.Conn, error) {
			return nil, io.ErrUnexpectedEOF
		}},
	} {
		c, err := Dialer(address, prefixed{}, o)(t.Context())
		assert.Nil(t, c, name)
		assert.ErrorContains(t, err, address, name)
	}
	o := &DialOptions{TLS: &tls.Config{RootCAs: client.RootCAs, ServerName: "a.example"}}
	c, err := Dialer(address, prefixed{}, o)(t.Context())
	require.NoError(t, err)
	c.Close(0, "")
}

// TestDialContext ends the context of a handshake that hangs.
func TestDialContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, server := net.Pipe()
		go io.Copy(io.Discard, server)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err := Dialer("a.example:1", prefixed{}, &DialOptions{
			TLS:  &tls.Config{},
			Dial: func(context.Context, string, string) (net.Conn, error) { return client, nil },
		})(ctx)
		assert.ErrorIs(t, err, context.DeadlineExceeded)
		_, err = client.Read(nil)
		assert.ErrorIs(t, err, io.ErrClosedPipe, "left open")
		server.Close()
	})
}
