package tcp

import (
	"context"
	"crypto/tls"
	"net"
	"time"
)

// A Key is what Value of a connection is asked with.
type Key uint8

// TLSKey gives a connection over TLS its *tls.ConnectionState.
const TLSKey Key = 0

// ConnOptions are what connections of both sides have in common. Zero fields
// mean the defaults.
type ConnOptions struct {
	// Limit is the read limit that a connection starts with, in bytes
	// (4 MiB + 120).
	Limit int

	// MessageTimeout is how long a message that has begun to come in may take
	// (10 s).
	MessageTimeout time.Duration
}

func (o ConnOptions) withDefaults() ConnOptions {
	if o.Limit <= 0 {
		o.Limit = 4<<20 + 120
	}
	if o.MessageTimeout <= 0 {
		o.MessageTimeout = 10 * time.Second
	}
	return o
}

// Options are for a listener. The zero value is without TLS.
type Options struct {
	ConnOptions

	// TLS, if not nil, is spoken on every connection. Connections come out of
	// Accept when they have shaken hands; none holds up another.
	TLS *tls.Config

	// HandshakeTimeout is how long a TLS handshake may take (10 s), and
	// Handshakes how many there may be at a time (1,024). One more closes the one
	// that has taken longest.
	HandshakeTimeout time.Duration
	Handshakes       int

	// Refused, if not nil, is told of connections that did not get through their
	// TLS handshake. It may be called concurrently.
	Refused func(peer net.Addr, err error)
}

// DialOptions are for a Dialer.
type DialOptions struct {
	ConnOptions

	// TLS, if not nil, is spoken. Without a ServerName it is that of the address.
	TLS *tls.Config

	// Dial opens the network connection; nil means a net.Dialer. A name must be
	// resolved within it, so what it refuses to connect to is not connected to.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}
