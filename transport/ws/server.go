package ws

import (
	"bufio"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"sync"

	"github.com/gorilla/websocket"

	"github.com/sotto-relay/sotto/internal/netaddr"
	"github.com/sotto-relay/sotto/internal/stream"
	"github.com/sotto-relay/sotto/transport"
)

// Options are for a Handler. The zero value is safe on the open internet.
type Options struct {
	ConnOptions

	// Origins, if not empty, are the origins that browsers may connect from, as
	// "https://example.org" or "http://example.org:8080". They match the
	// Origin header by scheme, host (in any case) and port. One without a scheme
	// matches none, and there are no wildcards. A request without the header, as
	// programs send it, is let in: it is not a browser's.
	Origins []string

	// Subprotocols are offered to the client: the first that it asked for is
	// agreed on, or else none is.
	Subprotocols []string

	// TrustedProxies are believed what they say of their clients, in
	// X-Forwarded-For: RemoteAddr of the Conn is then the last address there that
	// is not of a trusted proxy, with port 0 if none is named. From all others
	// the header means nothing. No other header of the kind is looked at.
	TrustedProxies []netip.Prefix
}

// Handler returns a handler that upgrades requests and gives the connections to
// h, each on a goroutine of its own. It may be mounted at any path of any mux;
// o may be nil.
//
// A request that is no upgrade to RFC 6455 over HTTP/1.1 is refused. The
// compression extension is never agreed to. How long a client may take to send
// its request, and how long it may be, is the http.Server's to bound
// (ReadHeaderTimeout, MaxHeaderBytes).
//
// A handler that is a [transport.Admitter] is asked before the upgrade, and what
// it would turn away is answered 503 with Retry-After. The token that a request
// presents (Authorization: Bearer, or access_token in the query) is the Conn's
// value for [transport.TokenKey].
//
// The Conn is a [transport.TryWriter] and a [transport.Batcher]. The goroutine
// and the buffers of net/http are let go before h is called; so a panic in h is
// not recovered.
func Handler(h transport.Handler, o *Options) http.Handler {
	if o == nil {
		o = &Options{}
	}
	s := &server{handler: h, options: o.ConnOptions.withDefaults(), trusted: o.TrustedProxies}
	s.upgrader = websocket.Upgrader{
		ReadBufferSize:  1,              // gorilla only shakes hands: nothing is read through it,
		WriteBufferPool: new(sync.Pool), // nor written
		Subprotocols:    o.Subprotocols,
		CheckOrigin:     func(*http.Request) bool { return true }, // done before
	}
	if len(o.Origins) > 0 {
		s.origins = make(map[string]bool)
		for _, origin := range o.Origins {
			if o, ok := normalOrigin(origin); ok {
				s.origins[o] = true
			}
		}
	}
	return s
}

type server struct {
	handler  transport.Handler
	options  ConnOptions
	upgrader websocket.Upgrader
	origins  map[string]bool // nil: any
	trusted  []netip.Prefix
	pools    stream.Pools
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.ProtoMajor != 1 || r.ProtoMinor == 0 {
		http.Error(w, "a WebSocket needs HTTP/1.1", http.StatusHTTPVersionNotSupported)
		return
	}
	if status := s.checkOrigin(r.Header["Origin"]); status != http.StatusOK {
		http.Error(w, "origin not allowed", status)
		return
	}
	if a, ok := s.handler.(transport.Admitter); ok {
		remote := peerAddr(r)
		if client := netaddr.Forwarded(remote, r.Header["X-Forwarded-For"], s.trusted); client != nil {
			remote = client
		}
		if a.Admit(remote) != nil {
			w.Header().Set("Retry-After", "1")
			http.Error(w, "try again later", http.StatusServiceUnavailable)
			return
		}
	}
	g, err := s.upgrader.Upgrade(hijacker{w}, r, nil)
	if err != nil {
		return // the client was answered
	}
	c := newConn(g.NetConn(), false, &s.options, &s.pools, nil)
	c.proto = g.Subprotocol()
	c.remote = netaddr.Forwarded(g.NetConn().RemoteAddr(), r.Header["X-Forwarded-For"], s.trusted)
	// Without what holds on to the buffers of net/http.
	c.request = &http.Request{
		Method:     r.Method,
		URL:        r.URL,
		Proto:      r.Proto,
		ProtoMajor: r.ProtoMajor,
		ProtoMinor: r.ProtoMinor,
		Header:     r.Header,
		Host:       r.Host,
		RemoteAddr: r.RemoteAddr,
		RequestURI: r.RequestURI,
	}
	go s.handler.HandleConn(c)
}

// peerAddr is the network address that a request came from, nil if that is none
// of IP.
func peerAddr(r *http.Request) net.Addr {
	a, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return nil
	}
	return net.TCPAddrFromAddrPort(a)
}

// bearer returns the token that a request presents (RFC 6750, sections 2.1 and
// 2.3; browsers can set no header): empty for none, or for more than one.
func bearer(r *http.Request) string {
	tokens := r.URL.Query()["access_token"]
	for _, v := range r.Header["Authorization"] {
		if scheme, token, ok := strings.Cut(v, " "); ok && strings.EqualFold(scheme, "Bearer") {
			tokens = append(tokens, strings.TrimSpace(token))
		}
	}
	if len(tokens) != 1 {
		return ""
	}
	return tokens[0]
}

// A hijacker finds the connection below what middleware puts around a
// ResponseWriter.
type hijacker struct{ http.ResponseWriter }

func (h hijacker) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return http.NewResponseController(h.ResponseWriter).Hijack()
}

func (s *server) checkOrigin(values []string) (status int) {
	switch {
	case len(values) > 1:
		return http.StatusBadRequest
	case len(values) == 0 || s.origins == nil:
		return http.StatusOK
	}
	if o, ok := normalOrigin(values[0]); !ok || !s.origins[o] {
		return http.StatusForbidden
	}
	return http.StatusOK
}

// normalOrigin returns an origin (RFC 6454, section 6.2) in lower case with its
// port.
func normalOrigin(s string) (string, bool) {
	u, err := url.Parse(s)
	if err != nil || u.Hostname() == "" || u.User != nil || u.Path != "" || u.RawQuery != "" || u.Fragment != "" {
		return "", false
	}
	port := u.Port()
	if port == "" {
		switch u.Scheme {
		case "http":
			port = "80"
		case "https":
			port = "443"
		}
	}
	return u.Scheme + "://" + strings.ToLower(u.Hostname()) + ":" + port, true
}
