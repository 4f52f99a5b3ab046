package crypto

import (
	"crypto/ecdh"
	"encoding/base64"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sotto-relay/sotto/internal/vectors"
)

func TestEd25519ToX25519(t *testing.T) {
	type testCase struct {
		Seed    hexBytes `json:"ed25519_seed"`
		Public  hexBytes `json:"ed25519_public"`
		XPublic hexBytes `json:"x25519_public"`
		XPriv   hexBytes `json:"x25519_private"`
	}
	for _, c := range vectors.Cases[testCase](t, "ed25519_to_x25519.json") {
		id := identity(t, c.Seed)
		assert.Equal(t, PublicKey(c.Public), id.Public())
		assert.Equal(t, []byte(c.XPriv), id.X25519().key().Bytes())
		x, err := id.Public().X25519()
		require.NoError(t, err)
		assert.Equal(t, X25519Key(c.XPublic), x)
		assert.Equal(t, x, id.X25519().Public())
	}
}

// lowOrderX25519 are the points of low order with u < 2^255, little-endian:
// 0, 1, the two of order 8, p-1, p and p+1.
var lowOrderX25519 = []string{
	"0000000000000000000000000000000000000000000000000000000000000000",
	"0100000000000000000000000000000000000000000000000000000000000000",
	"e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800",
	"5f9c95bca3508c24b1d0b1559c83ef5b04445cc4581c8e86d8224eddd09f1157",
	"ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
	"edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
	"eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
}

// weakX25519 are the low-order points and all u >= p, each also with the bit
// that is ignored.
func weakX25519(t testing.TB) []X25519Key {
	var keys []X25519Key
	for _, s := range lowOrderX25519 {
		keys = append(keys, X25519Key(vectors.Unhex(t, s)))
	}
	for low := 0xef; low <= 0xff; low++ {
		k := X25519Key(vectors.Unhex(t, lowOrderX25519[6]))
		k[0] = byte(low)
		keys = append(keys, k)
	}
	for _, k := range keys {
		k[31] |= 0x80
		keys = append(keys, k)
	}
	return keys
}

func TestWeakX25519Keys(t *testing.T) {
	id := generate(t)
	owner := id.Public()
	for _, k := range weakX25519(t) {
		_, _, err := SealBox(id.X25519(), k, nil)
		assert.ErrorIs(t, err, ErrWeakKey, k)
		_, err = OpenBox(id.X25519(), k, make([]byte, 24), make([]byte, 16))
		assert.ErrorIs(t, err, ErrWeakKey, k)
		_, _, err = SealXChaChaBox(id.X25519(), k, nil)
		assert.ErrorIs(t, err, ErrWeakKey, k)
		_, err = OpenXChaChaBox(id.X25519(), k, make([]byte, 24), make([]byte, 16))
		assert.ErrorIs(t, err, ErrWeakKey, k)

		_, _, err = SealEncrypted(id, owner, k, Content{})
		assert.ErrorIs(t, err, ErrWeakKey, k)
		payload := make([]byte, minEncrypted)
		copy(payload, owner[:])
		copy(payload[targetSize:], k[:])
		sig := id.Sign(payload)
		_, err = OpenEncrypted(id, owner, &sig, payload)
		assert.ErrorIs(t, err, ErrWeakKey, k)

		key, err := NewSealKey(owner, SuiteX25519, KeyID{1}, k[:])
		if err == nil {
			_, _, err = Seal(id, key, [16]byte{}, Content{})
		}
		assert.ErrorIs(t, err, ErrWeakKey, k)
	}
}

func TestX25519HighBitIsIgnored(t *testing.T) {
	a, err := GenerateX25519()
	require.NoError(t, err)
	id := generate(t)
	marked := a.Public()
	marked[31] |= 0x80
	msg := []byte("message")

	nonce, box, err := SealBox(id.X25519(), marked, msg)
	require.NoError(t, err)
	got, err := OpenBox(a, id.X25519().Public(), nonce[:], box)
	require.NoError(t, err)
	assert.Equal(t, msg, got)

	key, err := NewSealKey(id.Public(), SuiteX25519, KeyID{1}, marked[:])
	require.NoError(t, err)
	open, err := NewOpenKey(id.Public(), SuiteX25519, KeyID{1}, a.key().Bytes())
	require.NoError(t, err)
	payload, sig, err := Seal(id, key, [16]byte{}, Content{Data: msg})
	require.NoError(t, err)
	_, err = OpenSealed(id.Public(), [16]byte{}, &sig, payload, open)
	assert.NoError(t, err)
}

func TestNewX25519PrivateKey(t *testing.T) {
	for _, n := range []int{0, 31, 33, 64} {
		_, err := NewX25519PrivateKey(make([]byte, n))
		assert.ErrorIs(t, err, ErrMalformed, n)
	}
	_, err := NewX25519PrivateKey(make([]byte, 32))
	assert.ErrorIs(t, err, ErrWeakKey)
}

func TestParseX25519Key(t *testing.T) {
	key := X25519Key(vectors.Unhex(t, "fbefbefbefbefbefbefbefbefbefbefbefbefbefbefbefbefbefbefbefbefbef"))
	text := key.String()
	got, err := ParseX25519Key(text)
	require.NoError(t, err)
	assert.Equal(t, key, got)
	for _, s := range []string{
		"",
		base64.StdEncoding.EncodeToString(key[:31]),
		base64.StdEncoding.EncodeToString(append(key[:], 0)),
		base64.URLEncoding.EncodeToString(key[:]),
		base64.RawStdEncoding.EncodeToString(key[:]),
		text[:20] + "\n" + text[20:],
		text + "\r\n",
		text[:42] + "9=", // trailing bits that are not zero
		fmt.Sprintf("%x", key),
		generate(t).Public().String(),
	} {
		_, err := ParseX25519Key(s)
		assert.ErrorIs(t, err, ErrMalformed, "%q", s)
	}
}

// The exchange is checked here and not only by its users: nacl/box does not.
func TestExchangeAgreesWithECDH(t *testing.T) {
	a, b := generate(t).X25519(), generate(t).X25519()
	shared, err := a.exchange(b.Public())
	require.NoError(t, err)
	pub, err := ecdh.X25519().NewPublicKey(a.Public().bytes())
	require.NoError(t, err)
	want, err := b.key().ECDH(pub)
	require.NoError(t, err)
	assert.Equal(t, want, shared)
}
