package disk

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"time"

	"github.com/sotto-relay/sotto/inbox"
)

// What is in Pebble. Integers are big-endian; every value ends with a CRC-32C of
// the value and then the key, so that a value under the wrong key is damaged too.
//
//	key                              value
//	'e' seq:8                        an entry: kind:1 form:1 flags:1 id:16 to from
//	                                 stored expires size:4, and its data if kind lacks external
//	'd' seq:8 part:2                 a part of the data of an entry with external
//	's' len:2 bucket key             a value of the state
//	'm' "id"                         the store's id:16
//	'm' "seq"                        a bound:8 on the numbers given
//	'm' "time"                       the time:12 last recorded
//	'm' "sum"                        a sum:40
//
// to and from are realm:1 len:2 name; stored and expires seconds:8 nanoseconds:4
// from 1970. Numbers are unique in the store, so entries stand in the order in
// which they came: writing appends, and what is gone goes in whole files.
const (
	entrySpace = 'e'
	dataSpace  = 'd'
	stateSpace = 's'
	metaSpace  = 'm'
)

// kinds of an entry, bits
const (
	external = 1 << iota // the data is under a key of its own
	counted              // put with a Quota.SenderTotal
)

// inlineMax is the most data that stands with its entry. Open reads it, and each
// key costs: so messages of chats are in, files are not.
const inlineMax = 2048

const (
	seqKeySize  = 9
	partKeySize = 11
)

// partSize is the size of the parts of data that stands alone. For a block whose
// checksum is wrong Pebble tries which bit was flipped, which takes half a second
// for one of this size, and half a minute for one of a megabyte.
const partSize = 32 << 10

const (
	maxName = 1<<16 - 1
	maxData = 1 << 30
)

const sumSize = 4

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

var errDamaged = errors.New("damaged")

func seqKey(space byte, seq uint64) []byte {
	return binary.BigEndian.AppendUint64([]byte{space}, seq)
}

func partKey(seq uint64, part int) []byte {
	return binary.BigEndian.AppendUint16(seqKey(dataSpace, seq), uint16(part))
}

// parts returns in how many parts the data of an entry stands alone.
func parts(size int) int {
	if size <= inlineMax {
		return 0
	}
	return (size + partSize - 1) / partSize
}

func metaKey(name string) []byte { return append([]byte{metaSpace}, name...) }

func stateKey(bucket, key string) []byte {
	k := make([]byte, 0, 3+len(bucket)+len(key))
	k = binary.BigEndian.AppendUint16(append(k, stateSpace), uint16(len(bucket)))
	return append(append(k, bucket...), key...)
}

// A sealer ends values with their sums. The sum of the value is made where the
// value is; that of the key may wait until the key is known.
type sealer struct{ sum uint32 }

func newSealer(body []byte) sealer { return sealer{crc32.Checksum(body, castagnoli)} }

func (s sealer) seal(body, key []byte) []byte {
	return binary.BigEndian.AppendUint32(body, crc32.Update(s.sum, castagnoli, key))
}

// seal returns body with its sum behind it.
func seal(body, key []byte) []byte { return newSealer(body).seal(body, key) }

// unseal returns the body of a value.
func unseal(value, key []byte) ([]byte, error) {
	n := len(value) - sumSize
	if n < 0 {
		return nil, errDamaged
	}
	body := value[:n]
	if crc32.Update(crc32.Checksum(body, castagnoli), castagnoli, key) != binary.BigEndian.Uint32(value[n:]) {
		return nil, errDamaged
	}
	return body, nil
}

// A header is what is stored of an entry beside its data.
type header struct {
	kind            uint8
	form, flags     uint8
	id              inbox.ID
	to, from        inbox.Address
	stored, expires stamp
	size            int
}

const headerFixed = 3 + 16 + 2*3 + 2*12 + 4

// length returns the number of bytes of an encoded header.
func (h *header) length() int { return headerFixed + len(h.to.Name) + len(h.from.Name) }

func (h *header) append(b []byte) []byte {
	b = append(b, h.kind, h.form, h.flags)
	b = append(b, h.id[:]...)
	b = appendAddress(b, h.to)
	b = appendAddress(b, h.from)
	b = h.stored.append(b)
	b = h.expires.append(b)
	return binary.BigEndian.AppendUint32(b, uint32(h.size))
}

// parseEntry parses the body of an entry. data is the rest of it, nil when it is
// external.
func parseEntry(body []byte) (h header, data []byte, err error) {
	r := reader{b: body}
	h.kind, h.form, h.flags = r.byte(), r.byte(), r.byte()
	copy(h.id[:], r.take(len(h.id)))
	h.to, h.from = r.address(), r.address()
	h.stored, h.expires = r.stamp(), r.stamp()
	h.size = int(r.uint32())
	if h.kind&external == 0 {
		data = r.take(h.size)
	}
	if r.short || len(r.b) > 0 || h.kind&^(external|counted) != 0 {
		return h, nil, errDamaged
	}
	return h, data, nil
}

func appendAddress(b []byte, a inbox.Address) []byte {
	b = append(b, byte(a.Realm))
	b = binary.BigEndian.AppendUint16(b, uint16(len(a.Name)))
	return append(b, a.Name...)
}

// A stamp is a time without a zone, small and exact.
type stamp struct {
	sec  int64
	nsec uint32
}

func newStamp(t time.Time) stamp { return stamp{t.Unix(), uint32(t.Nanosecond())} }

func (s stamp) time() time.Time {
	return time.Unix(s.sec, int64(s.nsec)).UTC()
}

func (s stamp) append(b []byte) []byte {
	return binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint64(b, uint64(s.sec)), s.nsec)
}

// A reader takes values off b. Past its end it returns zeros, and is short.
type reader struct {
	b     []byte
	short bool
}

func (r *reader) take(n int) []byte {
	if n > len(r.b) {
		r.b, r.short = nil, true
		return nil
	}
	b := r.b[:n]
	r.b = r.b[n:]
	return b
}

func (r *reader) byte() (v byte) {
	if b := r.take(1); b != nil {
		v = b[0]
	}
	return v
}

func (r *reader) uint16() (v uint16) {
	if b := r.take(2); b != nil {
		v = binary.BigEndian.Uint16(b)
	}
	return v
}

func (r *reader) uint32() (v uint32) {
	if b := r.take(4); b != nil {
		v = binary.BigEndian.Uint32(b)
	}
	return v
}

func (r *reader) uint64() (v uint64) {
	if b := r.take(8); b != nil {
		v = binary.BigEndian.Uint64(b)
	}
	return v
}

func (r *reader) address() inbox.Address {
	realm := inbox.Realm(r.byte())
	return inbox.Address{Realm: realm, Name: string(r.take(int(r.uint16())))}
}

func (r *reader) stamp() stamp { return stamp{int64(r.uint64()), r.uint32()} }
