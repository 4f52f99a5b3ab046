package frame

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAck(t *testing.T) {
	var want []Ack
	var encoded []byte
	for i := range byte(3) {
		a := Ack{Sender: [32]byte{31: i}, ID: [16]byte{1, 15: i}, Signature: [64]byte{63: i}}
		want = append(want, a)
		encoded = a.Append(encoded)
	}
	require.Len(t, encoded, 3*AckSize)
	var got []Ack
	for rest := encoded; len(rest) > 0; {
		var a Ack
		var err error
		a, rest, err = DecodeAck(rest)
		require.NoError(t, err)
		got = append(got, a)
	}
	require.Equal(t, want, got)
	for n := range len(encoded) {
		_, _, err := DecodeAck(encoded[:n])
		if n == 0 || n%AckSize != 0 {
			require.ErrorIs(t, err, ErrMalformed)
		} else {
			require.NoError(t, err)
		}
	}
}

func FuzzDecodeAck(f *testing.F) {
	f.Add(make([]byte, AckSize))
	f.Add(make([]byte, 2*AckSize+1))
	f.Fuzz(func(t *testing.T, b []byte) {
		var again []byte
		for rest := b; ; {
			a, more, err := DecodeAck(rest)
			if err != nil {
				require.Equal(t, b, rest, "only the whole is malformed")
				return
			}
			again = a.Append(again)
			if rest = more; len(rest) == 0 {
				break
			}
		}
		require.True(t, bytes.Equal(b, again))
	})
}
