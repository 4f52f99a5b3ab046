package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/sotto-relay/sotto/transport/certs"
	"github.com/sotto-relay/sotto/transport/proxyproto"
	"github.com/sotto-relay/sotto/transport/udp"
)

// An endpoint is a value of --listen.
type endpoint struct {
	scheme, host string   // host has a port
	dialect      string   // of a stream; of a web server: at its root
	page         string   // a file, or empty
	cert, key    string   // likewise
	acme         []string // domains
	cache        string   // for ACME, or empty
}

func (e *endpoint) String() string { return e.scheme + "://" + e.host }

func (e *endpoint) isWeb() bool { return e.scheme == "ws" || e.scheme == "wss" }

func (e *endpoint) isTLS() bool { return e.scheme == "wss" || e.scheme == "tls" }

// parameters returns what may follow the "?" of an endpoint; nil if the scheme is
// none of ours.
func parameters(scheme string) []string {
	switch scheme {
	case "ws":
		return []string{"root", "page"}
	case "wss":
		return []string{"root", "page", "cert", "key", "acme", "cache"}
	case "tcp":
		return []string{"dialect"}
	case "tls":
		return []string{"dialect", "cert", "key", "acme", "cache"}
	case "udp":
		return []string{}
	}
	return nil
}

// spoken are the dialects that a scheme can speak, the default first.
func spoken(scheme string) []string {
	switch scheme {
	case "ws", "wss":
		return []string{"brep", "json", "blind"}
	case "tcp", "tls":
		return []string{"brep", "json"}
	}
	return []string{"json"}
}

// parseListen reads a value of --listen.
func parseListen(raw string) (*endpoint, error) {
	u, err := url.Parse(raw)
	if err != nil {
		return nil, fmt.Errorf("--listen: %q is no URL such as %s", raw, defaultRelay)
	}
	known := parameters(u.Scheme)
	switch {
	case known == nil:
		return nil, fmt.Errorf("--listen %q is no URL such as %s", u.Redacted(), defaultRelay)
	case u.Port() == "" || u.User != nil || u.Fragment != "" || u.Path != "" && u.Path != "/":
		return nil, fmt.Errorf("--listen %q has to be %s://HOST:PORT", u.Redacted(), u.Scheme)
	}
	if _, err := strconv.ParseUint(u.Port(), 10, 16); err != nil {
		return nil, fmt.Errorf("--listen %s: ports end at 65535", u)
	}
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return nil, fmt.Errorf("--listen %s: what follows the ? is not NAME=VALUE&NAME=VALUE", u)
	}
	for _, name := range slices.Sorted(maps.Keys(query)) {
		values := query[name]
		switch {
		case len(known) == 0:
			return nil, fmt.Errorf("--listen %s: %s:// takes nothing after a ?", u, u.Scheme)
		case !slices.Contains(known, name):
			return nil, fmt.Errorf("--listen %s: %s:// takes no ?%s=; the nearest is ?%s=", u, u.Scheme, name, nearest(name, known))
		case slices.Contains(values, ""):
			return nil, fmt.Errorf("--listen %s: ?%s= has no value", u, name)
		case len(values) > 1 && name != "acme":
			return nil, fmt.Errorf("--listen %s: ?%s= is there more than once", u, name)
		case (name == "root" || name == "dialect") && !slices.Contains(spoken(u.Scheme), values[0]):
			return nil, fmt.Errorf("--listen %s: %s:// speaks %s, not %q", u, u.Scheme, strings.Join(spoken(u.Scheme), ", "), values[0])
		}
	}
	e := &endpoint{
		scheme: u.Scheme, host: u.Host, page: query.Get("page"),
		dialect: cmp.Or(query.Get("root"), query.Get("dialect"), spoken(u.Scheme)[0]),
		cert:    query.Get("cert"), key: query.Get("key"), acme: query["acme"], cache: query.Get("cache"),
	}
	if err := e.checkTLS(); err != nil {
		return nil, fmt.Errorf("--listen %s: %w", u, err)
	}
	return e, nil
}

func (e *endpoint) checkTLS() error {
	hasFiles, hasACME := e.cert != "" || e.key != "", len(e.acme) > 0
	switch {
	case hasFiles && hasACME:
		return errors.New("the certificate is in files or from an authority: ?cert= and ?acme= exclude each other")
	case hasFiles && (e.cert == "" || e.key == ""):
		return errors.New("a certificate needs both, ?cert=FILE&key=FILE")
	case e.cache != "" && !hasACME:
		return errors.New("?cache= is for ?acme=")
	case e.isTLS() && !hasFiles && !hasACME:
		return errors.New("TLS needs ?cert=FILE&key=FILE, or ?acme=DOMAIN")
	}
	for _, domain := range e.acme {
		if !strings.Contains(domain, ".") || strings.ContainsAny(domain, "*:/@ ") || net.ParseIP(domain) != nil {
			return fmt.Errorf("?acme=%s is no domain such as relay.example.org", domain)
		}
	}
	return nil
}

// parseProxy reads a value of --trusted-proxy: a prefix, or one address.
func parseProxy(raw string) (netip.Prefix, error) {
	if a, err := netip.ParseAddr(raw); err == nil && a.Zone() == "" {
		return netip.PrefixFrom(a.Unmap(), a.Unmap().BitLen()), nil
	}
	p, err := netip.ParsePrefix(raw)
	switch {
	case err != nil:
		return p, fmt.Errorf("--trusted-proxy %q is no CIDR such as 10.0.0.0/8", raw)
	case p != p.Masked():
		return p, fmt.Errorf("--trusted-proxy %s has bits beyond its length: write %v, or an address", raw, p.Masked())
	case p.Bits() == 0:
		return p, fmt.Errorf("--trusted-proxy %s would believe everybody", raw)
	}
	return p, nil
}

// A listener is an endpoint that is open.
type listener struct {
	net.Listener                  // has read PROXY headers; nil: there are sockets
	sockets      []net.PacketConn // of UDP, that share a port
	*endpoint
	tls    *tls.Config    // nil: none
	page   *page          // nil: none
	reload []func() error // for SIGHUP
}

// open opens all listeners, or none.
func (s *service) open() (listeners []*listener, err error) {
	for _, e := range s.listen {
		l, err := s.openOne(e)
		if err != nil {
			closeAll(listeners)
			return nil, err
		}
		listeners = append(listeners, l)
	}
	return listeners, nil
}

func closeAll(listeners []*listener) {
	for _, l := range listeners {
		_ = l.Close()
	}
}

// Close closes what the listener has open.
func (l *listener) Close() error {
	if l.Listener != nil {
		return l.Listener.Close()
	}
	for _, s := range l.sockets {
		_ = s.Close()
	}
	return nil
}

// Addr returns what the listener is bound to.
func (l *listener) Addr() net.Addr {
	if l.Listener != nil {
		return l.Listener.Addr()
	}
	return l.sockets[0].LocalAddr()
}

func (s *service) openOne(e *endpoint) (*listener, error) {
	l := &listener{endpoint: e}
	if err := l.load(s); err != nil {
		return nil, fmt.Errorf("cannot listen on %s: %w", e, err)
	}
	if e.scheme == "udp" {
		sockets, err := udp.Listen(context.Background(), e.host, runtime.GOMAXPROCS(0))
		if err != nil {
			return nil, fmt.Errorf("cannot listen on %s: %w; choose another --listen, or end what is there", e, err)
		}
		l.sockets = sockets
		return l, nil
	}
	nl, err := net.Listen("tcp", e.host)
	if err != nil {
		return nil, fmt.Errorf("cannot listen on %s: %w; choose another --listen, or end what is there", e, err)
	}
	if !e.isTLS() && !isLoopback(nl.Addr()) && len(s.proxies) == 0 {
		s.log.Warn("other machines reach this listener without TLS: put a proxy with TLS in front, or listen on wss:// or tls://", "listener", e)
	}
	if s.proxyProtocol {
		nl = proxyproto.Listen(nl, &proxyproto.Options{Trusted: s.proxies, Refused: s.refused})
	}
	l.Listener = nl
	return l, nil
}

// refused logs what happened to connections before they were any.
func (s *service) refused(_ net.Addr, err error) {
	s.log.Debug("connection refused", "err", err)
}

// load loads the files of the endpoint.
func (l *listener) load(s *service) error {
	if l.endpoint.page != "" {
		page, err := loadPage(l.endpoint.page)
		if err != nil {
			return err
		}
		l.page, l.reload = page, append(l.reload, page.reload)
	}
	switch {
	case l.cert != "":
		files, err := certs.LoadFiles(l.cert, l.key, &certs.FilesOptions{Failed: func(err error) {
			s.log.Error("the certificate before stays in use", "err", err)
		}})
		if err != nil {
			return err
		}
		l.tls, l.reload = files.Config(), append(l.reload, files.Reload)
	case len(l.acme) > 0:
		dir := l.cache
		if dir == "" {
			cache, err := os.UserCacheDir()
			if err != nil {
				return fmt.Errorf("%w; give ?cache= a directory", err)
			}
			dir = filepath.Join(cache, "sotto", "acme")
		}
		acme, err := certs.NewACME(certs.ACMEOptions{Hosts: l.acme, CacheDir: dir})
		if err != nil {
			return err
		}
		l.tls = acme.Config()
		if _, port, _ := net.SplitHostPort(l.host); port != "443" {
			s.log.Warn("the authority asks at port 443: it has to lead to this listener", "listener", l.endpoint)
		}
	}
	return nil
}

// url returns where the listener is reached.
func (l *listener) url() string {
	bound := l.Addr().String()
	host, _, errHost := net.SplitHostPort(l.host)
	_, port, err := net.SplitHostPort(bound)
	if host == "" || err != nil || errHost != nil {
		return l.scheme + "://" + bound
	}
	return l.scheme + "://" + net.JoinHostPort(host, port)
}
