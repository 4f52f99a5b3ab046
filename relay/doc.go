// Package relay is a blind message relay to embed in a program. It carries
// messages between addresses, keeps them for those who are away, fans them out
// to groups, and never looks inside.
//
// A [Server] is wired from parts: a [Dialect] speaks a wire format, a
// [transport.Listener] or an http.Handler brings connections, an [inbox.Store]
// keeps what cannot be delivered now. The zero Server relays between live
// connections.
//
//	bytes -> transport.Conn.Read            whole messages of bounded size
//	      -> read loop                      rate, then
//	      -> Session.Receive                dialect: parse, check, build one Message
//	      -> Port.Send, Port.Publish        router: live port? else inbox
//	      -> outbox                         never blocks
//	      -> transport.Conn.Write           coalesced
//
// The server owns the loops, the limits, the queues and the counters; a dialect
// owns no goroutine, so it is tested by calling Receive with bytes. The package
// imports no cryptography, and neither net/http nor crypto/rand: that it can
// read nothing is a property of the import graph, held by a test.
//
// Application data ends up in inboxes and queues only as it came. Nothing of it
// is logged.
package relay
