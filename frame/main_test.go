package frame

import (
	"testing"

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

func seq(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i + 1)
	}
	return b
}
