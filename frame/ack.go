package frame

// An Ack acknowledges one message to the relay, and through it to its sender
// (spec native.md, "Delivery"). A frame of TypeAck has any number of them.
type Ack struct {
	Sender    [32]byte // of the message
	ID        [16]byte
	Signature [64]byte // by the recipient; zero when the message wanted no receipt
}

// AckSize is the encoded size of an Ack: sender 32 ‖ id 16 ‖ signature 64.
const AckSize = 32 + 16 + 64

// Append appends the encoded Ack to dst and returns the extended slice.
func (a *Ack) Append(dst []byte) []byte {
	dst = append(dst, a.Sender[:]...)
	dst = append(dst, a.ID[:]...)
	return append(dst, a.Signature[:]...)
}

var errAckLength = malformed("ACK is no whole number of acknowledgements, or none")

// DecodeAck decodes the first Ack in the payload of an ACK frame and returns the
// rest of the payload, empty after the last. What is no whole number of them, or
// empty, is ErrMalformed.
func DecodeAck(b []byte) (a Ack, rest []byte, err error) {
	if len(b) == 0 || len(b)%AckSize != 0 {
		return Ack{}, nil, errAckLength
	}
	copy(a.Sender[:], b)
	copy(a.ID[:], b[32:])
	copy(a.Signature[:], b[48:])
	return a, b[AckSize:], nil
}
