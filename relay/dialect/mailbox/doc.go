// Package mailbox is the HTTP store-and-forward dialect: blobs between Ed25519
// keys, stored with a POST and fetched with a GET (spec mailbox.md). Clients of
// Crow use it unchanged.
//
// It has two halves. [Handler] is the relay's: an http.Handler over the inbox of
// a relay.Server, to be mounted at "/relay/" of any mux.
//
//	POST /relay/store    a blob for a recipient; durable when it is answered
//	GET  /relay/fetch    what is there for a key, and it is gone; ?limit ?wait ?lease
//	POST /relay/ack      removes what was fetched with ?lease, or came in a stream
//	GET  /relay/stream   Server-Sent Events: one blob an event, leased
//	GET  /relay/key      the relay's key, which requests of Client are signed for
//
// [Client] is the other half.
//
// # What is promised
//
// A blob that was answered "stored" is delivered, or kept until it expires, and is
// stored once however often a client asks again within ten minutes.
//
// A fetch without a lease removes what it has handed over once the connection has
// taken the whole answer without an error. That is not the client's word: what is
// then in the buffers of the network is lost with them. A fetch with a lease, and
// a stream, remove what the client acknowledges, so nothing is lost, and a blob
// may come again: when a lease has run out or the relay has been restarted.
// Whatever happens, of fetches at the same time each blob goes to one.
//
// A blob is opaque text. The relay verifies signatures of senders and readers, and
// opens nothing.
package mailbox
