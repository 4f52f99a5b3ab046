package brep

import (
	"github.com/sotto-relay/sotto/crypto"
	"github.com/sotto-relay/sotto/frame"
)

// ackMessage is what the recipient of a message signs for its sender (spec
// native.md, "Delivery").
func ackMessage(sender [32]byte, id [16]byte) []byte {
	const label = "sotto ack v1\x00"
	b := append(make([]byte, 0, len(label)+len(sender)+len(id)), label...)
	return append(append(b, sender[:]...), id[:]...)
}

// VerifyAck returns nil if a RECEIPT of frame.ReceiptAcknowledged shows that the
// recipient of our message has acknowledged it: it names this recipient, who has
// signed it for this sender. Else the error is one of package crypto.
func VerifyAck(r *frame.Receipt, sender, recipient crypto.PublicKey) error {
	if r.Recipient != recipient {
		return crypto.ErrSignature
	}
	return crypto.Verify(recipient, ackMessage(sender, r.ID), &r.Signature)
}
