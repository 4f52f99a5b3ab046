package mesh

import (
	"encoding/hex"
	"errors"
	"slices"
	"strings"

	"github.com/sotto-relay/sotto/crypto"
)

// An Admission says which relays to link with. It may be called concurrently, and
// must not block.
type Admission interface {
	Admit(relay crypto.PublicKey) bool
}

// Open admits everybody.
type Open struct{}

// Admit returns true.
func (Open) Admit(crypto.PublicKey) bool { return true }

// Closed admits those on the list. Peers of the Config are admitted beside it, as
// soon as their key is known.
type Closed []crypto.PublicKey

// Admit says whether a key is on the list.
func (c Closed) Admit(relay crypto.PublicKey) bool { return slices.Contains(c, relay) }

// A Peer is a relay that the operator names.
type Peer struct {
	Address string            // a ws or wss URL
	Key     *crypto.PublicKey // nil: that of whoever is there first is remembered
}

var errPeer = errors.New("mesh: a peer is a ws or wss URL, and perhaps # and its key in 64 hex digits")

// ParsePeer reads URL or URL#KEY, the key in hex.
func ParsePeer(s string) (Peer, error) {
	address, digits, pinned := strings.Cut(s, "#")
	if CheckAddress(address, true) != nil {
		return Peer{}, errPeer
	}
	p := Peer{Address: address}
	if pinned {
		b, err := hex.DecodeString(digits)
		if err != nil || len(b) != len(crypto.PublicKey{}) {
			return Peer{}, errPeer
		}
		key := crypto.PublicKey(b)
		if err := key.Check(); err != nil {
			return Peer{}, err
		}
		p.Key = &key
	}
	return p, nil
}
