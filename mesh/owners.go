package mesh

import (
	"bytes"
	"crypto/sha256"

	"github.com/sotto-relay/sotto/crypto"
)

// owners is how many relays are told where a client is.
const owners = 3

// ownersOf returns which of some relays own a client's key: those with the highest
// SHA-256(relay key ‖ client key), the highest first (spec mesh.md, "Where is a
// client"). A relay is given once.
func ownersOf(client crypto.PublicKey, relays ...[]crypto.PublicKey) []crypto.PublicKey {
	type rank struct {
		hash [32]byte
		key  crypto.PublicKey
	}
	var best [owners]rank
	var b [2 * len(client)]byte
	copy(b[len(client):], client[:])
	n := 0
	for _, keys := range relays {
		for _, key := range keys {
			copy(b[:], key[:])
			x := rank{sha256.Sum256(b[:]), key}
			i := n
			for i > 0 && bytes.Compare(best[i-1].hash[:], x.hash[:]) < 0 {
				i--
			}
			if i == owners {
				continue
			}
			copy(best[i+1:], best[i:])
			best[i] = x
			n = min(n+1, owners)
		}
	}
	keys := make([]crypto.PublicKey, n)
	for i := range keys {
		keys[i] = best[i].key
	}
	return keys
}
