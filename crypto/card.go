package crypto

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math"
	"time"
)

// A card (native.md "Sealing") is the version (1, 01), the identity's Ed25519 key
// (32), a serial (8), not-before and not-after (8 each, milliseconds since 1970),
// an X25519 key (32), an X-Wing key (1216), and the identity's signature (64) over
// a label and all of that. Integers are big-endian.
const (
	cardVersion = 1
	cardLabel   = "sotto card v1\x00"
	cardSigned  = 1 + 32 + 3*8 + 32 + xwingSize
	xwingSize   = 1216

	// CardSize is the length of a card in bytes.
	CardSize = cardSigned + 64

	// MaxCardLife is the longest that a card may be valid for.
	MaxCardLife = 90 * 24 * time.Hour
)

// A Card is an identity's word on which keys to seal messages to it with. It is
// immutable.
type Card struct {
	identity            PublicKey
	serial              uint64
	notBefore, notAfter time.Time
	x25519, xwing       *SealKey
	encoded             []byte
}

// ParseCard reads a card and verifies it: whoever made it holds the identity's
// secret key. Whether it is valid by now is for [Card.ValidAt], and whether it is
// the newest one for whoever knows others.
//
// A wrong length or version, a time to be valid that is none or longer than
// [MaxCardLife], and an X-Wing key that is none are [ErrMalformed]; a weak identity
// or X25519 key is [ErrWeakKey], and a wrong signature [ErrSignature].
func ParseCard(b []byte) (*Card, error) {
	if len(b) != CardSize || b[0] != cardVersion {
		return nil, ErrMalformed
	}
	encoded := append([]byte(nil), b...)
	id := PublicKey(encoded[1:33])
	if err := Verify(id, cardToSign(encoded), (*[64]byte)(encoded[cardSigned:])); err != nil {
		return nil, err
	}
	from, to := binary.BigEndian.Uint64(encoded[41:]), binary.BigEndian.Uint64(encoded[49:])
	if to > math.MaxInt64 || from > to || to-from > uint64(MaxCardLife/time.Millisecond) {
		return nil, ErrMalformed
	}
	sum := sha256.Sum256(encoded)
	name := KeyID(sum[:8])
	x25519, err := NewSealKey(id, SuiteX25519, name, encoded[57:89])
	if err != nil {
		return nil, err
	}
	xwing, err := NewSealKey(id, SuiteXWing, name, encoded[89:cardSigned])
	if err != nil {
		return nil, err
	}
	return &Card{
		identity: id, serial: binary.BigEndian.Uint64(encoded[33:]),
		notBefore: time.UnixMilli(int64(from)), notAfter: time.UnixMilli(int64(to)),
		x25519: x25519, xwing: xwing, encoded: encoded,
	}, nil
}

func cardToSign(card []byte) []byte {
	return append([]byte(cardLabel), card[:cardSigned]...)
}

// Identity returns whose card it is.
func (c *Card) Identity() PublicKey { return c.identity }

// Serial returns the number of the card: of two of an identity's, the one with the
// higher number is the newer.
func (c *Card) Serial() uint64 { return c.serial }

// NotBefore returns the first moment that the card is valid at.
func (c *Card) NotBefore() time.Time { return c.notBefore }

// NotAfter returns the last moment that the card is valid at.
func (c *Card) NotAfter() time.Time { return c.notAfter }

// ValidAt reports whether the card is valid at a time.
func (c *Card) ValidAt(t time.Time) bool {
	return !t.Before(c.notBefore) && !t.After(c.notAfter)
}

// KeyID returns the id by which what is sealed to the card names it.
func (c *Card) KeyID() KeyID { return c.xwing.id }

// SealKey returns the card's key of a suite; nil if there is none.
func (c *Card) SealKey(s Suite) *SealKey {
	switch s {
	case SuiteX25519:
		return c.x25519
	case SuiteXWing:
		return c.xwing
	}
	return nil
}

// Bytes returns the encoded card, a copy.
func (c *Card) Bytes() []byte { return append([]byte(nil), c.encoded...) }

// CardKeys are the secret halves of a card's keys. They are immutable, and show
// no secret however they are printed.
type CardKeys struct {
	secret hidden[[64]byte] // X25519 private key 32 ‖ X-Wing seed 32
	public [32 + xwingSize]byte
}

// GenerateCardKeys returns new random keys.
func GenerateCardKeys() (*CardKeys, error) {
	var secret [64]byte
	if _, err := rand.Read(secret[:]); err != nil {
		return nil, fmt.Errorf("crypto: generating the keys of a card: %w", err)
	}
	return NewCardKeys(&secret)
}

// NewCardKeys returns the keys whose [CardKeys.Secret] is given: the 32 bytes of an
// X25519 key, and the 32-byte seed of an X-Wing key. Zeros are [ErrWeakKey].
func NewCardKeys(secret *[64]byte) (*CardKeys, error) {
	k := &CardKeys{secret: hide(*secret)}
	public := k.public[:0]
	for i, s := range []Suite{SuiteX25519, SuiteXWing} {
		key, err := s.privateKey(secret[32*i:][:32])
		if err != nil {
			return nil, err
		}
		public = append(public, key.PublicKey().Bytes()...)
	}
	return k, nil
}

// Secret returns what NewCardKeys takes. It opens what was sealed to every card
// with these keys: it is kept like a secret key, for as long as such messages may
// come, and no longer.
func (k *CardKeys) Secret() [64]byte { return k.secret() }

// OpenKeys returns the keys to open with what is sealed to a card. A card that has
// other keys is [ErrUnknownKey].
func (k *CardKeys) OpenKeys(c *Card) ([]*OpenKey, error) {
	if string(c.encoded[57:cardSigned]) != string(k.public[:]) {
		return nil, ErrUnknownKey
	}
	secret := k.secret()
	var keys []*OpenKey
	for i, s := range []Suite{SuiteX25519, SuiteXWing} {
		key, err := NewOpenKey(c.identity, s, c.KeyID(), secret[32*i:][:32])
		if err != nil {
			return nil, err
		}
		keys = append(keys, key)
	}
	return keys, nil
}

// NewCard signs a card. Times are cut to the millisecond; [ErrMalformed] are those
// that ParseCard refuses, and those before 1970.
func NewCard(id *Identity, serial uint64, notBefore, notAfter time.Time, k *CardKeys) (*Card, error) {
	if notBefore.UnixMilli() < 0 || notAfter.UnixMilli() < 0 {
		return nil, ErrMalformed
	}
	b := make([]byte, 0, CardSize)
	b = append(b, cardVersion)
	b = append(b, id.public[:]...)
	b = binary.BigEndian.AppendUint64(b, serial)
	b = binary.BigEndian.AppendUint64(b, uint64(notBefore.UnixMilli()))
	b = binary.BigEndian.AppendUint64(b, uint64(notAfter.UnixMilli()))
	b = append(b, k.public[:]...)
	sig := id.Sign(cardToSign(b))
	return ParseCard(append(b, sig[:]...))
}
