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
		"segmented": {wrap: transporttest.Segmented},
	} {
		t.Run(name, func(t *testing.T) {
			transporttest.Run(t, transporttest.Traits{}, func(t *testing.T) (a, b transport.Conn) {
				return connect(t, test.secure, test.wrap, nil, nil)
			})
		})
	}
}

// TestPingsAfterDeadline has peers whose last write was long ago.
func TestPingsAfterDeadline(t *testing.T) {
	for name, secure := range map[string]bool{"tcp": false, "tls": true} {
		t.Run(name, func(t *testing.T) {
			client, server := connect(t, secure, nil, nil, nil)
			client.SetWriteDeadline(time.Now().Add(-time.Minute))
			server.SetWriteDeadline(time.Now().Add(-time.Minute))
			go client.Read()
			go server.Read()
			heard := server.lastIn.Load()
			server.w.queue.addPing()
			server.flushControls()
			assert.Eventually(t, func() bool { return server.lastIn.Load() > heard }, 10*time.Second, time.Millisecond, "a pong")
		})
	}
}

// TestIdleHoldsNothing looks for buffers after a large message, once Read has
// waited.
func TestIdleHoldsNothing(t *testing.T) {
	client, server := connect(t, false, nil, nil, nil)
	go send(client, transport.Binary, make([]byte, 1<<20))
	_, msg, err := server.Read()
	require.NoError(t, err)
	require.Len(t, msg, 1<<20)
	server.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
	_, _, err = server.Read()
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)
	assert.Nil(t, server.in.msg)
	assert.Nil(t, server.in.B)
}
