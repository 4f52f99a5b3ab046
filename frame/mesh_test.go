package frame

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var attach136 = strings.Repeat("t", 136)

func attachment() Attachment { return Attachment([]byte(attach136)) }

// A codec decodes a payload and encodes what it got.
type codec func(b []byte) (again []byte, err error)

func again[T any](decode func([]byte) (T, error), encode func(*T) []byte) codec {
	return func(b []byte) ([]byte, error) {
		v, err := decode(b)
		if err != nil {
			return nil, err
		}
		return encode(&v), nil
	}
}

var meshCodecs = map[string]codec{
	"HERE":    again(DecodeHere, func(v *Here) []byte { return v.Append(nil) }),
	"WHERE":   again(DecodeClientKey, func(v *[32]byte) []byte { return v[:] }),
	"AT":      again(DecodeAt, func(v *At) []byte { return v.Append(nil) }),
	"FETCH":   again(DecodeFetch, func(v *Fetch) []byte { return v.Append(nil) }),
	"ENTRY":   again(DecodeEntry, func(v *Entry) []byte { return v.Append(nil) }),
	"RECEIPT": again(DecodeLinkReceipt, func(v *LinkReceipt) []byte { return v.Append(nil) }),
	"DONE": func(b []byte) (all []byte, err error) {
		for rest := b; ; {
			var n uint64
			if n, rest, err = DecodeEntryNumber(rest); err != nil {
				return nil, err
			}
			if all = AppendEntryNumbers(all, n); len(rest) == 0 {
				return all, nil
			}
		}
	},
}

func TestMeshPayloads(t *testing.T) {
	at := time.UnixMilli(1764460800000)
	for _, c := range []struct {
		name  string
		value interface{ Append([]byte) []byte }
		want  string
	}{
		{"HERE", &Here{Attachment: attachment()}, attach136 + "\x01"},
		{"HERE", &Here{attachment(), true}, attach136 + "\x00"},
		{"AT", &At{Client: [32]byte([]byte(keyA))}, keyA + "\x00"},
		{"AT", &At{[32]byte([]byte(keyA)), []Place{{attachment(), "wss://é"}, {attachment(), ""}}},
			keyA + "\x02" + attach136 + "\x08wss://é" + attach136 + "\x00"},
		{"FETCH", &Fetch{attachment(), 0x01020304}, attach136 + "\x01\x02\x03\x04"},
		{"ENTRY", &Entry{Number: 258, Frame: []byte("frame")}, "\x00\x00\x00\x00\x00\x00\x01\x02" + strings.Repeat("\x00", 8) + "frame"},
		{"ENTRY", &Entry{1, at, nil}, "\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x01\x9a\xd2\x0f\x28\x00"},
		{"RECEIPT", &LinkReceipt{[32]byte([]byte(keyB)), Receipt{ID: [16]byte([]byte(id16)), Status: ReceiptStored}}, keyB + id16 + "\x02"},
	} {
		t.Run(c.name, func(t *testing.T) {
			assert.Equal(t, "x"+c.want, string(c.value.Append([]byte("x"))))
			got, err := meshCodecs[c.name]([]byte(c.want))
			require.NoError(t, err)
			assert.Equal(t, c.want, string(got))
		})
	}
	assert.Equal(t, "\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\x02", string(AppendEntryNumbers(nil, 1, 2)))

	e, err := DecodeEntry((&Entry{Number: 1, Expires: at, Frame: []byte("f")}).Append(nil))
	require.NoError(t, err)
	assert.True(t, at.Equal(e.Expires))
	h, err := DecodeHere([]byte(attach136 + "\x00"))
	require.NoError(t, err)
	assert.True(t, h.Gone)
}

// What does not fit an AT is left out, and the rest can be read.
func TestAtFits(t *testing.T) {
	a := At{Places: make([]Place, 300)}
	a.Places[0].Address = strings.Repeat("x", 256)
	a.Places[1].Address = "\xff"
	got, err := DecodeAt(a.Append(nil))
	require.NoError(t, err)
	assert.Len(t, got.Places, 255)
	assert.Empty(t, got.Places[0].Address+got.Places[1].Address)
}

func TestMeshMalformed(t *testing.T) {
	for _, c := range []struct{ name, encoded string }{
		{"HERE", ""}, {"HERE", attach136}, {"HERE", attach136 + "\x02"}, {"HERE", attach136 + "\x01x"},
		{"WHERE", keyA[1:]}, {"WHERE", keyA + "x"},
		{"AT", ""}, {"AT", keyA}, {"AT", keyA + "\x01"}, {"AT", keyA + "\x00x"}, {"AT", keyA + "\x01" + attach136},
		{"AT", keyA + "\x01" + attach136 + "\x02x"}, {"AT", keyA + "\x01" + attach136 + "\x01\xff"},
		{"AT", keyA + "\xff" + attach136 + "\x00"}, {"AT", keyA + "\x01" + attach136 + "\x00x"},
		{"FETCH", attach136}, {"FETCH", attach136 + "12345"},
		{"ENTRY", strings.Repeat("\x00", 15)}, {"ENTRY", strings.Repeat("\x00", 8) + "\x80" + strings.Repeat("\x00", 7)},
		{"DONE", ""}, {"DONE", "1234567"}, {"DONE", "123456789"},
		{"RECEIPT", keyA[1:]}, {"RECEIPT", keyA}, {"RECEIPT", keyA + id16 + "\x00"},
	} {
		_, err := meshCodecs[c.name]([]byte(c.encoded))
		assert.ErrorIs(t, err, ErrMalformed, "%s %q", c.name, c.encoded)
	}
}

// What decodes encodes to the same bytes, so nothing has two encodings.
func FuzzMeshPayloads(f *testing.F) {
	f.Add([]byte(attach136 + "\x01"))
	f.Add([]byte(keyA + "\x01" + attach136 + "\x02ws"))
	f.Add([]byte(attach136 + "\x00\x00\x00\x01"))
	f.Add([]byte(keyA + id16 + "\x04\x00\x0cnot-here"))
	f.Add((&Entry{Number: 1, Expires: time.UnixMilli(5), Frame: []byte("f")}).Append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		before := bytes.Clone(b)
		for name, decode := range meshCodecs {
			got, err := decode(b)
			if err != nil {
				require.ErrorIs(t, err, ErrMalformed, name)
				continue
			}
			require.Equal(t, before, got, name)
		}
	})
}
