package disk

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sotto-relay/sotto/inbox"
)

var headers = []header{
	{},
	{kind: counted, form: 255, flags: 1, id: inbox.ID{1, 15: 2}, to: inbox.Address{Realm: 255, Name: "bob"}, from: alice,
		stored: newStamp(time.Unix(1, 2)), expires: newStamp(time.Date(9999, 12, 31, 23, 59, 59, 999999999, time.UTC)), size: 5},
	{kind: external, to: inbox.Address{Name: strings.Repeat("n", maxName)}, stored: newStamp(time.Time{}), size: 1 << 30},
}

func TestEntry(t *testing.T) {
	for _, h := range headers {
		data := make([]byte, h.size)
		if h.kind&external != 0 {
			data = nil
		}
		body := append(h.append(nil), data...)
		assert.Len(t, body, h.length()+len(data))
		got, gotData, err := parseEntry(body)
		require.NoError(t, err)
		assert.Equal(t, h, got)
		assert.Equal(t, string(data), string(gotData))
		for n := range min(len(body), 200) {
			_, _, err := parseEntry(body[:n])
			assert.Equal(t, errDamaged, err, "cut off at %d", n)
		}
		_, _, err = parseEntry(append(body, 0))
		assert.Equal(t, errDamaged, err)
	}
	assert.True(t, stamp{sec: newStamp(time.Time{}).sec}.time().IsZero())
}

// TestFormat holds the bytes of an entry, which must not change under a version.
func TestFormat(t *testing.T) {
	key := seqKey(entrySpace, 258)
	body := append(headers[1].append(nil), "data!"...)
	assert.Equal(t, "e\x00\x00\x00\x00\x00\x00\x01\x02", string(key))
	assert.Equal(t, "\x02\xff\x01"+"\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02"+
		"\xff\x00\x03bob"+"\x01\x00\x05alice"+
		"\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x02"+"\x00\x00\x00\x3a\xff\xf4\x41\x7f\x3b\x9a\xc9\xff"+
		"\x00\x00\x00\x05data!", string(body))
	assert.Equal(t, string(body)+"\x52\x06\xc2\x27", string(seal(body, key)))
	assert.Equal(t, "s\x00\x01bk", string(stateKey("b", "k")))
	assert.Equal(t, "mseq", string(metaKey("seq")))
}

func TestSeal(t *testing.T) {
	key := seqKey(dataSpace, 7)
	value := seal([]byte("some data"), key)
	body, err := unseal(value, key)
	require.NoError(t, err)
	assert.Equal(t, "some data", string(body))
	for i := range value {
		for bit := range 8 {
			v := bytes.Clone(value)
			v[i] ^= 1 << bit
			_, err := unseal(v, key)
			assert.Equal(t, errDamaged, err)
		}
		_, err := unseal(value[:i], key)
		assert.Equal(t, errDamaged, err)
	}
	_, err = unseal(value, seqKey(dataSpace, 8))
	assert.Equal(t, errDamaged, err, "under another key")
}

// FuzzEntry: what parses is written as the same bytes.
func FuzzEntry(f *testing.F) {
	for _, h := range headers[:2] {
		f.Add(append(h.append(nil), make([]byte, h.size)...))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		h, data, err := parseEntry(body)
		if err != nil {
			return
		}
		if again := append(h.append(nil), data...); !bytes.Equal(again, body) {
			t.Fatalf("%x becomes %x", body, again)
		}
	})
}
