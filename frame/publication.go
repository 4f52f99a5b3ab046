package frame

import (
	"encoding/binary"
	"math"
)

// A Publication is the payload of a PUBLISH, MESSAGE, ROOM_SEND or ROOM_MESSAGE
// frame (spec native.md, "Frame types"): name length u16 ‖ name ‖ content. The
// name is that of a topic or a room; what it may be is not checked here.
type Publication struct {
	Name    []byte // at most 65,535 bytes
	Content []byte
}

var errPublication = malformed("name of a publication is cut")

// Append appends the encoded payload to dst and returns the extended slice. It
// panics when the name does not fit.
func (p *Publication) Append(dst []byte) []byte {
	if len(p.Name) > math.MaxUint16 {
		panic("frame: name of a publication is longer than 65,535 bytes")
	}
	dst = binary.BigEndian.AppendUint16(dst, uint16(len(p.Name)))
	dst = append(dst, p.Name...)
	return append(dst, p.Content...)
}

// DecodePublication decodes such a payload, which the result aliases. The error is
// ErrMalformed, wrapped. Nothing is allocated.
func DecodePublication(b []byte) (Publication, error) {
	if len(b) < 2 || len(b)-2 < int(binary.BigEndian.Uint16(b)) {
		return Publication{}, errPublication
	}
	end := 2 + int(binary.BigEndian.Uint16(b))
	return Publication{Name: b[2:end:end], Content: b[end:]}, nil
}
