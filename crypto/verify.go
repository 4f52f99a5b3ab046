package crypto

import (
	"crypto/ed25519"
	"encoding/hex"

	"filippo.io/edwards25519"
)

// A PublicKey is an Ed25519 public key (RFC 8032), which is also the name of
// whoever holds it. Keys are equal when their bytes are. A PublicKey need not be
// a valid one: [PublicKey.Check] tells.
type PublicKey [32]byte

// ParsePublicKey reads the 64 lower-case hexadecimal digits that
// [PublicKey.String] writes, and nothing else: the error is [ErrMalformed]. It
// does not check the key.
func ParsePublicKey(s string) (PublicKey, error) {
	var k PublicKey
	if !decodeHex(k[:], s) {
		return PublicKey{}, ErrMalformed
	}
	return k, nil
}

// decodeHex fills dst from exactly that many bytes in canonical, lower-case hex.
func decodeHex(dst []byte, s string) bool {
	b, err := hex.DecodeString(s)
	if err != nil || len(b) != len(dst) || hex.EncodeToString(b) != s {
		return false
	}
	copy(dst, b)
	return true
}

// String returns the key as 64 lower-case hexadecimal digits.
func (k PublicKey) String() string { return hex.EncodeToString(k[:]) }

// Check returns [ErrWeakKey] if k has a small order, is not canonically encoded
// or is no point of the curve. Nobody can be shown to hold such a key, since
// anybody can make signatures that a verifier following RFC 8032 accepts for it.
func (k PublicKey) Check() error {
	_, err := k.point()
	return err
}

// point decodes k, unless Check refuses it.
func (k *PublicKey) point() (*edwards25519.Point, error) {
	p := new(edwards25519.Point)
	if !setPoint(p, (*[32]byte)(k)) {
		return nil, ErrWeakKey
	}
	return p, nil
}

// setPoint decodes b into p and reports whether b is the canonical encoding of a
// point that does not have a small order.
//
// Of the encodings that decode, those with y >= p are not canonical, and neither
// are those of x = 0 with the sign bit set; the latter are points of small order.
func setPoint(p *edwards25519.Point, b *[32]byte) bool {
	if !isReduced(b) {
		return false
	}
	if _, err := p.SetBytes(b[:]); err != nil {
		return false
	}
	var q edwards25519.Point
	return q.MultByCofactor(p).Equal(edwards25519.NewIdentityPoint()) == 0
}

// isReduced reports whether the little-endian number in the low 255 bits of b is
// below the prime 2^255-19. It is for public values only.
func isReduced(b *[32]byte) bool {
	if b[31]&0x7f != 0x7f || b[0] < 0xed {
		return true
	}
	for _, c := range b[1:31] {
		if c != 0xff {
			return true
		}
	}
	return false
}

// Verify returns nil if sig is the Ed25519 signature by pub over msg. A pub that
// [PublicKey.Check] refuses is [ErrWeakKey]; everything else that is wrong,
// among it a small-order or non-canonical R, is [ErrSignature].
//
// It is stricter than crypto/ed25519, which accepts such keys (brep.md "Keys").
// As there, the equation is the one without the cofactor.
func Verify(pub PublicKey, msg []byte, sig *[64]byte) error {
	var p edwards25519.Point
	if !setPoint(&p, (*[32]byte)(&pub)) {
		return ErrWeakKey
	}
	if !setPoint(&p, (*[32]byte)(sig[:32])) || !ed25519.Verify(pub[:], msg, sig[:]) {
		return ErrSignature
	}
	return nil
}
