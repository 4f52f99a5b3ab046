// Package disk is the [inbox.Store] and [inbox.State] that survive a crash: one
// directory, one process, [Pebble] below.
//
// What is answered is durable: a put's done, the return of Delete, of State.Put
// and State.Delete come after an fsync, which all that wait at that moment share.
// The bytes of messages are on disk; what must be known to keep order, quotas
// and leases is in memory, [inbox.Index], and is read back at Open (about 250
// bytes for an entry, 700 for one that is the only one of its recipient; a second
// or two for a million).
//
// A DB takes no part in deciding what a message means, does not compress or
// encrypt, and shares nothing between processes: a second one is refused with
// the name of the first.
//
// A disk that fails makes the DB fail, for good: from the first write or fsync
// that went wrong nothing reaches the disk any more, every call returns an error,
// and [DB.Err] says which. A disk that is full does not: see [Options].
//
// [Pebble]: https://github.com/cockroachdb/pebble
package disk
