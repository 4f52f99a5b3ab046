package policy

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// FuzzParseKeys: every key in the set stands in the file just so, and the set
// that is written down is read back.
func FuzzParseKeys(f *testing.F) {
	k := strings.Repeat("0a", 32)
	for _, seed := range []string{"", k, k + "\n" + strings.Repeat("ff", 32), " " + k + "\t# ann\r\n", "#" + k, strings.ToUpper(k), k + k, "\x00\n"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		set, err := parseKeys(text)
		if err != nil {
			require.Nil(t, set)
			return
		}
		var again strings.Builder
		for k := range set {
			assert.Contains(t, strings.ToLower(text), k.String())
			again.WriteString(k.String() + "\n")
		}
		got, err := parseKeys(again.String())
		require.NoError(t, err)
		assert.Equal(t, set, got)
	})
}
