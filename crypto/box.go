package crypto

import (
	"crypto/rand"

	"golang.org/x/crypto/chacha20"
	"golang.org/x/crypto/nacl/secretbox"
	//lint:ignore SA1019 libsodium's box is XChaCha20 with the bare MAC, not the AEAD of RFC 8439
	"golang.org/x/crypto/poly1305"
	//lint:ignore SA1019 NaCl derives the key of a box with HSalsa20, which is nowhere else
	"golang.org/x/crypto/salsa20/salsa"
)

// boxOverhead is the length of the tag, with which every box begins.
const boxOverhead = 16

// SealBox encrypts and authenticates msg as NaCl's crypto_box does: X25519,
// XSalsa20 and Poly1305. The box is 16 bytes longer than msg, the nonce fresh
// and random; both have to reach the recipient. The error is [ErrWeakKey].
//
// A box says that one of the two key holders made it. It does not tell the
// recipient's own boxes from the sender's.
func SealBox(from *X25519PrivateKey, to X25519Key, msg []byte) (nonce [24]byte, box []byte, err error) {
	key, err := salsaBoxKey(from, to)
	if err != nil {
		return nonce, nil, err
	}
	if _, err := rand.Read(nonce[:]); err != nil {
		return nonce, nil, err
	}
	return nonce, secretbox.Seal(nil, msg, &nonce, key), nil
}

// OpenBox opens what [SealBox] made. A nonce that is not 24 bytes long or a box
// shorter than its tag is [ErrMalformed], a low-order or non-canonical key
// [ErrWeakKey], and a box that does not open [ErrOpen].
func OpenBox(to *X25519PrivateKey, from X25519Key, nonce, box []byte) ([]byte, error) {
	if len(nonce) != 24 || len(box) < boxOverhead {
		return nil, ErrMalformed
	}
	key, err := salsaBoxKey(to, from)
	if err != nil {
		return nil, err
	}
	msg, ok := secretbox.Open(nil, box, (*[24]byte)(nonce), key)
	if !ok {
		return nil, ErrOpen
	}
	return msg, nil
}

// SealXChaChaBox is [SealBox] with XChaCha20 in the place of XSalsa20, as
// libsodium's crypto_box_curve25519xchacha20poly1305.
func SealXChaChaBox(from *X25519PrivateKey, to X25519Key, msg []byte) (nonce [24]byte, box []byte, err error) {
	key, err := chachaBoxKey(from, to)
	if err != nil {
		return nonce, nil, err
	}
	if _, err := rand.Read(nonce[:]); err != nil {
		return nonce, nil, err
	}
	box, err = xchachaSeal(key, &nonce, msg)
	return nonce, box, err
}

// OpenXChaChaBox opens what [SealXChaChaBox] made, with the errors of [OpenBox].
func OpenXChaChaBox(to *X25519PrivateKey, from X25519Key, nonce, box []byte) ([]byte, error) {
	if len(nonce) != 24 || len(box) < boxOverhead {
		return nil, ErrMalformed
	}
	key, err := chachaBoxKey(to, from)
	if err != nil {
		return nil, err
	}
	return xchachaOpen(key, (*[24]byte)(nonce), box)
}

// salsaBoxKey is nacl/box.Precompute, but for the check that box leaves out.
func salsaBoxKey(private *X25519PrivateKey, peer X25519Key) (*[32]byte, error) {
	shared, err := private.exchange(peer)
	if err != nil {
		return nil, err
	}
	var key [32]byte
	salsa.HSalsa20(&key, new([16]byte), (*[32]byte)(shared), &salsa.Sigma)
	return &key, nil
}

func chachaBoxKey(private *X25519PrivateKey, peer X25519Key) ([]byte, error) {
	shared, err := private.exchange(peer)
	if err != nil {
		return nil, err
	}
	return chacha20.HChaCha20(shared, make([]byte, 16))
}

// xchachaSeal is libsodium's crypto_secretbox_xchacha20poly1305: the first 32
// bytes of the key stream are the key of the MAC, which is over the ciphertext
// alone and stands before it.
func xchachaSeal(key []byte, nonce *[24]byte, msg []byte) ([]byte, error) {
	stream, macKey, err := xchacha(key, nonce)
	if err != nil {
		return nil, err
	}
	box := make([]byte, boxOverhead+len(msg))
	stream.XORKeyStream(box[boxOverhead:], msg)
	poly1305.Sum((*[16]byte)(box), box[boxOverhead:], macKey)
	return box, nil
}

func xchachaOpen(key []byte, nonce *[24]byte, box []byte) ([]byte, error) {
	stream, macKey, err := xchacha(key, nonce)
	if err != nil {
		return nil, err
	}
	if !poly1305.Verify((*[16]byte)(box), box[boxOverhead:], macKey) {
		return nil, ErrOpen
	}
	msg := make([]byte, len(box)-boxOverhead)
	stream.XORKeyStream(msg, box[boxOverhead:])
	return msg, nil
}

// xchacha returns the key stream after its first 32 bytes, and those.
func xchacha(key []byte, nonce *[24]byte) (*chacha20.Cipher, *[32]byte, error) {
	stream, err := chacha20.NewUnauthenticatedCipher(key, nonce[:])
	if err != nil {
		return nil, nil, err
	}
	var macKey [32]byte
	stream.XORKeyStream(macKey[:], macKey[:])
	return stream, &macKey, nil
}
