package frame

// A Sealed is the payload of a SEALED frame (spec native.md, "Sealing"), as far as
// a relay can tell: recipient 32 ‖ suite u8 ‖ key id 8 ‖ enc ‖ ciphertext.
type Sealed struct {
	Recipient [32]byte // Ed25519 public key, not checked
	Suite     uint8
	KeyID     [8]byte
	Sealed    []byte // enc, of 32 bytes or, in suite 3, 1120, and a ciphertext with a tag of 16
}

const (
	sealedHead = 32 + 1 + 8
	sealedTag  = 16

	suiteXWing = 3
)

var errSealed = malformed("SEALED is shorter than its suite has it")

// Append appends the encoded payload to dst and returns the extended slice.
func (s *Sealed) Append(dst []byte) []byte {
	dst = append(dst, s.Recipient[:]...)
	dst = append(dst, s.Suite)
	dst = append(dst, s.KeyID[:]...)
	return append(dst, s.Sealed...)
}

// DecodeSealed decodes the payload of a SEALED frame, which Sealed aliases. One
// that is too short for its suite is ErrMalformed, wrapped. Suites that are not
// known yet have the least that any has. Nothing is allocated.
func DecodeSealed(b []byte) (Sealed, error) {
	if len(b) < sealedHead {
		return Sealed{}, errSealed
	}
	s := Sealed{Recipient: [32]byte(b), Suite: b[32], KeyID: [8]byte(b[33:]), Sealed: b[sealedHead:]}
	enc := 32
	if s.Suite == suiteXWing {
		enc = 1120
	}
	if len(s.Sealed) < enc+sealedTag {
		return Sealed{}, errSealed
	}
	return s, nil
}
