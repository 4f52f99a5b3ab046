package mailbox

import (
	"errors"
	"time"

	"github.com/sotto-relay/sotto/relay"
	"github.com/sotto-relay/sotto/transport"
)

// Dialect is what a relay.Server has to know of the mailbox: its name in limits
// and counters, and its defaults. It has no sessions, since its requests are HTTP.
type Dialect struct{}

var _ relay.Dialect = Dialect{}

// Name returns "mailbox".
func (Dialect) Name() string { return "mailbox" }

// Limits returns the defaults of spec mailbox.md. Here MessageBytes is the size of
// a blob, in bytes of UTF-8; MessageRate and MessageBurst are requests of one
// source (see relay.Source); ReadyTimeout is how long the body of a request may
// take; SenderTotal is what one sender has pending.
func (Dialect) Limits() relay.DialectLimits {
	return relay.DialectLimits{
		MessageBytes:  1 << 20,
		ReadyTimeout:  30 * time.Second,
		MessageRate:   200,
		MessageBurst:  400,
		InboxMessages: 100,
		SenderTotal:   100,
		InboxTTL:      30 * 24 * time.Hour,
	}
}

var errNoSessions = errors.New("mailbox: the dialect has no sessions; mount its Handler")

// NewSession fails.
func (Dialect) NewSession(*relay.Port) (relay.Session, error) { return nil, errNoSessions }

// Render fails: there is no session that a blob could be sent to.
func (Dialect) Render(buf []byte, _ uint8, _ *relay.Message) (transport.Kind, []byte, error) {
	return 0, buf, relay.ErrUnfit
}

// address returns the mailbox of a key.
func address(key [32]byte) relay.Address {
	return relay.Address{Realm: relay.RealmMailbox, Name: string(key[:])}
}
