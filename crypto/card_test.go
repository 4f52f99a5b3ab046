package crypto

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sotto-relay/sotto/internal/vectors"
)

type cardCase struct {
	IdentitySeed  hexBytes `json:"identity_seed"`
	Identity      hexBytes
	Serial        uint64
	NotBefore     int64    `json:"not_before_ms"`
	NotAfter      int64    `json:"not_after_ms"`
	X25519Private hexBytes `json:"x25519_private"`
	X25519Public  hexBytes `json:"x25519_public"`
	XWingSeed     hexBytes `json:"xwing_private_seed"`
	XWingPublic   hexBytes `json:"xwing_public"`
	Card          hexBytes
}

func (c *cardCase) keys(t testing.TB) *CardKeys {
	k, err := NewCardKeys((*[64]byte)(append(bytes.Clone(c.X25519Private), c.XWingSeed...)))
	require.NoError(t, err)
	return k
}

func TestCardVectors(t *testing.T) {
	for _, c := range vectors.Cases[cardCase](t, "card.json") {
		require.Len(t, c.Card, CardSize)
		got, err := ParseCard(c.Card)
		require.NoError(t, err)
		assert.Equal(t, PublicKey(c.Identity), got.Identity())
		assert.Equal(t, c.Serial, got.Serial())
		assert.Equal(t, c.NotBefore, got.NotBefore().UnixMilli())
		assert.Equal(t, c.NotAfter, got.NotAfter().UnixMilli())
		assert.Equal(t, []byte(c.X25519Public), got.SealKey(SuiteX25519).key.Bytes())
		assert.Equal(t, []byte(c.XWingPublic), got.SealKey(SuiteXWing).key.Bytes())
		assert.Equal(t, []byte(c.Card), got.Bytes())
		assert.Nil(t, got.SealKey(1))

		// Ed25519 is deterministic: made by us, it is the same.
		made, err := NewCard(identity(t, c.IdentitySeed), c.Serial, got.NotBefore(), got.NotAfter(), c.keys(t))
		require.NoError(t, err)
		assert.Equal(t, []byte(c.Card), made.Bytes())
		assert.Equal(t, append(bytes.Clone(c.X25519Private), c.XWingSeed...), ptr(c.keys(t).Secret())[:])
	}
}

func ptr[T any](v T) *T { return &v }

// What is sealed to a card opens with its keys, and names the card.
func TestCardSealsAndOpens(t *testing.T) {
	from, self := generate(t), generate(t)
	keys, err := GenerateCardKeys()
	require.NoError(t, err)
	now := time.Now()
	card, err := NewCard(self, 1, now, now.Add(time.Hour), keys)
	require.NoError(t, err)
	open, err := keys.OpenKeys(card)
	require.NoError(t, err)
	for _, s := range []Suite{SuiteX25519, SuiteXWing} {
		payload, sig, err := Seal(from, card.SealKey(s), [16]byte{1}, Content{Data: []byte("hello")})
		require.NoError(t, err)
		id := card.KeyID()
		require.Equal(t, append([]byte{byte(s)}, id[:]...), payload[targetSize:sealedHead])
		got, err := OpenSealed(from.Public(), [16]byte{1}, &sig, payload, open...)
		require.NoError(t, err)
		requireContent(t, Content{Data: []byte("hello")}, got)
	}

	// Renewed with the same keys it is another card, whose messages say so.
	renewed, err := NewCard(self, 2, now, now.Add(time.Hour), keys)
	require.NoError(t, err)
	assert.NotEqual(t, card.KeyID(), renewed.KeyID())
	other, err := GenerateCardKeys()
	require.NoError(t, err)
	_, err = other.OpenKeys(card)
	assert.ErrorIs(t, err, ErrUnknownKey)
}

func TestCardForgeries(t *testing.T) {
	c := vectors.Cases[cardCase](t, "card.json")[0]
	signer := identity(t, c.IdentitySeed)
	changed := func(at int, b ...byte) []byte {
		card := bytes.Clone(c.Card)
		copy(card[at:], b)
		return card
	}
	signed := func(card []byte) []byte {
		sig := signer.Sign(cardToSign(card))
		copy(card[cardSigned:], sig[:])
		return card
	}
	u64 := func(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n) }
	const life = uint64(MaxCardLife / time.Millisecond)
	stranger := generate(t).Public()
	for name, f := range map[string]struct {
		card []byte
		err  error
	}{
		"empty":                      {nil, ErrMalformed},
		"short":                      {c.Card[:CardSize-1], ErrMalformed},
		"long":                       {append(bytes.Clone(c.Card), 0), ErrMalformed},
		"version 0":                  {signed(changed(0, 0)), ErrMalformed},
		"version 2":                  {signed(changed(0, 2)), ErrMalformed},
		"of another":                 {changed(1, stranger[:]...), ErrSignature},
		"of another, signed by us":   {signed(changed(1, stranger[:]...)), ErrSignature},
		"of nobody":                  {signed(changed(1, make([]byte, 32)...)), ErrWeakKey},
		"serial":                     {changed(33, u64(9)...), ErrSignature},
		"not-after":                  {changed(49, u64(uint64(c.NotAfter)+1)...), ErrSignature},
		"longest":                    {signed(changed(41, u64(uint64(c.NotAfter)-life)...)), nil},
		"longer":                     {signed(changed(41, u64(uint64(c.NotAfter)-life-1)...)), ErrMalformed},
		"from the start of time":     {signed(changed(41, u64(0)...)), ErrMalformed},
		"backwards":                  {signed(changed(41, u64(uint64(c.NotAfter)+1)...)), ErrMalformed},
		"for a moment":               {signed(changed(41, u64(uint64(c.NotAfter))...)), nil},
		"past time":                  {signed(changed(41, append(u64(math.MaxInt64), u64(math.MaxInt64+1)...)...)), ErrMalformed},
		"X25519 not canonical":       {signed(changed(57, bytes.Repeat([]byte{0xff}, 32)...)), ErrWeakKey},
		"X-Wing, a coefficient of q": {signed(changed(89, 0xff, 0xff, 0xff)), ErrMalformed},
		"signed as something else":   {append(bytes.Clone(c.Card[:cardSigned]), ptr(signer.Sign(c.Card[:cardSigned]))[:]...), ErrSignature},
	} {
		t.Run(name, func(t *testing.T) {
			card, err := ParseCard(f.card)
			require.ErrorIs(t, err, f.err)
			require.Equal(t, err == nil, card != nil)
		})
	}
	step := 8 * 13
	if testing.Short() {
		step *= 8
	}
	flipEachBit(c.Card, func(bit int, b []byte) {
		if bit >= 8*57 && bit < 8*cardSigned && bit%step != 0 {
			return
		}
		_, err := ParseCard(b)
		require.Error(t, err, "bit %d", bit)
	})
}

func TestNewCardRefuses(t *testing.T) {
	self, now := generate(t), time.Now()
	keys, err := GenerateCardKeys()
	require.NoError(t, err)
	for _, times := range [][2]time.Time{
		{now, now.Add(-time.Millisecond)},
		{now, now.Add(MaxCardLife + time.Millisecond)},
		{time.UnixMilli(-1), time.UnixMilli(1)},
		{time.UnixMilli(-2), time.UnixMilli(-1)},
	} {
		_, err := NewCard(self, 1, times[0], times[1], keys)
		assert.ErrorIs(t, err, ErrMalformed)
	}
	for _, zero := range [][64]byte{{}, {0: 1}, {63: 1}} {
		_, err := NewCardKeys(&zero)
		assert.ErrorIs(t, err, ErrWeakKey)
	}
}

func TestCardValidAt(t *testing.T) {
	keys, err := GenerateCardKeys()
	require.NoError(t, err)
	from, to := time.UnixMilli(1_000_000), time.UnixMilli(2_000_000)
	c, err := NewCard(generate(t), 1, from.Add(time.Microsecond), to, keys)
	require.NoError(t, err)
	for at, want := range map[time.Time]bool{
		from.Add(-1): false, from: true, to: true, to.Add(1): false,
	} {
		assert.Equal(t, want, c.ValidAt(at), "%v", at)
	}
}

// However they are printed, the keys of a card show none of their bytes.
func TestCardKeysAreHidden(t *testing.T) {
	var secret [64]byte
	copy(secret[:], bytes.Repeat([]byte{0xAB, 0xCD}, 32))
	k, err := NewCardKeys(&secret)
	require.NoError(t, err)
	k.public = [len(k.public)]byte{}
	for _, format := range []string{"%v", "%+v", "%#v", "%x", "%d", "%s"} {
		text := fmt.Sprintf(format, k)
		for _, secret := range []string{"abcd", "ABCD", "171 205", "0xab, 0xcd"} {
			assert.NotContains(t, text, secret, format)
		}
	}
}

func FuzzParseCard(f *testing.F) {
	for _, c := range vectors.Cases[cardCase](f, "card.json") {
		f.Add([]byte(c.Card))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := ParseCard(b)
		if err == nil {
			require.Equal(t, b, c.Bytes())
			require.LessOrEqual(t, c.NotAfter().Sub(c.NotBefore()), MaxCardLife)
		}
	})
}
