// Package client is the client of a brep relay: it logs in, stays logged in,
// seals what it sends, opens what it gets, and keeps a message until it is safe.
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
// What is sent is sealed to the recipient (spec native.md, "Sealing"), so that a relay
// sees who writes to whom, when, and about how much. [Signed] and [Clear] are for
// those who want less. What comes in is opened and verified, and [Letter] says how
// it was protected; what fails is counted, told to [Trace], and goes no further.
//
// Whose card the relay has gets SEALED of suite 3, which a quantum computer does not
// open either; who has none gets suite 2, with the key derived from the identity. A
// card that was seen once is not done without any more: a relay that forges it, rolls
// it back, or has none when it has ended, makes Send fail with a [*CardError]. At first
// contact nobody can notice that a card is withheld; [Client.Pair] takes a promise of
// one from elsewhere. Nor is there anybody to ask without a connection: what is sent
// then to somebody new has suite 2. A card that is valid serves until its end,
// connection or not. The relay is asked once a day for another one, and more often when
// half of its life is over: who loses his keys is then written to with new ones.
//
// Our own card is valid for 90 days and renewed after 45, so that who was away for 45
// days or less can be written to. With Config.Store its keys are random, and erased 15
// days after its end: in its last moment a message can be sealed that is tried for 7
// days and waits in an inbox for 7, and one is for clocks; but only once the relay has
// taken the card that is valid then, since our clock may be wrong. Then nobody who gets
// hold of the identity opens what was sealed to them, unless the medium below the Store
// still has what was deleted. Without a Store, random keys would end with the Client,
// and what waits in the inbox with them: the keys are derived from the identity instead,
// which opens everything then. What is sealed to a card whose keys another Store has
// cannot be opened, so an identity has one Store.
//
// What is published to topics and rooms is readable unless a [Group] seals it.
//
// # Delivery
//
// A message gets a random id and its bytes once. In an extended session (a relay
// that speaks handshake v2) it is pending until it is safe, and sent again, in order
// and before anything newer, after every reconnect; the recipient's Client drops
// repeats. It is safe when it is [Stored] at a relay that says of itself to be
// durable, and else when it is [Read], as it is where [Until] asks for that: the
// recipient's signature is verified, all other receipts are the relay's word. After 7
// days it is given up.
//
// So [Client.Send] may return, with [Handed] say, long before a message is safe. One that is
// then refused after all, or expires, is told to Trace.Revoked. A sealed message that is
// handed over and never stored nor read is sent again for those 7 days: nobody but
// Clients and their like can have got it, and to them repeats are none. One that is
// not sealed may have gone to a recipient with a legacy session, who acknowledges
// nothing and knows no repeats. So what is only Handed after 15 s on one connection is
// taken for that, and not sent again; relays with an inbox have stored by then what was
// not acknowledged. Where the connection breaks before, or a relay that is not durable
// has stored it, such a recipient may get it twice, so that others miss nothing.
//
// A letter that comes in stays the relay's until the application has taken it (see
// [Client.Messages] and [Client.Handle]); then it is remembered for 14 days and
// acknowledged, with our signature if the sender asked for a receipt. The relay hands
// out 256 letters and 8 MiB before that, and goes on with receipts, so an application
// may send from where it takes letters, or take none. Letters that were not taken when
// the connection or the Client ends come again after the next login, in order.
//
// So nothing is lost and nothing reaches the application twice, across cut connections,
// killed relays and reconnects, as long as both Clients live. With [Config].Store that
// holds for programs that are killed and started again with the same Store, except that
// the letter whose function was running when the program died comes again, and so does
// each of several that are handled at once ([Concurrently], and loops side by side).
// There a message is in the Store when Send takes it, and a letter that was taken is
// recorded there before it is acknowledged and before the next is handed out: with a
// store on disk, at the price of a write each, which letters that are handled at the
// same time share. Without a Store, pending messages end with the Client, and a letter
// can come to the next Client a second time if the relay had not heard that it was
// taken.
//
// This does not hold for ephemeral messages and those without an id, nor in legacy
// sessions: there a relay lets go of a message once it is written, so that those on
// their way, or unread here, are lost with the connection or the program. A legacy
// session has no receipts either.
//
// # Topics, rooms and matches
//
// [Client.Subscribe], [Client.JoinRoom] and [Client.FindMatch] ask the relay for
// something that it forgets with the session, so the Client asks again after every
// reconnect, before it sends anything else. [Client.Publish] and [Room.Send] sign;
// who listens verifies, and what does not verify is dropped and counted.
//
// Nothing is kept for listeners but the last value of a topic, if it is published
// with [Retain]. Where the connection was lost, the relay dropped something, or the
// loop was too slow, a [Publication] says Gap, in its place in the stream. No
// listener holds up letters, receipts or another listener.
//
// # Relays of others
//
// Where the relay is in a mesh (package mesh), contacts may be at other relays. For that
// a Client signs, for an hour at a time and at each login, that it is at this relay,
// which passes the statement on: some relays of the mesh then know where it is.
//
// # Files
//
// A [File] is a message like any other. [Client.SendFile] sends a file of any size,
// to a Client whose [FilePolicy] takes it, in parts that are sealed as letters are
// and that no application sees (spec native.md, "Files"). Cut connections and a
// receiver that is started again hold it up only; a sender that is started again
// names the transfer. A receiver has the file whole and once, or not at all, except
// that it may come twice if the receiver ends after it was saved, and before the
// relay has heard so. With Config.Store that takes a program that is killed in the moment
// between saving and recording it.
//
// # Goroutines
//
// Every method may be called by any goroutine at any time, also by a function
// that was called with a Letter. A Client has two goroutines of its own from [New]
// until it ends, and a few more while it is connected or receives files;
// [Client.Close] waits for all of them.
package client
