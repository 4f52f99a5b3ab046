package docs

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const root = "../.."

// pages returns the Markdown files of the project, by path from the root.
func pages(t *testing.T) map[string]string {
	found := make(map[string]string)
	for _, pattern := range []string{"*.md", "docs/*.md"} {
		files, err := filepath.Glob(filepath.Join(root, pattern))
		require.NoError(t, err)
		for _, f := range files {
			b, err := os.ReadFile(f)
			require.NoError(t, err)
			name, err := filepath.Rel(root, f)
			require.NoError(t, err)
			found[filepath.ToSlash(name)] = string(b)
		}
	}
	require.Contains(t, found, "README.md")
	return found
}

var fenced = regexp.MustCompile("(?ms)^```go\n(.*?)^```$")

// TestGoCode: every block of Go stands to the letter in a Go file that tests or
// CI run.
func TestGoCode(t *testing.T) {
	var code strings.Builder
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(path, ".go") &&
			(strings.HasSuffix(path, "_test.go") || strings.Contains(path, "examples")) {
			b, err := os.ReadFile(path)
			require.NoError(t, err)
			code.Write(b)
		}
		return err
	})
	require.NoError(t, err)
	all := code.String()
	for name, text := range pages(t) {
		for _, block := range fenced.FindAllStringSubmatch(text, -1) {
			assert.True(t, strings.Contains(all, block[1]), "%s: no program has\n%s", name, block[1])
		}
	}
}

var (
	link    = regexp.MustCompile(`\]\(([^)#:]*)(?:#([^)]*))?\)`)
	fence   = regexp.MustCompile("(?ms)^```.*?^```$")
	heading = regexp.MustCompile(`(?m)^#+ (.*)$`)
	noID    = regexp.MustCompile(`[^\pL\pN _-]`)
)

// ids returns the names that links to the headings of a page have.
func ids(text string) map[string]bool {
	found := make(map[string]bool)
	for _, h := range heading.FindAllStringSubmatch(fence.ReplaceAllString(text, ""), -1) {
		found[strings.ReplaceAll(noID.ReplaceAllString(strings.ToLower(h[1]), ""), " ", "-")] = true
	}
	return found
}

// TestLinks: links to files of the project lead to files, and those to a heading to
// one that is there.
func TestLinks(t *testing.T) {
	all := pages(t)
	for name, text := range all {
		for _, l := range link.FindAllStringSubmatch(text, -1) {
			file := name
			if l[1] != "" {
				file = filepath.ToSlash(filepath.Join(filepath.Dir(name), l[1]))
			}
			_, err := os.Stat(filepath.Join(root, file))
			assert.NoError(t, err, "%s links to %s", name, l[1])
			if l[2] != "" {
				assert.True(t, ids(all[file])[l[2]], "%s links to %s#%s", name, l[1], l[2])
			}
		}
	}
}
