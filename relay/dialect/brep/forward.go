package brep

import (
	"encoding/binary"
	"math/rand/v2"
	"unsafe"

	"github.com/sotto-relay/sotto/frame"
	"github.com/sotto-relay/sotto/relay"
)

// recipientSize is the least that a payload for somebody else has: his key.
const recipientSize = 32

var errShort = &relay.Refusal{Code: relay.CodeMalformed, Reason: "payload too short"}

// forward brings a frame to the recipient that its payload begins with. msg is
// the whole of it.
func (s *session) forward(f *frame.Brep, msg []byte) error {
	if len(f.Payload) < recipientSize {
		return errShort
	}
	if s.sent != nil {
		s.sent.turn.Lock()
		defer s.sent.turn.Unlock()
	}
	if on, err := s.admit(f); !on {
		return err
	}
	m := &s.msg
	*m = relay.Message{
		To:   relay.Address{Realm: relay.RealmBrep, Name: borrow(f.Payload[:recipientSize])},
		ID:   f.ID,
		Form: s.form,
		Data: msg,
	}
	if s.form == formExtended {
		m.Flags = f.Flags
		m.Ephemeral = f.Flags&frame.FlagEphemeral != 0
	} else {
		m.ID = newID()
	}
	o := relay.Outcome{Code: relay.CodeDenied}
	if !s.common.blocks.has([32]byte(f.Payload), s.key) {
		o = s.port.Send(m)
	} else {
		s.port.Ignored("blocked")
	}
	*m = relay.Message{} // it borrows from msg
	s.answer(f.ID, f.Flags, o)
	return nil
}

// forwardSealed is forward for SEALED.
func (s *session) forwardSealed(f *frame.Brep, msg []byte) error {
	if _, err := frame.DecodeSealed(f.Payload); err != nil {
		return &relay.Refusal{Code: relay.CodeMalformed, Err: err}
	}
	return s.forward(f, msg)
}

// admit says whether a frame for others goes on. If not, it has been answered; an
// error ends the connection.
func (s *session) admit(f *frame.Brep) (on bool, err error) {
	refused := relay.Outcome{Code: relay.CodeDenied}
	switch {
	case f.Sender != s.key:
		s.port.Ignored("spoofed sender")
		return false, &relay.Refusal{Code: relay.CodeSpoofedSender}
	case s.dialect.SealedOnly && (f.Type == frame.TypeData || f.Type == frame.TypeSignedData):
		s.port.Ignored("in the clear")
	case s.form == formExtended && f.Flags&frame.FlagHops == frame.FlagHops:
		s.port.Ignored("hop limit")
		refused.Code = relay.CodeHopLimit
	default:
		return !s.isRepeat(f), nil
	}
	s.answer(f.ID, f.Flags, refused)
	return false, nil
}

// borrow returns b as a string without copying it. The string changes with b:
// it is for a relay.Message, which is itself borrowed for one call.
func borrow(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

// newID returns an id for a message that came without one. It has to differ from
// others, and need not be a secret.
func newID() (id relay.ID) {
	binary.LittleEndian.PutUint64(id[:8], rand.Uint64())
	binary.LittleEndian.PutUint64(id[8:], rand.Uint64()|1) // never zero
	return id
}
