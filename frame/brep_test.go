package frame

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sotto-relay/sotto/internal/vectors"
)

func testBrep(payload int) *Brep {
	return &Brep{
		Type:      TypeData,
		Flags:     FlagReceipt | FlagRetain,
		ID:        [16]byte(seq(16)),
		Sender:    [32]byte(seq(32)),
		Signature: [64]byte(seq(64)),
		Payload:   seq(payload),
	}
}

func TestBrepVectors(t *testing.T) {
	for _, v := range vectors.Cases[frameVector](t, "brep_frames.json") {
		t.Run(v.Name, func(t *testing.T) {
			b := vectors.Unhex(t, v.Frame)
			f, err := DecodeBrep(b)
			if !v.Valid {
				require.Error(t, err)
				assert.Zero(t, f)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, v.Type, f.Type)
			assert.Equal(t, v.Sender, hex.EncodeToString(f.Sender[:]))
			assert.Equal(t, v.Signature, hex.EncodeToString(f.Signature[:]))
			assert.Equal(t, v.Payload, hex.EncodeToString(f.Payload))
			assert.Equal(t, len(b), f.Size())
			assert.Equal(t, b, f.Append(nil))
		})
	}
}

func TestBrepLayout(t *testing.T) {
	f := testBrep(7)
	b := f.Append([]byte("before"))
	require.Equal(t, "before", string(b[:6]))
	b = b[6:]
	assert.Equal(t, []byte{0x58, 1, 2, 5, 0, 0, 0, 7}, b[:8])
	assert.Equal(t, f.Flags, b[BrepFlagsOffset])
	assert.Equal(t, f.ID[:], b[BrepIDOffset:BrepIDOffset+16])
	assert.Equal(t, f.Sender[:], b[24:56])
	assert.Equal(t, f.Signature[:], b[56:120])
	assert.Equal(t, f.Payload, b[BrepHeaderSize:])

	got, err := DecodeBrep(b)
	require.NoError(t, err)
	assert.Equal(t, *f, got)
}

func TestDecodeBrepRefuses(t *testing.T) {
	valid := testBrep(40).Append(nil)
	with := func(offset int, bytes ...byte) []byte {
		b := append([]byte(nil), valid...)
		copy(b[offset:], bytes)
		return b
	}
	withLength := func(n uint32) []byte {
		return with(4, binary.BigEndian.AppendUint32(nil, n)...)
	}
	cases := map[string]struct {
		b    []byte
		want error
	}{
		"magic":               {with(0, 0x59), ErrMalformed},
		"HTTP":                {[]byte("GET / HTTP/1.1\r\n"), ErrMalformed},
		"version 0":           {with(1, 0), ErrVersion},
		"version 2":           {with(1, 2), ErrVersion},
		"version 255":         {with(1, 255), ErrVersion},
		"length one more":     {withLength(41), ErrMalformed},
		"length one less":     {withLength(39), ErrMalformed},
		"length 0":            {withLength(0), ErrMalformed},
		"length 2^31":         {withLength(1 << 31), ErrMalformed},
		"length 2^32-1":       {withLength(math.MaxUint32), ErrMalformed},
		"one byte more":       {append(with(0), 0), ErrMalformed},
		"one byte less":       {valid[:len(valid)-1], ErrMalformed},
		"two frames":          {append(with(0), valid...), ErrMalformed},
		"length wraps an i32": {withLength(math.MaxUint32 - BrepHeaderSize + 1), ErrMalformed},
	}
	for n := range BrepHeaderSize {
		cases[fmt.Sprintf("first %d bytes", n)] = struct {
			b    []byte
			want error
		}{valid[:n], ErrMalformed}
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			f, err := DecodeBrep(c.b)
			assert.ErrorIs(t, err, c.want)
			assert.Zero(t, f)
		})
	}
}

func TestDecodeBrepAliases(t *testing.T) {
	b := testBrep(8).Append(make([]byte, 0, 256))
	f, err := DecodeBrep(b)
	require.NoError(t, err)
	b[BrepHeaderSize] = 0xEE
	assert.Equal(t, byte(0xEE), f.Payload[0])
	assert.Equal(t, len(f.Payload), cap(f.Payload), "appending to the payload must not write behind the frame")
}

func TestBrepAllocations(t *testing.T) {
	f := testBrep(512)
	encoded := f.Append(nil)
	buf := make([]byte, 0, f.Size())
	var payload int
	for name, fn := range map[string]func(){
		"decode": func() { g, _ := DecodeBrep(encoded); payload += len(g.Payload) },
		"refuse": func() { _, _ = DecodeBrep(encoded[:200]) },
		"append": func() { buf = f.Append(buf[:0]) },
		"next":   func() { _, n, _ := NextBrep(encoded, 1024); payload += n },
	} {
		assert.Zero(t, testing.AllocsPerRun(100, fn), name)
	}
}

func TestNextBrep(t *testing.T) {
	valid := testBrep(40).Append(nil)
	size := len(valid)
	huge := append([]byte(nil), valid...)
	binary.BigEndian.PutUint32(huge[4:], math.MaxUint32)
	wrongVersion := []byte{0x58, 2}
	cases := []struct {
		name string
		b    []byte
		max  int
		n    int
		err  error
	}{
		{"nothing", nil, size, 0, nil},
		{"whole frame", valid, size, size, nil},
		{"whole frame and more", append(valid[:size:size], valid[:50]...), size, size, nil},
		{"one byte missing", valid[:size-1], size, 0, nil},
		{"limit one byte below", valid, size - 1, size, ErrTooLarge},
		{"limit known from the length alone", valid[:8], size - 1, size, ErrTooLarge},
		{"length not there yet", valid[:7], 0, 0, nil},
		{"length 2^32-1", huge, 4 << 20, BrepHeaderSize + math.MaxUint32, ErrTooLarge},
		{"length 2^32-1, no limit", huge, math.MaxInt, 0, nil},
		{"magic, from the first byte", []byte("G"), size, 0, ErrMalformed},
		{"TLS", []byte{0x16, 3, 1}, size, 0, ErrMalformed},
		{"version, from the second byte", wrongVersion, size, 0, ErrVersion},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			skip, n, err := NextBrep(c.b, c.max)
			assert.Zero(t, skip)
			assert.Equal(t, c.n, n)
			if c.err == nil {
				assert.NoError(t, err)
			} else {
				assert.ErrorIs(t, err, c.err)
			}
		})
	}
}

// cutBreps returns the frames of a stream of which it reads chunk bytes at a
// time, and the error that ended it.
func cutBreps(stream []byte, chunk, max int) (frames [][]byte, err error) {
	var buf []byte
	for {
		skip, n, err := NextBrep(buf, max)
		switch {
		case err != nil:
			return frames, err
		case n > 0:
			frames = append(frames, buf[skip:skip+n])
			buf = buf[skip+n:]
		case len(stream) == 0:
			return frames, nil
		default:
			k := min(chunk, len(stream))
			buf = append(buf[:len(buf):len(buf)], stream[:k]...)
			stream = stream[k:]
		}
	}
}

func TestNextBrepOneByteAtATime(t *testing.T) {
	var stream []byte
	for n := range 20 {
		stream = testBrep(n * n).Append(stream)
	}
	frames, err := cutBreps(stream, 1, 1024)
	require.NoError(t, err)
	require.Len(t, frames, 20)
	assert.Equal(t, stream, bytes.Join(frames, nil))
	for n, b := range frames {
		f, err := DecodeBrep(b)
		require.NoError(t, err)
		assert.Len(t, f.Payload, n*n)
	}
}

func FuzzDecodeBrep(f *testing.F) {
	for _, v := range vectors.Cases[frameVector](f, "brep_frames.json") {
		f.Add(vectors.Unhex(f, v.Frame))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		g, err := DecodeBrep(b)
		if err != nil {
			require.Zero(t, g)
			return
		}
		require.Equal(t, b, g.Append(nil))
	})
}

func FuzzNextBrep(f *testing.F) {
	for _, v := range vectors.Cases[frameVector](f, "brep_frames.json") {
		b := vectors.Unhex(f, v.Frame)
		f.Add(append(b, testBrep(3).Append(nil)...), 7)
	}
	f.Fuzz(func(t *testing.T, stream []byte, chunk int) {
		const max = 1 << 12
		whole, wholeErr := cutBreps(stream, len(stream)+1, max)
		pieces, piecesErr := cutBreps(stream, 1+(chunk&0xff), max)
		require.Equal(t, whole, pieces)
		require.Equal(t, wholeErr, piecesErr)
		for _, b := range whole {
			require.LessOrEqual(t, len(b), max)
			_, err := DecodeBrep(b)
			require.NoError(t, err)
		}
	})
}

func BenchmarkDecodeBrep(b *testing.B) {
	encoded := testBrep(128).Append(nil)
	b.SetBytes(int64(len(encoded)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := DecodeBrep(encoded); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkBrepAppend(b *testing.B) {
	f := testBrep(128)
	buf := make([]byte, 0, f.Size())
	b.SetBytes(int64(f.Size()))
	b.ReportAllocs()
	for b.Loop() {
		buf = f.Append(buf[:0])
	}
}
