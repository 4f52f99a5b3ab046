// Package brep is the binary dialect: messages between Ed25519 keys, in frames
// of a 120-byte header and a payload (spec brep.md; what it adds for extended
// sessions, spec native.md).
//
// It has two halves. [Dialect] is the relay's: give it to a relay.Server, which
// owns the connections and calls it. [Client] is the other end of one
// connection; it logs in, sends and receives frames, and knows nothing of what
// is in them. Reconnecting, keeping messages until a receipt, signing and
// sealing are left to package client.
//
// A session is legacy after a v1 handshake and extended after v2. A legacy peer
// sees the five frame types of version 1, with flags and id zero or as another
// legacy peer sent them, and close codes; an extended one also sees the types
// from 0x10 up, receipts, and an ERROR frame before a close.
//
// Extended sessions have the verbs of the json dialect too, in REQUESTs and in
// frames of their own: rooms, topics, games; and cards, a list of blocked keys and
// the erasure of all that is kept. What the verbs do is the relay's (relay.Port);
// here they are read and answered. What came with an id is remembered for ten
// minutes, so that what comes again is answered and not delivered again.
//
// A relay reads the header of a frame and the first 32 bytes of a payload, the
// recipient's key, or a name. It forwards frames byte for byte and verifies no
// signature but those of the handshake and of cards.
package brep
