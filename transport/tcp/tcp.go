// Package tcp carries messages over TCP, with or without TLS: [NewListener] for
// the server's side, [Dialer] for the client's. How messages are cut out of the
// stream is the [transport.Framing]'s to say.
//
// It opens no ports: any net.Listener will do, also one of Unix sockets or one
// that reads PROXY headers. There are neither kinds of messages nor close codes:
// all is Binary, and a Close, whatever its code, is io.EOF for the peer.
//
// A connection that is idle holds no buffer, if it is a plain TCP or Unix
// connection. Any other (TLS, a net.Conn of one's own) holds 4 KiB to wait with,
// and is written by a goroutine that lives while there is something to write, so
// that TryWrite does not wait there either; up to 64 KiB are taken before the
// network has. TCP keep-alive is on. Nothing else looks for peers that are gone.
//
// What a peer does wrong ends the connection at once, and Read says why: an error
// of the Framing (wrapped), or a *transport.CloseError with 1009 for a message
// over four times the read limit and with 1008 for one that does not come in
// within MessageTimeout. A peer that goes is io.EOF between messages and
// io.ErrUnexpectedEOF within one.
//
// Close never waits. A goroutine ends this side of the stream, after what was
// written before, and closes the connection when the peer has, or after one
// second. What is half written stays so. (A net.Conn of one's own needs a
// CloseWrite method for that; without it the peer may see a reset.)
package tcp
