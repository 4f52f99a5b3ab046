package ecma

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"runtime"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/sotto-relay/sotto/internal/vectors"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type vector struct {
	Name       string
	Recipient  string
	BlobRaw    string `json:"blob_raw_json"`
	MessageHex string `json:"message_hex"`
}

func TestVectors(t *testing.T) {
	for _, v := range vectors.Cases[vector](t, "json_stringify.json") {
		want, err := hex.DecodeString(v.MessageHex)
		require.NoError(t, err)
		body := "{\n\"blob\" : " + v.BlobRaw + ",\t\"recipient\":\"" + v.Recipient + "\"\r}\n"
		m, err := Members([]byte(body), "recipient", "blob")
		require.NoError(t, err, v.Name)
		assert.Equal(t, string(want), `{"recipient":`+string(m[0])+`,"blob":`+string(m[1])+`}`, v.Name)
	}
}

// What the vectors do not have; nodeTexts and random texts are compared with Node.
func TestStringify(t *testing.T) {
	deep := strings.Repeat("[", MaxDepth) + strings.Repeat("]", MaxDepth)
	for text, want := range map[string]string{
		deep:                                  deep,
		`{"a":{"z":1,"9":2},"a":{"y":3}}`:     `{"a":{"y":3}}`,
		`{"x":{"b":1,"0":{"c":2,"1":3}}}`:     `{"x":{"0":{"1":3,"c":2},"b":1}}`,
		`{"\u0061":1,"b":2,"a":3}`:            `{"a":3,"b":2}`,
		`{"1":1,"\u0030":2}`:                  `{"0":2,"1":1}`,
		`{"\ud800":1,"\uD800":2}`:             `{"\ud800":2}`,
		`["\ud83d\ud83d\ude00\ude00\ud83d"]`:  `["\ud83d😀\ude00\ud83d"]`,
		`["\ud83d\u0041", "\ud83d\n"]`:        `["\ud83dA","\ud83d\n"]`,
		`-0e-5`:                               `0`,
		`-1e999`:                              `null`,
		"1" + strings.Repeat("0", 400):        `null`,
		"0." + strings.Repeat("0", 400) + `1`: `0`,
	} {
		got, err := Stringify([]byte(text))
		require.NoError(t, err, "%.60s", text)
		assert.Equal(t, want, string(got), "%.60s", text)
	}
}

func TestNotJSON(t *testing.T) {
	for _, text := range []string{
		"", " ", "\x00", "\ufeff1", "1 2", "[1,]", "[,1]", "[1 2]", "[", "]", "[1", "{", "{}}", `{"a"}`, `{"a":}`, `{"a":1,}`, `{a:1}`,
		`{1:1}`, `{"a" 1}`, `{"a":1 "b":2}`, "'a'", `"`, `"\`, `"\"`, `"\x"`, `"\u123"`, `"\u12g4"`, `"\u"`, "\"\n\"", "\"\x1f\"", "\"\xff\"",
		"\"\xed\xa0\x80\"", "\"\xc0\x80\"", "\"\xf0\x9f\"", "\v1", "\u00a01", "nul", "nulll", "True", "NaN", "Infinity", "undefined",
		"01", "-", "-01", "+1", "1.", ".1", "1.e1", "1e", "1e+", "0x1", "1_0", "--1", "00", "1e1.5",
	} {
		_, err := Stringify([]byte(text))
		assert.Equal(t, ErrSyntax, err, "%q", text)
		_, err = Members([]byte(text), "a")
		assert.Equal(t, ErrSyntax, err, "%q", text)
	}
	for _, open := range []string{"[", `{"a":`} {
		_, err := Stringify([]byte(strings.Repeat(open, 1<<20)))
		assert.Equal(t, ErrDepth, err)
	}
}

func TestMembers(t *testing.T) {
	m, err := Members([]byte(` {"b":{"x":1,"0":2},"a":1,"a":[ 2 ],"\u0063":"\u0063","A":0} `), "a", "b", "c", "d")
	require.NoError(t, err)
	assert.Equal(t, []string{`[2]`, `{"0":2,"x":1}`, `"c"`, ""}, []string{string(m[0]), string(m[1]), string(m[2]), string(m[3])})
	assert.Nil(t, m[3])
	for _, text := range []string{`[]`, `"a"`, `1`, `null`, `[{"a":1}]`} {
		_, err := Members([]byte(text), "a")
		assert.Equal(t, ErrKind, err, text)
	}
}

// TestManyMoved: time and memory stay in proportion to the text however its keys
// have to move.
func TestManyMoved(t *testing.T) {
	const depth, size = MaxDepth, 1 << 20
	text := strings.Repeat(`{"b":`, depth) + `"` + strings.Repeat("x", size) + `"` + strings.Repeat(`,"0":1}`, depth)
	got, err := Stringify([]byte(text))
	require.NoError(t, err)
	want := strings.Repeat(`{"0":1,"b":`, depth) + `"` + strings.Repeat("x", size) + `"` + strings.Repeat(`}`, depth)
	assert.True(t, want == string(got))

	wide := []byte("{" + strings.Repeat(`"a":1,"0":{"c":1,"1":1},`, 50_000) + `"z":0}`)
	got, err = Stringify(wide)
	require.NoError(t, err)
	assert.Equal(t, `{"0":{"1":1,"c":1},"a":1,"z":0}`, string(got))
}

func TestUnquote(t *testing.T) {
	for token, want := range map[string]string{
		`""`: "", `"a\"\\\n\u001f"`: "a\"\\\n\x1f", `"é😀"`: "é😀", `"\ud800x\udfff"`: "\xed\xa0\x80x\xed\xbf\xbf",
	} {
		s, ok := Unquote([]byte(token))
		require.True(t, ok, token)
		assert.Equal(t, want, string(s))
		assert.Equal(t, token, `"`+string(AppendEscaped(nil, s))+`"`)
	}
	for _, token := range []string{"", "1", "null", "[]", `{"a":"b"}`, `"`} {
		_, ok := Unquote([]byte(token))
		assert.False(t, ok, token)
	}
}

func TestAppendEscapedOfGarbage(t *testing.T) {
	for s, want := range map[string]string{
		"\xff": "\ufffd", "a\xc3": "a\ufffd", "\xed\xa0": "\ufffd\ufffd", "\xed\xa0\xff": "\ufffd\ufffd\ufffd", "\xf0\x9f\x98": "\ufffd\ufffd\ufffd",
	} {
		assert.Equal(t, want, string(AppendEscaped(nil, []byte(s))), "%q", s)
	}
}

func TestWhole(t *testing.T) {
	s := []byte("aé\U0001F600\xed\xa0\x80z")
	for n := 4; n <= len(s)+1; n++ {
		var got []byte
		for rest := s; len(rest) > 0; {
			part := Whole(rest, n)
			require.NotEmpty(t, part)
			require.LessOrEqual(t, len(part), n)
			got = AppendEscaped(got, part)
			rest = rest[len(part):]
		}
		assert.Equal(t, string(AppendEscaped(nil, s)), string(got), n)
	}
	garbage := bytes.Repeat([]byte{0x80}, 10)
	assert.Len(t, Whole(garbage, 4), 4)
}

// FuzzStringify: what comes out is JSON that stays as it is, means the same to
// encoding/json (which knows no surrogates), and is read back by Unquote.
func FuzzStringify(f *testing.F) {
	for _, v := range vectors.Cases[vector](f, "json_stringify.json") {
		f.Add([]byte(v.BlobRaw))
	}
	for _, text := range nodeTexts {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		before := bytes.Clone(text)
		out, err := Stringify(text)
		require.Equal(t, before, text)
		if err != nil {
			require.True(t, err == ErrSyntax || err == ErrDepth)
			require.False(t, err == ErrSyntax && json.Valid(text) && utf8.Valid(text), "encoding/json takes it")
			return
		}
		require.True(t, json.Valid(out))
		again, err := Stringify(out)
		require.NoError(t, err)
		require.Equal(t, string(out), string(again))
		requireSame(t, text, out)
		if s, ok := Unquote(out); ok {
			require.Equal(t, string(out), `"`+string(AppendEscaped(nil, s))+`"`)
		}
		_, err = Members(text, "a")
		require.True(t, err == nil || errors.Is(err, ErrKind))
	})
}

// requireSame holds that two texts mean the same, as far as encoding/json can tell
// them apart: it fails on numbers out of range, and folds lone surrogates.
func requireSame(t *testing.T, a, b []byte) {
	var x, y any
	if json.Unmarshal(a, &x) == nil && !bytes.Contains(b, []byte(`\ud`)) {
		require.NoError(t, json.Unmarshal(b, &y))
		require.Equal(t, normal(x), normal(y))
	}
}

// normal makes -0 of a decoded value 0.
func normal(v any) any {
	switch v := v.(type) {
	case float64:
		return v + 0
	case []any:
		for i := range v {
			v[i] = normal(v[i])
		}
	case map[string]any:
		for k := range v {
			v[k] = normal(v[k])
		}
	}
	return v
}

// TestMemory: texts that are made to take much memory for their length.
func TestMemory(t *testing.T) {
	const size = 1 << 20
	for name, text := range map[string]string{
		"one key":       `{"blob":{` + strings.Repeat(`"":0,`, size/5) + `"a":0}}`,
		"keys on top":   `{` + strings.Repeat(`"":0,`, size/5) + `"blob":0}`,
		"small objects": `{"blob":[` + strings.Repeat(`{"b":0,"1":0},`, size/14) + `0]}`,
		"numbers":       `{"blob":[` + strings.Repeat(`1e20,`, size/5) + `0]}`,
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := Members([]byte(text), "blob")
		runtime.ReadMemStats(&after)
		require.NoError(t, err, name)
		assert.Less(t, (after.TotalAlloc-before.TotalAlloc)/uint64(len(text)), uint64(28), name) // half of it at a time
	}
}
