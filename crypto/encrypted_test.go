package crypto

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sotto-relay/sotto/internal/race"
	"github.com/sotto-relay/sotto/internal/vectors"
)

type encryptedCase struct {
	SenderSeed    hexBytes `json:"sender_seed"`
	Recipient     hexBytes
	Private       hexBytes `json:"recipient_x25519_private"`
	Public        hexBytes `json:"recipient_x25519_public"`
	ContentType   uint8    `json:"content_type"`
	Content       hexBytes
	Frame         hexBytes
	WithoutTarget hexBytes `json:"frame_signed_without_target"`
}

// recipientNamed is an identity with a name whose seed is not known; only its
// X25519 key is ever used.
func recipientNamed(t testing.TB, public, x25519 []byte) *Identity {
	x, err := NewX25519PrivateKey(x25519)
	require.NoError(t, err)
	id := generate(t).WithX25519(x)
	id.public = PublicKey(public)
	return id
}

func TestEncryptedVectors(t *testing.T) {
	for _, c := range vectors.Cases[encryptedCase](t, "brep_encrypted.json") {
		want := vectorContent(t, c.ContentType, c.Content)
		self := recipientNamed(t, c.Recipient, c.Private)
		require.Equal(t, X25519Key(c.Public), self.X25519().Public())
		for _, frame := range []hexBytes{c.Frame, c.WithoutTarget} {
			f := parseFrame(t, frame)
			got, err := OpenEncrypted(self, f.sender, &f.sig, f.payload)
			require.NoError(t, err)
			requireContent(t, want, got)
		}
		payload, sig, err := SealEncrypted(identity(t, c.SenderSeed), PublicKey(c.Recipient), X25519Key(c.Public), want)
		require.NoError(t, err)
		f := parseFrame(t, c.Frame)
		assert.Len(t, payload, len(f.payload))
		assert.NoError(t, Verify(f.sender, payload, &sig))
		got, err := OpenEncrypted(self, f.sender, &sig, payload)
		require.NoError(t, err)
		requireContent(t, want, got)
	}
}

func TestEncryptedUsesTheKeyOfTheIdentity(t *testing.T) {
	from, plain, both := generate(t), generate(t), withSeparateX25519(t)
	for _, to := range []*Identity{plain, both} {
		payload, sig, err := SealEncrypted(from, to.Public(), to.X25519().Public(), Content{})
		require.NoError(t, err)
		_, err = OpenEncrypted(to, from.Public(), &sig, payload)
		assert.NoError(t, err)
	}
}

func TestEncryptedRefused(t *testing.T) {
	if race.Enabled {
		t.Skip("nothing in it is concurrent")
	}
	t.Parallel()
	from, stranger, self := generate(t), generate(t), generate(t)
	seal := func(c Content) ([]byte, [64]byte) {
		payload, sig, err := SealEncrypted(from, self.Public(), self.X25519().Public(), c)
		require.NoError(t, err)
		return payload, sig
	}
	payload, sig := seal(Content{Type: Text, Data: []byte("message")})
	again, _ := seal(Content{Type: Text, Data: []byte("message")})
	assert.NotEqual(t, payload[targetSize:encryptedHead], again[targetSize:encryptedHead], "ephemeral keys are fresh")
	assert.NotEqual(t, payload[encryptedHead:encryptedHead+12], again[encryptedHead:encryptedHead+12], "nonces are fresh")

	flipEachBit(payload, func(bit int, b []byte) {
		if bit%5 == 0 {
			_, err := OpenEncrypted(self, from.Public(), &sig, b)
			assert.Error(t, err, "bit %d", bit)
		}
		if bit/8 == encryptedHead-1 && bit%8 == 7 {
			return // the bit of the ephemeral key that X25519 ignores
		}
		resigned := from.Sign(b)
		_, err := OpenEncrypted(self, from.Public(), &resigned, b)
		assert.ErrorIs(t, err, ErrOpen, "bit %d, signed again", bit)
	})
	flipEachBit(sig[:], func(bit int, b []byte) {
		_, err := OpenEncrypted(self, from.Public(), (*[64]byte)(b), payload)
		assert.ErrorIs(t, err, ErrSignature, "signature bit %d", bit)
	})
	for n := range len(payload) {
		want := ErrOpen
		if n < minEncrypted {
			want = ErrMalformed
		}
		resigned := from.Sign(payload[:n])
		_, err := OpenEncrypted(self, from.Public(), &resigned, payload[:n])
		assert.ErrorIs(t, err, want, "%d bytes", n)
	}
	_, err := OpenEncrypted(self, from.Public(), new([64]byte), payload)
	assert.ErrorIs(t, err, ErrSignature)
	_, err = OpenEncrypted(self, stranger.Public(), &sig, payload)
	assert.ErrorIs(t, err, ErrSignature)
	_, err = OpenEncrypted(self, PublicKey{}, &sig, payload)
	assert.ErrorIs(t, err, ErrWeakKey)
	_, err = OpenEncrypted(stranger, from.Public(), &sig, payload)
	assert.ErrorIs(t, err, ErrOpen)
	redirected := append(stranger.Public().bytes(), payload[targetSize:]...)
	withoutTarget := from.Sign(payload[targetSize:])
	_, err = OpenEncrypted(self, from.Public(), &withoutTarget, redirected)
	assert.ErrorIs(t, err, ErrOpen, "for somebody else")

	// What only another implementation would encrypt.
	for _, plaintext := range []string{"\x01\xff", "\x03\x01/", "\x04part", "\x06key"} {
		b := encryptRaw(t, self, []byte(plaintext))
		sig := from.Sign(b)
		got, err := OpenEncrypted(self, from.Public(), &sig, b)
		assert.ErrorIs(t, err, ErrMalformed, "%q", plaintext)
		assert.Zero(t, got)
	}
	for _, c := range []Content{{Type: 4}, {Type: Text, Data: []byte{0xff}}, {Type: File, Name: "a/b"}} {
		_, _, err := SealEncrypted(from, self.Public(), self.X25519().Public(), c)
		assert.ErrorIs(t, err, ErrMalformed, "%+v", c)
	}
}

// encryptRaw encrypts any plaintext to an identity.
func encryptRaw(t testing.TB, to *Identity, plaintext []byte) []byte {
	ephemeral, err := GenerateX25519()
	require.NoError(t, err)
	aead, err := encryptedAEAD(ephemeral, to.X25519().Public())
	require.NoError(t, err)
	b := append(to.Public().bytes(), ephemeral.Public().bytes()...)
	return aead.Seal(b, nil, plaintext, nil)
}

func FuzzOpenEncrypted(f *testing.F) {
	from := identity(f, bytes.Repeat([]byte{1}, 32))
	cases := vectors.Cases[encryptedCase](f, "brep_encrypted.json")
	self := recipientNamed(f, cases[0].Recipient, cases[0].Private)
	for _, c := range cases {
		f.Add(parseFrame(f, c.Frame).payload)
	}
	f.Fuzz(func(t *testing.T, payload []byte) {
		sig := from.Sign(payload)
		c, err := OpenEncrypted(self, from.Public(), &sig, payload)
		if err != nil {
			require.Zero(t, c)
		}
	})
}

func BenchmarkEncrypted(b *testing.B) {
	from, to := generate(b), generate(b)
	c := Content{Data: make([]byte, 1024)}
	b.Run("seal", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, _, err := SealEncrypted(from, to.Public(), to.X25519().Public(), c); err != nil {
				b.Fatal(err)
			}
		}
	})
	payload, sig, err := SealEncrypted(from, to.Public(), to.X25519().Public(), c)
	require.NoError(b, err)
	b.Run("open", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := OpenEncrypted(to, from.Public(), &sig, payload); err != nil {
				b.Fatal(err)
			}
		}
	})
}
