// Package client is the client of a brep relay: it logs in, stays logged in,
// seals what it sends, opens what it gets, and keeps a message until the relay
// has answered for it.
//
//	c, err := client.New(ctx, &client.Config{Identity: id, Dial: ws.Dialer(url, nil)})
//	receipt, err := c.Send(ctx, friend, client.Text("hello"))
//	for letter, err := range c.Messages(ctx) { … }
//
// It is not a connection: [github.com/sotto-relay/sotto/relay/dialect/brep.Client]
// is, and a Client has one after the other. It links no medium; the program
// passes the [transport.Dialer] of the one that it wants.
//
// # Sealing
//
// What is sent is sealed to the recipient (spec native.md, "Sealing": SEALED,
// suite 2, with the key derived from the recipient's identity), so that a relay
// sees who writes to whom, when, and about how much. [Signed] and [Clear] are for
// those who want less. What comes in is opened and verified, and [Letter] says how
// it was protected; what fails is counted, told to [Trace], and goes no further.
//
// # Delivery
//
// A message gets a random id and its bytes once. In an extended session (a relay
// that speaks handshake v2) it is kept until the relay's receipt, and sent again,
// in order, after every reconnect; the recipient's Client drops repeats. A receipt
// is the relay's word. [Stored] means that the message waits for the recipient,
// [Handed] that it was queued for the recipient's connection, and goes to the
// inbox if it is not acknowledged there.
//
// A letter that comes in stays the relay's until the application has taken it (see
// [Client.Messages] and [Client.Handle]); then it is acknowledged, with our
// signature if the sender asked for a receipt. The relay hands out 256 letters and
// 8 MiB before that, and goes on with receipts, so an application may send from
// where it takes letters, or take none. Letters that were not taken when the
// connection or the Client ends come again after the next login, in order, and the
// application gets each once, as long as the Client lives. After its end, a letter
// can come to the next Client a second time if the relay had not heard that it was
// taken: there was no connection any more, or the next login was faster.
//
// This does not hold for ephemeral messages, for those without an id, and in
// legacy sessions: there a relay lets go of a message once it is written, so that
// those on their way, or unread here, are lost with the connection or the program.
// A legacy session has no receipts either.
//
// # Goroutines
//
// Every method may be called by any goroutine at any time, also by a function
// that was called with a Letter. A Client has a goroutine of its own from [New]
// until it ends, and a few more while it is connected; [Client.Close] waits for
// all of them.
package client
