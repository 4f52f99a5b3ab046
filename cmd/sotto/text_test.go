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

func TestParseSize(t *testing.T) {
	for s, want := range map[string]int64{"0": 0, "17": 17, "500K": 500 << 10, "20M": 20 << 20, "1G": 1 << 30, "8589934591G": 8589934591 << 30} {
		got, err := parseSize(s)
		assert.NoError(t, err)
		assert.Equal(t, want, got, s)
	}
	for _, s := range []string{"", "K", "-1", "1T", "1k", "1.5G", "1 G", "8589934592G", "9223372036854775808"} {
		_, err := parseSize(s)
		assert.Error(t, err, s)
	}
}
