package crypto

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/binary"
)

// Labels of what is derived with HKDF-SHA256 (RFC 5869), without a salt. Who holds
// the secret holds everything derived from it.
const (
	vaultLabel    = "sotto vault v1\x00"
	cardKeysLabel = "sotto card keys v1\x00"
)

// derive returns n bytes for a label, and for what distinguishes those that have
// the same.
func derive(secret []byte, label string, rest []byte, n int) []byte {
	b, err := hkdf.Key(sha256.New, secret, nil, label+string(rest), n)
	if err != nil {
		panic(err) // only for lengths that we don't ask for
	}
	return b
}

// newAEAD returns AES-256-GCM that chooses a random nonce (12 bytes) and puts it
// before the ciphertext. One key is good for 2^32 messages.
func newAEAD(key []byte) (cipher.AEAD, error) {
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCMWithRandomNonce(block)
}

// A Vault encrypts what a client keeps for itself under a key derived from its
// identity. Printing one shows no secret.
type Vault struct {
	aead hidden[cipher.AEAD]
}

// Vault returns the vault of the identity, which is the same every time.
func (id *Identity) Vault() (*Vault, error) {
	aead, err := newAEAD(derive(id.key().Seed(), vaultLabel, nil, 32))
	if err != nil {
		return nil, err
	}
	return &Vault{hide(aead)}, nil
}

// Seal encrypts a value that is kept at a place. Only Open with that place opens
// it, so values cannot be exchanged; an older value of the same place can.
func (v *Vault) Seal(place string, value []byte) []byte {
	return v.aead().Seal(nil, nil, value, []byte(place))
}

// Open returns the value that was sealed for a place, or [ErrOpen].
func (v *Vault) Open(place string, sealed []byte) ([]byte, error) {
	value, err := v.aead().Open(nil, nil, sealed, []byte(place))
	if err != nil {
		return nil, ErrOpen
	}
	return value, nil
}

// CardKeys returns the keys of a card that are derived from the identity: the same
// for every call with that number. They are for those who can keep no keys. Unlike
// those of [GenerateCardKeys] they cannot be erased: whoever gets hold of the
// identity opens everything that was ever sealed to them.
func (id *Identity) CardKeys(number uint64) (*CardKeys, error) {
	secret := derive(id.key().Seed(), cardKeysLabel, binary.BigEndian.AppendUint64(nil, number), 64)
	return NewCardKeys((*[64]byte)(secret))
}
