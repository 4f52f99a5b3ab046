// Package jsonmsg is the json dialect: messages between addresses, with
// acknowledgements, matchmaking, rooms, and topics with retained values (spec
// json.md). A message is one JSON object: in a WebSocket text message, behind its
// length in a stream ([Framing]), or in a datagram ([Demux], [Answer]).
//
// [Dialect] is the relay's half: give it to a relay.Server, which owns the
// connections and calls it. It does no I/O and starts no goroutines.
//
// What the verbs do is the relay's (relay.Port); here they are read, checked and
// answered. A relay reads names and topics, and no more of pub, nonce, ct and id
// than that they are strings: they come to the recipient as the sender wrote them.
package jsonmsg
