package client

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/sotto-relay/sotto/crypto"
	"github.com/sotto-relay/sotto/handshake"
	"github.com/sotto-relay/sotto/inbox"
	"github.com/sotto-relay/sotto/transport"
)

// A Config says who the client is and how it reaches its relay. Zero fields mean
// what is said there. New copies it; what it points to is not changed as long as
// the Client lives.
type Config struct {
	Identity *crypto.Identity // required
	Dial     transport.Dialer // required; called again for every reconnect

	// Address names the relay in Trust: a URL without its query, say. Required
	// with a Trust.
	Address string

	// Relay is the key that the relay must have, if it is known (pinning). Nil:
	// the one that it had when first reached at Address (trust on first use).
	Relay *crypto.PublicKey

	// Trust remembers the keys of relays. Nil: a memory of this Client's own.
	Trust handshake.TrustStore

	// Others are relays that one that goes away may send us to, by the address that it
	// gives. The next connection is made there, and the one after that with Dial
	// again. Other addresses are not followed. Nil: none is.
	Others map[string]Other

	// AllowLegacy allows a relay that speaks handshake v1 only, unless it is pinned
	// or was seen to speak v2: it proves nothing and has us sign 32 bytes of its
	// choice. It carries no sealed messages; see ErrLegacySession.
	AllowLegacy bool

	// Contacts returns the X25519 key of a contact that was given by hand, as by a
	// user of MERK-BREP. Such a contact gets ENCRYPTED_DATA (spec brep.md), which
	// neither hides lengths nor binds the sender, instead of SEALED. It is called
	// by Send. Nil: there are none.
	Contacts func(crypto.PublicKey) (crypto.X25519Key, bool)

	// Groups says whether to take a group's key from somebody, who is its owner then.
	// It is called by the goroutine that reads, for each key of a group that was not
	// taken yet. Nil: none is taken, but of groups that the Store has.
	Groups func(owner crypto.PublicKey, id crypto.GroupID) bool

	// Credential returns a token for relays whose policy asks for one, such as
	// policy.Tokens, and when it is to be called for the next: well before the token
	// expires; zero: never. It is called before each connection, which presents the
	// token if its medium can (transport.WithToken), and while there is one when it is
	// time, of which the relay is told at once; from one goroutine at a time, and ctx
	// bounds it. When it fails, or the relay refuses a renewal, it is called again as
	// after a lost connection. A session that the relay ends for want of authentication
	// is followed by another, with a new token; a login that it refuses so is the end.
	// The token does not belong into the error, which is logged; relays in Others get
	// it too. Nil: there is none.
	Credential func(ctx context.Context) (token string, renew time.Time, err error)

	// Encrypted says whether the medium of a connection is encrypted, such as
	//
	//	func(c transport.Conn) bool { return c.Value(ws.TLSKey) != nil }
	//
	// If it is not, and leads to another machine, the client warns. Nil: it is not.
	Encrypted func(transport.Conn) bool

	// StartOffline has New return at once, and not wait for the first login.
	StartOffline bool

	// PingInterval is for media that do not notice by themselves that the peer is
	// gone, such as TCP (30 s there): the connection counts as lost when nothing
	// has come for 2.5 times as long. Zero: no PINGs are sent.
	PingInterval time.Duration

	// Before attempt n to reconnect, from 0, the client waits a random time of at
	// most BackoffMin·2ⁿ and BackoffMax (full jitter; 500 ms and 30 s). A connection
	// that lasted for BackoffMax begins with 0 again.
	BackoffMin, BackoffMax time.Duration

	// Store keeps what is to survive the program: messages that are pending, the
	// ids of letters that were taken and of files that came, the keys of our cards and the
	// cards of contacts, all for this Identity; keys are encrypted with what is derived
	// from it. With it, nothing is lost or comes twice when the program is killed (see
	// the package comment). It is the caller's, who closes it after the Client, and
	// after all functions that got a Letter. Two Clients with one Identity do not share a Store at a time: each
	// would send what the other does, and the relay lets one of them in only.
	// inbox/disk has one in a directory. Nil: the Client's memory.
	Store inbox.State

	// PendingMessages and PendingBytes bound the messages that have no receipt yet
	// (256 and 8 MiB): beyond them Send waits. One of any size passes when it is
	// alone.
	PendingMessages, PendingBytes int

	// KeptMessages and KeptBytes bound the messages that have a receipt, and wait for
	// a better one (4,096 and 64 MiB; see the package comment). Beyond them the oldest
	// go that the relay says to have stored, or has had for 15 s; if there are none,
	// Send waits.
	KeptMessages, KeptBytes int

	// MessageRate and ByteRate are how fast messages are sent, per second, and the
	// bursts how much at once (180 and 128; 7 MiB and 16 MiB, headers included). A
	// relay closes a connection over 200 and 400, 8 MiB and 32 MiB by default, and
	// counts when messages come in: those that the network held up come at once.
	// Since at most the pending ones can, burst and Pending together have to stay
	// below its burst.
	MessageRate  float64
	MessageBurst int
	ByteRate     float64
	ByteBurst    int

	// Remembered is how many letters that were taken are remembered, to drop repeats,
	// for 14 days at most (65,536, at about 250 bytes each).
	Remembered int

	// Files says which large files others may send us. Nil: none.
	Files *FilePolicy

	Logger *slog.Logger // nil: slog.Default()
	Trace  *Trace       // nil: nobody watches
}

// An Other is another relay than that of Config.Dial. In Config.Trust its name is the
// address. It gets tokens of Config.Credential as well.
type Other struct {
	Dial  transport.Dialer  // required
	Relay *crypto.PublicKey // as Config.Relay
}

// A Trace watches a Client. Functions may be nil. They are called by the
// goroutine that does the work, so they return soon and call no method of the
// Client but Err and Stats.
type Trace struct {
	// Connected is called after each login.
	Connected func(handshake.Relay)

	// Disconnected is called after a connection has ended, or an attempt failed,
	// and another is made after retryIn. The end for good is told by Err.
	Disconnected func(err error, retryIn time.Duration)

	// FirstContact is called when a relay proved to have a key and none was
	// expected: the time to compare fingerprints.
	FirstContact func(crypto.PublicKey)

	// Unencrypted is called at most once, when the medium leads to another machine
	// and is not encrypted (see Config.Encrypted).
	Unencrypted func(net.Addr)

	// Dropped is called for a message that did not become a Letter. why wraps an
	// error of package crypto, or is transport.ErrTooLarge, of an unknown sender,
	// or tells that too many letters were unread for one that the relay does not
	// keep. The sender is the relay's word.
	Dropped func(from crypto.PublicKey, why error)

	// Card is called when the relay's word about a contact's card is doubtful, and a
	// message was sealed all the same, to a card that the contact has for sure.
	Card func(contact crypto.PublicKey, why error)

	// Settled is called once for each message that no Send waits for, since it was
	// sent with NoWait or found in the Store, with what Send would have returned: the
	// receipt that was asked for, or an error and how far the message had come. For a
	// publication the key is zero.
	Settled func(to crypto.PublicKey, r Receipt, err error)

	// Revoked is called when a message for which Send or Settled has given a receipt
	// fails after all while it is pending: err is ErrExpired, ErrUnread or a
	// *RefusedError, and r says how far it had come.
	Revoked func(to crypto.PublicKey, r Receipt, err error)

	// BadReceipt is called when a relay says that a message was read and has no
	// signature of the recipient's to show. It counts as Handed.
	BadReceipt func(to crypto.PublicKey, id [16]byte)

	// StoreFailed is called when Config.Store has failed, other than for Send, which
	// returns its error, or New; and for what is found in it that cannot be read. Messages
	// and ids of letters among that are deleted.
	StoreFailed func(err error)
}

func (c *Config) check() error {
	switch {
	case c.Identity == nil:
		return errors.New("client: Config has no Identity")
	case c.Dial == nil:
		return errors.New("client: Config has no Dial")
	case c.Trust != nil && c.Address == "":
		return errors.New("client: Config has a Trust and no Address")
	}
	for address, o := range c.Others {
		if o.Dial == nil {
			return fmt.Errorf("client: Config has no Dial for the other relay %q", address)
		}
	}
	return nil
}

func (c Config) withDefaults() Config {
	if c.Trust == nil {
		c.Trust, c.Address = new(handshake.MemoryTrust), "relay"
	}
	if c.Contacts == nil {
		c.Contacts = func(crypto.PublicKey) (crypto.X25519Key, bool) { return crypto.X25519Key{}, false }
	}
	if c.Encrypted == nil {
		c.Encrypted = func(transport.Conn) bool { return false }
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	orDefault(&c.BackoffMin, 500*time.Millisecond)
	orDefault(&c.BackoffMax, 30*time.Second)
	orDefault(&c.PendingMessages, 256)
	orDefault(&c.PendingBytes, 8<<20)
	orDefault(&c.KeptMessages, 4096)
	orDefault(&c.KeptBytes, 64<<20)
	orDefault(&c.MessageRate, 180)
	orDefault(&c.MessageBurst, 128)
	orDefault(&c.ByteRate, 7<<20)
	orDefault(&c.ByteBurst, 16<<20)
	orDefault(&c.Remembered, 1<<16)
	c.Trace = c.Trace.withDefaults()
	return c
}

func orDefault[T int | int64 | float64 | time.Duration](v *T, d T) {
	if *v <= 0 {
		*v = d
	}
}

// withDefaults returns a Trace without nil functions.
func (t *Trace) withDefaults() *Trace {
	var full Trace
	if t != nil {
		full = *t
	}
	if full.Connected == nil {
		full.Connected = func(handshake.Relay) {}
	}
	if full.Disconnected == nil {
		full.Disconnected = func(error, time.Duration) {}
	}
	if full.FirstContact == nil {
		full.FirstContact = func(crypto.PublicKey) {}
	}
	if full.Unencrypted == nil {
		full.Unencrypted = func(net.Addr) {}
	}
	if full.Dropped == nil {
		full.Dropped = func(crypto.PublicKey, error) {}
	}
	if full.Card == nil {
		full.Card = func(crypto.PublicKey, error) {}
	}
	if full.Settled == nil {
		full.Settled = func(crypto.PublicKey, Receipt, error) {}
	}
	if full.Revoked == nil {
		full.Revoked = func(crypto.PublicKey, Receipt, error) {}
	}
	if full.BadReceipt == nil {
		full.BadReceipt = func(crypto.PublicKey, [16]byte) {}
	}
	if full.StoreFailed == nil {
		full.StoreFailed = func(error) {}
	}
	return &full
}
