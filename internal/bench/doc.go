// Package bench holds benchmarks of whole relays over real sockets. The load
// comes from a second process, so that what is measured is the relay's. It has
// no code of its own.
package bench
