package jsonmsg

import (
	"time"

	"github.com/sotto-relay/sotto/crypto"
	"github.com/sotto-relay/sotto/frame"
	"github.com/sotto-relay/sotto/relay"
	"github.com/sotto-relay/sotto/transport"
)

// A Dialect is the relay's half. The zero value works. It is not changed while a
// server uses it, and may be shared by listeners and copied.
type Dialect struct {
	// Identity is the relay's, for proofs of possession; its public key is K_r. Nil:
	// no proofs are offered.
	Identity *crypto.Identity

	// RequireProof refuses every registration with a public key whose holder does
	// not prove that he has the secret one; and so all of them without an Identity,
	// and in datagrams, which have no proofs.
	RequireProof bool

	// InUse says what becomes of a registration of an address that is in use. The
	// zero value has the newer one take over.
	InUse relay.InUse

	// Version and Transports are told to those who ask for capabilities.
	Version    string
	Transports []string

	// NameBytes is how long an address, a room or a game may be. Zero: 128.
	NameBytes int

	// DatagramBytes is how long a message for a session in datagrams may be, in
	// bytes; longer ones wait for a session that can take them. Zero: 16,384.
	DatagramBytes int

	// Aliases is how many aliases a relay has at most, and how many keys it
	// remembers as proven; AliasesPerSource how many of each from one source
	// (relay.Source), where there is one; and AliasTTL how long they are kept
	// unused. Zero: 1,000,000 and 1,000, and 90 days.
	Aliases          int
	AliasesPerSource int
	AliasTTL         time.Duration
}

var _ relay.Dialect = Dialect{}

// Forms of what a session takes. They are stored with messages, so a number never
// gets another meaning.
const (
	formWhole    uint8 = 0
	formDatagram uint8 = 1
)

// Name returns "json".
func (Dialect) Name() string { return "json" }

// Limits returns the defaults of spec json.md.
func (Dialect) Limits() relay.DialectLimits {
	return relay.DialectLimits{
		MessageBytes:      64 << 10,
		UnreadyBytes:      64 << 10, // what is longer is no message, before registering as after it
		ReadyTimeout:      time.Minute,
		MessageRate:       20,
		MessageBurst:      20,
		SourceConnections: 20,
		ConnectRate:       30,
		Groups:            50,
		GroupMembers:      10_000,
		Subscriptions:     100,
		Matches:           10,
		InboxMessages:     500,
		InboxTTL:          24 * time.Hour,
		DropOldest:        true,
	}
}

// NewSession begins a connection. Nothing is sent.
func (d Dialect) NewSession(p *relay.Port) (relay.Session, error) {
	value := p.Info().Value
	s := &session{dialect: d.withDefaults(), port: p}
	s.kinds, _ = value(transport.KindsKey).(bool)
	if s.datagram, _ = value(transport.DatagramKey).(transport.Datagram); s.datagram != nil {
		p.SetForm(formDatagram)
		p.Unproven(0)
	}
	return s, nil
}

func (d Dialect) withDefaults() Dialect {
	if d.NameBytes <= 0 {
		d.NameBytes = frame.MaxName
	}
	if d.DatagramBytes <= 0 {
		d.DatagramBytes = 16 << 10
	}
	if d.Aliases <= 0 {
		d.Aliases = 1_000_000
	}
	if d.AliasesPerSource <= 0 {
		d.AliasesPerSource = 1_000
	}
	if d.AliasTTL <= 0 {
		d.AliasTTL = 90 * 24 * time.Hour
	}
	return d
}

// Render appends m as it came; in a retained value it says so.
func (d Dialect) Render(buf []byte, form uint8, m *relay.Message) (transport.Kind, []byte, error) {
	switch {
	case form == formDatagram && len(m.Data) > d.withDefaults().DatagramBytes:
		return 0, buf, relay.ErrUnfit
	case m.Retained:
		return transport.Text, frame.AppendRetained(buf, m.Data), nil
	}
	return transport.Text, append(buf, m.Data...), nil
}

// Framing cuts a stream into messages.
func (Dialect) Framing() transport.Framing { return Framing{} }

// Framing is the [transport.Framing] of messages, for both ends of a stream: each
// stands behind its length, u32 big-endian.
type Framing struct{}

// Next finds the first message in b (see frame.NextJSON).
func (Framing) Next(b []byte, most int) (skip, n int, err error) {
	skip, n, whole, err := frame.NextJSON(b, most)
	if whole && n == 0 {
		err = transport.ErrEmpty
	}
	return skip, n, err
}

// Head appends the length of a message.
func (Framing) Head(dst []byte, n int) []byte { return frame.AppendJSONHead(dst, n) }
