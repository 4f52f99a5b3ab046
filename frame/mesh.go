package frame

import (
	"encoding/binary"
	"math"
	"time"
)

// Payloads of the frames between relays (spec mesh.md, "Frames"). r is a relay.
// Their header has the sending relay as the sender, no id and no signature,
// except that a MAIL which is passed on keeps its sender.
//
//	type          payload
//	0x20 HERE     attachment 136 ‖ u8 (1 here, 0 gone)
//	0x21 WHERE    client key 32
//	0x22 AT       client key 32 ‖ n u8 ‖ n × (attachment 136 ‖ address length u8 ‖ address, UTF-8)
//	0x23 MAIL     client key 32
//	0x24 FETCH    attachment 136 ‖ max u32
//	0x25 ENTRY    entry u64 ‖ expires u64, ms since 1970 or zero ‖ the stored frame
//	0x26 DONE     n × entry u64
//	0x16 RECEIPT  the original sender's key 32 ‖ as between a relay and a client

// An Attachment is a signed statement of a client about where it is connected:
// relay key 32 ‖ client key 32 ‖ not-after u64, ms ‖ signature 64. This package
// checks nothing of it (crypto.ParseAttachment does).
type Attachment [136]byte

// A Here is the payload of HERE: a client has come to the sender, or gone.
type Here struct {
	Attachment Attachment
	Gone       bool
}

// Append appends the encoded payload to dst and returns the extended slice.
func (h *Here) Append(dst []byte) []byte {
	dst = append(dst, h.Attachment[:]...)
	if h.Gone {
		return append(dst, 0)
	}
	return append(dst, 1)
}

var (
	errHere        = malformed("HERE is longer or shorter than it should be, or neither here nor gone")
	errClientKey   = malformed("payload is not a client's key")
	errAt          = malformed("AT is not what its counts say")
	errFetch       = malformed("FETCH is longer or shorter than it should be")
	errEntry       = malformed("ENTRY is too short, or has a time that is none")
	errEntries     = malformed("DONE is no whole number of entries, or none")
	errLinkReceipt = malformed("RECEIPT of a relay is too short")
)

// DecodeHere decodes the payload of HERE.
func DecodeHere(b []byte) (Here, error) {
	var h Here
	if len(b) != len(h.Attachment)+1 || b[len(b)-1] > 1 {
		return Here{}, errHere
	}
	copy(h.Attachment[:], b)
	h.Gone = b[len(b)-1] == 0
	return h, nil
}

// DecodeClientKey decodes the payload of WHERE and of MAIL.
func DecodeClientKey(b []byte) (key [32]byte, err error) {
	if len(b) != len(key) {
		return key, errClientKey
	}
	return [32]byte(b), nil
}

// A Place is one answer to where a client is.
type Place struct {
	Attachment Attachment
	Address    string // of the relay; UTF-8, at most 255 bytes, possibly empty
}

// An At is the payload of AT. No places: the client is not known.
type At struct {
	Client [32]byte
	Places []Place // at most 255
}

// Append appends the encoded payload to dst and returns the extended slice. What
// has no room, of places over 255 and of addresses that no relay can have, is left
// out.
func (a *At) Append(dst []byte) []byte {
	places := a.Places[:min(len(a.Places), math.MaxUint8)]
	dst = append(dst, a.Client[:]...)
	dst = append(dst, byte(len(places)))
	for i := range places {
		p := &places[i]
		address := p.Address
		if !validAddress(address) {
			address = ""
		}
		dst = append(dst, p.Attachment[:]...)
		dst = append(dst, byte(len(address)))
		dst = append(dst, address...)
	}
	return dst
}

// DecodeAt decodes the payload of AT, which it does not alias. The memory taken
// is at most a small multiple of len(b).
func DecodeAt(b []byte) (At, error) {
	var a At
	if len(b) < len(a.Client)+1 {
		return At{}, errAt
	}
	copy(a.Client[:], b)
	n := int(b[len(a.Client)])
	rest := b[len(a.Client)+1:]
	for range n {
		var p Place
		if len(rest) < len(p.Attachment) {
			return At{}, errAt
		}
		copy(p.Attachment[:], rest)
		address, more, ok := cutAddress(rest[len(p.Attachment):])
		if !ok {
			return At{}, errAt
		}
		p.Address, rest = string(address), more
		a.Places = append(a.Places, p)
	}
	if len(rest) != 0 {
		return At{}, errAt
	}
	return a, nil
}

// A Fetch is the payload of FETCH: the wish for a client's mail.
type Fetch struct {
	Attachment Attachment
	Max        uint32 // entries
}

// Append appends the encoded payload to dst and returns the extended slice.
func (f *Fetch) Append(dst []byte) []byte {
	return binary.BigEndian.AppendUint32(append(dst, f.Attachment[:]...), f.Max)
}

// DecodeFetch decodes the payload of FETCH.
func DecodeFetch(b []byte) (Fetch, error) {
	var f Fetch
	if len(b) != len(f.Attachment)+4 {
		return Fetch{}, errFetch
	}
	copy(f.Attachment[:], b)
	f.Max = binary.BigEndian.Uint32(b[len(f.Attachment):])
	return f, nil
}

// An Entry is the payload of ENTRY: a message from an inbox.
type Entry struct {
	Number  uint64    // stands for it on this link, in DONE
	Expires time.Time // to the millisecond; zero: never
	Frame   []byte    // as a relay link carries it; not checked
}

const entryHead = 8 + 8

// EntryOverhead is how much longer than the frame in it a frame of ENTRY is.
const EntryOverhead = BrepHeaderSize + entryHead

// Append appends the encoded payload to dst and returns the extended slice.
func (e *Entry) Append(dst []byte) []byte {
	dst = binary.BigEndian.AppendUint64(dst, e.Number)
	var ms uint64
	if !e.Expires.IsZero() {
		ms = uint64(max(1, e.Expires.UnixMilli()))
	}
	dst = binary.BigEndian.AppendUint64(dst, ms)
	return append(dst, e.Frame...)
}

// DecodeEntry decodes the payload of ENTRY. Frame aliases b.
func DecodeEntry(b []byte) (Entry, error) {
	if len(b) < entryHead {
		return Entry{}, errEntry
	}
	e := Entry{Number: binary.BigEndian.Uint64(b), Frame: b[entryHead:len(b):len(b)]}
	switch ms := binary.BigEndian.Uint64(b[8:]); {
	case ms > math.MaxInt64:
		return Entry{}, errEntry
	case ms != 0:
		e.Expires = time.UnixMilli(int64(ms))
	}
	return e, nil
}

// AppendEntryNumbers appends the payload of DONE for entries to dst and returns the
// extended slice.
func AppendEntryNumbers(dst []byte, entries ...uint64) []byte {
	for _, e := range entries {
		dst = binary.BigEndian.AppendUint64(dst, e)
	}
	return dst
}

// DecodeEntryNumber decodes the first entry in the payload of DONE and returns the rest
// of the payload, empty after the last.
func DecodeEntryNumber(b []byte) (entry uint64, rest []byte, err error) {
	if len(b) == 0 || len(b)%8 != 0 {
		return 0, nil, errEntries
	}
	return binary.BigEndian.Uint64(b), b[8:], nil
}

// A LinkReceipt is the payload of RECEIPT between relays.
type LinkReceipt struct {
	Sender [32]byte // of the message that it is about
	Receipt
}

// Append appends the encoded payload to dst and returns the extended slice.
func (r *LinkReceipt) Append(dst []byte) []byte {
	return r.Receipt.Append(append(dst, r.Sender[:]...))
}

// DecodeLinkReceipt decodes the payload of RECEIPT between relays, which it does
// not alias.
func DecodeLinkReceipt(b []byte) (LinkReceipt, error) {
	var r LinkReceipt
	if len(b) < len(r.Sender) {
		return LinkReceipt{}, errLinkReceipt
	}
	receipt, err := DecodeReceipt(b[len(r.Sender):])
	if err != nil {
		return LinkReceipt{}, err
	}
	return LinkReceipt{[32]byte(b), receipt}, nil
}
