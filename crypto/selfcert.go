package crypto

import (
	"crypto/sha256"
	"encoding/base32"
)

// addressSize is the length of a self-certifying address, in characters.
const addressSize = 16

// Address returns the self-certifying address of k in the JSON dialect (json.md
// "register"): the first 16 characters of the base32 (RFC 4648, upper case) of
// its SHA-256, which are 80 bits.
func (k X25519Key) Address() string {
	h := sha256.Sum256(k[:])
	return base32.StdEncoding.EncodeToString(h[:])[:addressSize]
}

// IsAddress reports whether addr has the form of a self-certifying address:
// exactly 16 characters of A–Z and 2–7. It then belongs to the key with that
// [X25519Key.Address] and to nobody else.
func IsAddress(addr string) bool {
	if len(addr) != addressSize {
		return false
	}
	for _, c := range []byte(addr) {
		if (c < 'A' || c > 'Z') && (c < '2' || c > '7') {
			return false
		}
	}
	return true
}
