package filename

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/sotto-relay/sotto/crypto"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestNumbered(t *testing.T) {
	for _, c := range []struct {
		name string
		n    int
		want string
	}{
		{"a.txt", 1, "a.txt"},
		{"a.txt", 2, "a (2).txt"},
		{".bashrc", 1, "_.bashrc"},
		{"-rf", 3, "_-rf (3)"},
		{strings.Repeat("a", 255), 2, strings.Repeat("a", 251) + " (2)"},
		{strings.Repeat("é", 127) + ".x", 1, strings.Repeat("é", 126) + ".x"},
	} {
		assert.Equal(t, c.want, Numbered(c.name, c.n), "%s, %d", c.name, c.n)
	}
}

func FuzzNumbered(f *testing.F) {
	for _, name := range []string{"a.txt", ".bashrc", "-rf", "..x", strings.Repeat("a", 255), strings.Repeat("é", 127) + ".x", "." + strings.Repeat("b", 254), "a.tar.gz", ".-"} {
		f.Add(name, uint16(2))
	}
	f.Fuzz(func(t *testing.T, name string, n uint16) {
		if !crypto.SafeFileName(name) {
			t.Skip()
		}
		got := Numbered(name, int(n)+1)
		require.LessOrEqual(t, len(got), maxBytes)
		require.True(t, utf8.ValidString(got))
		require.NotContains(t, got, "/")
		require.False(t, strings.HasPrefix(got, ".") || strings.HasPrefix(got, "-"), got)
		require.NotEqual(t, got, Numbered(name, int(n)+2))
	})
}
