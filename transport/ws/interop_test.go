package ws

import (
	"net/http"
	"strings"
	"testing"

	"github.com/gorilla/websocket"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sotto-relay/sotto/transport"
)

// TestGorillaClient has a client of another make, which would compress and
// whose small buffer makes fragments.
func TestGorillaClient(t *testing.T) {
	ended := make(chan error, 1)
	url := serve(t, false, nil, Handler(echo(ended), nil))
	d := websocket.Dialer{EnableCompression: true, WriteBufferSize: 100}
	c, _, err := d.DialContext(t.Context(), url, nil)
	require.NoError(t, err)
	defer c.Close()
	for _, size := range []int{0, 1, 99, 100, 125, 126, 1000, 65535, 65536, 300_000} {
		for _, kind := range []int{websocket.TextMessage, websocket.BinaryMessage} {
			want := strings.Repeat("x", size)
			require.NoError(t, c.WriteMessage(kind, []byte(want)))
			k, got, err := c.ReadMessage()
			require.NoError(t, err)
			assert.Equal(t, kind, k)
			assert.True(t, want == string(got), "%d bytes", size)
		}
	}
	require.NoError(t, c.WriteMessage(websocket.CloseMessage, websocket.FormatCloseMessage(4001, "bye")))
	_, _, err = c.ReadMessage()
	assert.True(t, websocket.IsCloseError(err, 4001), "%v", err)
	assert.Equal(t, &transport.CloseError{Code: 4001, Reason: "bye"}, <-ended)
}

func TestGorillaServer(t *testing.T) {
	ended := make(chan error, 1)
	url := serve(t, false, nil, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, err := (&websocket.Upgrader{EnableCompression: true}).Upgrade(w, r, nil)
		if err != nil {
			ended <- err
			return
		}
		defer c.Close()
		for {
			k, b, err := c.ReadMessage()
			if err == nil {
				err = c.WriteMessage(k, b)
			}
			if err != nil {
				ended <- err
				return
			}
		}
	}))
	c, err := Dialer(url, nil)(t.Context())
	require.NoError(t, err)
	for _, size := range []int{0, 1, 125, 126, 1000, 65535, 65536, 300_000} {
		for _, kind := range []transport.Kind{transport.Text, transport.Binary} {
			want := strings.Repeat("x", size)
			require.NoError(t, send(c, kind, []byte(want)))
			k, got, err := c.Read()
			require.NoError(t, err)
			assert.Equal(t, kind, k)
			assert.True(t, want == string(got), "%d bytes", size)
		}
	}
	c.Close(transport.CloseGoingAway, "bye")
	assert.True(t, websocket.IsCloseError(<-ended, websocket.CloseGoingAway))
}
