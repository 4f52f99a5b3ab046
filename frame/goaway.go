package frame

import (
	"encoding/binary"
	"math"
	"strings"
	"time"
	"unicode/utf8"
)

// A GoAway is the payload of a GOAWAY frame (spec native.md): come back after,
// in milliseconds, u32 ‖ the address of another relay, UTF-8, or nothing. It is
// a hint: an address is followed only when the client was configured with it.
type GoAway struct {
	After   time.Duration // not negative, at most 2^32-1 ms (49 days)
	Address string        // empty for none
}

// Append appends the encoded payload to dst and returns the extended slice.
// After is rounded up to milliseconds and brought into its range. What is not
// UTF-8 in the address is replaced by U+FFFD.
func (g *GoAway) Append(dst []byte) []byte {
	ms := g.After.Milliseconds()
	if g.After%time.Millisecond > 0 {
		ms++
	}
	dst = binary.BigEndian.AppendUint32(dst, uint32(min(max(ms, 0), math.MaxUint32)))
	return append(dst, strings.ToValidUTF8(g.Address, "\uFFFD")...)
}

var (
	errGoAwayLength  = malformed("GOAWAY is too short")
	errGoAwayAddress = malformed("address of a GOAWAY is not UTF-8")
)

// DecodeGoAway decodes the payload of a GOAWAY frame, which it does not alias.
// What is too short or not UTF-8 is ErrMalformed.
func DecodeGoAway(b []byte) (GoAway, error) {
	switch {
	case len(b) < 4:
		return GoAway{}, errGoAwayLength
	case !utf8.Valid(b[4:]):
		return GoAway{}, errGoAwayAddress
	}
	return GoAway{
		After:   time.Duration(binary.BigEndian.Uint32(b)) * time.Millisecond,
		Address: string(b[4:]),
	}, nil
}
