// Package stream is what the media that carry messages over a byte stream have
// in common: reading that waits without a buffer, writing that does not wait,
// deadlines, the time that a message may take, and the end. What a message is on
// the wire they bring along, as a [Framer] for one direction and with their own
// reading of a [Buffer] for the other.
//
// It knows nothing of package transport, and nothing of messages but their
// number. A plain TCP or Unix connection is used through its file descriptor and
// holds no buffer while it is idle. Any other (TLS, a net.Conn of one's own)
// holds 4 KiB to wait with, and is written by a goroutine that lives while there
// is something to write; up to 64 KiB are taken before the network has.
package stream

import "net"

// Transparent is a net.Conn around another that leaves its bytes alone: the
// inner one may be read and written instead. Inner returns nil while that is not
// so yet.
type Transparent interface {
	net.Conn
	Inner() net.Conn
}

// Bare returns the connection below those that are Transparent.
func Bare(c net.Conn) net.Conn {
	for {
		t, ok := c.(Transparent)
		if !ok {
			return c
		}
		inner := t.Inner()
		if inner == nil {
			return c
		}
		c = inner
	}
}
