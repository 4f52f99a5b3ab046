package atomicfile

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestWrite(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	for _, text := range []string{"one", "", "longer than before"} {
		require.NoError(t, Write(file, []byte(text)))
		got, err := os.ReadFile(file)
		require.NoError(t, err)
		assert.Equal(t, text, string(got))
	}
	info, err := os.Stat(file)
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o600), info.Mode())

	// What cannot be replaced leaves nothing behind.
	require.NoError(t, os.Mkdir(filepath.Join(dir, "taken"), 0o700))
	assert.Error(t, Write(filepath.Join(dir, "taken"), nil))
	assert.Error(t, Write(filepath.Join(dir, "none", "file"), nil))
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	assert.Len(t, left, 2)
}
