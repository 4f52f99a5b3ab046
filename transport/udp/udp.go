// Package udp carries sessions over datagrams: [NewListener] for the server's
// side, [Dialer] for the client's. A datagram is a message. It may be lost, come
// twice or late: nothing is sent again here, and nothing is put in order.
//
// The package knows no dialect. Functions of the dialect's ([Options]) say what a
// datagram is: one that may open a session, one that belongs to the session that
// its name and its token say, or neither.
//
// # Sessions
//
// A session is found by a pair of a name and a token (32 hex digits of 128
// random bits) that [transport.Datagram] has issued for it: the session's Conn
// gives it under [transport.DatagramKey]. It begins with a datagram that opens it,
// which is the first that its Conn reads. Another such datagram from the same
// source (IP address and port) goes to the same session. (Of two sessions at one
// source, the one that was there first has it.) Anybody can forge that one, so
// it moves nothing and proves nothing. A pair that is not right is dropped
// without an answer, and so is what is nobody's and is not to be answered.
//
// A token holds until a newer one of its session has been used. (Of more than 16
// the second oldest goes.) A right pair from somewhere else moves the session
// there.
//
// # Proof
//
// A session is proven when a token comes back from the source that it was issued
// to. It stays so from another port of that IP address. At another IP address it
// is unproven again, and tokens from before the move prove nothing; so whoever
// has a token of his own cannot have a stranger taken for himself.
//
// A dialect tells the peer its new token after a move by sending one whenever it
// reads a datagram with a pair while Proven is false: such a datagram came with
// a token from before the move. Being an answer, that is within the credit.
//
// An unproven session has credit: as long as it is unproven where it is, it is
// sent at most three times the bytes that came from there, not counting headers of
// the network, and not counting the first message of a session after the first
// Renew, which is the one with the token. What is over it is dropped and counted:
// a relay keeps its own, tighter account, so that messages wait instead.
//
// # Conns
//
// A Conn of the listener is a [transport.TryWriter] and a [transport.Batcher].
// There are neither kinds of messages nor close codes: all is Binary, and a peer
// is not told of the end. Read returns io.EOF when nothing came in for
// Options.IdleTimeout. What comes in faster than it is read is dropped, and
// counted. Write waits for the pace (Options.PaceRate) and for room in the socket;
// TryWrite takes nothing instead. What cannot be sent (a message that is no
// datagram, a network that cannot be reached) is dropped, and counted. An idle
// session holds a timer, and no goroutine or buffer.
//
// There is a goroutine for each socket, from the first Accept on. A Listener
// answers from the address that the system chooses: where a host has several,
// give it a socket for each instead of one for all.
package udp
