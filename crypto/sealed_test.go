package crypto

import (
	"bytes"
	"crypto/hpke"
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sotto-relay/sotto/internal/race"
	"github.com/sotto-relay/sotto/internal/vectors"
)

type sealedCase struct {
	Suite           Suite
	SenderSeed      hexBytes `json:"sender_seed"`
	Sender          hexBytes
	Recipient       hexBytes
	RecipientSeed   hexBytes `json:"recipient_seed"`
	MessageID       hexBytes `json:"message_id"`
	KeyID           hexBytes `json:"key_id"`
	Private         hexBytes `json:"recipient_private"`
	ContentType     uint8    `json:"content_type"`
	Content         hexBytes
	PlaintextLength int `json:"plaintext_length"`
	Frame           hexBytes
}

func (c sealedCase) openKey(t testing.TB) *OpenKey {
	if KeyID(c.KeyID) == (KeyID{}) {
		id := identity(t, c.RecipientSeed)
		require.Equal(t, []byte(c.Private), id.X25519().key().Bytes())
		key, err := id.OpenKey()
		require.NoError(t, err)
		return key
	}
	key, err := NewOpenKey(PublicKey(c.Recipient), c.Suite, KeyID(c.KeyID), c.Private)
	require.NoError(t, err)
	return key
}

func TestSealedVectors(t *testing.T) {
	cases := vectors.Cases[sealedCase](t, "sealed.json")
	var all []*OpenKey
	for _, c := range cases {
		all = append(all, c.openKey(t))
	}
	for _, c := range cases {
		want := vectorContent(t, c.ContentType, c.Content)
		f := parseFrame(t, c.Frame)
		require.Equal(t, [16]byte(c.MessageID), f.id)
		got, err := OpenSealed(f.sender, f.id, &f.sig, f.payload, all...)
		require.NoError(t, err)
		requireContent(t, want, got)

		// Sealed by us, it has the same head and length, and opens too.
		open := c.openKey(t)
		to, err := newSealKey(open.keyName, open.key().PublicKey().Bytes())
		require.NoError(t, err)
		payload, sig, err := Seal(identity(t, c.SenderSeed), to, f.id, want)
		require.NoError(t, err)
		assert.Equal(t, f.payload[:sealedHead], payload[:sealedHead])
		assert.Len(t, payload, len(f.payload))
		padded, err := pad(want)
		require.NoError(t, err)
		assert.Len(t, padded, c.PlaintextLength)
		got, err = OpenSealed(f.sender, f.id, &sig, payload, open)
		require.NoError(t, err)
		requireContent(t, want, got)
	}
}

// sealPair is a recipient's key of one suite, both halves.
func sealPair(t testing.TB, owner PublicKey, suite Suite, id KeyID) (*SealKey, *OpenKey) {
	private := bytes.Repeat([]byte{id[0]}, 32)
	open, err := NewOpenKey(owner, suite, id, private)
	require.NoError(t, err)
	seal, err := NewSealKey(owner, suite, id, open.key().PublicKey().Bytes())
	require.NoError(t, err)
	return seal, open
}

func TestSealedDerivedKey(t *testing.T) {
	from, plain, both := generate(t), generate(t), withSeparateX25519(t)
	for _, to := range []*Identity{plain, both} {
		seal, err := to.Public().SealKey()
		require.NoError(t, err)
		open, err := to.OpenKey()
		require.NoError(t, err)
		payload, sig, err := Seal(from, seal, [16]byte{1}, Content{Type: Text, Data: []byte("hello")})
		require.NoError(t, err)
		got, err := OpenSealed(from.Public(), [16]byte{1}, &sig, payload, open)
		require.NoError(t, err)
		requireContent(t, Content{Type: Text, Data: []byte("hello")}, got)
	}
}

func TestSealedFlippedBits(t *testing.T) {
	if race.Enabled {
		t.Skip("nothing in it is concurrent")
	}
	t.Parallel()
	from, self := generate(t), generate(t)
	id := [16]byte{7}
	for suite, step := range map[Suite]int{SuiteX25519: 1, SuiteXWing: 97} {
		seal, open := sealPair(t, self.Public(), suite, KeyID{1})
		payload, sig, err := Seal(from, seal, id, Content{Type: Text, Data: []byte("message")})
		require.NoError(t, err)
		flipEachBit(payload, func(bit int, b []byte) {
			if bit%step != 0 && bit >= 8*sealedHead {
				return
			}
			if bit%5 == 0 {
				_, err := OpenSealed(from.Public(), id, &sig, b, open)
				assert.ErrorIs(t, err, ErrSignature, "bit %d", bit)
			}
			want := ErrOpen
			if bit < 8*sealedHead {
				want = ErrUnknownKey
			}
			resigned := SignFrame(from, typeSealed, id, b)
			got, err := OpenSealed(from.Public(), id, &resigned, b, open)
			assert.ErrorIs(t, err, want, "bit %d, signed again", bit)
			assert.Zero(t, got)
		})
		if suite == SuiteXWing {
			continue // what follows is checked before the suite matters
		}
		flipEachBit(sig[:], func(bit int, b []byte) {
			_, err := OpenSealed(from.Public(), id, (*[64]byte)(b), payload, open)
			assert.ErrorIs(t, err, ErrSignature, "signature bit %d", bit)
		})
		flipEachBit(id[:], func(bit int, b []byte) {
			_, err := OpenSealed(from.Public(), [16]byte(b), &sig, payload, open)
			assert.ErrorIs(t, err, ErrSignature, "id bit %d", bit)
		})
		pub := from.Public()
		flipEachBit(pub[:], func(bit int, b []byte) {
			_, err := OpenSealed(PublicKey(b), id, &sig, payload, open)
			assert.Error(t, err, "sender bit %d", bit)
		})
	}
}

// Whoever can sign still cannot give a ciphertext another meaning.
func TestSealedBindsItsContext(t *testing.T) {
	from, stranger, self := generate(t), generate(t), generate(t)
	id := [16]byte{7}
	for _, suite := range []Suite{SuiteX25519, SuiteXWing} {
		seal, open := sealPair(t, self.Public(), suite, KeyID{1})
		_, second := sealPair(t, self.Public(), suite, KeyID{2})
		payload, sig, err := Seal(from, seal, id, Content{Data: []byte("message")})
		require.NoError(t, err)
		other, _, err := Seal(from, seal, id, Content{Data: []byte("message")})
		require.NoError(t, err)
		assert.NotEqual(t, payload[sealedHead:sealedHead+32], other[sealedHead:sealedHead+32], "enc is fresh")

		try := func(signer *Identity, id [16]byte, payload []byte, keys ...*OpenKey) error {
			sig := SignFrame(signer, typeSealed, id, payload)
			got, err := OpenSealed(signer.Public(), id, &sig, payload, keys...)
			assert.Zero(t, got)
			return err
		}
		with := func(at int, b ...byte) []byte {
			p := append([]byte(nil), payload...)
			copy(p[at:], b)
			return p
		}
		assert.ErrorIs(t, try(stranger, id, payload, open), ErrOpen, "sender")
		assert.ErrorIs(t, try(from, [16]byte{8}, payload, open), ErrOpen, "id")
		stolen := &OpenKey{keyName{stranger.Public(), suite, KeyID{1}}, open.key}
		assert.ErrorIs(t, try(from, id, with(0, stranger.Public().bytes()...), stolen), ErrOpen, "recipient")
		assert.ErrorIs(t, try(from, id, with(0, stranger.Public().bytes()...), open), ErrUnknownKey, "recipient")
		assert.ErrorIs(t, try(from, id, with(targetSize+1, 2), open, second), ErrOpen, "key id")
		assert.ErrorIs(t, try(from, id, with(targetSize, byte(suite^1)), open), ErrUnknownKey, "suite")
		_, wrongSuite := sealPair(t, self.Public(), suite^1, KeyID{1})
		assert.ErrorIs(t, try(from, id, with(targetSize, byte(suite^1)), open, wrongSuite), ErrOpen, "suite")
		relabelled := &OpenKey{keyName{self.Public(), suite ^ 1, KeyID{1}}, open.key}
		assert.ErrorIs(t, try(from, id, with(targetSize, byte(suite^1)), relabelled), ErrOpen, "suite")
		assert.ErrorIs(t, try(from, id, with(targetSize, 0), open), ErrUnknownKey, "unknown suite")
		assert.ErrorIs(t, try(from, id, with(sealedHead, other[sealedHead:sealedHead+32]...), open), ErrOpen, "enc")
		assert.ErrorIs(t, try(from, id, payload), ErrUnknownKey, "no keys")

		for n := range payload {
			if n > sealedHead+64 && n%29 != 0 {
				continue
			}
			want := ErrOpen
			if n < sealedHead {
				want = ErrMalformed
			}
			assert.ErrorIs(t, try(from, id, payload[:n], open), want, "%d bytes", n)
		}
		assert.ErrorIs(t, try(from, id, append(payload, 0), open), ErrOpen, "one byte more")

		_, err = OpenSealed(from.Public(), id, new([64]byte), payload, open)
		assert.ErrorIs(t, err, ErrSignature)
		for _, weak := range lowOrderKeys(t) {
			_, err = OpenSealed(weak, id, &sig, payload, open)
			assert.ErrorIs(t, err, ErrWeakKey)
		}
	}
}

// What only another implementation would seal.
func TestSealedPlaintext(t *testing.T) {
	from, self := generate(t), generate(t)
	seal, open := sealPair(t, self.Public(), SuiteX25519, KeyID{1})
	id := [16]byte{7}
	for name, c := range map[string]struct {
		plaintext string
		opens     bool
	}{
		"smallest":            {"\x00\x00\x00\x01\x00", true},
		"more padding":        {"\x00\x00\x00\x01\x00" + string(make([]byte, 9)), true},
		"empty":               {"", false},
		"no length":           {"\x00\x00\x00", false},
		"no content":          {"\x00\x00\x00\x00", false},
		"no content, padded":  {"\x00\x00\x00\x00\x00", false},
		"length past the end": {"\x00\x00\x00\x02\x00", false},
		"length 2^32-1":       {"\xff\xff\xff\xff\x00", false},
		"length 2^31":         {"\x80\x00\x00\x00\x00", false},
		"padding not zero":    {"\x00\x00\x00\x01\x00\x00\x01\x00", false},
		"last byte not zero":  {"\x00\x00\x00\x01\x00\x00\x00\x01", false},
		"no Padmé length":     {"\x00\x00\x00\x01\x00" + string(make([]byte, 4)), false}, // 9
		"text that is none":   {"\x00\x00\x00\x02\x01\xff", false},
		"unsafe name":         {"\x00\x00\x00\x03\x03\x01/", false},
	} {
		info := sealInfo(SuiteX25519, from.Public(), self.Public(), id)
		sealed, err := hpke.Seal(seal.key, hpke.HKDFSHA256(), hpke.AES256GCM(), info, []byte(c.plaintext))
		require.NoError(t, err)
		payload := append(self.Public().bytes(), byte(SuiteX25519))
		payload = append(payload, seal.id[:]...)
		payload = append(payload, sealed...)
		sig := SignFrame(from, typeSealed, id, payload)
		got, err := OpenSealed(from.Public(), id, &sig, payload, open)
		if c.opens {
			assert.NoError(t, err, name)
		} else {
			assert.ErrorIs(t, err, ErrMalformed, name)
			assert.Zero(t, got, name)
		}
	}
	for _, c := range []Content{{Type: Text, Data: []byte{0xff}}, {Type: File, Name: "a/b"}, {Name: "a"}} {
		payload, sig, err := Seal(from, seal, id, c)
		assert.ErrorIs(t, err, ErrMalformed, "%+v", c)
		assert.Nil(t, payload)
		assert.Zero(t, sig)
	}
}

func TestSealKeysRefused(t *testing.T) {
	id := generate(t)
	x := id.X25519().Public()
	_, wing := sealPair(t, id.Public(), SuiteXWing, KeyID{1})
	wingPublic := wing.key().PublicKey().Bytes()
	require.Len(t, wingPublic, 1216)
	for name, c := range map[string]struct {
		suite  Suite
		id     KeyID
		public []byte
	}{
		"zero id":               {SuiteX25519, KeyID{}, x[:]},
		"suite 0":               {0, KeyID{1}, x[:]},
		"suite 1":               {1, KeyID{1}, x[:]},
		"suite 4":               {4, KeyID{1}, x[:]},
		"short":                 {SuiteX25519, KeyID{1}, x[:31]},
		"empty":                 {SuiteX25519, KeyID{1}, nil},
		"X25519 as X-Wing":      {SuiteXWing, KeyID{1}, x[:]},
		"X-Wing as X25519":      {SuiteX25519, KeyID{1}, wingPublic},
		"X-Wing, short":         {SuiteXWing, KeyID{1}, wingPublic[:1215]},
		"X-Wing, out of range":  {SuiteXWing, KeyID{1}, bytes.Repeat([]byte{0xff}, 1216)},
		"X-Wing, one byte more": {SuiteXWing, KeyID{1}, append(wingPublic, 0)},
	} {
		_, err := NewSealKey(id.Public(), c.suite, c.id, c.public)
		assert.ErrorIs(t, err, ErrMalformed, name)
	}
	private := bytes.Repeat([]byte{1}, 33)
	for _, suite := range []Suite{SuiteX25519, SuiteXWing} {
		_, err := NewOpenKey(id.Public(), suite, KeyID{}, private[:32])
		assert.ErrorIs(t, err, ErrMalformed, suite)
		_, err = NewOpenKey(id.Public(), suite, KeyID{1}, make([]byte, 32))
		assert.ErrorIs(t, err, ErrWeakKey, suite)
		for _, n := range []int{0, 31, 33} {
			_, err = NewOpenKey(id.Public(), suite, KeyID{1}, private[:n])
			assert.ErrorIs(t, err, ErrMalformed, "%d, %d bytes", suite, n)
		}
	}
	_, err := NewOpenKey(id.Public(), 4, KeyID{1}, private[:32])
	assert.ErrorIs(t, err, ErrMalformed)

	lowOrder := append(wingPublic[:1184:1184], make([]byte, 32)...)
	key, err := NewSealKey(id.Public(), SuiteXWing, KeyID{1}, lowOrder)
	require.NoError(t, err)
	_, _, err = Seal(id, key, [16]byte{}, Content{})
	assert.ErrorIs(t, err, ErrWeakKey)
}

func TestSealedSizes(t *testing.T) {
	from := generate(t)
	seal, _ := sealPair(t, generate(t).Public(), SuiteX25519, KeyID{1})
	sizes := map[int]bool{}
	for n := range 3000 {
		b, err := pad(Content{Data: make([]byte, n)})
		require.NoError(t, err)
		require.Equal(t, padme(len(b)), len(b), n)
		sizes[len(b)] = true
		if n%500 == 0 {
			payload, _, err := Seal(from, seal, [16]byte{}, Content{Data: make([]byte, n)})
			require.NoError(t, err)
			require.Len(t, payload, sealedHead+32+len(b)+16)
		}
	}
	assert.Less(t, len(sizes), 120)
}

func TestPadme(t *testing.T) {
	for n, want := range map[int]int{
		0: 0, 1: 1, 2: 2, 3: 3, 5: 5, 8: 8, 9: 10, 14: 14, 17: 18, 100: 104, 1000: 1024, 5005: 5120,
		65535: 65536, 65537: 67584, 1 << 20: 1 << 20, 1<<20 + 1: 1081344,
	} {
		assert.Equal(t, want, padme(n), n)
	}
	for n := 2; n < 1<<20; n += 1 + n/97 {
		p := padme(n)
		require.GreaterOrEqual(t, p, n)
		require.LessOrEqual(t, float64(p), math.Ceil(1.12*float64(n)), n)
		require.Equal(t, p, padme(p))
		require.GreaterOrEqual(t, p, padme(n-1))
	}
}

func TestSignFrame(t *testing.T) {
	from := generate(t)
	id, payload := [16]byte{1}, []byte("payload")
	sig := SignFrame(from, 0x12, id, payload)
	signed := "sotto frame v1\x00\x12" + string(id[:]) + "payload"
	assert.NoError(t, Verify(from.Public(), []byte(signed), &sig))
	assert.NoError(t, VerifyFrame(from.Public(), 0x12, id, payload, &sig))
	assert.ErrorIs(t, VerifyFrame(from.Public(), 0x13, id, payload, &sig), ErrSignature)
	assert.ErrorIs(t, VerifyFrame(from.Public(), 0x12, [16]byte{}, payload, &sig), ErrSignature)
	assert.ErrorIs(t, VerifyFrame(from.Public(), 0x12, id, payload[:6], &sig), ErrSignature)
	assert.ErrorIs(t, VerifyFrame(generate(t).Public(), 0x12, id, payload, &sig), ErrSignature)
	assert.ErrorIs(t, VerifyFrame(PublicKey{}, 0x12, id, payload, &sig), ErrWeakKey)
}

func FuzzOpenSealed(f *testing.F) {
	from := identity(f, bytes.Repeat([]byte{1}, 32))
	var keys []*OpenKey
	for _, c := range vectors.Cases[sealedCase](f, "sealed.json") {
		keys = append(keys, c.openKey(f))
		f.Add([]byte(c.MessageID), parseFrame(f, c.Frame).payload)
	}
	f.Fuzz(func(t *testing.T, id, payload []byte) {
		if len(id) != 16 {
			return
		}
		sig := SignFrame(from, typeSealed, [16]byte(id), payload)
		c, err := OpenSealed(from.Public(), [16]byte(id), &sig, payload, keys...)
		if err != nil {
			require.Zero(t, c)
		}
	})
}

func FuzzUnpad(f *testing.F) {
	for _, s := range []string{"", "\x00\x00\x00\x01\x00", "\x00\x00\x00\x03\x01hi\x00", "\xff\xff\xff\xff\x00"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := unpad(b)
		if err != nil {
			return
		}
		again, err := pad(c)
		require.NoError(t, err)
		require.LessOrEqual(t, len(again), len(b))
		require.Equal(t, string(again), string(b[:len(again)]))
	})
}

func BenchmarkSealed(b *testing.B) {
	from, self := generate(b), generate(b)
	id := [16]byte{1}
	c := Content{Data: make([]byte, 1024)}
	for name, suite := range map[string]Suite{"X25519": SuiteX25519, "X-Wing": SuiteXWing} {
		seal, open := sealPair(b, self.Public(), suite, KeyID{1})
		b.Run(name+"/seal", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, _, err := Seal(from, seal, id, c); err != nil {
					b.Fatal(err)
				}
			}
		})
		payload, sig, err := Seal(from, seal, id, c)
		require.NoError(b, err)
		b.Run(name+"/open", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := OpenSealed(from.Public(), id, &sig, payload, open); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
