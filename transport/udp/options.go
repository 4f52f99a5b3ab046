package udp

import (
	"context"
	"net"
	"time"
)

// maxDatagram is the default for MaxDatagram and Limit.
const maxDatagram = 16_384

// Options are for a listener. Zero fields mean the defaults; Demux must be set.
type Options struct {
	// Demux says what a datagram is. One that is open may begin a session; one
	// with a name and a token belongs to the session that has been issued the two,
	// or to nobody. Name and token may be parts of the datagram.
	//
	// It is called for everything that anybody sends, of at most 65,535 bytes,
	// concurrently. It must be quick, and keeps nothing.
	Demux func(datagram []byte) (open bool, name, token []byte)

	// Answer, if not nil, returns the answer to a datagram that is not open and
	// has neither name nor token, or nothing. It is called as Demux is. What is
	// longer than three times the datagram is not sent.
	Answer func(datagram []byte) []byte

	// MaxDatagram is how long a message may be, in bytes (16,384). It is the read
	// limit that sessions start with, and a higher one has no effect. A longer
	// datagram is transport.ErrTooLarge for its session, and opens none.
	MaxDatagram int

	// IdleTimeout is how long a session lasts without a datagram (5 min).
	IdleTimeout time.Duration

	// SourceRate is how many datagrams a second are looked at from one IPv4 address
	// or /64 of IPv6, and at once (50). PaceRate is how many a session is sent (50).
	// A million is no limit.
	SourceRate int
	PaceRate   int

	// Backlog is how many sessions may wait for Accept (128). No other is opened
	// meanwhile.
	Backlog int

	// QueueBytes is how much may wait for one session's Read (64 KiB, at least
	// MaxDatagram). Each datagram counts 64 bytes more than it has.
	QueueBytes int
}

func (o Options) withDefaults() Options {
	o.MaxDatagram = or(o.MaxDatagram, maxDatagram)
	o.IdleTimeout = or(o.IdleTimeout, 5*time.Minute)
	o.SourceRate = or(o.SourceRate, 50)
	o.PaceRate = or(o.PaceRate, 50)
	o.Backlog = or(o.Backlog, 128)
	o.QueueBytes = max(or(o.QueueBytes, 64<<10), o.MaxDatagram+overhead)
	return o
}

func or[T ~int | ~int64](value, otherwise T) T {
	if value <= 0 {
		return otherwise
	}
	return value
}

// DialOptions are for a Dialer.
type DialOptions struct {
	// Limit is the read limit that a connection starts with, in bytes (16,384).
	Limit int

	// Dial opens the connection, of datagrams; nil means a net.Dialer.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}
