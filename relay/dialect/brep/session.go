package brep

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/sotto-relay/sotto/crypto"
	"github.com/sotto-relay/sotto/frame"
	"github.com/sotto-relay/sotto/handshake"
	"github.com/sotto-relay/sotto/relay"
	"github.com/sotto-relay/sotto/transport"
)

// A session is the relay's side of one connection. After the handshake dialect,
// port, key, form, common, sent and number do not change, and Settled and Notify read no
// more than those, but for the answer to a find_match.
type session struct {
	dialect  Dialect
	port     *relay.Port
	acceptor *handshake.Acceptor // nil once the peer is authenticated
	key      crypto.PublicKey
	form     uint8
	common   *common
	sent     *sent         // by the peer, before; nil in a legacy session
	number   uint32        // in the memory; zero in a legacy session
	msg      relay.Message // the one that is being sent, so that none is allocated
	asked    *request      // the find_match that is being answered
	life     life
	unwatch  func() // ends what servers began; nil: nothing
}

var (
	_ relay.Settler   = (*session)(nil)
	_ relay.Answering = (*session)(nil)
	_ relay.Notified  = (*session)(nil)
)

// Receive takes one frame. What breaks the rules of the dialect ends the
// connection; what was only in vain is answered or counted.
func (s *session) Receive(ctx context.Context, k transport.Kind, msg []byte) error {
	if k != transport.Binary {
		return &relay.Refusal{
			Code: relay.CodeMalformed, Close: transport.CloseUnsupported,
			Reason: "text message where binary is wanted",
		}
	}
	f, err := frame.DecodeBrep(msg)
	switch {
	case errors.Is(err, frame.ErrVersion):
		return &relay.Refusal{Code: relay.CodeUnsupportedVersion, Err: err}
	case err != nil:
		return &relay.Refusal{Code: relay.CodeMalformed, Err: err}
	case s.acceptor != nil:
		return s.authenticate(ctx, f)
	}
	s.life.heard = true
	switch {
	case f.Type == frame.TypeHandshake:
		return &relay.Refusal{Code: relay.CodeDenied, Reason: "the handshake is over"}
	case f.Type == frame.TypeNodeInfo:
		return s.nodeInfo(&f)
	case isLegacyType(f.Type):
		return s.forward(&f, msg)
	case s.form == formLegacy:
		return &relay.Refusal{Code: relay.CodeMalformed, Reason: "unknown frame type"}
	}
	return s.receiveExtended(ctx, &f, msg)
}

// receiveExtended takes the types that only extended sessions have.
func (s *session) receiveExtended(ctx context.Context, f *frame.Brep, msg []byte) error {
	switch f.Type {
	case frame.TypeSealed:
		return s.forwardSealed(f, msg)
	case frame.TypeRequest:
		s.request(ctx, f)
	case frame.TypePublish:
		return s.publish(f, msg)
	case frame.TypeRoomSend:
		return s.roomSend(f, msg)
	case frame.TypePing:
		if len(f.Payload) != pingSize {
			return &relay.Refusal{Code: relay.CodeMalformed}
		}
		s.reply(frame.TypePong, 0, f.Payload)
	case frame.TypePong:
	case frame.TypeAck:
		return s.acknowledge(f.Payload)
	default:
		s.port.Ignored("unknown type")
	}
	return nil
}

// acknowledge takes the acknowledgements of messages that the peer was sent.
func (s *session) acknowledge(payload []byte) error {
	for rest := payload; ; {
		a, more, err := frame.DecodeAck(rest)
		if err != nil {
			return &relay.Refusal{Code: relay.CodeMalformed, Err: err}
		}
		var proof []byte
		if a.Signature != [64]byte{} {
			proof = rest[frame.AckSize-len(a.Signature) : frame.AckSize]
		}
		s.port.Acknowledge(relay.Address{Realm: relay.RealmBrep, Name: borrow(rest[:len(a.Sender)])}, a.ID, proof)
		if rest = more; len(rest) == 0 {
			return nil
		}
	}
}

// Answers says whether msg is an ACK.
func (s *session) Answers(msg []byte) bool {
	return s.form == formExtended && len(msg) >= frame.BrepHeaderSize && typeOf(msg) == frame.TypeAck
}

// authenticate takes a frame before the peer is known.
func (s *session) authenticate(ctx context.Context, f frame.Brep) error {
	answer, err := s.acceptor.Receive(&f)
	if err != nil {
		return refusal(err)
	}
	peer, known := s.acceptor.Peer()
	if !known || peer.Role == handshake.RoleDialler {
		return s.authenticateRelay(answer, peer)
	}
	s.acceptor = nil
	s.key = peer.Key
	s.common = s.port.Shared(relay.RealmBrep, newCommon).(*common)
	if err := s.common.blocks.load(ctx, s.port.State()); err != nil {
		s.stateFailed(err) // the next login tries again
	}
	if peer.Version == 2 {
		s.form = formExtended
		s.sent, s.number = s.common.memory.enter(s.key), s.common.memory.numbered()
	}
	s.port.SetForm(s.form)
	err = s.port.Claim(relay.Claim{
		Address:  relay.Address{Realm: relay.RealmBrep, Name: string(s.key[:])},
		Greeting: answer.Append(nil),
		Kind:     transport.Binary,
		Weak:     peer.Version == 1,
		Acks:     peer.Version == 2,
		InUse:    s.dialect.InUse,
	})
	if err == nil && peer.Version == 2 {
		s.rememberV2(ctx)
		s.watchLife()
	}
	return err
}

// refusal returns an error of the handshake as what the peer may see of it.
func refusal(err error) error {
	var he *handshake.Error
	if errors.As(err, &he) {
		return &relay.Refusal{Code: relay.Code(he.Code), Err: err}
	}
	return err
}

// comeBack is the time within which the clients of a relay that goes away are
// asked to come back, each at another moment of it.
const comeBack = 10 * time.Second

// Close tells the peer of an extended session why it ends.
func (s *session) Close(err error) {
	if s.sent != nil {
		s.common.memory.leave(s.sent)
	}
	if s.unwatch != nil {
		s.unwatch()
	}
	r := relay.AsRefusal(err)
	switch {
	case s.form != formExtended || r.Code == relay.CodeNone:
	case r.Code == relay.CodeGoingAway:
		away := frame.GoAway{After: rand.N(comeBack)}
		s.reply(frame.TypeGoAway, 0, away.Append(nil))
	default:
		s.replyError(relay.ID{}, r.Code, r.Sentence())
	}
}

// reply sends a frame of the relay's own. The payload is copied.
func (s *session) reply(t frame.Type, flags uint8, payload []byte) {
	f := frame.Brep{Type: t, Flags: flags, Sender: s.dialect.Identity.Public(), Payload: payload}
	var buf [frame.BrepHeaderSize + 256]byte // most fit, and need no allocation
	s.port.Reply(transport.Binary, f.Append(buf[:0]))
}

// replyError sends an ERROR frame, about the frame with an id unless that is
// zero.
func (s *session) replyError(id relay.ID, code relay.Code, sentence string) {
	e := frame.Error{Code: frame.Code(code), Sentence: sentence, ID: id}
	var buf [256]byte
	s.reply(frame.TypeError, e.Flags(), e.Append(buf[:0]))
}
