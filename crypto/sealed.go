package crypto

import (
	"crypto/hpke"
	"encoding/binary"
	"math"
)

// A SEALED payload (native.md "Sealing") is the recipient's Ed25519 key (32), the
// suite (1), the key id (8), and HPKE's encapsulated key (32, or 1120 with
// X-Wing) and ciphertext with its tag (16). The plaintext is a length (4,
// big-endian, not counting itself), a content with its type byte, and zeros up to
// a Padmé length.
const (
	typeSealed = 0x1c
	sealLabel  = "sotto seal v1\x00"
	sealedHead = targetSize + 1 + 8
	lengthSize = 4
)

// Seal makes the payload of a SEALED frame with that message id, and the
// signature for the frame's header. Only the holder of the key's private half can
// open it, and only as a frame from this sender, with this id. What
// [Content.AppendBinary] refuses and content of 1 GiB or more are [ErrMalformed],
// a low-order key is [ErrWeakKey].
func Seal(from *Identity, to *SealKey, id [16]byte, c Content) (payload []byte, sig [64]byte, err error) {
	plaintext, err := pad(c)
	if err != nil {
		return nil, sig, err
	}
	info := sealInfo(to.suite, from.public, to.owner, id)
	sealed, err := hpke.Seal(to.key, hpke.HKDFSHA256(), hpke.AES256GCM(), info, plaintext)
	if err != nil { // only the exchange with a low-order key can fail
		return nil, sig, ErrWeakKey
	}
	payload = make([]byte, 0, sealedHead+len(sealed))
	payload = append(payload, to.owner[:]...)
	payload = append(payload, byte(to.suite))
	payload = append(payload, to.id[:]...)
	payload = append(payload, sealed...)
	return payload, SignFrame(from, typeSealed, id, payload), nil
}

// OpenSealed opens the payload of a SEALED frame from sender with that message
// id and header signature, with the one of the keys that it is sealed to.
//
// Too short a payload, no content inside or wrong padding is [ErrMalformed], an
// unknown suite or a key that is not among keys [ErrUnknownKey], a weak sender
// [ErrWeakKey], a wrong signature [ErrSignature], and everything else [ErrOpen].
func OpenSealed(sender PublicKey, id [16]byte, sig *[64]byte, payload []byte, keys ...*OpenKey) (Content, error) {
	if len(payload) < sealedHead {
		return Content{}, ErrMalformed
	}
	if err := VerifyFrame(sender, typeSealed, id, payload, sig); err != nil {
		return Content{}, err
	}
	key := keyFor(payload, keys)
	if key == nil {
		return Content{}, ErrUnknownKey
	}
	info := sealInfo(key.suite, sender, key.owner, id)
	plaintext, err := hpke.Open(key.key(), hpke.HKDFSHA256(), hpke.AES256GCM(), info, payload[sealedHead:])
	if err != nil {
		return Content{}, ErrOpen
	}
	return unpad(plaintext)
}

// keyFor finds the key that the head of a payload names, or nil.
func keyFor(payload []byte, keys []*OpenKey) *OpenKey {
	want := keyName{
		owner: PublicKey(payload[:targetSize]),
		suite: Suite(payload[targetSize]),
		id:    KeyID(payload[targetSize+1 : sealedHead]),
	}
	for _, k := range keys {
		if k.keyName == want {
			return k
		}
	}
	return nil
}

func sealInfo(s Suite, sender, recipient PublicKey, id [16]byte) []byte {
	b := make([]byte, 0, len(sealLabel)+1+32+32+16)
	b = append(b, sealLabel...)
	b = append(b, byte(s))
	b = append(b, sender[:]...)
	b = append(b, recipient[:]...)
	return append(b, id[:]...)
}

func pad(c Content) ([]byte, error) {
	n := c.encodedLen()
	if n > math.MaxInt32/2 { // so that nothing below overflows, in 32 bits either
		return nil, ErrMalformed
	}
	b := make([]byte, lengthSize, padme(lengthSize+n))
	binary.BigEndian.PutUint32(b, uint32(n))
	b, err := c.AppendBinary(b)
	if err != nil {
		return nil, err
	}
	return b[:cap(b)], nil
}

func unpad(b []byte) (Content, error) {
	if len(b) < lengthSize || len(b) != padme(len(b)) {
		return Content{}, ErrMalformed
	}
	n := binary.BigEndian.Uint32(b)
	b = b[lengthSize:]
	if uint64(n) > uint64(len(b)) || !isZero(b[n:]) {
		return Content{}, ErrMalformed
	}
	return ParseContent(b[:n:n])
}
