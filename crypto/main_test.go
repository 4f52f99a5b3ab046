package crypto

import (
	"encoding/hex"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if os.Getenv(noRandomnessEnv) != "" {
		generateWithoutRandomness()
	}
	goleak.VerifyTestMain(m)
}

// hexBytes is a hex string of a vector file.
type hexBytes []byte

func (b *hexBytes) UnmarshalText(text []byte) (err error) {
	*b, err = hex.DecodeString(string(text))
	return err
}

// A brepFrame is a frame of a vector file, cut as brep.md lays it out.
type brepFrame struct {
	id      [16]byte
	sender  PublicKey
	sig     [64]byte
	payload []byte
}

func parseFrame(t testing.TB, b hexBytes) brepFrame {
	t.Helper()
	require.GreaterOrEqual(t, len(b), 120)
	return brepFrame{
		id:      [16]byte(b[8:24]),
		sender:  PublicKey(b[24:56]),
		sig:     [64]byte(b[56:120]),
		payload: b[120:],
	}
}

func identity(t testing.TB, seed []byte) *Identity {
	t.Helper()
	id, err := IdentityFromSeed(seed)
	require.NoError(t, err)
	return id
}

func generate(t testing.TB) *Identity {
	t.Helper()
	id, err := GenerateIdentity()
	require.NoError(t, err)
	return id
}

// flipEachBit calls f with copies of b that differ from it in one bit each.
func flipEachBit(b []byte, f func(bit int, flipped []byte)) {
	for bit := range 8 * len(b) {
		c := append([]byte(nil), b...)
		c[bit/8] ^= 1 << (bit % 8)
		f(bit, c)
	}
}

// vectorContent is the content that a vector describes by its type and the bytes
// after the type.
func vectorContent(t testing.TB, kind uint8, body []byte) Content {
	t.Helper()
	c, err := ParseContent(append([]byte{kind}, body...))
	require.NoError(t, err)
	return c
}

func requireContent(t testing.TB, want, got Content) {
	t.Helper()
	require.Equal(t, want.Type, got.Type)
	require.Equal(t, want.Name, got.Name)
	require.Equal(t, string(want.Data), string(got.Data))
}
