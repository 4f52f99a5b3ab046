package crypto

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestDerive compares with RFC 5869 written out: extract with a salt of zeros, then
// T(1) and T(2).
func TestDerive(t *testing.T) {
	mac := func(key []byte, parts ...string) []byte {
		h := hmac.New(sha256.New, key)
		for _, p := range parts {
			h.Write([]byte(p))
		}
		return h.Sum(nil)
	}
	prk := mac(make([]byte, 32), "secret")
	t1 := mac(prk, "label", "rest", "\x01")
	t2 := mac(prk, string(t1), "label", "rest", "\x02")
	assert.Equal(t, append(t1, t2...), derive([]byte("secret"), "label", []byte("rest"), 64))
}

func TestVault(t *testing.T) {
	id := generate(t)
	v, err := id.Vault()
	require.NoError(t, err)
	sealed := v.Seal("here", []byte("secret"))
	assert.NotContains(t, string(sealed), "secret")
	assert.NotEqual(t, sealed, v.Seal("here", []byte("secret")))

	again, err := id.Vault()
	require.NoError(t, err)
	got, err := again.Open("here", sealed)
	require.NoError(t, err)
	assert.Equal(t, "secret", string(got))

	other, err := generate(t).Vault()
	require.NoError(t, err)
	for name, open := range map[string]func() ([]byte, error){
		"elsewhere":      func() ([]byte, error) { return v.Open("there", sealed) },
		"another's":      func() ([]byte, error) { return other.Open("here", sealed) },
		"short":          func() ([]byte, error) { return v.Open("here", sealed[:27]) },
		"nothing":        func() ([]byte, error) { return v.Open("here", nil) },
		"without an end": func() ([]byte, error) { return v.Open("here", sealed[:len(sealed)-1]) },
	} {
		_, err := open()
		assert.ErrorIs(t, err, ErrOpen, name)
	}
	flipEachBit(sealed, func(bit int, b []byte) {
		_, err := v.Open("here", b)
		require.ErrorIs(t, err, ErrOpen, bit)
	})
}

func TestDerivedCardKeys(t *testing.T) {
	id := generate(t)
	keys := func(id *Identity, n uint64) [64]byte {
		k, err := id.CardKeys(n)
		require.NoError(t, err)
		return k.Secret()
	}
	seen := map[[64]byte]bool{}
	for n := range uint64(3) {
		seen[keys(id, n)] = true
		assert.Equal(t, keys(id, n), keys(id, n))
	}
	seen[keys(generate(t), 0)] = true
	seen[keys(id, 1<<32)] = true
	assert.Len(t, seen, 5)

	k, err := id.CardKeys(7)
	require.NoError(t, err)
	card, err := NewCard(id, 7, time.UnixMilli(0), time.UnixMilli(1), k)
	require.NoError(t, err)
	again, err := NewCard(id, 7, time.UnixMilli(0), time.UnixMilli(1), k)
	require.NoError(t, err)
	assert.Equal(t, card.KeyID(), again.KeyID(), "who makes the card again opens what was sealed to it")
}

func TestVaultIsHidden(t *testing.T) {
	id := generate(t)
	v, err := id.Vault()
	require.NoError(t, err)
	key := derive(id.key().Seed(), vaultLabel, nil, 32)
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%x", "%d"} {
		assert.NotContains(t, fmt.Sprintf(verb, v), hex.EncodeToString(key)[:16])
		assert.NotContains(t, fmt.Sprintf(verb, v), fmt.Sprintf("%d %d %d", key[0], key[1], key[2]))
	}
}
