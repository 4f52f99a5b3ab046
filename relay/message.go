package relay

import (
	"time"

	"github.com/sotto-relay/sotto/inbox"
	"github.com/sotto-relay/sotto/transport"
)

// Realm, Address and ID are those of the inbox, which stores them.
type (
	Realm   = inbox.Realm
	Address = inbox.Address
	ID      = inbox.ID
)

// Realms in use. A realm number is stored, so it is never given to another.
// Groups, topics and games are name spaces beside the addresses of a realm.
const (
	RealmBrep    Realm = 1 // addresses are Ed25519 keys, 32 bytes
	RealmJSON    Realm = 2 // UTF-8
	RealmBlind   Realm = 3 // groups only: routing keys
	RealmMailbox Realm = 4 // addresses are Ed25519 keys, 32 bytes
	RealmNative  Realm = 5 // groups, topics and games of sessions whose addresses are of RealmBrep
)

// A Message is what a dialect hands to the router: one message in its wire form
// with what the relay has to know about it.
//
// A Message and the memory it points to are borrowed for the call they are
// passed to, in both directions: who keeps any of it copies it.
type Message struct {
	To   Address
	From Address // set by the Port: a session cannot send under another's name
	ID   ID      // zero: none

	// Form and Flags belong to the dialect and are kept with the message: Form
	// says which of its forms Data is in, for Render.
	Form  uint8
	Flags uint8
	Data  []byte

	Ephemeral bool          // never stored: delivered now or refused
	TTL       time.Duration // how long it may be stored; zero: as long as the dialect's limit says, which is also the most

	// Note comes back in the Receipt, if the Outcome is Pending: what the dialect
	// needs to tell the sender. The relay does not look at it.
	Note []byte

	Retained bool // a topic's retained value, replayed: set for Render

	received int64  // nanoseconds since the server's start; zero: now
	copied   bool   // another session of the recipient has taken it
	seq      uint64 // of the inbox entry that this was read from; zero: none
}

// A Status says what became of a message.
type Status uint8

// Statuses. Only Pending is followed by another one.
const (
	Refused   Status = iota // with a Code
	Delivered               // entered the queue of a live session
	Stored                  // in the inbox, durable as far as the store is
	Pending                 // on its way to the inbox; Settled tells the end
)

// An Outcome is the answer to a message.
type Outcome struct {
	Status Status
	Code   Code // why it was refused
}

// A Receipt tells a session what became of a message whose outcome was Pending.
type Receipt struct {
	To      Address
	ID      ID
	Flags   uint8 // as in the Message
	Note    []byte
	Outcome Outcome
}

// frame is a message in wire form, as it stands in an outbox.
type frame struct {
	kind transport.Kind
	data []byte
}
