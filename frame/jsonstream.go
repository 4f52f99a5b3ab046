package frame

import (
	"encoding/binary"
	"math"
)

// JSONHeadSize is the length of what stands before each message of the json
// dialect in a stream: its length in bytes, u32 big-endian (spec json.md).
const JSONHeadSize = 4

// AppendJSONHead appends what stands before a message of n bytes. It panics when
// n does not fit.
func AppendJSONHead(dst []byte, n int) []byte {
	if uint64(n) > math.MaxUint32 {
		panic("frame: a message of 4 GiB or more")
	}
	return binary.BigEndian.AppendUint32(dst, uint32(n))
}

// NextJSON finds the first message in b, the bytes of a stream that have been
// read and not consumed yet. whole says that it is there: it is b[skip:skip+n],
// which may be empty.
//
// max bounds n. A longer message is ErrTooLarge as soon as its length is there,
// with that length as n. There is no other error: any bytes are messages.
func NextJSON(b []byte, max int) (skip, n int, whole bool, err error) {
	if len(b) < JSONHeadSize {
		return 0, 0, false, nil
	}
	size := int64(binary.BigEndian.Uint32(b))
	switch {
	case size > int64(max):
		return JSONHeadSize, int(min(size, math.MaxInt)), false, ErrTooLarge
	case size > int64(len(b)-JSONHeadSize):
		return 0, 0, false, nil
	}
	return JSONHeadSize, int(size), true, nil
}
