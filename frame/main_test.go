package frame

import (
	"encoding/hex"
	"encoding/json"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A frameVector is one case of testdata/brep_frames.json.
type frameVector struct {
	Name      string
	Valid     bool
	Frame     string
	Type      Type
	Sender    string
	Signature string
	Payload   string
}

func frameVectors(t testing.TB) []frameVector {
	t.Helper()
	data, err := os.ReadFile("testdata/brep_frames.json")
	require.NoError(t, err)
	var file struct{ Cases []frameVector }
	require.NoError(t, json.Unmarshal(data, &file))
	require.NotEmpty(t, file.Cases)
	return file.Cases
}

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(s)
	require.NoError(t, err)
	return b
}

func seq(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i + 1)
	}
	return b
}
