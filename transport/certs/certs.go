// Package certs keeps the certificates of a server: from files that may change
// ([Files]), or from an ACME authority such as Let's Encrypt ([ACME]). Both come
// with a TLS configuration for any listener, whose certificate is looked up in
// every handshake.
//
// ACME is golang.org/x/crypto/acme/autocert and not certmagic, which would link
// some twenty modules for challenges and stores that a relay has no use for.
package certs

import "crypto/tls"

// config is for wss and for the streams of other dialects: TLS 1.2 or later, and
// HTTP/1.1 for those clients that ask, since that is what WebSocket needs.
func config(get func(*tls.ClientHelloInfo) (*tls.Certificate, error)) *tls.Config {
	return &tls.Config{
		MinVersion:     tls.VersionTLS12,
		NextProtos:     []string{"http/1.1"},
		GetCertificate: get,
	}
}
