// Package transport says what a relay and a client need of a medium that
// carries messages: a WebSocket, a TCP stream, datagrams, an in-memory pipe.
//
// It holds interfaces and errors only. The media are packages of their own
// ([github.com/sotto-relay/sotto/transport/ws] and so on), so that a program
// links those that it uses.
package transport

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"
)

// Kind tells text messages from binary ones, where the medium does.
type Kind uint8

const (
	Binary Kind = iota // media that make no difference carry everything as Binary
	Text
)

// A Conn carries whole messages in both directions.
//
// At most one goroutine reads and at most one writes at a time. The deadline
// setters, Close, RemoteAddr and Value may be called by any goroutine at any
// time. After Close every pending and later Read and Write fails.
type Conn interface {
	// Read returns the next message. The slice is valid until the next Read.
	//
	// ErrTooLarge means that one message was longer than the read limit and was
	// skipped: the next Read returns the next message, and Write still works.
	// What is longer than four times the limit is not skipped: the next Read ends
	// the Conn, with CloseTooLarge. (So there is time for an answer.)
	// A peer that closed is reported as a *CloseError (1005 when it named no code
	// where the medium has codes), one that just went as io.EOF, within a message
	// as io.ErrUnexpectedEOF; after the Conn's own Close it is an error of any
	// kind. Past the read deadline the error is os.ErrDeadlineExceeded, and reading
	// can go on after a new deadline.
	Read() (Kind, []byte, error)

	// Write writes messages of one kind in order and returns how many it wrote
	// whole. It blocks until the medium has taken something, no longer: n may be
	// short without an error (even 0, when only a part of the first message was
	// taken). The caller then calls again with msgs[n:], unchanged, since the
	// Conn remembers how much of msgs[n] has gone out. Nothing is retained.
	//
	// Past the write deadline, when the medium took nothing at all, the error is
	// os.ErrDeadlineExceeded, and the same call may be made again.
	Write(k Kind, msgs [][]byte) (n int, err error)

	// SetReadDeadline and SetWriteDeadline set when Read and Write fail with
	// os.ErrDeadlineExceeded, also those that are waiting just then. The zero time,
	// which a Conn starts with, is never. A time that has passed counts at once.
	SetReadDeadline(t time.Time) error
	SetWriteDeadline(t time.Time) error

	// SetReadLimit sets how many bytes a message may have, from the next Read on.
	// A Conn starts with the limit that its medium was configured with. Called by
	// the goroutine that reads, between Reads: a relay keeps it small until it
	// knows its peer.
	SetReadLimit(n int)

	// Close ends the connection, with a close code (RFC 6455, section 7.4; 0 for
	// none) and a reason of at most 123 bytes for the peer where the medium has
	// them. It may be called any number of times; the first call counts. It does
	// not wait for the peer. What an earlier Write left half written is abandoned.
	Close(code uint16, reason string) error

	// RemoteAddr returns where the peer is, as a trusted proxy says if there is one;
	// the peer of a session in datagrams may move. It answers after Close too.
	RemoteAddr() net.Addr

	// Value returns what the medium knows of the connection under a key that its
	// package defines (TLS state, upgrade request, …), or nil.
	Value(key any) any
}

// A TryWriter is a Conn that can write without waiting. TryWrite is Write,
// except that it returns at once with what the medium takes now: (0, nil) when
// that is nothing. It pays no attention to the write deadline. The two share one
// place in the stream, and one caller at a time.
type TryWriter interface {
	TryWrite(k Kind, msgs [][]byte) (n int, err error)
}

// A Batcher is a Conn that tells when a batch of messages has been read. It
// calls dry, on the goroutine that reads, whenever Read is about to wait for
// the medium: all that came in together has been returned by then.
// SetDry is called once, before the first Read.
type Batcher interface {
	SetDry(dry func())
}

// A Listener accepts connections, like a net.Listener. After Close, Accept
// returns net.ErrClosed.
type Listener interface {
	Accept() (Conn, error)
	Close() error
	Addr() net.Addr
}

// A Handler takes a connection over. HandleConn may return at once; the handler
// closes the Conn when it is done with it. (A net/http server cancels a
// request's context when ServeHTTP returns, also after a hijack: so no context
// of the medium's is passed.)
type Handler interface {
	HandleConn(Conn)
}

// HandlerFunc is a function as a Handler.
type HandlerFunc func(Conn)

// HandleConn calls f(c).
func (f HandlerFunc) HandleConn(c Conn) { f(c) }

// A Dialer opens a connection to one address. The context bounds the dialling,
// not the connection.
type Dialer func(ctx context.Context) (Conn, error)

// An Admitter is a Handler that can say beforehand whether it would turn a
// connection away. A medium that can refuse before there is one asks it: at an
// HTTP upgrade with 503. Nil admits.
type Admitter interface {
	Admit(remote net.Addr) error
}

// A Key is a key of Conn.Value that more than one medium knows.
type Key string

// TokenKey is the credential that the peer presented with the connection, a
// string: the bearer token of an HTTP upgrade, say.
const TokenKey Key = "token"

// KindsKey is true on media that tell Text from Binary, a bool.
const KindsKey Key = "kinds"

// DatagramKey is a [Datagram], on media that carry a session in datagrams.
const DatagramKey Key = "datagram"

// A Datagram is what a session that is carried in datagrams has instead of a
// connection: a name and a token, which each datagram of the peer's brings. Its
// methods may be called concurrently.
type Datagram interface {
	// Renew names the session and makes a new token for it, 32 hex digits. The
	// tokens before it hold until it has been used.
	Renew(name string) (token string)

	// Proven says whether the peer has shown, with a token, that what is sent to
	// where it is now reaches it. A session that moves to another IP address is
	// unproven again.
	Proven() bool
}

// A Framing cuts a byte stream into messages and back: what a dialect speaks
// over TCP. It has no state and may be used concurrently.
type Framing interface {
	// Next finds the first message in b, which is what has come in of the stream
	// and is not consumed, and is not empty. skip bytes stand before it, such as a
	// length, and b[skip:skip+n] is the message. n is 0 if more has to come in;
	// skip bytes are dropped then too. With ErrEmpty it is a message without bytes.
	// Next is called again with all that is not consumed whenever something has come
	// in.
	//
	// max bounds n. A message that is longer is an error, as soon as that shows,
	// with n as its length if there is a next message to be found behind it; so
	// Next never asks for much more than max. After any error with an n of 0 the
	// stream has lost its framing.
	Next(b []byte, max int) (skip, n int, err error)

	// Head appends what stands before a message of n bytes to dst, at most
	// MaxHead bytes and always the same, and returns the extended slice.
	Head(dst []byte, n int) []byte
}

// MaxHead is the most that Head of a Framing may append, in bytes.
const MaxHead = 16

// ErrTooLarge is returned by Read for a message over the limit, which it has
// skipped.
var ErrTooLarge = errors.New("transport: message too large")

// ErrEmpty is returned by a Framing for a message without bytes.
var ErrEmpty = errors.New("transport: empty message")

// ErrMalformed is what Read fails with, wrapped, when what the peer sent is none
// of the medium's, or of the Framing's.
var ErrMalformed = errors.New("transport: malformed")

// A CloseError is what Read returns after the peer has closed with a code, or
// after the Conn itself was closed with one.
type CloseError struct {
	Code   uint16 // RFC 6455, section 7.4; 1005 when the peer named none
	Reason string // at most 123 bytes
}

func (e *CloseError) Error() string {
	if e.Reason == "" {
		return fmt.Sprintf("transport: closed (%d)", e.Code)
	}
	return fmt.Sprintf("transport: closed (%d): %s", e.Code, e.Reason)
}

// Close codes in use (RFC 6455, section 7.4.1).
const (
	CloseNormal      = 1000
	CloseGoingAway   = 1001
	CloseProtocol    = 1002 // malformed
	CloseUnsupported = 1003 // text where binary is wanted
	CloseNoStatus    = 1005 // reserved: stands for a close frame without a code
	CloseInvalidUTF8 = 1007
	ClosePolicy      = 1008
	CloseTooLarge    = 1009
	CloseInternal    = 1011
	CloseTryLater    = 1013
)
