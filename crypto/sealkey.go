package crypto

import "crypto/hpke"

// A Suite says with which key encapsulation a message is sealed. Both suites go
// on with HKDF-SHA256 and AES-256-GCM, in the base mode of HPKE (RFC 9180).
type Suite uint8

const (
	SuiteX25519 Suite = 2 // DHKEM(X25519, HKDF-SHA256)
	SuiteXWing  Suite = 3 // X-Wing: ML-KEM-768 with X25519
)

func (s Suite) publicKey(b []byte) (hpke.PublicKey, error) {
	switch {
	case s == SuiteX25519 && len(b) == 32:
		pub, err := X25519Key(b).public()
		if err != nil {
			return nil, err
		}
		return hpke.NewDHKEMPublicKey(pub)
	case s == SuiteXWing:
		key, err := hpke.MLKEM768X25519().NewPublicKey(b)
		if err != nil {
			return nil, ErrMalformed
		}
		return key, nil
	}
	return nil, ErrMalformed
}

func (s Suite) privateKey(b []byte) (hpke.PrivateKey, error) {
	switch s {
	case SuiteX25519:
		key, err := NewX25519PrivateKey(b)
		if err != nil {
			return nil, err
		}
		return hpke.NewDHKEMPrivateKey(key.key())
	case SuiteXWing:
		key, err := hpke.MLKEM768X25519().NewPrivateKey(b)
		if err != nil {
			return nil, ErrMalformed
		}
		if isZero(b) {
			return nil, ErrWeakKey
		}
		return key, nil
	}
	return nil, ErrMalformed
}

// A KeyID tells the sealing keys of one identity apart: the first 8 bytes of the
// SHA-256 of the card that has them, or zero for the key derived from the
// identity, which is of [SuiteX25519].
type KeyID [8]byte

// keyName is what a SEALED payload says about the key it is sealed to.
type keyName struct {
	owner PublicKey
	suite Suite
	id    KeyID
}

// A SealKey is a public key to seal messages to.
type SealKey struct {
	keyName
	key hpke.PublicKey
}

// NewSealKey returns the public key of that suite in a card of owner: 32 bytes
// for [SuiteX25519], 1216 for [SuiteXWing]. Whoever calls it has verified the
// card. An owner that [PublicKey.Check] refuses and an X25519 key that is not
// canonical are [ErrWeakKey]; an unknown suite, a zero id and a key that cannot be
// parsed are [ErrMalformed]. A low-order key is found by [Seal].
func NewSealKey(owner PublicKey, suite Suite, id KeyID, public []byte) (*SealKey, error) {
	if id == (KeyID{}) {
		return nil, ErrMalformed
	}
	return newSealKey(keyName{owner, suite, id}, public)
}

// SealKey returns the key derived from the identity k, to seal to somebody of
// whom nothing else is known. The error is that of [PublicKey.Check].
func (k PublicKey) SealKey() (*SealKey, error) {
	x, err := k.X25519()
	if err != nil {
		return nil, err
	}
	return newSealKey(keyName{owner: k, suite: SuiteX25519}, x[:])
}

func newSealKey(name keyName, public []byte) (*SealKey, error) {
	if err := name.owner.Check(); err != nil {
		return nil, err
	}
	key, err := name.suite.publicKey(public)
	if err != nil {
		return nil, err
	}
	return &SealKey{name, key}, nil
}

// An OpenKey is the private half of a [SealKey]. Printing one shows no secret.
type OpenKey struct {
	keyName
	key hidden[hpke.PrivateKey]
}

// NewOpenKey returns the private key that belongs to a key in a card of owner:
// the 32 bytes of an X25519 key, or the 32-byte seed of an X-Wing key. Zeros are
// [ErrWeakKey]; an unknown suite, a zero id and a wrong length are [ErrMalformed].
func NewOpenKey(owner PublicKey, suite Suite, id KeyID, private []byte) (*OpenKey, error) {
	if id == (KeyID{}) {
		return nil, ErrMalformed
	}
	key, err := suite.privateKey(private)
	if err != nil {
		return nil, err
	}
	return &OpenKey{keyName{owner, suite, id}, hide(key)}, nil
}

// OpenKey returns the private half of [PublicKey.SealKey].
func (id *Identity) OpenKey() (*OpenKey, error) {
	key, err := hpke.NewDHKEMPrivateKey(id.derived.key())
	if err != nil {
		return nil, err
	}
	return &OpenKey{keyName{owner: id.public, suite: SuiteX25519}, hide(key)}, nil
}
