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
// A relay reads the header and the first 32 bytes of a payload, the recipient's
// key. It forwards frames byte for byte and verifies no signature but those of
// the handshake.
package brep
