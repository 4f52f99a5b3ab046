// Package inbox keeps messages for recipients who are away.
//
// A [Store] knows recipients, senders, ids and times, and never looks inside a
// message. [Memory] is the implementation that keeps everything in this
// process; others live in packages of their own. All pass the same suite
// (package inboxtest). The promises are those of spec "inbox".
package inbox

import (
	"context"
	"errors"
	"iter"
	"time"
)

// A Realm keeps the names of different dialects apart: "alice" of one is nobody
// in another. Realms are numbered by whoever puts dialects together; the number
// is stored, so it must not change.
type Realm uint8

// An Address names a sender or a recipient within a realm. It is comparable.
type Address struct {
	Realm Realm
	Name  string // opaque bytes: a 32-byte key, or UTF-8
}

// An ID is the id of a message. The zero ID stands for none.
type ID [16]byte

// An Entry is a message in an inbox.
type Entry struct {
	To, From Address
	ID       ID     // zero: none, and so never recognised as a repeat
	Form     uint8  // the dialect's own: in which form Data is
	Flags    uint8  // the dialect's own
	Data     []byte // the encoded message, opaque

	Stored  time.Time // when the relay accepted it
	Expires time.Time // never handed out from then on; a zero time never expires

	// Seq is at least 1, grows with each entry of a recipient, perhaps with
	// gaps, and is never reused while the store is open. Put sets it.
	Seq uint64
}

// A Quota bounds what one recipient's inbox may hold. Zero fields do not bound.
// Expired entries do not count.
type Quota struct {
	Messages  int   // entries
	Bytes     int64 // sum of len(Data)
	PerSender int   // entries from one sender; one more is always refused

	// SenderTotal bounds the entries from one sender to all recipients together,
	// of those that were put with a SenderTotal; one more is always refused.
	SenderTotal int

	// DropOldest makes room at Messages and Bytes by dropping the oldest
	// entries, leased or not, instead of refusing the new one. What is larger
	// than Bytes by itself is refused all the same, and drops nothing.
	DropOldest bool
}

// A Result is the answer to a Put.
type Result struct {
	// Seq is the entry's number, or for a repeat that of the entry still stored.
	Seq uint64
	// Repeat says that an unexpired entry with this recipient, sender and id (not
	// zero) is stored already, and so nothing was.
	Repeat bool
	// Dropped are the entries that made room (Quota.DropOldest), oldest first.
	// Their Data is nil.
	Dropped []*Entry
	// Expired are entries that the store found expired and removed on the way,
	// also when it refused the new one. Their Data is nil. Purge does not see
	// them again.
	Expired []*Entry
	// Err is nil when the entry is durable, as far as the store is; else
	// ErrInboxFull, ErrSenderQuota, ErrStorageFull, ErrExpired, ErrClosed, the
	// context's error, or what failed.
	Err error
}

// Errors of a Put that the sender is told of.
var (
	ErrInboxFull   = errors.New("inbox full")               // the recipient's quota
	ErrSenderQuota = errors.New("too many from one sender") // Quota.PerSender, Quota.SenderTotal
	ErrStorageFull = errors.New("storage full")             // the store as a whole
	ErrExpired     = errors.New("expired")                  // Entry.Expires was past already
	ErrClosed      = errors.New("inbox: store is closed")
)

// A Store keeps entries. All methods may be called concurrently. A context that
// ends stops waiting, not what was begun.
type Store interface {
	// Put queues an entry for storing and returns without waiting for I/O. It
	// keeps neither e nor e.Data: it copies before it returns. done is called
	// once, when the entry is durable or has been refused; that may be before Put
	// returns, and on any goroutine, so done must not block. Puts for one
	// recipient take effect, and their dones are called, in the order of the
	// calls.
	Put(ctx context.Context, e *Entry, q Quota, done func(Result))

	// Entries yields the live entries of a recipient whose Seq is at least from,
	// in order of Seq. Expired and leased ones are skipped. Entries put or
	// deleted meanwhile may or may not be seen. A yielded entry belongs to the
	// caller, except Data, which must not be changed. No lock is held while the
	// body of the loop runs, which may call any method.
	Entries(ctx context.Context, to Address, from uint64) iter.Seq2[*Entry, error]

	// Delete removes entries by number, leased, expired or not. Numbers that are
	// not there are no error. It returns how many were there, also with an error:
	// then they are gone, and may come back after a restart.
	Delete(ctx context.Context, to Address, seqs ...uint64) (int, error)

	// Lease hides entries from Entries until the given time, or until Release or
	// a restart. It returns those that were there, unexpired and not leased yet.
	// A leased entry expires like any other.
	Lease(ctx context.Context, to Address, until time.Time, seqs ...uint64) ([]uint64, error)

	// Release ends leases: Entries yields those entries again, in their old places.
	// Numbers that are not there, or not leased, are no error.
	Release(ctx context.Context, to Address, seqs ...uint64) error

	// Count returns how many live entries a recipient has, leased ones included,
	// and the sum of their len(Data).
	Count(ctx context.Context, to Address) (messages int, bytes int64, err error)

	// Totals returns what the store holds in all, entries that have expired but
	// have not been purged included.
	Totals(ctx context.Context) (messages int, bytes int64, err error)

	// Purge removes up to max expired entries and calls expired, if not nil, for
	// each one removed (Data is nil). It returns how many: max means that there
	// may be more. It never holds up other calls for more than a few
	// milliseconds, whatever max is.
	Purge(ctx context.Context, max int, expired func(*Entry)) (int, error)

	// Close makes every later call fail with ErrClosed, after what was begun is
	// durable. It may be called more than once.
	Close() error
}

// A Lister is a Store that can say whom it keeps entries for. Without that, a mesh
// does not know after a restart whose mail there is, until more of it comes.
type Lister interface {
	// Addressees returns the recipients that have entries, in no order. Those whose
	// entries have all expired may be among them.
	Addressees(ctx context.Context) ([]Address, error)
}
