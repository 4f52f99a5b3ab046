package adversary

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const root = "../.."

var (
	namedTest = regexp.MustCompile("`([a-z0-9/]+)/((?:Test|Fuzz)[A-Za-z0-9]+)`")
	claims    = regexp.MustCompile(`(?ms)^\*\*Cannot\*\*$(.*?)(?:^\*\*|^#|\z)`)
)

// Every "cannot" of SECURITY.md names a test, and every test that it names is one.
func TestSecurityNamesTests(t *testing.T) {
	b, err := os.ReadFile(filepath.Join(root, "SECURITY.md"))
	require.NoError(t, err)
	text := string(b)
	for _, m := range namedTest.FindAllStringSubmatch(text, -1) {
		assert.True(t, hasTest(t, m[1], m[2]), "%s has no %s", m[1], m[2])
	}
	n := 0
	for _, section := range claims.FindAllStringSubmatch(text, -1) {
		for _, item := range strings.Split(section[1], "\n- ")[1:] {
			n++
			assert.Regexp(t, namedTest, item, "a claim without a test")
		}
	}
	assert.Greater(t, n, 15)
	assert.Equal(t, 5, len(claims.FindAllString(text, -1)), "adversaries")
}

func hasTest(t *testing.T, dir, name string) bool {
	files, err := filepath.Glob(filepath.Join(root, dir, "*_test.go"))
	require.NoError(t, err)
	for _, f := range files {
		b, err := os.ReadFile(f)
		require.NoError(t, err)
		if strings.Contains(string(b), "\nfunc "+name+"(") {
			return true
		}
	}
	return false
}
