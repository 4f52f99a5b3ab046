// Package adversary is the project's own attackers: hostile clients, strangers,
// networks and relays, against a relay and a client with the default
// configuration. It has tests only, and nothing may import it.
//
// What SECURITY.md says an adversary cannot do is shown by a test, here or in the
// package that it concerns; another test holds the document to that. Most attacks
// run in a testing/synctest bubble, over pipes or over WebSockets on in-memory
// streams, so that a deadline is exact and costs nothing; those where the socket
// is the point run over loopback, and in full size with the flag -full.
package adversary
