package ws

import "time"

// A Key is what Value of a connection is asked with.
type Key uint8

const (
	// RequestKey gives a server's connection the *http.Request that it began
	// with, without body, context and TLS state. It must not be changed.
	RequestKey Key = iota
	// TLSKey gives a connection over TLS its *tls.ConnectionState.
	TLSKey
	// SubprotocolKey gives the subprotocol that was agreed on, a string, or nil.
	SubprotocolKey
)

// ConnOptions are what connections of both sides have in common. Zero fields
// mean the defaults.
type ConnOptions struct {
	// Limit is the read limit that a connection starts with, in bytes
	// (4 MiB + 120).
	Limit int

	// MessageTimeout is how long a message or control frame that has begun to
	// come in may take (10 s).
	MessageTimeout time.Duration

	// PingInterval is the time between pings that are sent (30 s).
	PingInterval time.Duration

	// IdleTimeout is how long nothing at all may come in before the connection
	// is closed (75 s). Answers to pings count, what is sent does not.
	IdleTimeout time.Duration
}

func (o ConnOptions) withDefaults() ConnOptions {
	if o.Limit <= 0 {
		o.Limit = 4<<20 + 120
	}
	if o.MessageTimeout <= 0 {
		o.MessageTimeout = 10 * time.Second
	}
	if o.PingInterval <= 0 {
		o.PingInterval = 30 * time.Second
	}
	if o.IdleTimeout <= 0 {
		o.IdleTimeout = 75 * time.Second
	}
	return o
}
