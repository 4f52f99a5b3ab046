package crypto

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sotto-relay/sotto/internal/vectors"
)

func TestIdentityFromSeed(t *testing.T) {
	for _, n := range []int{0, 31, 33, 64} {
		_, err := IdentityFromSeed(bytes.Repeat([]byte{1}, n))
		assert.ErrorIs(t, err, ErrMalformed, n)
	}
	_, err := IdentityFromSeed(make([]byte, 32))
	assert.ErrorIs(t, err, ErrWeakKey)
	assert.NotEqual(t, generate(t).Public(), generate(t).Public())
}

func TestWithX25519(t *testing.T) {
	id := generate(t)
	separate, err := GenerateX25519()
	require.NoError(t, err)
	both := id.WithX25519(separate)
	assert.Equal(t, separate.Public(), both.X25519().Public())
	assert.Equal(t, id.Public(), both.Public())
	assert.NotEqual(t, separate.Public(), id.X25519().Public(), "the original is unchanged")
}

func TestPrintingShowsNoSecret(t *testing.T) {
	seed := vectors.Unhex(t, "a1b2c3d4e5f60718293a4b5c6d7e8f90a1b2c3d4e5f60718293a4b5c6d7e8f90")
	private := vectors.Unhex(t, "c1c2c3c4c5c6c7c8c9cacbcccdcecfc0c1c2c3c4c5c6c7c8c9cacbcccdcecfc0")
	x, err := NewX25519PrivateKey(private)
	require.NoError(t, err)
	id := identity(t, seed).WithX25519(x)
	open, err := id.OpenKey()
	require.NoError(t, err)
	wing, err := NewOpenKey(id.Public(), SuiteXWing, KeyID{1}, private)
	require.NoError(t, err)

	type holder struct {
		id  *Identity
		val Identity
		x   *X25519PrivateKey
		o   *OpenKey
	}
	type exported struct {
		ID  *Identity
		X   *X25519PrivateKey
		O   *OpenKey
		Val Identity
	}
	var out strings.Builder
	for _, v := range []any{
		id, *id, x, *x, open, *open, wing, *wing,
		holder{id, *id, x, open}, &holder{id, *id, x, wing}, exported{id, x, open, *id}, []any{id, x, open, wing},
		map[string]any{"id": id, "x": x},
	} {
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%p", "%b"} {
			fmt.Fprintf(&out, verb+"\n", v)
		}
		if j, err := json.Marshal(v); err == nil {
			out.Write(j)
		}
		for _, h := range []slog.Handler{slog.NewTextHandler(&out, nil), slog.NewJSONHandler(&out, nil)} {
			slog.New(h).Info("message", "value", v)
		}
	}
	public := id.Public().String()
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%x", "%d"} {
		assert.Equal(t, public, fmt.Sprintf(verb, id), verb)
	}
	j, err := json.Marshal(exported{ID: id})
	require.NoError(t, err)
	assert.Contains(t, string(j), `"ID":"`+public+`"`)
	assert.Contains(t, out.String(), "value="+public)
	assert.Equal(t, "<nil>", fmt.Sprint((*Identity)(nil)))

	printed := strings.ToLower(out.String())
	derived := id.derived.key().Bytes()
	for _, secret := range [][]byte{seed, private, derived} {
		for _, form := range []string{
			hex.EncodeToString(secret[4:8]),
			string(secret[4:8]),
			strings.Trim(fmt.Sprint(secret[4:8]), "[]"),
			strings.Trim(strings.ToLower(fmt.Sprintf("%#v", secret[4:8])), "[]byte{}"),
			strings.Trim(fmt.Sprintf("%b", secret[4:8]), "[]"),
		} {
			assert.NotContains(t, printed, form)
		}
	}
}

const noRandomnessEnv = "SOTTO_TEST_NO_RANDOMNESS"

// generateWithoutRandomness is what the child process of the test below does.
func generateWithoutRandomness() {
	rand.Reader = failingReader{}
	id, err := GenerateIdentity()
	fmt.Println("went on", id, err)
	os.Exit(0)
}

type failingReader struct{}

func (failingReader) Read([]byte) (int, error) { return 0, errors.New("no randomness") }

func TestNoRandomnessNoFallback(t *testing.T) {
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), noRandomnessEnv+"=1")
	out, err := cmd.CombinedOutput()
	assert.Error(t, err)
	assert.NotContains(t, string(out), "went on")
	assert.Contains(t, string(out), "no randomness")
}
