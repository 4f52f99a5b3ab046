package frame

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func sealedPayload(suite uint8, n int) string {
	return keyA + string(rune(suite)) + "kkkkkkkk" + strings.Repeat("s", n)
}

func TestSealed(t *testing.T) {
	for _, c := range []struct {
		suite uint8
		least int
	}{{0, 48}, {2, 48}, {3, 1136}, {4, 48}, {127, 48}} {
		for _, n := range []int{c.least, c.least + 1000} {
			want := Sealed{
				Recipient: [32]byte([]byte(keyA)), Suite: c.suite, KeyID: [8]byte([]byte("kkkkkkkk")),
				Sealed: []byte(strings.Repeat("s", n)),
			}
			encoded := sealedPayload(c.suite, n)
			got, err := DecodeSealed([]byte(encoded))
			require.NoError(t, err)
			assert.Equal(t, want, got)
			assert.Equal(t, "x"+encoded, string(want.Append([]byte("x"))))
		}
		whole := sealedPayload(c.suite, c.least)
		for n := range whole {
			_, err := DecodeSealed([]byte(whole[:n]))
			require.ErrorIs(t, err, ErrMalformed, "suite %d, %d bytes", c.suite, n)
		}
	}
	b := []byte(sealedPayload(2, 48))
	assert.Zero(t, testing.AllocsPerRun(10, func() { _, _ = DecodeSealed(b) }))
}

func FuzzDecodeSealed(f *testing.F) {
	f.Add([]byte(sealedPayload(2, 48)))
	f.Add([]byte(sealedPayload(3, 1135)))
	f.Fuzz(func(t *testing.T, b []byte) {
		if s, err := DecodeSealed(b); err == nil {
			require.Equal(t, b, s.Append(nil))
		} else {
			require.ErrorIs(t, err, ErrMalformed)
		}
	})
}
