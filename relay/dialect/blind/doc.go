// Package blind is the dialect of blind fan-out: sealed frames between those who
// subscribe to opaque keys (spec blind.md). A Brainstorm client connects
// unchanged.
//
// It has two halves. [Dialect] is the relay's: give it to a relay.Server, which
// owns the connections and calls it. [Client] is a device's: it builds, seals,
// opens and parses frames, and reconnects. What seals is given to it, as a
// [Sealer].
//
// The relay's half reads the length and the header of a frame, and nothing behind
// it; it sends the same bytes to every other subscriber of the routing key. It
// keeps nothing: who is away misses what is sent, and asks the others when he is
// back. No package that this one imports reaches any cryptography, which is held
// by a test; so there is nothing here to open a frame with.
//
// Over WebSocket, messages are binary. Their first byte is the channel: 0 for
// control, which is JSON, and 1 for a frame.
package blind
