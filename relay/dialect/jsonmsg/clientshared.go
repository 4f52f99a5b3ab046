package jsonmsg

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"

	"golang.org/x/crypto/nacl/secretbox"

	"github.com/sotto-relay/sotto/crypto"
)

// A SharedKey seals what goes to many: to a room or a topic whose members have all
// been given the same 32 bytes, by messages to each of them, say. Printing one shows
// no secret. It may be used concurrently.
//
// It says that one of those who have the key has written something for that room or
// topic, and not which of them: From is the relay's word. Who leaves still has the
// key.
type SharedKey struct {
	derive func(name string) *[32]byte // a closure: nothing can print what is in one
}

// NewSharedKey returns the key that 32 random bytes are, else crypto.ErrMalformed.
func NewSharedKey(secret []byte) (*SharedKey, error) {
	if len(secret) != 32 {
		return nil, crypto.ErrMalformed
	}
	own := [32]byte(secret)
	return &SharedKey{func(name string) *[32]byte {
		h := hmac.New(sha256.New, own[:])
		h.Write([]byte("sotto shared key v1\x00" + name))
		return (*[32]byte)(h.Sum(nil))
	}}, nil
}

// Seal returns what to send to a room or to publish to a topic: the standard base64
// of a random nonce of 24 bytes and NaCl's secretbox (XSalsa20, Poly1305) under the
// HMAC-SHA-256, with the shared key, of "sotto shared key v1", a zero byte and the
// name.
func (k *SharedKey) Seal(name string, data []byte) (ct string, err error) {
	var nonce [24]byte
	if _, err := rand.Read(nonce[:]); err != nil {
		return "", err
	}
	return base64.StdEncoding.EncodeToString(secretbox.Seal(nonce[:], data, &nonce, k.derive(name))), nil
}

// Open opens what came in a room or with a topic. It is crypto.ErrMalformed if it is
// none of Seal's, and crypto.ErrOpen if it was not sealed for that name with this
// key.
func (k *SharedKey) Open(name, ct string) ([]byte, error) {
	b, err := decode(ct)
	if err != nil || len(b) < 24+secretbox.Overhead {
		return nil, crypto.ErrMalformed
	}
	data, ok := secretbox.Open(nil, b[24:], (*[24]byte)(b), k.derive(name))
	if !ok {
		return nil, crypto.ErrOpen
	}
	return data, nil
}
