package crypto

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sotto-relay/sotto/internal/vectors"
)

type signedCase struct {
	SenderSeed  hexBytes `json:"sender_seed"`
	Recipient   hexBytes
	ContentType uint8 `json:"content_type"`
	Content     hexBytes
	Header      hexBytes `json:"header_signed_frame"`
	Embedded    hexBytes `json:"embedded_signed_frame"`
	Both        hexBytes `json:"frame"`
}

func TestSignedVectors(t *testing.T) {
	for _, c := range append(vectors.Cases[signedCase](t, "brep_signed.json"), vectors.Cases[signedCase](t, "brep_signed_both.json")...) {
		want := vectorContent(t, c.ContentType, c.Content)
		for _, layout := range []struct {
			frame hexBytes
			trust Trust
		}{{c.Header, Verified}, {c.Embedded, Legacy}, {c.Both, Verified}} {
			if layout.frame == nil {
				continue
			}
			f := parseFrame(t, layout.frame)
			got, trust, err := OpenSigned(PublicKey(c.Recipient), f.sender, &f.sig, f.payload)
			require.NoError(t, err)
			assert.Equal(t, layout.trust, trust)
			requireContent(t, want, got)
		}
		if c.Both != nil {
			f := parseFrame(t, c.Both)
			payload, sig, err := SignContent(identity(t, c.SenderSeed), PublicKey(c.Recipient), want)
			require.NoError(t, err)
			assert.Equal(t, f.payload, payload)
			assert.Equal(t, f.sig, sig)
		}
	}
}

// signedLayouts are the payloads that the layouts of brep.md give one content.
func signedLayouts(from *Identity, to PublicKey, content []byte) (header, embedded, both []byte) {
	sig := from.Sign(content)
	header = append(to.bytes(), content...)
	embedded = append(append(to.bytes(), sig[:]...), content...)
	return header, embedded, embedded
}

func (k PublicKey) bytes() []byte { return k[:] }

func TestSignedTrust(t *testing.T) {
	from, to := generate(t), generate(t).Public()
	for n, trust := range map[int]Trust{0: Legacy, 31: Legacy, 32: Unsigned, 33: Legacy, 64: Legacy, 100: Legacy} {
		content := bytes.Repeat([]byte{9}, n)
		header, embedded, both := signedLayouts(from, to, content)

		got, tr, err := OpenSigned(to, from.Public(), new([64]byte), embedded)
		require.NoError(t, err, n)
		assert.Equal(t, trust, tr, n)
		assert.Equal(t, string(content), string(got.Data), n)

		sig := from.Sign(both)
		got, tr, err = OpenSigned(to, from.Public(), &sig, both)
		require.NoError(t, err, n)
		assert.Equal(t, Verified, tr, n)
		assert.Equal(t, string(content), string(got.Data), n)

		sig = from.Sign(header)
		got, tr, err = OpenSigned(to, from.Public(), &sig, header)
		require.NoError(t, err, n)
		assert.Equal(t, Verified, tr, n)
		assert.Equal(t, string(content), string(got.Data), n)
	}
}

func TestSignedRefused(t *testing.T) {
	from, stranger, to := generate(t), generate(t), generate(t).Public()
	content := []byte("\x01content")
	_, embedded, _ := signedLayouts(from, to, content)
	_, foreign, _ := signedLayouts(stranger, to, content)
	payload, sig, err := SignContent(from, to, Content{Type: Text, Data: content[1:]})
	require.NoError(t, err)
	strangerSig := stranger.Sign(payload)
	shortSig, emptySig := from.Sign(payload[:31]), from.Sign(nil)
	notText, _, err := SignContent(from, to, Content{Data: []byte("raw")})
	require.NoError(t, err)
	notText = append(notText[:targetSize], 1, 0xff)
	notTextSig := from.Sign(notText)

	for name, c := range map[string]struct {
		self    PublicKey
		sender  PublicKey
		sig     [64]byte
		payload []byte
		want    error
	}{
		"no signature":                 {to, from.Public(), [64]byte{}, append(to.bytes(), make([]byte, 70)...), ErrSignature},
		"no signature, short":          {to, from.Public(), [64]byte{}, payload[:embeddedSize-1], ErrMalformed},
		"embedded by another":          {to, from.Public(), [64]byte{}, foreign, ErrSignature},
		"header by another":            {to, from.Public(), strangerSig, payload, ErrSignature},
		"valid embedded, wrong header": {to, from.Public(), strangerSig, embedded, ErrSignature},
		"for somebody else":            {stranger.Public(), from.Public(), sig, payload, ErrSignature},
		"no target":                    {to, from.Public(), shortSig, payload[:31], ErrMalformed},
		"empty":                        {to, from.Public(), emptySig, nil, ErrMalformed},
		"zero sender":                  {to, PublicKey{}, sig, payload, ErrWeakKey},
		"zero sender and signature":    {to, PublicKey{}, [64]byte{}, payload, ErrWeakKey},
		"text that is none":            {to, from.Public(), notTextSig, notText, ErrMalformed},
	} {
		got, trust, err := OpenSigned(c.self, c.sender, &c.sig, c.payload)
		assert.ErrorIs(t, err, c.want, name)
		assert.Equal(t, Unsigned, trust, name)
		assert.Zero(t, got, name)
	}
	flipEachBit(payload, func(bit int, b []byte) {
		_, _, err := OpenSigned(to, from.Public(), &sig, b)
		assert.ErrorIs(t, err, ErrSignature, "bit %d", bit)
	})
	flipEachBit(sig[:], func(bit int, b []byte) {
		_, _, err := OpenSigned(to, from.Public(), (*[64]byte)(b), payload)
		assert.ErrorIs(t, err, ErrSignature, "signature bit %d", bit)
	})
}

func TestSignedRaw(t *testing.T) {
	from, to := generate(t), generate(t).Public()
	for _, data := range []string{"", "\x00", "\x00abc", "\x04", "\xff", "abc"} {
		payload, sig, err := SignContent(from, to, Content{Data: []byte(data)})
		require.NoError(t, err, "%q", data)
		assert.Equal(t, data, string(payload[embeddedSize:]))
		got, _, err := OpenSigned(to, from.Public(), &sig, payload)
		require.NoError(t, err, "%q", data)
		requireContent(t, Content{Data: []byte(data)}, got)
	}
	for _, c := range []Content{
		{Data: []byte{1}}, {Data: []byte("\x02{}")}, {Data: []byte("\x03\x01a")},
		{Name: "name", Data: []byte("raw")}, {Type: 4, Data: []byte("part")}, {Type: Text, Data: []byte{0xff}},
	} {
		payload, sig, err := SignContent(from, to, c)
		assert.ErrorIs(t, err, ErrMalformed, "%+v", c)
		assert.Nil(t, payload)
		assert.Zero(t, sig)
	}
}

func TestSignedAllocates(t *testing.T) {
	from, to := generate(t), generate(t).Public()
	sender := from.Public()
	c := Content{Data: make([]byte, 1024)}
	payload, sig, err := SignContent(from, to, c)
	require.NoError(t, err)
	assert.Zero(t, testing.AllocsPerRun(100, func() { _, _, _ = OpenSigned(to, sender, &sig, payload) }))
	assert.LessOrEqual(t, testing.AllocsPerRun(100, func() { _, _, _ = SignContent(from, to, c) }), 1.0, "the payload")
}

func FuzzOpenSigned(f *testing.F) {
	for _, c := range vectors.Cases[signedCase](f, "brep_signed.json") {
		h, e := parseFrame(f, c.Header), parseFrame(f, c.Embedded)
		f.Add(h.sender.bytes(), h.sig[:], h.payload)
		f.Add(e.sender.bytes(), e.sig[:], e.payload)
	}
	f.Fuzz(func(t *testing.T, sender, sig, payload []byte) {
		if len(sender) != 32 || len(sig) != 64 || len(payload) < 32 {
			return
		}
		c, trust, err := OpenSigned(PublicKey(payload[:32]), PublicKey(sender), (*[64]byte)(sig), payload)
		if err != nil {
			require.Zero(t, c)
			require.Equal(t, Unsigned, trust)
			return
		}
		_, err = appendSignedContent(nil, c)
		require.NoError(t, err)
	})
}

func BenchmarkSigned(b *testing.B) {
	from, to := generate(b), generate(b).Public()
	c := Content{Data: make([]byte, 1024)}
	b.Run("sign", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, _, err := SignContent(from, to, c); err != nil {
				b.Fatal(err)
			}
		}
	})
	payload, sig, err := SignContent(from, to, c)
	require.NoError(b, err)
	b.Run("open", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, _, err := OpenSigned(to, from.Public(), &sig, payload); err != nil {
				b.Fatal(err)
			}
		}
	})
}
