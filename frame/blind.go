package frame

import (
	"encoding/binary"
	"math"
	"strconv"
)

// A BlindKind says what a frame of the blind dialect is for. To a relay all are
// the same, as long as it is one of those below.
type BlindKind string

// Kinds (spec blind.md, "Frame").
const (
	BlindUpdate        BlindKind = "update"
	BlindSnapshot      BlindKind = "snapshot"
	BlindWrapBootstrap BlindKind = "wrap-bootstrap"
	BlindPairing       BlindKind = "pairing"
	BlindAwareness     BlindKind = "awareness"
)

// A BlindHeader is what is not sealed in a frame of the blind dialect:
//
//	header length u32 ‖ header, JSON ‖ signature length u16 ‖ signature ‖ ciphertext length u32 ‖ ciphertext
//
// Integers are big-endian (spec blind.md, "Frame"). On the wire a byte for the
// channel stands before it, which is no part of the frame.
type BlindHeader struct {
	Kind     BlindKind
	EntityID string // what it is about, not empty
	Sender   string // not empty
	Seq      float64
	Nonce    string // not empty
	TS       float64
	Route    string // the key that it goes to; empty: EntityID
}

// Key returns the routing key: Route, or EntityID where there is none.
func (h *BlindHeader) Key() string {
	if h.Route != "" {
		return h.Route
	}
	return h.EntityID
}

// Append appends the encoded header to dst and returns the extended slice. The
// strings are UTF-8, the numbers finite.
func (h *BlindHeader) Append(dst []byte) []byte {
	text := func(name, value string) {
		dst = append(append(dst, name...), ':')
		dst = AppendText(dst, []byte(value))
	}
	text(`{"v":1,"kind"`, string(h.Kind))
	text(`,"entityId"`, h.EntityID)
	text(`,"sender"`, h.Sender)
	dst = appendNumber(append(dst, `,"seq":`...), h.Seq)
	text(`,"nonce"`, h.Nonce)
	dst = appendNumber(append(dst, `,"ts":`...), h.TS)
	if h.Route != "" {
		text(`,"route"`, h.Route)
	}
	return append(dst, '}')
}

// appendNumber writes whole numbers without an exponent, as JavaScript does.
func appendNumber(dst []byte, x float64) []byte {
	if math.Abs(x) < 1e21 {
		return strconv.AppendFloat(dst, x, 'f', -1, 64)
	}
	return strconv.AppendFloat(dst, x, 'g', -1, 64)
}

var (
	errBlindLength = malformed("header of a blind frame is not there")
	errBlindHeader = malformed("header of a blind frame")
	errBlindRest   = malformed("signature or ciphertext of a blind frame")
)

// PeekHeader returns the encoded header of a frame, for ParseHeader. It looks at
// nothing behind it, and aliases its input. The error is ErrMalformed.
func PeekHeader(frame []byte) ([]byte, error) {
	if len(frame) < 4 {
		return nil, errBlindLength
	}
	n, rest := binary.BigEndian.Uint32(frame), frame[4:]
	if n == 0 || uint64(n) > uint64(len(rest)) {
		return nil, errBlindLength
	}
	return rest[:n:n], nil
}

// ParseHeader decodes a header strictly: an object without repeated names, with
// all of the fields. Others are ignored. Nothing of the input is aliased. The
// error is ErrMalformed.
func ParseHeader(header []byte) (BlindHeader, error) {
	var r BlindRoute
	if err := r.Parse(header); err != nil {
		return BlindHeader{}, err
	}
	text := func(name string) string { return string(r.object.Text(r.object.Get(name))) }
	h := BlindHeader{
		Kind: r.Kind, EntityID: string(r.EntityID), Sender: text("sender"), Nonce: text("nonce"), Route: text("route"),
	}
	h.Seq, _ = finite(r.object.Get("seq"))
	h.TS, _ = finite(r.object.Get("ts"))
	return h, nil
}

// A BlindRoute is what a relay needs to know of a header. It is for one goroutine
// at a time, and keeps its memory from one Parse to the next, so that Parse
// allocates nothing in steady state.
type BlindRoute struct {
	Kind     BlindKind
	EntityID []byte
	Key      []byte // the routing key

	object Object
}

// Parse decodes a header as strictly as [ParseHeader] does. EntityID and Key alias
// it, or memory that the next Parse or Reset takes.
func (r *BlindRoute) Parse(header []byte) error {
	r.Kind, r.EntityID, r.Key = "", nil, nil
	o := &r.object
	if err := o.Parse(header); err != nil {
		return err
	}
	version, _ := finite(o.Get("v"))
	_, isSeq := finite(o.Get("seq"))
	_, isTS := finite(o.Get("ts"))
	kind, entity, route := blindKind(o.Text(o.Get("kind"))), o.Text(o.Get("entityId")), o.Get("route")
	if version != 1 || !isSeq || !isTS || kind == "" || len(entity) == 0 ||
		len(o.Text(o.Get("sender"))) == 0 || len(o.Text(o.Get("nonce"))) == 0 {
		return errBlindHeader
	}
	key := entity
	if route != nil {
		if key = o.Text(route); len(key) == 0 {
			return errBlindHeader
		}
	}
	r.Kind, r.EntityID, r.Key = kind, entity, key
	return nil
}

// Reset lets go of the header.
func (r *BlindRoute) Reset() {
	r.Kind, r.EntityID, r.Key = "", nil, nil
	r.object.Reset()
}

func blindKind(b []byte) BlindKind {
	for _, k := range [...]BlindKind{BlindUpdate, BlindSnapshot, BlindWrapBootstrap, BlindPairing, BlindAwareness} {
		if string(b) == string(k) {
			return k
		}
	}
	return ""
}

// finite returns the value of a number that JavaScript would call finite.
func finite(v Value) (x float64, ok bool) {
	if !v.IsNumber() {
		return 0, false
	}
	x, err := strconv.ParseFloat(string(v), 64)
	return x, err == nil
}

// A BlindFrame is a whole frame of the blind dialect, as its readers see it.
type BlindFrame struct {
	Header     BlindHeader
	Encoded    []byte // the header as it stood there
	Signature  []byte
	Ciphertext []byte
}

// ParseBlind decodes a frame. Encoded, Signature and Ciphertext alias it. The
// error is ErrMalformed, also if something follows the ciphertext.
func ParseBlind(frame []byte) (f BlindFrame, err error) {
	if f.Encoded, err = PeekHeader(frame); err != nil {
		return BlindFrame{}, err
	}
	if f.Header, err = ParseHeader(f.Encoded); err != nil {
		return BlindFrame{}, err
	}
	rest := frame[4+len(f.Encoded):]
	if len(rest) < 2 {
		return BlindFrame{}, errBlindRest
	}
	n, rest := int(binary.BigEndian.Uint16(rest)), rest[2:]
	if len(rest) < n+4 {
		return BlindFrame{}, errBlindRest
	}
	f.Signature, rest = rest[:n:n], rest[n:]
	if f.Ciphertext = rest[4:]; uint64(binary.BigEndian.Uint32(rest)) != uint64(len(f.Ciphertext)) {
		return BlindFrame{}, errBlindRest
	}
	return f, nil
}

// AppendBlind appends a frame to dst and returns the extended slice. header is
// one that BlindHeader.Append made; a signature has less than 64 KiB.
func AppendBlind(dst, header, signature, ciphertext []byte) []byte {
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(header)))
	dst = append(dst, header...)
	dst = binary.BigEndian.AppendUint16(dst, uint16(len(signature)))
	dst = append(dst, signature...)
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(ciphertext)))
	return append(dst, ciphertext...)
}
