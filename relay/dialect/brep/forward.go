package brep

import (
	"encoding/binary"
	"math/rand/v2"
	"unsafe"

	"github.com/sotto-relay/sotto/frame"
	"github.com/sotto-relay/sotto/relay"
)

// The least that a payload for somebody else has: the recipient's key, and in
// SEALED (spec native.md, "Sealing") suite 1 ‖ key id 8 ‖ enc 32 ‖ tag 16 as
// well.
const (
	recipientSize = 32
	sealedMinSize = recipientSize + 1 + 8 + 32 + 16
)

// forward brings a frame to the recipient that its payload begins with. msg is
// the whole of it.
func (s *session) forward(f *frame.Brep, msg []byte, minSize int) error {
	switch {
	case len(f.Payload) < minSize:
		return &relay.Refusal{Code: relay.CodeMalformed, Reason: "payload too short"}
	case f.Sender != s.key:
		s.port.Ignored("spoofed sender")
		return &relay.Refusal{Code: relay.CodeSpoofedSender}
	}
	if s.dialect.SealedOnly && (f.Type == frame.TypeData || f.Type == frame.TypeSignedData) {
		s.port.Ignored("in the clear")
		s.answer(f.ID, f.Flags, relay.Outcome{Status: relay.Refused, Code: relay.CodeDenied})
		return nil
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
	o := s.port.Send(m)
	*m = relay.Message{} // it borrows from msg
	s.answer(f.ID, f.Flags, o)
	return nil
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

// Settled tells the sender what became of a message on its way to the inbox.
func (s *session) Settled(r relay.Receipt) { s.answer(r.ID, r.Flags, r.Outcome) }

// answer tells the peer of an extended session what became of its frame: all of
// it if it wanted a receipt, else a refusal only. It is called from any
// goroutine.
func (s *session) answer(id relay.ID, flags uint8, o relay.Outcome) {
	wanted := flags&frame.FlagReceipt != 0 && id != relay.ID{}
	switch {
	case s.form == formLegacy || o.Status == relay.Pending:
	case wanted:
		s.receipt(id, o)
	case o.Status == relay.Refused:
		s.replyError(id, o.Code, o.Code.String())
	}
}

func (s *session) receipt(id relay.ID, o relay.Outcome) {
	r := frame.Receipt{ID: id}
	switch o.Status {
	case relay.Delivered:
		r.Status = frame.ReceiptHandedOver
	case relay.Stored:
		r.Status = frame.ReceiptStored
	default:
		r.Status, r.Code, r.Reason = frame.ReceiptRefused, frame.Code(o.Code), o.Code.String()
	}
	var buf [256]byte
	s.reply(frame.TypeReceipt, 0, r.Append(buf[:0]))
}
