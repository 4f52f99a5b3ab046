package ws

import (
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/sotto-relay/sotto/transport"
)

// A doorman turns everybody away, and notes whom.
type doorman struct {
	t     *testing.T
	asked []string
}

func (d *doorman) Admit(a net.Addr) error {
	d.asked = append(d.asked, a.String())
	return errors.New("full")
}

func (d *doorman) HandleConn(c transport.Conn) {
	d.t.Error("let in")
	c.Close(transport.CloseNormal, "")
}

func TestAdmit(t *testing.T) {
	d := &doorman{t: t}
	h := Handler(d, &Options{TrustedProxies: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}})
	for _, remote := range []string{"192.0.2.1:1234", "198.51.100.1:1234"} {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.RemoteAddr = remote
		r.Header.Set("X-Forwarded-For", "203.0.113.9")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		assert.Equal(t, http.StatusServiceUnavailable, w.Code)
		assert.NotEmpty(t, w.Header().Get("Retry-After"))
	}
	assert.Equal(t, []string{"203.0.113.9:0", "198.51.100.1:1234"}, d.asked)
}

func TestToken(t *testing.T) {
	for _, c := range []struct {
		query  string
		header []string
		want   any
	}{
		{"", nil, nil},
		{"", []string{"Bearer abc"}, "abc"},
		{"", []string{"bearer  abc "}, "abc"},
		{"", []string{"Basic abc"}, nil},
		{"", []string{"Bearer"}, nil},
		{"access_token=a%2Fb", nil, "a/b"},
		{"access_token=a&access_token=b", nil, nil},
		{"access_token=a", []string{"Bearer b"}, nil},
		{"", []string{"Bearer a", "Bearer b"}, nil},
	} {
		r := &http.Request{URL: &url.URL{RawQuery: c.query}, Header: http.Header{"Authorization": c.header}}
		assert.Equal(t, c.want, (&conn{request: r}).Value(transport.TokenKey), "%+v", c)
	}
	assert.Nil(t, (&conn{}).Value(transport.TokenKey))
}
