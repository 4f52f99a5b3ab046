package frame

import (
	"encoding/binary"
	"strings"
	"unicode/utf8"
)

// An Error is the payload of an ERROR frame (spec native.md): code u16 ‖
// sentence UTF-8, and then id 16 when a frame with an id caused it. Whether the
// id is there is said by the frame's flags.
type Error struct {
	Code     Code
	Sentence string   // fixed, without details of the relay
	ID       [16]byte // of the frame that caused it; zero for none
}

// Flags returns the flags that the header of the frame needs: FlagErrorID when
// there is an id, else 0.
func (e *Error) Flags() uint8 {
	if e.ID == [16]byte{} {
		return 0
	}
	return FlagErrorID
}

// Append appends the encoded payload to dst and returns the extended slice. What
// is not UTF-8 in the sentence is replaced by U+FFFD.
func (e *Error) Append(dst []byte) []byte {
	dst = binary.BigEndian.AppendUint16(dst, uint16(e.Code))
	dst = append(dst, strings.ToValidUTF8(e.Sentence, "\uFFFD")...)
	if e.ID != [16]byte{} {
		dst = append(dst, e.ID[:]...)
	}
	return dst
}

var (
	errErrorLength   = malformed("ERROR is too short")
	errErrorID       = malformed("ERROR announces an id that is zero")
	errErrorSentence = malformed("sentence of an ERROR is not UTF-8")
)

// DecodeError decodes the payload of an ERROR frame, given the flags of its
// header, of which only FlagErrorID matters. The payload is not aliased. What is
// too short, announces an id that is zero, or is not UTF-8 is ErrMalformed.
func DecodeError(flags uint8, b []byte) (Error, error) {
	var e Error
	if flags&FlagErrorID != 0 {
		if len(b) < 16 {
			return Error{}, errErrorLength
		}
		e.ID = [16]byte(b[len(b)-16:])
		if e.ID == [16]byte{} {
			return Error{}, errErrorID
		}
		b = b[:len(b)-16]
	}
	switch {
	case len(b) < 2:
		return Error{}, errErrorLength
	case !utf8.Valid(b[2:]):
		return Error{}, errErrorSentence
	}
	e.Code, e.Sentence = Code(binary.BigEndian.Uint16(b)), string(b[2:])
	return e, nil
}
