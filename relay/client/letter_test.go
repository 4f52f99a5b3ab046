package client

import (
	"bytes"
	"encoding/hex"
	"errors"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sotto-relay/sotto/crypto"
	"github.com/sotto-relay/sotto/frame"
)

// sealed returns a SEALED frame as a client sends it.
func sealed(t testing.TB, from, to *crypto.Identity, id byte, c crypto.Content) *frame.Brep {
	t.Helper()
	key, err := to.Public().SealKey()
	require.NoError(t, err)
	f := &frame.Brep{Type: frame.TypeSealed, ID: [16]byte{id}, Sender: from.Public()}
	f.Payload, f.Signature, err = crypto.Seal(from, key, f.ID, c)
	require.NoError(t, err)
	return f
}

func signed(t testing.TB, from, to *crypto.Identity, c crypto.Content) *frame.Brep {
	t.Helper()
	f := &frame.Brep{Type: frame.TypeSignedData, Sender: from.Public()}
	var err error
	f.Payload, f.Signature, err = crypto.SignContent(from, to.Public(), c)
	require.NoError(t, err)
	return f
}

func encrypted(t testing.TB, from, to *crypto.Identity, c crypto.Content) *frame.Brep {
	t.Helper()
	f := &frame.Brep{Type: frame.TypeEncryptedData, Sender: from.Public()}
	var err error
	f.Payload, f.Signature, err = crypto.SealEncrypted(from, to.Public(), to.X25519().Public(), c)
	require.NoError(t, err)
	return f
}

func inClear(from, to *crypto.Identity, content []byte) *frame.Brep {
	key := to.Public()
	return &frame.Brep{Type: frame.TypeData, Sender: from.Public(), Payload: append(key[:], content...)}
}

// TestDropped: what a hostile relay or sender can do to frames. None becomes a
// letter, each is counted and told, and the session goes on.
func TestDropped(t *testing.T) {
	self, alice, eve := identity(t, 1), identity(t, 2), identity(t, 3)
	text := crypto.Content{Type: crypto.Text, Data: []byte("hello")}
	edit := func(f *frame.Brep, change func(*frame.Brep)) *frame.Brep { change(f); return f }
	forge := func(f *frame.Brep) { f.Sender = eve.Public() }
	swap := func(f *frame.Brep) { k := eve.Public(); copy(f.Payload, k[:]) }
	flip := func(f *frame.Brep) { f.Payload[len(f.Payload)-1] ^= 1 }
	unsign := func(f *frame.Brep) { f.Signature = [64]byte{} }
	resign := func(f *frame.Brep) {
		f.Sender, f.Signature = eve.Public(), crypto.SignFrame(eve, uint8(f.Type), f.ID, f.Payload)
	}
	short := func(f *frame.Brep) { f.Payload = f.Payload[:31] }
	rename := func(f *frame.Brep) { f.ID[5]++ }

	frames := map[string]struct {
		f    *frame.Brep
		want error
	}{
		"forged sender":             {edit(sealed(t, alice, self, 1, text), forge), crypto.ErrSignature},
		"re-signed by another":      {edit(sealed(t, alice, self, 1, text), resign), crypto.ErrOpen},
		"another id":                {edit(sealed(t, alice, self, 1, text), rename), crypto.ErrSignature},
		"swapped recipient":         {edit(sealed(t, alice, self, 1, text), swap), crypto.ErrSignature},
		"for another":               {sealed(t, alice, eve, 1, text), crypto.ErrUnknownKey},
		"changed":                   {edit(sealed(t, alice, self, 1, text), flip), crypto.ErrSignature},
		"unsigned seal":             {edit(sealed(t, alice, self, 1, text), unsign), crypto.ErrSignature},
		"short":                     {edit(sealed(t, alice, self, 1, text), short), crypto.ErrMalformed},
		"a type of later":           {sealed(t, alice, self, 1, crypto.Content{Type: 9, Data: []byte("part")}), errContentType},
		"weak sender":               {edit(sealed(t, alice, self, 1, text), func(f *frame.Brep) { f.Sender = [32]byte{1} }), crypto.ErrWeakKey},
		"as encrypted":              {edit(sealed(t, alice, self, 1, text), func(f *frame.Brep) { f.Type = frame.TypeEncryptedData }), crypto.ErrSignature},
		"signed, forged":            {edit(signed(t, alice, self, text), forge), crypto.ErrSignature},
		"signed, swapped":           {edit(signed(t, alice, self, text), swap), crypto.ErrSignature},
		"signed, for another":       {signed(t, alice, eve, text), crypto.ErrSignature},
		"signed, changed":           {edit(signed(t, alice, self, text), flip), crypto.ErrSignature},
		"signed, short":             {edit(signed(t, alice, self, text), short), crypto.ErrMalformed},
		"encrypted, forged":         {edit(encrypted(t, alice, self, text), forge), crypto.ErrSignature},
		"encrypted, swapped":        {edit(encrypted(t, alice, self, text), swap), crypto.ErrOpen},
		"encrypted, for another":    {encrypted(t, alice, eve, text), crypto.ErrOpen},
		"encrypted, changed":        {edit(encrypted(t, alice, self, text), flip), crypto.ErrSignature},
		"encrypted, short":          {edit(encrypted(t, alice, self, text), short), crypto.ErrMalformed},
		"clear, short":              {edit(inClear(alice, self, nil), short), crypto.ErrMalformed},
		"clear, for another":        {inClear(alice, eve, []byte("x")), errRecipient},
		"signed, wrong UTF-8":       {signedRaw(alice, self, []byte("\x01\xff")), crypto.ErrMalformed},
		"signed, a path for a name": {signedRaw(alice, self, []byte("\x03\x04../x")), crypto.ErrMalformed},
	}
	synctest.Test(t, func(t *testing.T) {
		type dropped struct {
			from crypto.PublicKey
			why  error
		}
		var drops []dropped
		r := &fakeRelay{t: t, seed: relaySeed, script: func(c *fakeConn) {
			for _, f := range frames {
				c.write(f.f)
			}
			c.writeBytes(make([]byte, frame.BrepHeaderSize+maxPayload+1)) // skipped
			c.write(inClear(alice, self, []byte("last")))
			c.hold()
		}}
		c, err := r.client(func(c *Config) {
			c.Trace = &Trace{Dropped: func(from crypto.PublicKey, why error) { drops = append(drops, dropped{from, why}) }}
		})
		require.NoError(t, err)
		require.Equal(t, "last", next(t, c).Text())
		require.Equal(t, Stats{Letters: 1, Dropped: uint64(len(frames) + 1)}, c.Stats())
		require.Len(t, drops, len(frames)+1)
		require.Equal(t, 1, r.dialled())
	})
	o := testOpener(t, self)
	for name, f := range frames {
		_, err := o.open(f.f)
		require.ErrorIs(t, err, f.want, name)
	}
}

// signedRaw returns SIGNED_DATA with content that SignContent would refuse.
func signedRaw(from, to *crypto.Identity, content []byte) *frame.Brep {
	key, embedded := to.Public(), from.Sign(content)
	payload := append(append(key[:], embedded[:]...), content...)
	return &frame.Brep{Type: frame.TypeSignedData, Sender: from.Public(), Signature: from.Sign(payload), Payload: payload}
}

// TestRepeats: a letter comes once, however often and under whatever id its frame
// does.
func TestRepeats(t *testing.T) {
	self, alice, bob := identity(t, 1), identity(t, 2), identity(t, 3)
	text := crypto.Content{Type: crypto.Text, Data: []byte("again")}
	withID := func(f *frame.Brep, id byte) *frame.Brep {
		g := *f
		g.ID = [16]byte{id}
		return &g
	}
	hidden := encrypted(t, alice, self, text)
	hello := inClear(alice, self, []byte("hello"))
	synctest.Test(t, func(t *testing.T) {
		later := make(chan *frame.Brep)
		r := &fakeRelay{t: t, seed: relaySeed, script: func(c *fakeConn) {
			if c.n == 0 {
				for range 2 {
					c.write(sealed(t, alice, self, 1, text))
				}
				return // a reconnect does not matter
			}
			c.write(sealed(t, alice, self, 1, text))
			c.write(sealed(t, bob, self, 1, text)) // another sender
			c.write(withID(hidden, 2))
			c.write(withID(hidden, 3))
			c.write(withID(hello, 4))
			c.write(withID(hello, 4))
			c.write(withID(hello, 5))
			c.write(hello)
			c.write(hello) // no id, no check
			for f := range later {
				c.write(f)
			}
		}}
		c, err := r.client(nil)
		require.NoError(t, err)
		var got []string
		for range 7 {
			l := next(t, c)
			got = append(got, l.Protection.String()+strconv.Itoa(int(l.ID[0])))
		}
		require.Equal(t, "sealed1 sealed1 encrypted2 clear4 clear5 clear0 clear0", strings.Join(got, " "))
		synctest.Wait() // what came is counted after it can be taken
		require.Equal(t, Stats{Letters: 7, Repeats: 4}, c.Stats())

		time.Sleep(rememberTime - time.Minute)
		later <- withID(hello, 5)
		none(t, c)
		later <- withID(hello, 5)
		require.Equal(t, "hello", next(t, c).Text())
		close(later)
	})
}

// TestLetterIsCopied: a letter shares nothing with its frame, which the next one
// overwrites.
func TestLetterIsCopied(t *testing.T) {
	self, alice := identity(t, 1), identity(t, 2)
	o := testOpener(t, self)
	text := crypto.Content{Type: crypto.Text, Data: []byte("hello")}
	for _, f := range []*frame.Brep{
		sealed(t, alice, self, 1, text), signed(t, alice, self, text),
		encrypted(t, alice, self, text), inClear(alice, self, text.Data),
	} {
		l, err := o.open(f)
		require.NoError(t, err)
		clear(f.Payload)
		require.Equal(t, "hello", l.Text())
	}
}

// TestSeen against the obvious: never more than max, the oldest go first.
func TestSeen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const max = 10
		s := newSeen(max)
		key := func(n int) letterKey { return letterKey{id: [16]byte{byte(n), byte(n >> 8)}} }
		for n := range 300 {
			require.False(t, s.has(key(n)))
			s.note(key(n), time.Now(), nil)
			for m := range n + 1 {
				require.Equal(t, m > n-max, s.has(key(m)))
			}
			require.LessOrEqual(t, len(s.keys), max)
			require.LessOrEqual(t, cap(s.order), 3*max)
		}
		time.Sleep(rememberTime)
		require.False(t, s.has(key(299)))
		s.note(key(299), time.Now(), nil) // again
		require.True(t, s.has(key(299)))
		for n := range 5 {
			s.note(key(2000+n), time.Now(), nil)
		}
		require.True(t, s.has(key(299)), "what it was before is forgotten, what it is now is not")
	})
}

// TestVectors: SEALED frames that others made open if they are sealed to the
// derived key, and are for another key if they are not.
func TestVectors(t *testing.T) {
	var vectors []struct {
		Seed        string `json:"recipient_seed"`
		KeyID       string `json:"key_id"`
		ContentType uint8  `json:"content_type"`
		Content     string
		Frame       string
	}
	readVectors(t, "sealed.json", &vectors)
	derived := 0
	for _, v := range vectors {
		self, err := crypto.IdentityFromSeed(unhex(t, v.Seed))
		require.NoError(t, err)
		o := testOpener(t, self)
		f, err := frame.DecodeBrep(unhex(t, v.Frame))
		require.NoError(t, err)
		l, err := o.open(&f)
		if v.KeyID != "0000000000000000" {
			require.ErrorIs(t, err, crypto.ErrUnknownKey)
			continue
		}
		derived++
		require.NoError(t, err)
		require.Equal(t, crypto.ContentType(v.ContentType), l.Type)
		require.Equal(t, v.Content, hex.EncodeToString(l.Data))
		require.Equal(t, ProtectionSealed, l.Protection)
	}
	require.NotZero(t, derived)
}

// FuzzOpen: whatever a relay sends, open does not panic, and a letter is never
// stronger than its frame's type.
func FuzzOpen(f *testing.F) {
	self, alice := identity(f, 1), identity(f, 2)
	text := crypto.Content{Type: crypto.Text, Data: []byte("hello")}
	for _, s := range []*frame.Brep{
		sealed(f, alice, self, 1, text), signed(f, alice, self, text),
		encrypted(f, alice, self, text), inClear(alice, self, []byte("x")),
	} {
		f.Add(s.Append(nil))
	}
	var vectors []struct{ Frame string }
	readVectors(f, "brep_frames.json", &vectors)
	for _, v := range vectors {
		f.Add(unhex(f, v.Frame))
	}
	o := testOpener(f, self)
	strongest := map[frame.Type]Protection{
		frame.TypeData: ProtectionClear, frame.TypeSignedData: ProtectionSigned,
		frame.TypeEncryptedData: ProtectionEncrypted, frame.TypeSealed: ProtectionSealed,
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		fr, err := frame.DecodeBrep(b)
		if err != nil || !isLetter(fr.Type) {
			return
		}
		keyOf(&fr)
		before := bytes.Clone(b)
		l, err := o.open(&fr)
		require.Equal(t, before, b)
		if err != nil {
			require.Nil(t, l)
			known := false
			for _, e := range []error{
				crypto.ErrMalformed, crypto.ErrOpen, crypto.ErrSignature, crypto.ErrUnknownKey,
				crypto.ErrWeakKey, errRecipient, errContentType,
			} {
				known = known || errors.Is(err, e)
			}
			require.True(t, known, "%v", err)
			return
		}
		require.LessOrEqual(t, l.Protection, strongest[fr.Type])
		require.LessOrEqual(t, l.Type, crypto.File)
		clear(b)
		require.Equal(t, crypto.PublicKey(before[24:56]), l.From, "nothing is shared with the frame")
	})
}
