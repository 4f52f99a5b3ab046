// Package ws carries messages over WebSocket (RFC 6455): [Handler] for the
// server's side, on anybody's mux, and [Dialer] for the client's.
//
// It is not an HTTP server and owns none. gorilla/websocket shakes hands; the
// frames are read and written here, since what a [transport.Conn] promises
// (reading on after a deadline, skipping a message that is too large, writing
// without waiting and resuming at the right byte) is not to be had from it, and
// since many small messages then go out in one system call.
//
// A connection that is idle holds no buffer, if it is a plain TCP or Unix
// connection. Any other (TLS, a net.Conn of one's own) holds 4 KiB to wait with,
// and is written by a goroutine that lives while there is something to write, so
// that TryWrite does not wait there either; up to 64 KiB are taken before the
// network has.
//
// What a peer does wrong ends the connection with a close code: 1002 for
// malformed frames, 1007 for text that is not UTF-8, 1009 for a message over
// four times the read limit, 1008 for more than 16,384 fragments in a message,
// more than 100 control frames within a second, a message that does not come in
// within MessageTimeout, and silence for IdleTimeout. Read then returns a
// *transport.CloseError with that code. A peer that goes without a close frame is
// io.EOF between messages and io.ErrUnexpectedEOF within one.
//
// Close never waits. A goroutine sends the close frame, unless a message is half
// written, and closes the network connection when the peer has, or after one
// second. The code 0 and those that never travel (1005, 1006, 1015) make a close
// frame without a code. Nothing checks whether a text that is written is UTF-8.
package ws
