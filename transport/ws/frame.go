package ws

import (
	"encoding/binary"
	"strings"
	"unicode/utf8"

	"github.com/sotto-relay/sotto/transport"
)

// A frame on the wire (RFC 6455, section 5.2):
//
//	byte 0   FIN (0x80), three reserved bits, opcode (low four bits)
//	byte 1   MASK (0x80), length: 0 to 125, or 126: the next 2 bytes hold it,
//	         or 127: the next 8 bytes do. The shortest form is the only one
//	4 bytes  mask key, if MASK
//	payload  XORed with the key, if MASK
const (
	bitFin  = 0x80
	bitsRSV = 0x70
	bitMask = 0x80

	opContinuation = 0
	opText         = 1
	opBinary       = 2
	opClose        = 8
	opPing         = 9
	opPong         = 10

	maxHead    = 14  // longest header
	maxControl = 125 // longest payload of a control frame
)

// Close codes that have a meaning but never travel (RFC 6455, section 7.4.1).
const (
	codeAbnormal     = 1006
	codeTLSHandshake = 1015
)

type head struct {
	fin    bool
	masked bool
	opcode byte
	length uint64
	key    [4]byte
}

func (h *head) control() bool { return h.opcode >= opClose }

// parseHead reads a header from the front of b and returns its size, or 0 if b
// ends within it. A header that no peer may send is a *transport.CloseError.
func parseHead(b []byte) (h head, size int, err error) {
	if len(b) < 2 {
		return head{}, 0, nil
	}
	h = head{fin: b[0]&bitFin != 0, masked: b[1]&bitMask != 0, opcode: b[0] & 0xf, length: uint64(b[1] &^ bitMask)}
	switch {
	case b[0]&bitsRSV != 0:
		return head{}, 0, malformed("reserved bits set")
	case h.opcode > opBinary && h.opcode < opClose || h.opcode > opPong:
		return head{}, 0, malformed("unknown opcode")
	case h.control() && !h.fin:
		return head{}, 0, malformed("fragmented control frame")
	case h.control() && h.length > maxControl:
		return head{}, 0, malformed("control frame too long")
	}

	size = 2
	shortest := uint64(0)
	switch h.length {
	case 126:
		if len(b) < 4 {
			return head{}, 0, nil
		}
		h.length, shortest, size = uint64(binary.BigEndian.Uint16(b[2:])), 126, 4
	case 127:
		if len(b) < 10 {
			return head{}, 0, nil
		}
		h.length, shortest, size = binary.BigEndian.Uint64(b[2:]), 1<<16, 10
	}
	if h.length < shortest || h.length > 1<<63-1 {
		return head{}, 0, malformed("malformed length")
	}
	if h.masked {
		if len(b) < size+4 {
			return head{}, 0, nil
		}
		copy(h.key[:], b[size:])
		size += 4
	}
	return h, size, nil
}

// headSize is the size of the header of an unfragmented frame.
func headSize(length int, masked bool) int {
	size := 2
	switch {
	case length >= 1<<16:
		size = 10
	case length > maxControl:
		size = 4
	}
	if masked {
		size += 4
	}
	return size
}

// appendHead appends the header of an unfragmented frame.
func appendHead(b []byte, opcode byte, length int, masked bool, key [4]byte) []byte {
	mask := byte(0)
	if masked {
		mask = bitMask
	}
	b = append(b, bitFin|opcode)
	switch {
	case length >= 1<<16:
		b = binary.BigEndian.AppendUint64(append(b, mask|127), uint64(length))
	case length > maxControl:
		b = binary.BigEndian.AppendUint16(append(b, mask|126), uint16(length))
	default:
		b = append(b, mask|byte(length))
	}
	if masked {
		b = append(b, key[:]...)
	}
	return b
}

// appendControl appends a whole control frame.
func appendControl(b []byte, opcode byte, payload []byte, masked bool, key [4]byte) []byte {
	b = appendHead(b, opcode, len(payload), masked, key)
	b = append(b, payload...)
	if masked {
		mask(b[len(b)-len(payload):], key, 0)
	}
	return b
}

// mask XORs b with key, where b begins at offset pos of the payload. It is its
// own inverse.
func mask(b []byte, key [4]byte, pos int) {
	k := [4]byte{key[pos&3], key[(pos+1)&3], key[(pos+2)&3], key[(pos+3)&3]}
	k4 := binary.LittleEndian.Uint32(k[:])
	k8 := uint64(k4)<<32 | uint64(k4)
	for len(b) >= 32 {
		c := b[:32:32]
		binary.LittleEndian.PutUint64(c[0:], binary.LittleEndian.Uint64(c[0:])^k8)
		binary.LittleEndian.PutUint64(c[8:], binary.LittleEndian.Uint64(c[8:])^k8)
		binary.LittleEndian.PutUint64(c[16:], binary.LittleEndian.Uint64(c[16:])^k8)
		binary.LittleEndian.PutUint64(c[24:], binary.LittleEndian.Uint64(c[24:])^k8)
		b = b[32:]
	}
	for i := range b {
		b[i] ^= k[i&3]
	}
}

// closePayload is the payload of a close frame. It is empty for a code that
// never travels. A reason that is too long is cut between characters.
func closePayload(code uint16, reason string) []byte {
	reason = strings.ToValidUTF8(reason, "\uFFFD")
	switch code {
	case 0, transport.CloseNoStatus, codeAbnormal, codeTLSHandshake:
		return nil
	}
	if len(reason) > maxControl-2 {
		end := maxControl - 2
		for !utf8.RuneStart(reason[end]) {
			end--
		}
		reason = reason[:end]
	}
	return append(binary.BigEndian.AppendUint16(nil, code), reason...)
}

// parseClose reads the payload of a close frame: what the peer said, or as err
// what is wrong with it.
func parseClose(b []byte) (said *transport.CloseError, err error) {
	if len(b) == 0 {
		return &transport.CloseError{Code: transport.CloseNoStatus}, nil
	}
	if len(b) == 1 {
		return nil, malformed("malformed close frame")
	}
	code := binary.BigEndian.Uint16(b)
	switch {
	case code >= 3000 && code <= 4999: // registered and private
	case code >= 1000 && code <= 1014 && code != 1004 && code != transport.CloseNoStatus && code != codeAbnormal:
	default:
		return nil, malformed("unknown close code")
	}
	if !utf8.Valid(b[2:]) {
		return nil, &transport.CloseError{Code: transport.CloseInvalidUTF8, Reason: "invalid UTF-8"}
	}
	return &transport.CloseError{Code: code, Reason: string(b[2:])}, nil
}

func malformed(what string) error {
	return &transport.CloseError{Code: transport.CloseProtocol, Reason: what}
}
