package relaytest

import (
	"testing"
	"testing/synctest"

	"github.com/sotto-relay/sotto/relay"
	"github.com/sotto-relay/sotto/transport"
)

// DialectConfig tells [TestDialect] how to speak a dialect. The functions keep no
// state, may be called concurrently, and start no goroutines.
type DialectConfig struct {
	Dialect relay.Dialect

	// Login makes the far end of c, a new connection, the one that messages to a
	// name go to, and returns when the relay has confirmed it. Names are "alice",
	// "bob" and the like: the dialect's own are to be made from them, always the
	// same. Its reads and writes may block.
	Login func(c transport.Conn, name string) error

	// Message returns one message in wire form, as the client that is logged in as
	// from sends it, to be stored when the recipient is away. Two calls with the
	// same arguments make two messages.
	Message func(from, to, text string) (transport.Kind, []byte)

	// Text returns the text of a message that came to a client. It returns false
	// for everything else that the relay says (receipts, notices, pings).
	Text func(k transport.Kind, msg []byte) (text string, ok bool)

	// Ack, if not nil, returns how a client acknowledges a message that Text knows
	// (relay.Claim.Acks). What it has not acknowledged in time may then come again.
	Ack func(msg []byte) (transport.Kind, []byte)

	// Narrow, if not nil, is about messages that some sessions cannot take
	// (relay.ErrUnfit).
	Narrow *NarrowForm

	// Seed is that of the random bytes. Zero: one is chosen, and logged.
	Seed uint64
}

// NarrowForm tells how to speak a form of a dialect that not every message fits.
type NarrowForm struct {
	// Login is that of a client that cannot take the messages that Message makes. A
	// later DialectConfig.Login of the same name can take them, and the address.
	Login func(c transport.Conn, name string) error

	// Message makes messages that only the sessions of DialectConfig.Login can take.
	Message func(from, to, text string) (transport.Kind, []byte)
}

// TestDialect tests that a dialect does what a relay.Server counts on, and that
// the two together keep the promises of a relay: what was accepted arrives once,
// in the order of each sender, or waits; and every copy is accounted for. Each
// case is a server of its own in a synctest bubble.
//
// In every case it is watched that the session keeps nothing of the input of
// Receive, waits for nothing, does not panic and starts no goroutine. The first
// case that fails is the last: a dialect that waits has others hang.
func TestDialect(t *testing.T, c DialectConfig) {
	for _, test := range []struct {
		name string
		set  func(*relay.Server)
		run  func(*suite)
	}{
		{"Live", nil, (*suite).live},
		{"Absent", nil, (*suite).absent},
		{"AbsentWithoutInbox", withoutInbox, (*suite).absentWithoutInbox},
		{"LateStore", withLateStore, (*suite).absent},
		{"Frozen", withSmallOutbox, (*suite).frozen},
		{"FrozenWithLateStore", withSmallOutboxAndLateStore, (*suite).frozen},
		{"Overflow", withSmallOutboxOnly, (*suite).overflow},
		{"Cut", withSmallOutbox, (*suite).cut},
		{"Takeover", withSmallOutbox, (*suite).takeover},
		{"Misfit", nil, (*suite).misfit},
		{"Shutdown", nil, (*suite).shutdown},
		{"ShutdownOfFrozen", withSmallOutbox, (*suite).shutdownOfFrozen},
		{"RandomBytes", nil, (*suite).randomBytes},
	} {
		ok := t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSuite(t, &c, test.set)
				defer s.close()
				test.run(s)
				s.balance()
				s.ownGoroutines()
			})
		})
		if !ok {
			return
		}
	}
}
