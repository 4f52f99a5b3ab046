package ws

import (
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/sotto-relay/sotto/transport"
)

// TestTrustedProxies sends the headers that proxies send.
func TestTrustedProxies(t *testing.T) {
	const headers = "X-Forwarded-For: 192.0.2.7, 192.0.2.1\r\nX-Forwarded-Host: evil.example\r\nX-Real-Ip: 192.0.2.8\r\nForwarded: for=192.0.2.9\r\n"
	for prefix, want := range map[string]string{"127.0.0.0/8": "192.0.2.1:0", "10.0.0.0/8": "127.0.0.1:"} {
		accepted := make(chan transport.Conn, 1)
		h := Handler(transport.HandlerFunc(func(c transport.Conn) { accepted <- c }),
			&Options{TrustedProxies: []netip.Prefix{netip.MustParsePrefix(prefix)}})
		_, resp := tryWire(t, serve(t, false, nil, h), request+headers+"\r\n")
		assert.Equal(t, http.StatusSwitchingProtocols, resp.StatusCode)
		c := <-accepted
		assert.True(t, strings.HasPrefix(c.RemoteAddr().String(), want), "%v", c.RemoteAddr())
		assert.Equal(t, "relay.example", c.Value(RequestKey).(*http.Request).Host)
		c.Close(transport.CloseNormal, "")
	}
}
