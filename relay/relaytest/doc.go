// Package relaytest is a kit for tests of what is built on a relay.
//
//   - [NewPair] is a relay with two clients, in memory: for a program that uses
//     them.
//   - A [Network] is a way between two ends that delays, stalls, cuts, corrupts
//     and swallows what is sent, by a script or by a seed. It goes around a
//     [transport.Dialer], or around the net.Conns below a WebSocket or TCP; a
//     [Listener] makes those in memory.
//   - A [PacketNetwork] carries datagrams between addresses: loses, duplicates and
//     delays them, and lets them be forged.
//   - [TestDialect] is the conformance suite of [relay.Dialect]: what every
//     dialect must do, ours or somebody else's.
//
// Nothing here opens a port or sleeps by another clock than the standard one, so
// all of it may run in a testing/synctest bubble, where a minute costs nothing.
// It is for tests only: it takes testing.TB values, fails the test where a
// program would return an error, and what it starts ends with the test.
package relaytest
