package crypto

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/sha256"
)

// An ENCRYPTED_DATA payload (brep.md) is the recipient's Ed25519 key (32), an
// ephemeral X25519 key (32) and a nonce (12), then the AES-256-GCM ciphertext
// with its tag (16) of a content with its type byte.
const (
	encryptedHead = targetSize + 32
	minEncrypted  = encryptedHead + 12 + 1 + 16
)

// SealEncrypted makes the payload of an ENCRYPTED_DATA frame, and the signature
// for the frame's header. It is for users of MERK-BREP, whose X25519 key is not
// derived from their identity; to others use [Seal]: ENCRYPTED_DATA does not hide
// lengths, and does not bind the sender, so a third party who saw a ciphertext
// can send it as its own. A toX25519 of low order or not canonical is
// [ErrWeakKey]; a Type above [File] and what [Content.AppendBinary] refuses are
// [ErrMalformed].
func SealEncrypted(from *Identity, to PublicKey, toX25519 X25519Key, c Content) (payload []byte, sig [64]byte, err error) {
	if c.Type > File {
		return nil, sig, ErrMalformed
	}
	plaintext, err := c.AppendBinary(make([]byte, 0, c.encodedLen()))
	if err != nil {
		return nil, sig, err
	}
	ephemeral, err := GenerateX25519()
	if err != nil {
		return nil, sig, err
	}
	aead, err := encryptedAEAD(ephemeral, toX25519)
	if err != nil {
		return nil, sig, err
	}
	pub := ephemeral.Public()
	payload = make([]byte, 0, encryptedHead+aead.Overhead()+len(plaintext))
	payload = append(payload, to[:]...)
	payload = append(payload, pub[:]...)
	payload = aead.Seal(payload, nil, plaintext, nil)
	return payload, from.Sign(payload), nil
}

// OpenEncrypted opens the payload of an ENCRYPTED_DATA frame from sender to self
// with self's X25519 key. The signature is over the payload, or over what comes
// after the recipient's key, as older clients have it; a wrong one is
// [ErrSignature]. Too short a payload or no content inside is [ErrMalformed], a
// weak sender or ephemeral key [ErrWeakKey], and everything else [ErrOpen].
func OpenEncrypted(self *Identity, sender PublicKey, sig *[64]byte, payload []byte) (Content, error) {
	if len(payload) < minEncrypted {
		return Content{}, ErrMalformed
	}
	if PublicKey(payload[:targetSize]) != self.public {
		return Content{}, ErrOpen
	}
	if Verify(sender, payload, sig) != nil {
		if err := Verify(sender, payload[targetSize:], sig); err != nil {
			return Content{}, err
		}
	}
	aead, err := encryptedAEAD(self.X25519(), X25519Key(payload[targetSize:encryptedHead]))
	if err != nil {
		return Content{}, err
	}
	plaintext, err := aead.Open(nil, nil, payload[encryptedHead:], nil)
	if err != nil {
		return Content{}, ErrOpen
	}
	c, err := ParseContent(plaintext)
	// The types above File are for SEALED, which binds the sender.
	if err != nil || c.Type > File {
		return Content{}, ErrMalformed
	}
	return c, nil
}

// encryptedAEAD puts the nonce before the ciphertext, and makes it.
func encryptedAEAD(private *X25519PrivateKey, peer X25519Key) (cipher.AEAD, error) {
	shared, err := private.exchange(peer)
	if err != nil {
		return nil, err
	}
	key := sha256.Sum256(shared)
	block, err := aes.NewCipher(key[:])
	if err != nil {
		return nil, err
	}
	return cipher.NewGCMWithRandomNonce(block)
}
