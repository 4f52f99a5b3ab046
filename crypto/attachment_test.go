package crypto

import (
	"bytes"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sotto-relay/sotto/internal/vectors"
)

func TestAttachments(t *testing.T) {
	type testCase struct {
		ClientSeed hexBytes `json:"client_seed"`
		Relay      hexBytes
		Client     hexBytes
		NotAfter   int64 `json:"not_after_ms"`
		Attachment hexBytes
	}
	for _, c := range vectors.Cases[testCase](t, "attach.json") {
		want := Attachment{PublicKey(c.Relay), PublicKey(c.Client), time.UnixMilli(c.NotAfter)}
		got, err := ParseAttachment(c.Attachment)
		require.NoError(t, err)
		assert.Equal(t, want, got)
		made := Attach(identity(t, c.ClientSeed), want.Relay, want.NotAfter)
		assert.Equal(t, []byte(c.Attachment), made[:])

		for n := range c.Attachment {
			_, err := ParseAttachment(c.Attachment[:n])
			require.ErrorIs(t, err, ErrMalformed)
		}
		_, err = ParseAttachment(append(bytes.Clone(c.Attachment), 0))
		require.ErrorIs(t, err, ErrMalformed)
		flipEachBit(c.Attachment, func(bit int, b []byte) {
			_, err := ParseAttachment(b)
			require.Error(t, err, "bit %d", bit)
		})
	}
}

func TestAttachmentRefused(t *testing.T) {
	client := generate(t)
	far := Attach(client, PublicKey{1}, time.UnixMilli(math.MaxInt64))
	_, err := ParseAttachment(far[:])
	require.NoError(t, err)
	before := Attach(client, PublicKey{1}, time.UnixMilli(-1)) // beyond any time, as it is unsigned
	_, err = ParseAttachment(before[:])
	require.ErrorIs(t, err, ErrMalformed)
	var nobody [AttachmentSize]byte
	_, err = ParseAttachment(nobody[:])
	require.ErrorIs(t, err, ErrWeakKey)
}

func FuzzParseAttachment(f *testing.F) {
	f.Add(make([]byte, AttachmentSize))
	f.Fuzz(func(t *testing.T, b []byte) {
		if a, err := ParseAttachment(b); err == nil {
			require.Equal(t, b[:32], a.Relay[:])
		}
	})
}
