package crypto

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestContentRoundTrip(t *testing.T) {
	for _, c := range []struct {
		content Content
		wire    string
	}{
		{Content{Type: Raw}, "\x00"},
		{Content{Type: Raw, Data: []byte{1, 0, 0xff}}, "\x00\x01\x00\xff"},
		{Content{Type: Text}, "\x01"},
		{Content{Type: Text, Data: []byte("text ✓")}, "\x01text ✓"},
		{Content{Type: JSON, Data: []byte(`{"a":1}`)}, "\x02" + `{"a":1}`},
		{Content{Type: File, Name: "a.bin"}, "\x03\x05a.bin"},
		{Content{Type: File, Name: "é", Data: []byte{0xff}}, "\x03\x02é\xff"},
		{Content{Type: File, Name: strings.Repeat("n", 255), Data: []byte("d")}, "\x03\xff" + strings.Repeat("n", 255) + "d"},
		{Content{Type: 4, Data: []byte("part")}, "\x04part"},
		{Content{Type: 255}, "\xff"},
	} {
		b, err := c.content.AppendBinary([]byte("before"))
		require.NoError(t, err)
		assert.Equal(t, "before"+c.wire, string(b))
		assert.Equal(t, len(c.wire), c.content.encodedLen())
		got, err := ParseContent([]byte(c.wire))
		require.NoError(t, err)
		requireContent(t, c.content, got)
	}
}

func TestContentRefused(t *testing.T) {
	for _, wire := range []string{
		"", "\x01\xff", "\x01\xed\xa0\x80", "\x01\xc0\x80",
		"\x03", "\x03\x00", "\x03\x00data", "\x03\x01", "\x03\x05name", "\x03\xff" + strings.Repeat("n", 254),
		"\x03\x01/", "\x03\x01\xff",
	} {
		_, err := ParseContent([]byte(wire))
		assert.ErrorIs(t, err, ErrMalformed, "%q", wire)
	}
	for _, c := range []Content{
		{Type: Text, Data: []byte{0xff}},
		{Type: Text, Name: "name"},
		{Type: Raw, Name: "name"},
		{Type: 4, Name: "name"},
		{Type: File},
		{Type: File, Name: "../a"},
		{Type: File, Name: strings.Repeat("n", 256)},
	} {
		_, err := c.AppendBinary(nil)
		assert.ErrorIs(t, err, ErrMalformed, "%+v", c)
	}
}

func TestSafeFileName(t *testing.T) {
	for _, name := range []string{
		"a", "a.bin", ".profile", "..a", "a..b", "...a", "two words", " leading", "UPPER", "日本語.txt", "👩‍👩‍👧.png", "-rf", "~",
		"console", "nul1", "com", "com10", "lpt", "com١", "auxiliary.txt", "a.nul", strings.Repeat("n", 255),
	} {
		assert.True(t, SafeFileName(name), "%q", name)
	}
	for _, name := range []string{
		"", ".", "..", "...", "a/b", "/a", "a/", "..\\a", "\\a", "a\\b", "/", "\\", "a\x00", "\x00", "a\nb", "a\x1b[2J", "a\x7f", "a\u0085",
		"C:a", "c:", "a:stream", "a.", "a. ", "a ", " ", "\xff", "a\xc0\xaf", "\xed\xa0\x80", strings.Repeat("n", 256), strings.Repeat("é", 128),
		"nul", "NUL", "Nul.txt", "con", "aux.tar.gz", "prn ", "prn .txt", "COM1", "com9.log", "com0", "LPT1", "lpt¹", "COM².x", "com³", "conin$", "CONOUT$.a",
	} {
		assert.False(t, SafeFileName(name), "%q", name)
	}
}

func FuzzParseContent(f *testing.F) {
	for _, s := range []string{"", "\x00raw", "\x01text", "\x02{}", "\x03\x01adata", "\x03\x02..", "\x04", "\x03\xff"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := ParseContent(b)
		if err != nil {
			return
		}
		again, err := c.AppendBinary(nil)
		require.NoError(t, err)
		require.Equal(t, string(b), string(again))
		require.Len(t, b, c.encodedLen())
	})
}
