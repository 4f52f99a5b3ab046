package ws

import (
	"net"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sotto-relay/sotto/transport"
	"github.com/sotto-relay/sotto/transport/transporttest"
)

func TestConn(t *testing.T) {
	for name, test := range map[string]struct {
		secure bool
		wrap   func(net.Listener) net.Listener
	}{
		"tcp":       {},
		"tls":       {secure: true},
		"segmented": {wrap: func(l net.Listener) net.Listener { return segmented{l} }},
	} {
		t.Run(name, func(t *testing.T) {
			transporttest.Run(t, transporttest.Traits{}, func(t *testing.T) (a, b transport.Conn) {
				return connect(t, test.secure, test.wrap, nil, nil)
			})
		})
	}
}

// segmented accepts connections that read a byte at a time, for the first bytes.
type segmented struct{ net.Listener }

func (l segmented) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &segmentedConn{Conn: c}, nil
}

type segmentedConn struct {
	net.Conn
	reads int
}

func (c *segmentedConn) Read(b []byte) (int, error) {
	if c.reads++; c.reads < 20_000 {
		b = b[:min(1, len(b))]
	}
	return c.Conn.Read(b)
}

// TestIdleHoldsNothing looks for buffers after a large message, once Read has
// waited.
func TestIdleHoldsNothing(t *testing.T) {
	client, server := connect(t, false, nil, nil, nil)
	go send(client, transport.Binary, make([]byte, 1<<20))
	_, msg, err := server.Read()
	require.NoError(t, err)
	require.Len(t, msg, 1<<20)
	server.SetReadDeadline(time.Now().Add(time.Millisecond))
	_, _, err = server.Read()
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)
	assert.Nil(t, server.in.msg)
	assert.Nil(t, server.in.B)
}
