package crypto

import "slices"

// Trust says what the signatures of a SIGNED_DATA frame prove.
type Trust uint8

const (
	// Unsigned: nothing. The signature that is there could have been made for a
	// v1 handshake, which signs any 32 bytes.
	Unsigned Trust = iota
	// Legacy: the sender signed the content, but for whom is not signed.
	Legacy
	// Verified: the sender signed the content for this recipient.
	Verified
)

const (
	targetSize    = 32 // the recipient's Ed25519 key, with which payloads begin
	signatureSize = 64
	embeddedSize  = targetSize + signatureSize // where content begins after an embedded signature
)

// SignContent makes the payload of a SIGNED_DATA frame (brep.md), readable to all
// and signed twice, and the signature for the frame's header. A Type above
// [File], Raw data that begins with 1, 2 or 3 (the recipient would take that for
// a type), and what [Content.AppendBinary] refuses are [ErrMalformed].
func SignContent(from *Identity, to PublicKey, c Content) (payload []byte, sig [64]byte, err error) {
	payload = make([]byte, embeddedSize, embeddedSize+c.encodedLen())
	copy(payload, to[:])
	if payload, err = appendSignedContent(payload, c); err != nil {
		return nil, sig, err
	}
	embedded := from.Sign(payload[embeddedSize:])
	copy(payload[targetSize:], embedded[:])
	return payload, from.Sign(payload), nil
}

// OpenSigned checks the payload and the header signature of a SIGNED_DATA frame
// from sender to self, in any of the layouts of brep.md, and says how far to
// trust it. A payload for somebody else or without a signature that holds is
// [ErrSignature], a weak sender [ErrWeakKey], and what is too short or no content
// [ErrMalformed]. Data is a part of payload.
func OpenSigned(self, sender PublicKey, sig *[64]byte, payload []byte) (Content, Trust, error) {
	if len(payload) < targetSize {
		return Content{}, Unsigned, ErrMalformed
	}
	if PublicKey(payload[:targetSize]) != self {
		return Content{}, Unsigned, ErrSignature
	}
	content, trust, err := verifySigned(sender, sig, payload)
	if err != nil {
		return Content{}, Unsigned, err
	}
	c, err := parseSignedContent(content)
	if err != nil {
		return Content{}, Unsigned, err
	}
	return c, trust, nil
}

// verifySigned finds the layout of a payload by the signatures that hold.
func verifySigned(sender PublicKey, sig *[64]byte, payload []byte) (content []byte, trust Trust, err error) {
	inHeader := *sig != [64]byte{}
	if inHeader {
		if err := Verify(sender, payload, sig); err != nil {
			return nil, Unsigned, err
		}
	}
	embeddedErr := ErrMalformed
	if len(payload) >= embeddedSize {
		content = payload[embeddedSize:]
		embeddedErr = Verify(sender, content, (*[64]byte)(payload[targetSize:]))
	}
	switch {
	case inHeader && embeddedErr == nil:
		return content, Verified, nil
	case inHeader:
		return payload[targetSize:], Verified, nil
	case embeddedErr != nil:
		return nil, Unsigned, embeddedErr
	case len(content) == 32:
		return content, Unsigned, nil
	}
	return content, Legacy, nil
}

// appendSignedContent is AppendBinary, but for the type byte that SIGNED_DATA
// does not have before Raw content.
func appendSignedContent(b []byte, c Content) ([]byte, error) {
	if c.Type != Raw {
		if c.Type > File {
			return nil, ErrMalformed
		}
		return c.AppendBinary(b)
	}
	if c.check() != nil || startsWithType(c.Data) {
		return nil, ErrMalformed
	}
	return append(b, c.Data...), nil
}

func parseSignedContent(b []byte) (Content, error) {
	if startsWithType(b) {
		return ParseContent(b)
	}
	return Content{Type: Raw, Data: b}, nil
}

func startsWithType(b []byte) bool {
	return len(b) > 0 && slices.Contains([]ContentType{Text, JSON, File}, ContentType(b[0]))
}
