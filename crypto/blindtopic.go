package crypto

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"math"
	"strings"
)

// maxBlindLevels is how many levels of 22 characters a topic of 512 bytes has.
const maxBlindLevels = 22

// ErrBlindFilter refuses a filter that relays cannot match without learning more.
var ErrBlindFilter = errors.New("crypto: blinded filters have + as the last level and # only; with the flat option they have + anywhere, and relays see which levels are equal")

// BlindTopic returns the name of a topic for relays (native.md "Blinded topics"):
// each level becomes 22 characters, which depend on the key, the level, and those
// above it. With flat they do not depend on those above it: then relays see which
// levels are equal. Other keys of the group, those of other epochs, make other
// names.
//
// A name that is empty, or has a wildcard, a NUL or more than 22 levels, is
// [ErrMalformed].
func (k *GroupKey) BlindTopic(topic string, flat bool) (string, error) {
	return k.blind(topic, flat, false)
}

// BlindFilter returns the filter that matches the names of the topics that a filter
// matches. A filter that is empty, or has a wildcard in a level, a # before the last,
// a NUL or more than 22 levels, is [ErrMalformed]. One with + before the last level
// is [ErrBlindFilter], unless it is flat.
func (k *GroupKey) BlindFilter(filter string, flat bool) (string, error) {
	return k.blind(filter, flat, true)
}

func (k *GroupKey) blind(name string, flat, wild bool) (string, error) {
	levels := strings.Split(name, "/")
	if name == "" || len(levels) > maxBlindLevels {
		return "", ErrMalformed
	}
	key := k.topics()
	var above []byte
	for i, level := range levels {
		last := i == len(levels)-1
		switch {
		case wild && level == "#" && last:
			continue
		case wild && level == "+" && (last || flat):
			continue
		case wild && level == "+":
			return "", ErrBlindFilter
		case strings.ContainsAny(level, "+#\x00") || len(level) > math.MaxUint16:
			return "", ErrMalformed
		}
		if flat {
			above = above[:0]
		}
		above = binary.BigEndian.AppendUint16(above, uint16(len(level)))
		above = append(above, level...)
		mac := hmac.New(sha256.New, key[:])
		mac.Write(above)
		levels[i] = base64.RawURLEncoding.EncodeToString(mac.Sum(nil)[:16])
	}
	return strings.Join(levels, "/"), nil
}
