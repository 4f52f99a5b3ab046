package certs

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"os"
	"runtime"

	"golang.org/x/crypto/acme"
	"golang.org/x/crypto/acme/autocert"
)

// ACME gets certificates from an authority that speaks ACME (RFC 8555), and
// renews them. It proves that a host is ours with TLS-ALPN-01 (RFC 8737): within
// a TLS handshake with the listener that the certificate is for, which must be
// reachable at port 443 of the host. All methods may be called concurrently.
type ACME struct{ manager *autocert.Manager }

// ACMEOptions are for NewACME.
type ACMEOptions struct {
	// Hosts are the names that certificates are asked for, as clients call them.
	// At least one; a handshake for any other fails.
	Hosts []string

	// CacheDir keeps the account's key and the certificates, which the authority
	// gives out at a limited rate. It is made when missing (mode 0700); one that
	// others may look into is refused.
	CacheDir string

	// Email is where the authority may write to, if not empty.
	Email string

	// DirectoryURL is the authority's; empty means Let's Encrypt's.
	DirectoryURL string

	// HTTPClient is used to talk to it; nil means http.DefaultClient.
	HTTPClient *http.Client
}

// NewACME returns an ACME that asks for certificates when they are first wanted.
// To use it is to agree to the authority's terms of service.
func NewACME(o ACMEOptions) (*ACME, error) {
	if len(o.Hosts) == 0 {
		return nil, errors.New("certs: ACME needs a host")
	}
	if err := os.MkdirAll(o.CacheDir, 0o700); err != nil {
		return nil, fmt.Errorf("certs: making the cache directory: %w", err)
	}
	info, err := os.Stat(o.CacheDir)
	if err != nil {
		return nil, fmt.Errorf("certs: looking at the cache directory: %w", err)
	}
	if mode := info.Mode().Perm(); mode&0o077 != 0 && runtime.GOOS != "windows" {
		return nil, fmt.Errorf("certs: %s has keys and others may look into it (mode %#o): set it to 0700", o.CacheDir, mode)
	}
	return &ACME{&autocert.Manager{
		Prompt:     autocert.AcceptTOS,
		Cache:      autocert.DirCache(o.CacheDir),
		HostPolicy: autocert.HostWhitelist(o.Hosts...),
		Email:      o.Email,
		Client:     &acme.Client{DirectoryURL: o.DirectoryURL, HTTPClient: o.HTTPClient, UserAgent: "sotto"},
	}}, nil
}

// Config returns a new TLS configuration with the certificates, which also
// answers the authority's challenges. The first handshake for a host takes as
// long as the authority does, a few seconds or more.
func (a *ACME) Config() *tls.Config {
	c := config(a.manager.GetCertificate)
	c.NextProtos = append(c.NextProtos, acme.ALPNProto)
	return c
}
