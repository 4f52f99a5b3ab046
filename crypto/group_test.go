package crypto

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func newTestGroup(t testing.TB) *GroupKey {
	t.Helper()
	k, err := NewGroup()
	require.NoError(t, err)
	return k
}

func TestGroup(t *testing.T) {
	k := newTestGroup(t)
	require.Equal(t, uint32(1), k.Epoch())
	c := Content{Type: Text, Data: []byte("hello")}
	sealed, err := k.Seal("room", c)
	require.NoError(t, err)

	content := k.Content()
	require.Equal(t, GroupKeys, content.Type)
	member, err := ParseGroupKey(content.Data)
	require.NoError(t, err)
	require.True(t, member.Equal(k))
	got, err := member.Open("room", sealed)
	require.NoError(t, err)
	requireContent(t, c, got)

	// Written out, from the key as it is sent.
	id := k.ID()
	require.Equal(t, id[:], sealed[:16])
	require.Equal(t, uint32(1), binary.BigEndian.Uint32(sealed[16:]))
	block, err := aes.NewCipher(content.Data[20:])
	require.NoError(t, err)
	aead, err := cipher.NewGCM(block)
	require.NoError(t, err)
	plaintext, err := aead.Open(nil, sealed[20:32], sealed[32:], []byte("room"))
	require.NoError(t, err)
	require.Equal(t, "\x00\x00\x00\x06\x01hello", string(plaintext))

	again, err := k.Seal("room", c)
	require.NoError(t, err)
	require.NotEqual(t, sealed[20:32], again[20:32], "another nonce")

	next, err := k.Next(time.Unix(0, 0))
	require.NoError(t, err)
	require.Equal(t, id, next.ID())
	for at, want := range map[int64]uint32{-1 << 40: 2, 0: 2, 2: 2, 3: 3, 1 << 31: 1 << 31, 1<<32 - 1: 2, 1<<32 + 9: 2} {
		later, err := k.Next(time.Unix(at, 0))
		require.NoError(t, err)
		require.Equal(t, want, later.Epoch(), at)
	}
	require.False(t, next.Equal(k))
	forged := append([]byte(nil), sealed...)
	forged[19] = 2
	for name, o := range map[string]struct {
		key    *GroupKey
		name   string
		sealed []byte
		want   error
	}{
		"another room":    {k, "rooms", sealed, ErrOpen},
		"the next epoch":  {next, "room", sealed, ErrUnknownKey},
		"said to be next": {next, "room", forged, ErrOpen},
		"another group":   {newTestGroup(t), "room", sealed, ErrUnknownKey},
		"short":           {k, "room", sealed[:19], ErrMalformed},
		"cut":             {k, "room", sealed[:20], ErrOpen},
	} {
		_, err := o.key.Open(o.name, o.sealed)
		assert.ErrorIs(t, err, o.want, name)
	}
	flipEachBit(sealed[20:], func(bit int, b []byte) {
		_, err := k.Open("room", append(sealed[:20:20], b...))
		require.ErrorIs(t, err, ErrOpen, bit)
	})
	_, err = k.Seal("room", Content{Type: Text, Data: []byte("\xff")})
	require.ErrorIs(t, err, ErrMalformed)

	_, err = ParseGroupKey(content.Data[1:])
	require.ErrorIs(t, err, ErrMalformed)
	_, err = ParseGroupKey(make([]byte, groupKeySize))
	require.ErrorIs(t, err, ErrWeakKey)
	last, err := newGroupKey(id, 1<<32-1, [32]byte{1})
	require.NoError(t, err)
	_, err = last.Next(time.Now())
	require.ErrorIs(t, err, ErrMalformed)
	for _, verb := range []string{"%v", "%+v", "%#v"} {
		require.NotContains(t, fmt.Sprintf(verb, k), fmt.Sprintf("%d %d %d", content.Data[20], content.Data[21], content.Data[22]))
	}
}

// TestGroupSizes: sizes tell no more than those of SEALED.
func TestGroupSizes(t *testing.T) {
	k := newTestGroup(t)
	sizes := map[int]bool{}
	for n := range 3000 {
		b, err := k.Seal("a", Content{Data: make([]byte, n)})
		require.NoError(t, err)
		inside := len(b) - groupHead - 12 - 16
		require.Equal(t, padme(inside), inside)
		sizes[len(b)] = true
	}
	require.Less(t, len(sizes), 120)
}

// blindLevel is a level as the specification has it, written out.
func blindLevel(k *GroupKey, levels ...string) string {
	key := k.topics()
	mac := hmac.New(sha256.New, key[:])
	for _, l := range levels {
		mac.Write([]byte{byte(len(l) >> 8), byte(len(l))})
		mac.Write([]byte(l))
	}
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil)[:16])
}

func TestBlindTopic(t *testing.T) {
	k := newTestGroup(t)
	a, ab, abc := blindLevel(k, "a"), blindLevel(k, "a", "b"), blindLevel(k, "a", "b", "c")
	b, c, empty := blindLevel(k, "b"), blindLevel(k, "c"), blindLevel(k, "")
	long := strings.TrimSuffix(strings.Repeat("a/", 22), "/")
	for _, o := range []struct {
		in, want   string
		flat, wild bool
		err        error
	}{
		{"a", a, false, false, nil},
		{"a/b/c", a + "/" + ab + "/" + abc, false, false, nil},
		{"a/b/c", a + "/" + ab + "/" + abc, false, true, nil},
		{"a/b/c", a + "/" + b + "/" + c, true, false, nil},
		{"a/b/#", a + "/" + ab + "/#", false, true, nil},
		{"a/b/+", a + "/" + ab + "/+", false, true, nil},
		{"#", "#", false, true, nil},
		{"+", "+", false, true, nil},
		{"/", empty + "/" + blindLevel(k, "", ""), false, false, nil},
		{"a/+/c/#", a + "/+/" + c + "/#", true, true, nil},
		{"+/+", "+/+", true, true, nil},
		{"a/+/c", "", false, true, ErrBlindFilter},
		{"a/+/#", "", false, true, ErrBlindFilter},
		{"a/#/c", "", true, true, ErrMalformed},
		{"a/b#", "", true, true, ErrMalformed},
		{"a+/b", "", false, true, ErrMalformed},
		{"", "", false, true, ErrMalformed},
		{"", "", false, false, ErrMalformed},
		{"a\x00", "", false, false, ErrMalformed},
		{"a/+", "", false, false, ErrMalformed},
		{"a/#", "", true, false, ErrMalformed},
		{long + "/a", "", false, false, ErrMalformed},
		{strings.Repeat("x", 1<<16), "", false, false, ErrMalformed},
	} {
		do := k.BlindTopic
		if o.wild {
			do = k.BlindFilter
		}
		got, err := do(o.in, o.flat)
		require.ErrorIs(t, err, o.err, "%.20q", o.in)
		require.Equal(t, o.want, got, "%.20q", o.in)
	}
	got, err := k.BlindTopic(long, false)
	require.NoError(t, err)
	require.LessOrEqual(t, len(got), 512)
	require.Contains(t, ErrBlindFilter.Error(), "flat")

	next, err := k.Next(time.Now())
	require.NoError(t, err)
	other, err := next.BlindTopic("a", false)
	require.NoError(t, err)
	require.NotEqual(t, a, other)
	// Levels cannot be cut elsewhere to the same effect.
	require.NotEqual(t, blindLevel(k, "ab", "c"), blindLevel(k, "a", "bc"))
}

// FuzzGroupOpen: nothing opens that was not sealed, and nothing panics.
func FuzzGroupOpen(f *testing.F) {
	k, err := newGroupKey(GroupID{1}, 1, [32]byte{1})
	require.NoError(f, err)
	sealed, err := k.Seal("a", Content{Type: Text, Data: []byte("x")})
	require.NoError(f, err)
	f.Add(sealed)
	f.Add(k.Content().Data)
	f.Fuzz(func(t *testing.T, b []byte) {
		if _, err := k.Open("a", b); err == nil {
			require.Equal(t, sealed[:groupHead], b[:groupHead])
		}
		if k, err := ParseGroupKey(b); err == nil {
			require.Equal(t, b, k.Content().Data)
		}
	})
}
