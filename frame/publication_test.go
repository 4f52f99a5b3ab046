package frame

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var publications = []payloadCase[Publication]{
	{"both", Publication{[]byte("a/b"), []byte("content")}, "\x00\x03a/bcontent"},
	{"no content", Publication{[]byte("a"), []byte{}}, "\x00\x01a"},
	{"no name", Publication{[]byte{}, []byte("c")}, "\x00\x00c"},
	{"neither", Publication{[]byte{}, []byte{}}, "\x00\x00"},
	{"longest name", Publication{[]byte(strings.Repeat("x", 65535)), []byte("c")}, "\xff\xff" + strings.Repeat("x", 65535) + "c"},
}

func TestPublication(t *testing.T) {
	for _, c := range publications {
		assert.Equal(t, "x"+c.encoded, string(c.value.Append([]byte("x"))), c.name)
		got, err := DecodePublication([]byte(c.encoded))
		require.NoError(t, err, c.name)
		assert.Equal(t, c.value, got, c.name)
	}
	for _, b := range []string{"", "\x00", "\x00\x01", "\x00\x02a", "\xff\xff" + strings.Repeat("x", 65534)} {
		_, err := DecodePublication([]byte(b))
		assert.ErrorIs(t, err, ErrMalformed, "%q", b)
	}
	assert.Panics(t, func() { (&Publication{Name: make([]byte, 65536)}).Append(nil) })

	// Appending to the name does not write over the content.
	b := []byte("\x00\x01ac")
	p, err := DecodePublication(b)
	require.NoError(t, err)
	_ = append(p.Name, 'x')
	assert.Equal(t, "\x00\x01ac", string(b))
	assert.Zero(t, testing.AllocsPerRun(10, func() { _, _ = DecodePublication(b) }))
}

func FuzzDecodePublication(f *testing.F) {
	for _, c := range publications {
		f.Add([]byte(c.encoded))
	}
	f.Add([]byte("\x00\x05a"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if p, err := DecodePublication(b); err == nil {
			require.Equal(t, b, p.Append([]byte{}))
		} else {
			require.ErrorIs(t, err, ErrMalformed)
		}
	})
}
