package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// The checks of what lies below the relay: names, TCP, TLS and HTTP.

func (e *examination) checkName(ctx context.Context) (status, text, advice string) {
	host := e.url.Hostname()
	addresses, err := net.DefaultResolver.LookupHost(ctx, host)
	if err != nil {
		return statusFail, err.Error(), "correct the name, or its entry in the DNS"
	}
	return statusOK, host + " is " + strings.Join(addresses, ", "), ""
}

func (e *examination) checkConnect(ctx context.Context) (status, text, advice string) {
	start := time.Now()
	c, err := new(net.Dialer).DialContext(ctx, "tcp", e.hostPort())
	if err != nil {
		return statusFail, err.Error(), "is the relay running, is the port right, and does a firewall let it through?"
	}
	defer c.Close()
	return statusOK, fmt.Sprintf("%s accepts connections, in %v", c.RemoteAddr(), since(start)), ""
}

func since(start time.Time) time.Duration { return time.Since(start).Round(10 * time.Microsecond) }

// certificate shakes hands and returns what the relay has shown, unverified: so
// that it can be told what is wrong with it.
func (e *examination) certificate(ctx context.Context) (tls.ConnectionState, error) {
	d := tls.Dialer{Config: &tls.Config{
		ServerName:         e.url.Hostname(),
		InsecureSkipVerify: true, //nolint:gosec // verified by checkTLS; nothing is sent here
		MinVersion:         tls.VersionTLS12,
	}}
	c, err := d.DialContext(ctx, "tcp", e.hostPort())
	if err != nil {
		return tls.ConnectionState{}, err
	}
	defer c.Close()
	return c.(*tls.Conn).ConnectionState(), nil
}

func (e *examination) checkTLS(ctx context.Context) (status, text, advice string) {
	if !e.isTLS() {
		if a, err := net.ResolveTCPAddr("tcp", e.hostPort()); err == nil && a.IP.IsLoopback() {
			return statusOK, "none, on this machine", ""
		}
		return statusWarn, "none: who writes to whom can be seen on the way", "have the relay listen on wss:// or tls://, or put a proxy with TLS in front"
	}
	roots, err := e.roots()
	if err != nil {
		return statusFail, err.Error(), "correct --ca"
	}
	state, err := e.certificate(ctx)
	if err != nil {
		return statusFail, err.Error(), "does the port speak TLS?"
	}
	leaf, between := state.PeerCertificates[0], x509.NewCertPool()
	for _, c := range state.PeerCertificates[1:] {
		between.AddCert(c)
	}
	_, err = leaf.Verify(x509.VerifyOptions{Roots: roots, Intermediates: between, DNSName: e.url.Hostname()})
	var (
		unknown x509.UnknownAuthorityError
		name    x509.HostnameError
		invalid x509.CertificateInvalidError
	)
	switch {
	case err == nil:
		return statusOK, fmt.Sprintf("%s, certificate for %s", tls.VersionName(state.Version), names(leaf)), ""
	case errors.As(err, &name):
		return statusFail, "the certificate is for " + names(leaf), "use one of these names, or get a certificate for " + e.url.Hostname()
	case errors.As(err, &unknown):
		return statusFail, err.Error(), "serve the whole chain, or give --ca the authority if it is your own"
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return statusFail, err.Error(), "renew the certificate, or correct the clock of this machine"
	}
	return statusFail, err.Error(), "get another certificate"
}

func names(c *x509.Certificate) string {
	all := c.DNSNames
	for _, ip := range c.IPAddresses {
		all = append(all, ip.String())
	}
	if len(all) == 0 {
		return "no name"
	}
	return strings.Join(all, ", ")
}

func (e *examination) checkExpiry(ctx context.Context) (status, text, advice string) {
	const soon = 14 * 24 * time.Hour
	state, err := e.certificate(ctx)
	if err != nil {
		return statusFail, err.Error(), "try again"
	}
	left := time.Until(state.PeerCertificates[0].NotAfter)
	text = fmt.Sprintf("the certificate is valid until %s", state.PeerCertificates[0].NotAfter.UTC().Format(time.DateTime))
	if left < soon {
		return statusWarn, text, "renew it; what renews it should have done so"
	}
	return statusOK, text, ""
}

// get asks the relay for a path over HTTP.
func (e *examination) get(ctx context.Context, path string) (*http.Response, error) {
	roots, err := e.roots()
	if err != nil {
		return nil, err
	}
	u := url.URL{Scheme: "http", Host: e.url.Host, Path: path}
	if e.isTLS() {
		u.Scheme = "https"
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, err
	}
	web := &http.Client{
		Transport: &http.Transport{
			DisableKeepAlives:      true,
			MaxResponseHeaderBytes: 64 << 10,
			TLSClientConfig:        &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12},
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	resp, err := web.Do(r)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 64))
	resp.Body = io.NopCloser(strings.NewReader(string(body)))
	return resp, err
}

// checkClock compares the clocks: signatures of some dialects hold for minutes
// only (spec mailbox.md: 300 s).
func (e *examination) checkClock(ctx context.Context) (status, text, advice string) {
	const most, some = 300 * time.Second, 5 * time.Second
	start := time.Now()
	resp, err := e.get(ctx, "/healthz")
	if err != nil {
		return statusWarn, err.Error(), "does the port speak HTTP?"
	}
	date, err := http.ParseTime(resp.Header.Get("Date"))
	if err != nil {
		return statusWarn, "the relay does not say what time it is", "let a proxy in front pass the Date header on"
	}
	// Date has whole seconds, so half of one is added.
	off := date.Add(500 * time.Millisecond).Sub(start.Add(time.Since(start) / 2)).Round(time.Second)
	switch {
	case off.Abs() > most:
		return statusFail, fmt.Sprintf("the relay's clock is off by %v", off), "set both clocks, with NTP"
	case off.Abs() > some:
		return statusWarn, fmt.Sprintf("the relay's clock is off by %v", off), "set both clocks, with NTP"
	}
	return statusOK, "the clocks agree", ""
}

func (e *examination) checkReady(ctx context.Context) (status, text, advice string) {
	resp, err := e.get(ctx, "/readyz")
	if err != nil {
		return statusWarn, err.Error(), "does the port speak HTTP?"
	}
	body, _ := io.ReadAll(resp.Body)
	answer := strings.TrimSpace(string(body))
	switch resp.StatusCode {
	case http.StatusOK:
		if strings.Contains(answer, "full") {
			return statusWarn, "the relay says " + answer, "nobody can be written to who is not connected: make room on the relay's disk"
		}
		return statusOK, "the relay says " + answer, ""
	case http.StatusServiceUnavailable:
		return statusFail, "the relay says " + answer, "wait for it to come back; if it is overloaded, see its metrics"
	}
	return statusWarn, "GET /readyz is answered with " + resp.Status, "no harm if it is another program's relay, or behind a proxy that keeps probes inside"
}
