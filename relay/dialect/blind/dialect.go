package blind

import (
	"strconv"
	"time"

	"github.com/sotto-relay/sotto/relay"
	"github.com/sotto-relay/sotto/relay/dialect/blind/audit"
	"github.com/sotto-relay/sotto/transport"
)

// Channels: the first byte of a message.
const (
	channelControl = 0
	channelFrame   = 1
)

// Defaults of a Dialect's fields Grace and KeyBytes.
const (
	DefaultGrace    = 10 * time.Minute
	DefaultKeyBytes = 512
)

// RotatePolicy says who may rotate a key.
type RotatePolicy uint8

const (
	RotateOpen       RotatePolicy = iota // everybody, as existing clients need it
	RotateSubscriber                     // those who subscribe to it
)

// A Dialect is the relay's half. It is used as a value, and not changed while it
// is in use.
//
// Its routing keys are groups of relay.RealmBlind, and subscriptions and frames
// are put to the server's Policy as Join and Publish.
type Dialect struct {
	// Rotate says who may rotate a key. The zero value is RotateOpen.
	Rotate RotatePolicy

	// Grace is how long a key that was rotated still leads to the new one. Default
	// 10 minutes.
	Grace time.Duration

	// KeyBytes is how long the keys that are routed, and the entities that are
	// logged, may be. Default 512.
	KeyBytes int

	// Audit logs each delivery. Nil: none is logged. The server does not close it.
	Audit *audit.Log

	// ConnID names a connection in the audit log. Nil: its ConnInfo.Opened and ID,
	// which do not repeat after a restart.
	ConnID func(relay.ConnInfo) string
}

var _ relay.Dialect = Dialect{}

// Name returns "blind".
func (Dialect) Name() string { return "blind" }

// Limits are those of spec blind.md; MessageBytes is a frame and the channel byte.
// The outbox is larger than other dialects', since a connection that it does not
// suffice for is closed.
func (Dialect) Limits() relay.DialectLimits {
	return relay.DialectLimits{
		MessageBytes:   1<<20 + 1,
		MessageRate:    200,
		MessageBurst:   400,
		ByteRate:       4 << 20,
		ByteBurst:      16 << 20,
		Groups:         4096,
		Aliases:        64,
		OutboxMessages: 4096,
		OutboxBytes:    8 << 20,
	}
}

// NewSession begins a connection. There is nothing that it has to do first.
func (d Dialect) NewSession(p *relay.Port) (relay.Session, error) {
	if d.Grace <= 0 {
		d.Grace = DefaultGrace
	}
	if d.KeyBytes <= 0 {
		d.KeyBytes = DefaultKeyBytes
	}
	p.Ready()
	s := &session{dialect: d, port: p}
	if d.Audit != nil {
		s.id = d.connID(p.Info())
		s.each = s.delivered
	}
	return s, nil
}

func (d *Dialect) connID(c relay.ConnInfo) string {
	if d.ConnID != nil {
		return d.ConnID(c)
	}
	return strconv.FormatInt(c.Opened.UnixMilli(), 36) + "-" + strconv.FormatUint(c.ID, 36)
}

// Render appends a message as it came.
func (Dialect) Render(buf []byte, _ uint8, m *relay.Message) (transport.Kind, []byte, error) {
	return transport.Binary, append(buf, m.Data...), nil
}
