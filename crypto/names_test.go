package crypto

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sotto-relay/sotto/internal/vectors"
)

func TestWordList(t *testing.T) {
	sum := sha256.Sum256([]byte(wordList))
	assert.Equal(t, "2f5eed53a4727b4bf8880d8f3f199efc90e58503646d9ff8eff3a2ed3b24dbda", hex.EncodeToString(sum[:]))
	words := strings.Fields(wordList)
	require.Len(t, words, 2048)
	assert.True(t, slices.IsSorted(words))
	starts := map[string]bool{}
	for _, w := range words {
		starts[w[:min(4, len(w))]] = true
	}
	assert.Len(t, starts, 2048, "four letters tell words apart")
}

// The words were computed with another program, from the bits as a string.
func TestFingerprint(t *testing.T) {
	for key, want := range map[string]string{
		"0000000000000000000000000000000000000000000000000000000000000000": "wet radar industry observe fury talent",
		"000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f": "genuine cruel spatial garbage supreme cage",
		"703eba349c7a1153627387b8f2de7a28a05466eada74d5ced4589ac9aa08b2eb": "elevator eternal smart impulse hawk chunk",
	} {
		k, err := ParsePublicKey(key)
		require.NoError(t, err)
		assert.Equal(t, want, k.Fingerprint())
	}
}

func TestSelfCertifyingAddress(t *testing.T) {
	type testCase struct {
		PubKey  string `json:"pubkey_base64"`
		Address string
	}
	for _, c := range vectors.Cases[testCase](t, "self_certifying.json") {
		k, err := ParseX25519Key(c.PubKey)
		require.NoError(t, err)
		assert.Equal(t, c.Address, k.Address())
		assert.True(t, IsAddress(c.Address))
	}
	for _, s := range []string{
		"", "ABCDEFGHIJKLMNO", "ABCDEFGHIJKLMNOPQ", "abcdefghijklmnop", "ABCDEFGHIJKLMNO0", "ABCDEFGHIJKLMNO1", "ABCDEFGHIJKLMNO8",
		"ABCDEFGHIJKLMNO=", "ABCDEFGHIJKLMNO ", "ABCDEFGHIJKLMNÉ", "ABCDEFGHIJKLMN@[",
	} {
		assert.False(t, IsAddress(s), "%q", s)
	}
	assert.True(t, IsAddress("ABCDEFGHIJKLMN27"))
}
