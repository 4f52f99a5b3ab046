package relay

import (
	"context"
	"errors"

	"github.com/sotto-relay/sotto/transport"
)

// A Dialect is a wire protocol. It is stateless and safe for concurrent use;
// what belongs to a connection is in its Session.
type Dialect interface {
	// Name is the dialect's name in limits, logs and counters, such as "brep".
	Name() string

	// Limits are the dialect's defaults. The server's Limits override them.
	Limits() DialectLimits

	// NewSession begins a connection. It may Reply at once.
	NewSession(*Port) (Session, error)

	// Render appends m in the given form (Port.SetForm) to buf. It is called under
	// the lock of a queue, so it only copies and patches. ErrUnfit: m cannot be
	// put in this form; it waits in the inbox for a session that can take it.
	Render(buf []byte, form uint8, m *Message) (transport.Kind, []byte, error)
}

// A Session is the dialect's side of one connection. The server calls its
// methods and the functions given to Port.After one at a time.
type Session interface {
	// Receive handles one message. It never blocks, and msg is only its until it
	// returns. An error ends the connection: a *Refusal with its code, any other
	// with CodeInternal. For one that keeps the connection, Receive replies and
	// returns nil.
	Receive(ctx context.Context, k transport.Kind, msg []byte) error

	// Close is called once, last, with the reason. It may still Reply (an error
	// frame); whether that arrives depends on the peer.
	Close(err error)
}

// A Metered session answers for a message that was over the connection's rate,
// or over its size limit and so has not been read (msg is nil); Code of r says
// which. A nil error drops it and goes on. Without this method the connection is
// closed.
type Metered interface {
	Excess(r *Refusal, msg []byte) error
}

// An Answering session says which messages only answer what it was sent, such as
// acknowledgements. As many of them as it was sent messages that want one do not
// count against its rate of messages.
type Answering interface {
	Answers(msg []byte) bool
}

// A Settler learns what became of messages whose Outcome was Pending. It is
// called from any goroutine, concurrently with Receive, and must not block.
type Settler interface {
	Settled(Receipt)
}

// A Notified session is told what it did not ask for just then. Notify is called
// from any goroutine, concurrently with Receive, and must not block; all it does
// with the Port is to Reply.
type Notified interface {
	Notify(Notice)
}

// A Notice tells a session of something. What it points to is borrowed.
type Notice struct {
	Kind NoticeKind
	Name Address // the game, or the topic filter
	Peer Address // who plays, or the recipient of a message

	Asked bool // it is the answer to the session's own Match, which has not returned

	// Of a message that the session had sent.
	ID    ID
	Flags uint8
	Proof []byte // as its recipient gave it to Acknowledge
}

// NoticeKind says what a Notice is about.
type NoticeKind uint8

const (
	NoticeWaiting NoticeKind = iota // in the queue for a game
	NoticeMatched                   // with a peer
	NoticeGap                       // publications were dropped

	// A message that had been delivered or stored (the Outcome of Send) was
	NoticeAcknowledged // by its recipient
	NoticeStored       // since the recipient did not acknowledge it in time, or went
	NoticeExpired      // unread
	NoticeDropped      // to make room in a full inbox, or since the inbox had none for it
)

// ErrUnfit is returned by Render for a message that a form cannot carry.
var ErrUnfit = errors.New("relay: message does not fit this session")
