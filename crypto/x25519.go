package crypto

import (
	"crypto/ecdh"
	"crypto/rand"
	"encoding/base64"
	"fmt"
)

// An X25519Key is an X25519 public key (RFC 7748). It is a type of its own so
// that it cannot be passed where a [PublicKey] is wanted, or the reverse; in
// text the two differ too, since this one is written in base64. As RFC 7748
// requires, the highest bit is ignored. An X25519Key need not be a valid one:
// every exchange with it checks.
type X25519Key [32]byte

// ParseX25519Key reads the standard base64 that [X25519Key.String] writes: 32
// bytes in canonical form, else [ErrMalformed]. It does not check the key.
func ParseX25519Key(s string) (X25519Key, error) {
	b, err := base64.StdEncoding.DecodeString(s)
	if err != nil || len(b) != 32 || base64.StdEncoding.EncodeToString(b) != s {
		return X25519Key{}, ErrMalformed
	}
	return X25519Key(b), nil
}

// String returns the key in standard base64, 44 characters.
func (k X25519Key) String() string { return base64.StdEncoding.EncodeToString(k[:]) }

// public prepares k for an exchange. Without the ignored bit there is one
// encoding of each key, once those of u >= p are refused; low-order points are
// left to the exchange itself.
func (k X25519Key) public() (*ecdh.PublicKey, error) {
	if !isReduced((*[32]byte)(&k)) {
		return nil, ErrWeakKey
	}
	k[31] &= 0x7f
	return ecdh.X25519().NewPublicKey(k[:])
}

// X25519 returns the X25519 key of the identity k: its image under the
// birational map (RFC 7748, section 4.1), so that a name is enough to seal to
// somebody. The error is that of [PublicKey.Check].
func (k PublicKey) X25519() (X25519Key, error) {
	p, err := k.point()
	if err != nil {
		return X25519Key{}, err
	}
	return X25519Key(p.BytesMontgomery()), nil
}

// An X25519PrivateKey is the secret half of an [X25519Key]. Printing one shows
// no secret.
type X25519PrivateKey struct {
	key hidden[*ecdh.PrivateKey]
}

// GenerateX25519 returns a new random key.
func GenerateX25519() (*X25519PrivateKey, error) {
	key, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("crypto: generating an X25519 key: %w", err)
	}
	return &X25519PrivateKey{hide(key)}, nil
}

// NewX25519PrivateKey returns the key that 32 bytes stand for. A wrong length is
// [ErrMalformed], zeros are [ErrWeakKey].
func NewX25519PrivateKey(private []byte) (*X25519PrivateKey, error) {
	if len(private) != 32 {
		return nil, ErrMalformed
	}
	if isZero(private) {
		return nil, ErrWeakKey
	}
	key, err := ecdh.X25519().NewPrivateKey(private)
	if err != nil {
		return nil, ErrMalformed
	}
	return &X25519PrivateKey{hide(key)}, nil
}

// Public returns the public half.
func (k *X25519PrivateKey) Public() X25519Key { return X25519Key(k.key().PublicKey().Bytes()) }

// exchange returns the 32-byte shared secret with the holder of peer, or
// ErrWeakKey.
func (k *X25519PrivateKey) exchange(peer X25519Key) ([]byte, error) {
	pub, err := peer.public()
	if err != nil {
		return nil, err
	}
	shared, err := k.key().ECDH(pub)
	if err != nil {
		return nil, ErrWeakKey
	}
	return shared, nil
}

// isZero reports whether all of b is zero, in time that depends on its length
// only.
func isZero(b []byte) bool {
	var or byte
	for _, c := range b {
		or |= c
	}
	return or == 0
}
