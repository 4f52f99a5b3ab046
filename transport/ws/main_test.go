package ws

import (
	"crypto/tls"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/sotto-relay/sotto/transport"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// serve starts a server with handler and returns its ws or wss URL.
func serve(t testing.TB, secure bool, wrap func(net.Listener) net.Listener, handler http.Handler) string {
	s := httptest.NewUnstartedServer(handler)
	if wrap != nil {
		s.Listener = wrap(s.Listener)
	}
	scheme := "ws://"
	if secure {
		s.StartTLS()
		scheme = "wss://"
	} else {
		s.Start()
	}
	t.Cleanup(s.Close)
	return scheme + s.Listener.Addr().String()
}

// connect returns the two ends of a connection over loopback.
func connect(t testing.TB, secure bool, wrap func(net.Listener) net.Listener, so *Options, do *DialOptions) (client, server *conn) {
	accepted := make(chan transport.Conn, 1)
	url := serve(t, secure, wrap, Handler(transport.HandlerFunc(func(c transport.Conn) { accepted <- c }), so))
	if do == nil {
		do = &DialOptions{}
	}
	do.TLS = &tls.Config{InsecureSkipVerify: true}
	c, err := Dialer(url, do)(t.Context())
	require.NoError(t, err)
	s := <-accepted
	t.Cleanup(func() {
		c.Close(transport.CloseNormal, "")
		s.Close(transport.CloseNormal, "")
	})
	return c.(*conn), s.(*conn)
}
