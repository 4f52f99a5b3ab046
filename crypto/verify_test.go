package crypto

import (
	"crypto/ed25519"
	"math/rand/v2"
	"strings"
	"testing"

	"filippo.io/edwards25519"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sotto-relay/sotto/internal/vectors"
)

type edgeCase struct {
	Name      string
	Public    hexBytes
	Message   hexBytes
	Signature hexBytes
	Accept    bool
}

func TestVerifyEdges(t *testing.T) {
	onlyStrict := 0
	for _, c := range vectors.Cases[edgeCase](t, "ed25519_edge.json") {
		if len(c.Public) != 32 || len(c.Signature) != 64 {
			assert.False(t, c.Accept, c.Name) // the types refuse it
			continue
		}
		err := Verify(PublicKey(c.Public), c.Message, (*[64]byte)(c.Signature))
		if c.Accept {
			assert.NoError(t, err, c.Name)
			continue
		}
		weak := strings.HasPrefix(c.Name, "small order") || strings.HasPrefix(c.Name, "non-canonical key")
		if weak {
			assert.ErrorIs(t, err, ErrWeakKey, c.Name)
			assert.ErrorIs(t, PublicKey(c.Public).Check(), ErrWeakKey, c.Name)
		} else {
			assert.ErrorIs(t, err, ErrSignature, c.Name)
		}
		if ed25519.Verify(ed25519.PublicKey(c.Public), c.Message, c.Signature) {
			onlyStrict++
		}
	}
	assert.Equal(t, 11, onlyStrict, "cases that crypto/ed25519 alone accepts")
}

// lowOrderKeys are the 14 encodings of points of small order.
func lowOrderKeys(t testing.TB) []PublicKey {
	var keys []PublicKey
	seen := map[PublicKey]bool{}
	for _, c := range vectors.Cases[edgeCase](t, "ed25519_edge.json") {
		if !strings.HasPrefix(c.Name, "small order") && !strings.HasPrefix(c.Name, "non-canonical key") {
			continue
		}
		if k := PublicKey(c.Public); !seen[k] {
			seen[k] = true
			keys = append(keys, k)
		}
	}
	require.Len(t, keys, 14)
	return keys
}

func TestLowOrderAndNonCanonicalPoints(t *testing.T) {
	refused := lowOrderKeys(t)
	for low := 0xed; low <= 0xff; low++ { // y from p to 2^255-1, both signs
		for _, top := range []byte{0x7f, 0xff} {
			var k PublicKey
			for i := range k {
				k[i] = 0xff
			}
			k[0], k[31] = byte(low), top
			refused = append(refused, k)
		}
	}
	id := generate(t)
	msg := []byte("message")
	for _, k := range refused {
		assert.ErrorIs(t, k.Check(), ErrWeakKey, k)
		_, err := k.X25519()
		assert.ErrorIs(t, err, ErrWeakKey, k)
		_, err = k.SealKey()
		assert.ErrorIs(t, err, ErrWeakKey, k)
		_, err = NewSealKey(k, SuiteX25519, KeyID{1}, id.X25519().Public().bytes())
		assert.ErrorIs(t, err, ErrWeakKey, k)

		sig := id.Sign(msg)
		assert.ErrorIs(t, Verify(k, msg, &sig), ErrWeakKey, "as A: %v", k)
		copy(sig[:32], k[:])
		assert.ErrorIs(t, Verify(id.Public(), msg, &sig), ErrSignature, "as R: %v", k)
	}
}

func (k X25519Key) bytes() []byte { return k[:] }

func TestCheckAgainstOracle(t *testing.T) {
	oracle := func(k PublicKey) bool {
		p, err := new(edwards25519.Point).SetBytes(k[:])
		if err != nil || string(p.Bytes()) != string(k[:]) {
			return false
		}
		for range 3 {
			p.Add(p, p)
		}
		return p.Equal(edwards25519.NewIdentityPoint()) == 0
	}
	for i := range 32 { // numbers around the prime
		for _, b := range []byte{0, 0x7f, 0xec, 0xed, 0xfe} {
			var k PublicKey
			for j := range k {
				k[j] = 0xff
			}
			k[i] = b
			require.Equal(t, oracle(k), k.Check() == nil, k)
		}
	}
	rng := rand.New(rand.NewPCG(1, 2))
	good := 0
	for range 2000 {
		var k PublicKey
		fill := byte(rng.IntN(3) * 0x7f) // 0, 0x7f, 0xfe
		for i := range k {
			switch rng.IntN(4) {
			case 0:
				k[i] = byte(rng.Uint32())
			case 1:
				k[i] = fill
			default:
				k[i] = 0xff
			}
		}
		k[31] |= byte(rng.IntN(2) * 0x7f)
		want := oracle(k)
		if want {
			good++
		}
		require.Equal(t, want, k.Check() == nil, k)
	}
	assert.NotZero(t, good)
}

func TestVerifyFlippedBits(t *testing.T) {
	id := generate(t)
	msg := []byte("16 bytes of text")
	sig, pub := id.Sign(msg), id.Public()
	require.NoError(t, Verify(pub, msg, &sig))
	flipEachBit(sig[:], func(bit int, b []byte) {
		assert.ErrorIs(t, Verify(pub, msg, (*[64]byte)(b)), ErrSignature, "signature bit %d", bit)
	})
	flipEachBit(pub[:], func(bit int, b []byte) {
		assert.Error(t, Verify(PublicKey(b), msg, &sig), "key bit %d", bit)
	})
	flipEachBit(msg, func(bit int, b []byte) {
		assert.ErrorIs(t, Verify(pub, b, &sig), ErrSignature, "message bit %d", bit)
	})
}

func TestParsePublicKey(t *testing.T) {
	want := generate(t).Public()
	text := want.String()
	got, err := ParsePublicKey(text)
	require.NoError(t, err)
	assert.Equal(t, want, got)

	for _, s := range []string{
		"", text[:62], text[:63], text + "00", text + "0", "0x" + text[2:], text + "\n", " " + text[1:],
		text[:63] + "g", strings.Repeat("A", 64), strings.Repeat("aB", 32), strings.Repeat("é", 32),
		generate(t).X25519().Public().String(),
	} {
		_, err := ParsePublicKey(s)
		assert.ErrorIs(t, err, ErrMalformed, "%q", s)
	}
}

func TestVerifyAllocates(t *testing.T) {
	id := generate(t)
	msg := make([]byte, 128)
	sig := id.Sign(msg)
	pub := id.Public()
	assert.Zero(t, testing.AllocsPerRun(100, func() { _ = Verify(pub, msg, &sig) }))
}

func BenchmarkVerify(b *testing.B) {
	id := generate(b)
	msg := make([]byte, 128)
	sig := id.Sign(msg)
	b.ReportAllocs()
	for b.Loop() {
		if err := Verify(id.Public(), msg, &sig); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkStdlibVerify(b *testing.B) {
	id := generate(b)
	msg := make([]byte, 128)
	sig, pub := id.Sign(msg), id.Public()
	b.ReportAllocs()
	for b.Loop() {
		if !ed25519.Verify(pub[:], msg, sig[:]) {
			b.Fatal("does not verify")
		}
	}
}
