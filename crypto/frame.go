package crypto

const frameLabel = "sotto frame v1\x00"

// SignFrame returns the signature for the header of a frame that is passed on to
// others (native.md "Header fields": PUBLISH, ROOM_SEND, SEALED): over a label,
// the type as sent, the message id and the payload.
func SignFrame(from *Identity, frameType uint8, id [16]byte, payload []byte) [64]byte {
	return from.Sign(frameToSign(frameType, id, payload))
}

// VerifyFrame checks a signature that [SignFrame] made, with the errors of
// [Verify]. The type is the one that the sender sent, where the relay gives the
// frame another one.
func VerifyFrame(sender PublicKey, frameType uint8, id [16]byte, payload []byte, sig *[64]byte) error {
	return Verify(sender, frameToSign(frameType, id, payload), sig)
}

func frameToSign(frameType uint8, id [16]byte, payload []byte) []byte {
	b := make([]byte, 0, len(frameLabel)+1+len(id)+len(payload))
	b = append(b, frameLabel...)
	b = append(b, frameType)
	b = append(b, id[:]...)
	return append(b, payload...)
}
