package brep

import (
	"errors"
	"time"
	"unicode/utf8"

	"github.com/sotto-relay/sotto/crypto"
	"github.com/sotto-relay/sotto/frame"
	"github.com/sotto-relay/sotto/handshake"
	"github.com/sotto-relay/sotto/relay"
	"github.com/sotto-relay/sotto/transport"
)

// A Dialect is the relay's half. It is not changed while a server uses it, and
// may be shared by listeners and copied.
type Dialect struct {
	// Identity is the relay's; its public key is K_r of the handshake. Required.
	Identity *crypto.Identity

	// RequireV2 refuses clients that speak v1 only. They are closed with 1008.
	RequireV2 bool

	// SealedOnly refuses what a relay could read, DATA and SIGNED_DATA, with
	// CodeDenied; a legacy session is told nothing, and it is counted.
	SealedOnly bool

	// Durable says that the server's inbox survives a crash: what clients of
	// extended sessions are promised by a receipt "stored" (feature bit 0 of the
	// confirmation, spec native.md, "Delivery").
	Durable bool

	// Version and Transports are told to those who ask for capabilities.
	Version    string
	Transports []string

	// Advertise is the address at which clients reach this relay, told to those
	// that ask for servers: at most 255 bytes of UTF-8. Empty: none is told.
	Advertise string

	// Mesh links with other relays. Nil: they are refused.
	Mesh Mesh

	// PresenceQueries lets clients ask whether a key is connected here
	// (QUERY_CLIENT). Without it the answer is "not found", whatever is true.
	PresenceQueries bool

	// InUse says what becomes of a login with a key that is connected already. The
	// zero value has the newer session take over (spec brep.md, "Data frames").
	InUse relay.InUse

	// PingInterval is for listeners of a medium that does not notice by itself
	// that a peer is gone, such as TCP (spec brep.md, "Errors seen by a peer":
	// 30 s). Extended sessions then get PINGs this far apart, and are closed after
	// 2.5 to 3 times as long without a frame from them. Zero: none are sent.
	PingInterval time.Duration
}

var _ relay.Dialect = Dialect{}

// Forms of a message, and of what a session takes.
const (
	formLegacy   = frame.FormLegacy
	formExtended = frame.FormExtended
)

// readyTimeout is how long a handshake may take (spec brep.md, "Handshake v1").
const readyTimeout = 10 * time.Second

// Name returns "brep".
func (Dialect) Name() string { return "brep" }

// Limits returns the defaults of spec brep.md, "Frame", and spec inbox.md, and for
// rooms, topics and games those of spec json.md.
func (Dialect) Limits() relay.DialectLimits {
	return relay.DialectLimits{
		MessageBytes:   frame.BrepHeaderSize + 4<<20,
		UnreadyBytes:   1 << 10, // a v2 answer has 217 bytes
		ReadyTimeout:   readyTimeout,
		MessageRate:    200,
		MessageBurst:   400,
		ByteRate:       8 << 20,
		ByteBurst:      32 << 20,
		Groups:         50,
		GroupMembers:   10_000,
		Subscriptions:  100,
		Matches:        10,
		ControlBytes:   256 << 10, // a recipient that goes causes a window of receipts and more
		InboxMessages:  10_000,
		InboxBytes:     64 << 20,
		InboxPerSender: 1_000,
		InboxTTL:       7 * 24 * time.Hour,
	}
}

var (
	errNoIdentity = errors.New("brep: the Dialect has no Identity")
	errAdvertise  = errors.New("brep: Dialect.Advertise is longer than 255 bytes or not UTF-8")
)

// NewSession begins a connection with the challenge. It fails when the Dialect is
// not set up right or there is no randomness.
func (d Dialect) NewSession(p *relay.Port) (relay.Session, error) {
	switch {
	case d.Identity == nil:
		return nil, errNoIdentity
	case len(d.Advertise) > 255 || !utf8.ValidString(d.Advertise):
		return nil, errAdvertise
	}
	s := &session{dialect: d, port: p}
	cfg := &handshake.AcceptorConfig{
		Identity:  d.Identity,
		RequireV2: d.RequireV2,
		AllowV1:   s.allowV1,
	}
	if d.Durable {
		cfg.Features |= handshake.FeatureDurable
	}
	if d.Mesh != nil {
		cfg.AdmitRelay = d.Mesh.Admits
	}
	a, err := handshake.NewAcceptor(cfg)
	if err != nil {
		return nil, err
	}
	s.acceptor = a
	p.Reply(transport.Binary, a.Challenge().Append(nil))
	return s, nil
}

// Render puts a message into the form of a session (spec brep.md, "Byte for
// byte"): all but flags and id stays as it came.
//
// A message that a session could not write anymore comes back in that session's
// form, with the flags and the id of the sender beside it; those of a legacy
// sender are zero and random since the entrance. So they are what an extended
// session gets, whatever the bytes hold.
func (Dialect) Render(buf []byte, form uint8, m *relay.Message) (transport.Kind, []byte, error) {
	if len(m.Data) < frame.BrepHeaderSize || form == formLegacy && !isLegacyType(typeOf(m.Data)) {
		return 0, buf, relay.ErrUnfit
	}
	buf = append(buf, m.Data...)
	header := buf[len(buf)-len(m.Data):]
	flags, id := &header[frame.BrepFlagsOffset], header[frame.BrepIDOffset:][:len(m.ID)]
	switch typ := typeOf(m.Data); {
	case typ == frame.TypePublish || typ == frame.TypeRoomSend:
		header[frame.BrepTypeOffset] = byte(publishedAs(typ))
		*flags = m.Flags & frame.FlagHops
		if m.Retained {
			*flags |= frame.FlagRetain
		}
	case form == formExtended:
		*flags = m.Flags
		copy(id, m.ID[:])
	case m.Form == formExtended:
		*flags = 0
		clear(id)
	}
	return transport.Binary, buf, nil
}

// publishedAs returns the type that a publication is sent on as.
func publishedAs(t frame.Type) frame.Type {
	if t == frame.TypePublish {
		return frame.TypeMessage
	}
	return frame.TypeRoomMessage
}

func typeOf(encoded []byte) frame.Type { return frame.Type(encoded[frame.BrepTypeOffset]) }

// isLegacyType says whether version 1 has the frame type.
func isLegacyType(t frame.Type) bool {
	return t >= frame.TypeHandshake && t <= frame.TypeEncryptedData
}
