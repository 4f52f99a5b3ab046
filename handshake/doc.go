// Package handshake authenticates the two ends of a brep connection (spec
// brep.md, "Handshake v1" to "Relay to relay").
//
// Each end of a connection is a state machine:
//
//	[Acceptor]  the relay that accepted it
//	[Client]    a client that opened it
//	[Dialler]   a relay that opened it, to another relay
//
// A machine takes the frames that came in, one at a time and in order, and
// returns the frame to send, if any. It does no I/O, has no clock and starts no
// goroutine: reading, writing and giving up after 10 seconds are the caller's
// part. A machine belongs to one connection and is used by one goroutine at a
// time. It keeps no reference to a frame that it was given.
//
// An error means that the frame was refused and the connection is to be closed;
// [Error] says with what. The machine is then as it was before the frame: what a
// message says takes effect once all of it has been checked.
//
// Nothing depends on whether a returned frame was sent, so a relay can make up
// its mind, and claim the peer's key, between getting a confirmation and sending
// it.
//
// [TrustStore] is apart from the machines: it remembers which key a relay had at
// first use. [FileTrust] is the one part of the package that does I/O.
package handshake
