package main

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"time"

	"github.com/sotto-relay/sotto/relay/dialect/brep"
	"github.com/sotto-relay/sotto/transport"
	"github.com/sotto-relay/sotto/transport/tcp"
	"github.com/sotto-relay/sotto/transport/ws"
)

// A remote is a relay as clients reach it.
type remote struct {
	url     *url.URL
	address string // without what only the relay cares for: its name in trust
	ca      string // a file with the authorities to believe, or empty
}

// parseRemote reads the URL of a relay, which what names for the user.
func parseRemote(what, raw, ca string) (*remote, error) {
	u, err := url.Parse(raw)
	if err != nil || parameters(u.Scheme) == nil || u.Hostname() == "" || u.User != nil || u.Fragment != "" {
		return nil, fmt.Errorf("%s is no URL of a relay, such as %s: wanted are ws://, wss://, tcp:// or tls://, a host, and neither a user nor a #", what, defaultRelay)
	}
	r := &remote{url: u, ca: ca}
	if !r.isWeb() && (u.Port() == "" || u.Path != "" && u.Path != "/" || u.RawQuery != "" && u.RawQuery != "dialect=brep") {
		return nil, fmt.Errorf("%s has to be %s://HOST:PORT", what, u.Scheme)
	}
	if ca != "" && !r.isTLS() {
		return nil, fmt.Errorf("--ca is for wss:// and tls://, and %s has neither", what)
	}
	short := *u
	short.RawQuery, short.ForceQuery = "", false
	r.address = short.String()
	return r, nil
}

func (r *remote) isWeb() bool { return r.url.Scheme == "ws" || r.url.Scheme == "wss" }

func (r *remote) isTLS() bool { return r.url.Scheme == "wss" || r.url.Scheme == "tls" }

// hostPort returns where the relay listens.
func (r *remote) hostPort() string {
	port := r.url.Port()
	switch {
	case port != "":
	case r.isTLS():
		port = "443"
	default:
		port = "80"
	}
	return net.JoinHostPort(r.url.Hostname(), port)
}

// pingInterval is for client.Config: a WebSocket has pings of its own.
func (r *remote) pingInterval() time.Duration {
	if r.isWeb() {
		return 0
	}
	return streamPing
}

// dialer returns the way to the relay.
func (r *remote) dialer() (transport.Dialer, error) {
	roots, err := r.roots()
	if err != nil {
		return nil, err
	}
	config := &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
	switch r.url.Scheme {
	case "ws", "wss":
		return ws.Dialer(r.url.String(), &ws.DialOptions{TLS: config}), nil
	case "tcp":
		config = nil
	}
	return tcp.Dialer(r.hostPort(), brep.Framing{}, &tcp.DialOptions{TLS: config}), nil
}

// roots returns the authorities to believe; nil stands for those of the system.
func (r *remote) roots() (*x509.CertPool, error) {
	if r.ca == "" {
		return nil, nil
	}
	pem, err := os.ReadFile(r.ca)
	if err != nil {
		return nil, fmt.Errorf("--ca: %w", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(pem) {
		return nil, errors.New("--ca " + r.ca + " has no certificate in PEM")
	}
	return roots, nil
}

// isEncrypted says whether a connection is over TLS.
func isEncrypted(c transport.Conn) bool {
	return c.Value(ws.TLSKey) != nil || c.Value(tcp.TLSKey) != nil
}
