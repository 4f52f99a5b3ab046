package crypto

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha512"
	"crypto/subtle"
	"fmt"
	"io"
	"log/slog"
)

// An Identity is an Ed25519 key pair, whose public half is the name of whoever
// holds it, with the X25519 key pair that messages to that name are sealed to.
//
// It is used as *Identity, is immutable and safe for concurrent use. However it
// is printed, logged or marshalled, only the public key shows.
type Identity struct {
	public   PublicKey
	key      hidden[ed25519.PrivateKey]
	derived  *X25519PrivateKey
	separate *X25519PrivateKey // nil: there is none
}

// GenerateIdentity returns a new random identity.
func GenerateIdentity() (*Identity, error) {
	seed := make([]byte, ed25519.SeedSize)
	if _, err := rand.Read(seed); err != nil {
		return nil, fmt.Errorf("crypto: generating an identity: %w", err)
	}
	return IdentityFromSeed(seed)
}

// IdentityFromSeed returns the identity that the 32-byte seed of RFC 8032 stands
// for. A wrong length is [ErrMalformed], a seed of zeros is [ErrWeakKey].
func IdentityFromSeed(seed []byte) (*Identity, error) {
	if len(seed) != ed25519.SeedSize {
		return nil, ErrMalformed
	}
	if isZero(seed) {
		return nil, ErrWeakKey
	}
	// As libsodium's crypto_sign_ed25519_sk_to_curve25519 has it: the scalar
	// that RFC 8032 derives from the seed serves as the X25519 key.
	h := sha512.Sum512(seed)
	h[0] &= 248
	h[31] &= 127
	h[31] |= 64
	derived, err := NewX25519PrivateKey(h[:32])
	if err != nil {
		return nil, err
	}
	key := ed25519.NewKeyFromSeed(seed)
	return &Identity{
		public:  PublicKey(key.Public().(ed25519.PublicKey)),
		key:     hide(key),
		derived: derived,
	}, nil
}

// WithX25519 returns the same identity with a separate X25519 key, as the users
// of MERK-BREP have. ENCRYPTED_DATA and boxes use the separate key; SEALED
// without a card uses the derived one, whether there is a separate one or not.
func (id *Identity) WithX25519(key *X25519PrivateKey) *Identity {
	both := *id
	both.separate = key
	return &both
}

// Public returns the public key.
func (id *Identity) Public() PublicKey { return id.public }

// X25519 returns the identity's X25519 key: the separate one if it has one, else
// the one derived from the seed.
func (id *Identity) X25519() *X25519PrivateKey {
	if id.separate != nil {
		return id.separate
	}
	return id.derived
}

// Sign returns the Ed25519 signature over msg. What is signed must begin with a
// label that says what it is for, or else be nothing that another party chose.
func (id *Identity) Sign(msg []byte) [64]byte {
	return [64]byte(ed25519.Sign(id.key(), msg))
}

// equal reports whether both hold the same secrets.
func (id *Identity) equal(other *Identity) bool {
	return subtle.ConstantTimeCompare(id.text(), other.text()) == 1
}

// String returns the public key in hex.
func (id *Identity) String() string { return id.public.String() }

// Format prints the public key in hex, whatever the verb.
func (id *Identity) Format(s fmt.State, _ rune) { _, _ = io.WriteString(s, id.String()) }

// LogValue logs the public key in hex.
func (id *Identity) LogValue() slog.Value { return slog.StringValue(id.String()) }

// MarshalText returns the public key in hex, so that an identity in a JSON
// document shows nothing else.
func (id *Identity) MarshalText() ([]byte, error) { return []byte(id.String()), nil }
