package crypto

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/nacl/box"

	"github.com/sotto-relay/sotto/internal/vectors"
)

// The two boxes, so that each test runs over both.
var boxes = map[string]struct {
	seal func(*X25519PrivateKey, X25519Key, []byte) ([24]byte, []byte, error)
	open func(to *X25519PrivateKey, from X25519Key, nonce, box []byte) ([]byte, error)
}{
	"xsalsa20poly1305":  {SealBox, OpenBox},
	"xchacha20poly1305": {SealXChaChaBox, OpenXChaChaBox},
}

type boxCase struct {
	APrivate  hexBytes `json:"a_private"`
	APublic   hexBytes `json:"a_public"`
	BPrivate  hexBytes `json:"b_private"`
	BPublic   hexBytes `json:"b_public"`
	Nonce     hexBytes
	Message   hexBytes
	XSalsa20  hexBytes `json:"xsalsa20poly1305"`
	XChaCha20 hexBytes `json:"xchacha20poly1305"`
}

func TestBoxVectors(t *testing.T) {
	for _, c := range vectors.Cases[boxCase](t, "nacl_box.json") {
		a, err := NewX25519PrivateKey(c.APrivate)
		require.NoError(t, err)
		b, err := NewX25519PrivateKey(c.BPrivate)
		require.NoError(t, err)
		require.Equal(t, X25519Key(c.APublic), a.Public())
		require.Equal(t, X25519Key(c.BPublic), b.Public())

		for name, ct := range map[string][]byte{"xsalsa20poly1305": c.XSalsa20, "xchacha20poly1305": c.XChaCha20} {
			msg, err := boxes[name].open(b, a.Public(), c.Nonce, ct)
			require.NoError(t, err, name)
			assert.True(t, bytes.Equal(c.Message, msg), name)
			msg, err = boxes[name].open(a, b.Public(), c.Nonce, ct)
			require.NoError(t, err, name)
			assert.True(t, bytes.Equal(c.Message, msg), name)
		}

		key, err := chachaBoxKey(a, b.Public())
		require.NoError(t, err)
		got, err := xchachaSeal(key, (*[24]byte)(c.Nonce), c.Message)
		require.NoError(t, err)
		assert.Equal(t, []byte(c.XChaCha20), got)
	}
}

func TestSealBoxAgreesWithNaCl(t *testing.T) {
	a, b := generate(t).X25519(), generate(t).X25519()
	msg := []byte("message")
	nonce, ct, err := SealBox(a, b.Public(), msg)
	require.NoError(t, err)
	pub := [32]byte(a.Public())
	got, ok := box.Open(nil, ct, &nonce, &pub, (*[32]byte)(b.key().Bytes()))
	require.True(t, ok)
	assert.Equal(t, msg, got)
}

func TestBoxRefuses(t *testing.T) {
	a, b, c := generate(t).X25519(), generate(t).X25519(), generate(t).X25519()
	for name, x := range boxes {
		t.Run(name, func(t *testing.T) {
			for _, msg := range [][]byte{nil, []byte("message"), make([]byte, 100_000)} {
				nonce, ct, err := x.seal(a, b.Public(), msg)
				require.NoError(t, err)
				assert.Len(t, ct, len(msg)+boxOverhead)
				again, other, err := x.seal(a, b.Public(), msg)
				require.NoError(t, err)
				assert.NotEqual(t, nonce, again, "nonces are fresh")
				assert.NotEqual(t, ct, other)
				got, err := x.open(b, a.Public(), nonce[:], ct)
				require.NoError(t, err)
				assert.True(t, bytes.Equal(msg, got))
			}

			nonce, ct, err := x.seal(a, b.Public(), []byte("message"))
			require.NoError(t, err)
			for _, n := range []int{0, 8, 12, 23, 25, 32} {
				_, err := x.open(b, a.Public(), make([]byte, n), ct)
				assert.ErrorIs(t, err, ErrMalformed, "nonce of %d bytes", n)
			}
			for n := range len(ct) {
				want := ErrOpen
				if n < boxOverhead {
					want = ErrMalformed
				}
				_, err := x.open(b, a.Public(), nonce[:], ct[:n])
				assert.ErrorIs(t, err, want, "%d bytes", n)
			}
			flipEachBit(ct, func(bit int, flipped []byte) {
				_, err := x.open(b, a.Public(), nonce[:], flipped)
				assert.ErrorIs(t, err, ErrOpen, "bit %d", bit)
			})
			flipEachBit(nonce[:], func(bit int, flipped []byte) {
				_, err := x.open(b, a.Public(), flipped, ct)
				assert.ErrorIs(t, err, ErrOpen, "nonce bit %d", bit)
			})
			_, err = x.open(c, a.Public(), nonce[:], ct)
			assert.ErrorIs(t, err, ErrOpen, "another recipient")
			_, err = x.open(b, c.Public(), nonce[:], ct)
			assert.ErrorIs(t, err, ErrOpen, "another sender")
		})
	}
}

func FuzzOpenBox(f *testing.F) {
	a, b := identity(f, bytes.Repeat([]byte{1}, 32)).X25519(), identity(f, bytes.Repeat([]byte{2}, 32)).X25519()
	for _, x := range boxes {
		nonce, ct, err := x.seal(a, b.Public(), []byte("message"))
		require.NoError(f, err)
		f.Add(a.Public().bytes(), nonce[:], ct)
	}
	for _, c := range vectors.Cases[boxCase](f, "nacl_box.json") {
		f.Add([]byte(c.APublic), []byte(c.Nonce), []byte(c.XSalsa20))
	}
	f.Fuzz(func(t *testing.T, from, nonce, ct []byte) {
		if len(from) != 32 {
			return
		}
		for _, x := range boxes {
			msg, err := x.open(b, X25519Key(from), nonce, ct)
			if err == nil {
				require.Len(t, msg, len(ct)-boxOverhead)
			} else {
				require.Nil(t, msg)
			}
		}
	})
}

func BenchmarkBox(b *testing.B) {
	alice, bob := generate(b).X25519(), generate(b).X25519()
	msg := make([]byte, 1024)
	for name, x := range boxes {
		b.Run(name+"/seal", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, _, err := x.seal(alice, bob.Public(), msg); err != nil {
					b.Fatal(err)
				}
			}
		})
		nonce, ct, err := x.seal(alice, bob.Public(), msg)
		require.NoError(b, err)
		b.Run(name+"/open", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := x.open(bob, alice.Public(), nonce[:], ct); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
