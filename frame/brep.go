package frame

import (
	"encoding/binary"
	"math"
)

// The header of a brep frame (spec brep.md, "Frame"), which the payload
// follows. Integers are big-endian.
//
//	offset  size  field
//	     0     1  magic, 0x58
//	     1     1  version, 1
//	     2     1  type
//	     3     1  flags
//	     4     4  payload length
//	     8    16  message id
//	    24    32  sender, an Ed25519 public key
//	    56    64  signature, Ed25519, or zero
const (
	BrepHeaderSize = 120

	// A relay sets flags and id of a frame that it passes on in place, and the type
	// of a publication, and leaves every other byte as it came.
	BrepTypeOffset  = 2
	BrepFlagsOffset = 3
	BrepIDOffset    = 8

	brepLengthOffset    = 4
	brepSenderOffset    = 24
	brepSignatureOffset = 56

	brepMagic   = 0x58
	brepVersion = 1
)

var (
	errBrepMagic  = malformed("not a brep frame")
	errBrepShort  = malformed("shorter than a brep header")
	errBrepLength = malformed("payload length is not what follows")
)

// A Brep is one frame of the brep dialect.
type Brep struct {
	Type      Type
	Flags     uint8
	ID        [16]byte // zero is no id
	Sender    [32]byte // Ed25519 public key, not checked
	Signature [64]byte // Ed25519, not checked; zero when unused
	Payload   []byte
}

// DecodeBrep decodes b, which must be exactly one frame. Payload aliases b.
// The error is ErrMalformed or ErrVersion, wrapped. Nothing is allocated.
func DecodeBrep(b []byte) (Brep, error) {
	if err := checkBrepStart(b); err != nil {
		return Brep{}, err
	}
	if len(b) < BrepHeaderSize {
		return Brep{}, errBrepShort
	}
	if uint64(binary.BigEndian.Uint32(b[brepLengthOffset:])) != uint64(len(b)-BrepHeaderSize) {
		return Brep{}, errBrepLength
	}
	return Brep{
		Type:      Type(b[BrepTypeOffset]),
		Flags:     b[BrepFlagsOffset],
		ID:        [16]byte(b[BrepIDOffset:brepSenderOffset]),
		Sender:    [32]byte(b[brepSenderOffset:brepSignatureOffset]),
		Signature: [64]byte(b[brepSignatureOffset:BrepHeaderSize]),
		Payload:   b[BrepHeaderSize:len(b):len(b)],
	}, nil
}

// checkBrepStart checks the magic and version of a frame, as far as they are
// there.
func checkBrepStart(b []byte) error {
	switch {
	case len(b) > 0 && b[0] != brepMagic:
		return errBrepMagic
	case len(b) > 1 && b[1] != brepVersion:
		return ErrVersion
	}
	return nil
}

// Size returns the length of the encoded frame in bytes.
func (f *Brep) Size() int { return BrepHeaderSize + len(f.Payload) }

// Append appends the encoded frame to dst and returns the extended slice. It
// allocates only when dst has no room. A payload of 4 GiB or more does not fit
// the length field: Append panics rather than write a stream that the peer would
// cut elsewhere.
func (f *Brep) Append(dst []byte) []byte {
	if uint64(len(f.Payload)) > math.MaxUint32 {
		panic("frame: payload of a brep frame is 4 GiB or more")
	}
	dst = append(dst, brepMagic, brepVersion, byte(f.Type), f.Flags)
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(f.Payload)))
	dst = append(dst, f.ID[:]...)
	dst = append(dst, f.Sender[:]...)
	dst = append(dst, f.Signature[:]...)
	return append(dst, f.Payload...)
}

// NextBrep finds the first frame in b, the bytes of a stream that have been read
// and not consumed yet. Frames are self-delimiting: skip is always 0, and
// nothing stands between two frames.
//
// When the whole frame is there, n is its length and b[:n] is one for
// DecodeBrep. When more has to be read, n is 0 and err is nil.
//
// max bounds the length of a frame in bytes, header included. A frame that
// announces more is ErrTooLarge as soon as its first 8 bytes are there, and n is
// then the length that it announces, so that a reader that chooses to can pass
// over that many bytes. After ErrMalformed and ErrVersion, which come with the
// first bytes that show them, the stream has lost its framing.
func NextBrep(b []byte, max int) (skip, n int, err error) {
	if err := checkBrepStart(b); err != nil {
		return 0, 0, err
	}
	if len(b) < BrepIDOffset {
		return 0, 0, nil
	}
	size := BrepHeaderSize + int64(binary.BigEndian.Uint32(b[brepLengthOffset:]))
	switch {
	case size > int64(max):
		return 0, int(min(size, math.MaxInt)), ErrTooLarge
	case size > int64(len(b)):
		return 0, 0, nil
	}
	return 0, int(size), nil
}
