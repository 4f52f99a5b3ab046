package crypto

import (
	"crypto/cipher"
	"crypto/rand"
	"crypto/subtle"
	"encoding/binary"
	"fmt"
	"math"
	"time"
)

// What a group says in a topic or a room (native.md "Groups") is the group's id
// (16), the epoch of the key (4, big-endian), a nonce (12), and AES-256-GCM with the
// name of the topic or room, as it goes over the wire, as additional data. The
// plaintext is that of SEALED: a length, a content, and zeros up to a Padmé length.
//
// A key goes to a member as a content of type [GroupKeys]: id ‖ epoch ‖ key (32).
const (
	groupHead     = 16 + 4
	groupKeySize  = groupHead + 32
	topicKeyLabel = "sotto topic key v1\x00"

	// GroupKeys is the type of a content with a group's key, in SEALED only.
	GroupKeys ContentType = 6
)

// A GroupID names a group, for its owner.
type GroupID [16]byte

// A GroupKey is what the members of a group share for an epoch, in which the
// membership does not shrink. It is immutable, and printing one shows no secret.
//
// It says nothing about who of the members has sealed: that is for a signature.
type GroupKey struct {
	id     GroupID
	epoch  uint32
	secret hidden[[32]byte]
	aead   hidden[cipher.AEAD]
	topics hidden[[32]byte]
}

// NewGroup returns the first key of a new group.
func NewGroup() (*GroupKey, error) {
	var id GroupID
	if _, err := rand.Read(id[:]); err != nil {
		return nil, fmt.Errorf("crypto: generating a group: %w", err)
	}
	return generateGroupKey(id, 1)
}

// Next returns the key of the next epoch, which has nothing to do with this one. Its
// number is the time in seconds since 1970, if that is higher than the one after this:
// so an owner that has lost the latest keys does not give their numbers to others.
func (k *GroupKey) Next(now time.Time) (*GroupKey, error) {
	if k.epoch == math.MaxUint32 {
		return nil, ErrMalformed
	}
	epoch := k.epoch + 1
	if s := now.Unix(); s > int64(epoch) && s < math.MaxUint32 {
		epoch = uint32(s)
	}
	return generateGroupKey(k.id, epoch)
}

func generateGroupKey(id GroupID, epoch uint32) (*GroupKey, error) {
	var secret [32]byte
	if _, err := rand.Read(secret[:]); err != nil {
		return nil, fmt.Errorf("crypto: generating a group's key: %w", err)
	}
	return newGroupKey(id, epoch, secret)
}

func newGroupKey(id GroupID, epoch uint32, secret [32]byte) (*GroupKey, error) {
	if isZero(secret[:]) {
		return nil, ErrWeakKey
	}
	aead, err := newAEAD(secret[:])
	if err != nil {
		return nil, err
	}
	head := binary.BigEndian.AppendUint32(id[:], epoch)
	topics := [32]byte(derive(secret[:], topicKeyLabel, head, 32))
	return &GroupKey{id, epoch, hide(secret), hide(aead), hide(topics)}, nil
}

// ParseGroupKey reads the Data of a content of type [GroupKeys]. Whether its sender
// is the group's owner is for the caller. A wrong length is [ErrMalformed], a key of
// zeros [ErrWeakKey].
func ParseGroupKey(data []byte) (*GroupKey, error) {
	if len(data) != groupKeySize {
		return nil, ErrMalformed
	}
	return newGroupKey(GroupID(data), binary.BigEndian.Uint32(data[16:]), [32]byte(data[groupHead:]))
}

// Content returns what to send to the members, sealed. It has the key in the clear.
func (k *GroupKey) Content() Content {
	secret := k.secret()
	return Content{Type: GroupKeys, Data: append(k.head(), secret[:]...)}
}

func (k *GroupKey) head() []byte {
	return binary.BigEndian.AppendUint32(append(make([]byte, 0, groupKeySize), k.id[:]...), k.epoch)
}

// ID returns the group's id.
func (k *GroupKey) ID() GroupID { return k.id }

// Epoch returns the number of the key.
func (k *GroupKey) Epoch() uint32 { return k.epoch }

// Equal reports whether both are the same key of the same epoch of a group.
func (k *GroupKey) Equal(other *GroupKey) bool {
	a, b := k.secret(), other.secret()
	return k.id == other.id && k.epoch == other.epoch && subtle.ConstantTimeCompare(a[:], b[:]) == 1
}

// Seal encrypts a content for the members, for the topic or room with a name as it
// goes over the wire. The error is that of [Content.AppendBinary]. One key is good
// for 2^32 messages of all members together.
func (k *GroupKey) Seal(name string, c Content) ([]byte, error) {
	plaintext, err := pad(c)
	if err != nil {
		return nil, err
	}
	return k.aead().Seal(k.head(), nil, plaintext, []byte(name)), nil
}

// Open opens what Seal made with this key. Too short a message, no content inside or
// wrong padding is [ErrMalformed], another key's [ErrUnknownKey], and everything else
// [ErrOpen].
func (k *GroupKey) Open(name string, sealed []byte) (Content, error) {
	id, epoch, err := ParseGroupHead(sealed)
	switch {
	case err != nil:
		return Content{}, err
	case id != k.id || epoch != k.epoch:
		return Content{}, ErrUnknownKey
	}
	plaintext, err := k.aead().Open(nil, nil, sealed[groupHead:], []byte(name))
	if err != nil {
		return Content{}, ErrOpen
	}
	return unpad(plaintext)
}

// ParseGroupHead says with which key of which group something is sealed. Too short a
// message is [ErrMalformed].
func ParseGroupHead(sealed []byte) (GroupID, uint32, error) {
	if len(sealed) < groupHead {
		return GroupID{}, 0, ErrMalformed
	}
	return GroupID(sealed), binary.BigEndian.Uint32(sealed[16:]), nil
}
