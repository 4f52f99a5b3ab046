package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sotto-relay/sotto/crypto"
)

var hostile = []string{
	"", "plain", "gr\u00fc\u00dfe \U0001F600", "a\x1b]0;title\x07", "\u009b2J", "two\nlines\r\nthree", "\ttab",
	"\u202egnp.exe", "\x00\xff\xfe", "\u2028", "\u0301", "'\"\\", "zero\u200bwidth", "\U000E0041",
}

func TestPrintable(t *testing.T) {
	for in, want := range map[string]string{
		"grüße 'a' \\ \"b\"\t": "grüße 'a' \\ \"b\"\t",
		"\x1b[2J":              `\x1b[2J`,
		"\u009b\u202e\r\n":     `\u009b\u202e\r\n`,
		"a\xffb":               `a\xffb`,
	} {
		assert.Equal(t, want, printable(in))
	}
	assert.Equal(t, "a\n    b\\x1b\n    ", indented("a\r\nb\x1b\n"))
}

func FuzzPrintable(f *testing.F) {
	for _, s := range hostile {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		for _, r := range printable(s) {
			require.True(t, unicode.IsPrint(r) || r == '\t', "%q", r)
		}
		for i, line := range strings.Split(indented(s), "\n") {
			require.True(t, i == 0 || strings.HasPrefix(line, "    "))
			require.Equal(t, printable(line), line)
		}
	})
}

func FuzzWriteJSON(f *testing.F) {
	for _, s := range hostile {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		var b bytes.Buffer
		require.NoError(t, writeJSON(&b, s))
		line := strings.TrimSuffix(b.String(), "\n")
		require.Equal(t, printable(line), line, "nothing for a terminal")
		var back string
		require.NoError(t, json.Unmarshal([]byte(line), &back))
		if utf8.ValidString(s) {
			require.Equal(t, s, back)
		}
	})
}

func TestNearest(t *testing.T) {
	words := []string{"brep-rate", "brep-burst", "handshake-timeout"}
	for in, want := range map[string]string{
		"": "brep-rate", "brep-rat": "brep-rate", "rate": "brep-rate", "breb-brust": "brep-burst", "handshake-timout": "handshake-timeout",
	} {
		assert.Equal(t, want, nearest(in, words), in)
	}
	assert.Equal(t, 3, edits("kitten", "sitting"))
}

func FuzzFileName(f *testing.F) {
	for _, name := range []string{"a.txt", ".bashrc", "-rf", "..x", strings.Repeat("a", 255), strings.Repeat("é", 127) + ".x", "." + strings.Repeat("b", 254), "a.tar.gz", ".-"} {
		f.Add(name, uint16(2))
	}
	f.Fuzz(func(t *testing.T, name string, n uint16) {
		if !crypto.SafeFileName(name) {
			t.Skip()
		}
		got := fileName(name, int(n)+1)
		require.LessOrEqual(t, len(got), maxName)
		require.True(t, utf8.ValidString(got))
		require.NotContains(t, got, "/")
		require.False(t, strings.HasPrefix(got, ".") || strings.HasPrefix(got, "-"), got)
		require.NotEqual(t, got, fileName(name, int(n)+2))
	})
}
