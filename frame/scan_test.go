package frame

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestObjectAccepts(t *testing.T) {
	many := make([]string, 500)
	for i := range many {
		many[i] = fmt.Sprintf(`"%d":%d`, i, i)
	}
	for _, in := range []string{
		`{}`, " \t\r\n{ \t\r\n} \t\r\n", `{"a":1}`, ` { "a" : 1 , "b" : 2 } `,
		`{"":""}`, `{"a":"","b":"\"\\\/\b\f\n\r\t","c":"` + "\u007f\u2028é𝄞" + `","d":"\u0000\uFfFf\uD834\uDD1E"}`,
		`{"a":0,"b":-0,"c":-12.50,"d":1e5,"e":1E+5,"f":0.0e-07,"g":123456789012345678901234567890}`,
		`{"a":true,"b":false,"c":null,"d":[],"e":{},"f":[1,"2",[3],{"a":4}],"g":{"a":{"a":{"a":1}}}}`,
		`{"a":{"b":1},"b":{"a":1}}`, // the same names, in different objects
		`{"a":1,"A":2,"a ":3,"é":4,"e\u0301":5}`,
		`{"a":` + strings.Repeat("[", 63) + strings.Repeat("]", 63) + `}`,
		`{` + strings.Join(many, ",") + `}`,
	} {
		var o Object
		require.NoError(t, o.Parse([]byte(in)), in)
	}
}

func TestObjectRefuses(t *testing.T) {
	many := make([]string, 500)
	for i := range many {
		many[i] = fmt.Sprintf(`"%d":%d`, i%499, i)
	}
	for _, in := range []string{
		// No object, or not only one (cases FR-19, FR-22).
		``, ` `, `null`, `true`, `0`, `"a"`, `[]`, `[{}]`, `{}{}`, `{} {}`, `{}x`, `{},`, "{}\x00", `x{}`, "\ufeff{}", "\v{}", "\u00a0{}",
		// Broken off, or with the wrong marks.
		`{`, `{"`, `{"a`, `{"a"`, `{"a":`, `{"a":1`, `{"a":1,`, `{"a":1,}`, `{,}`, `{"a"}`, `{"a",1}`, `{"a"=1}`, `{a:1}`, `{'a':1}`, `{"a":}`,
		`{"a":1 "b":2}`, `{"a":[1,]}`, `{"a":[,]}`, `{"a":[1 2]}`, `{"a":[}`, `{"a":[`, `{"a":[1`, `{"a":[1,`, `{"a":[1}]`, `{"a":{]}`, `{1:2}`, `{null:1}`, `}`,
		// Literals and numbers.
		`{"a":True}`, `{"a":tru}`, `{"a":truex}`, `{"a":nul}`, `{"a":NaN}`, `{"a":Infinity}`, `{"a":undefined}`, `{"a":nu`,
		`{"a":01}`, `{"a":-}`, `{"a":+1}`, `{"a":.5}`, `{"a":1.}`, `{"a":1.e5}`, `{"a":1e}`, `{"a":1e+}`, `{"a":0x1}`, `{"a":1_0}`, `{"a":--1}`, `{"a":-`, `{"a":1e`,
		// Strings.
		"{\"a\":\"\n\"}", "{\"a\":\"\x00\"}", "{\"a\":\"1234567\x1f\"}", "{\"a\":\"12345678\x1f\"}", "{\"a\":\"\x01n\"}", `{"a":"\x41"}`, `{"a":"\u12"}`, `{"a":"\u123g"}`, `{"a":"\U0041"}`, `{"a":"\'"}`, `{"a":"\`, `{"a":"\u`,
		// Encodings (case FR-23).
		"{\"a\":\"\xff\"}", "{\"a\":\"\xc0\xaf\"}", "{\"a\":\"\xed\xa0\x80\"}", "{\"a\":\"\xf4\x90\x80\x80\"}", "{\"\xe9\":1}", "\xfe\xff\x00{\x00}", "{\x00}\x00",
		`{"a":"\ud834"}`, `{"a":"\udd1e"}`, `{"a":"\ud834x"}`, `{"a":"\ud834\n"}`, `{"a":"\ud834\u0041"}`, `{"a":"\udd1e\ud834"}`, `{"a":"\ud834\ud834"}`, `{"\ud834":1}`, `{"a":"\ud834\u`,
		// Repeated names (case FR-20), also after unescaping, also deeper.
		`{"to":"bob","to":"eve"}`, `{"to":1,"t\u006f":2}`, `{"a/":1,"a\/":2}`, `{"x":{"a":1,"b":2,"a":3}}`, `{"x":[{"a":1,"a":1}]}`,
		`{"a":{},"a":{}}`, `{"":1,"":1}`,
		`{` + strings.Join(many, ",") + `}`, `{"x":{` + strings.Join(many, ",") + `}}`,
		// Too deep.
		`{"a":` + strings.Repeat("[", 64) + strings.Repeat("]", 64) + `}`,
		strings.Repeat(`{"a":`, 65) + "1" + strings.Repeat("}", 65),
		strings.Repeat(`{"a":`, 100_000),
	} {
		var o Object
		require.ErrorIs(t, o.Parse([]byte(in)), ErrMalformed, in)
		require.Empty(t, o.members)
	}
}

func TestObjectValues(t *testing.T) {
	var o Object
	for range 2 { // with fresh and with used memory
		require.NoError(t, o.Parse([]byte(`{"t":"send", "t\u006f" : "b\u00f6b\n","ct":"a\/b","n":null,"no":12,"neg":-1,"yes":true,"not":false,"e":"","list":[ "x" , 1,[2],{"a":"]"} ,null]}`)))
		assert.Equal(t, "send", string(o.Text(o.Get("t"))))
		assert.Equal(t, "böb\n", string(o.Text(o.Get("to"))))
		assert.Equal(t, `"b\u00f6b\n"`, string(o.Get("to")))
		assert.Equal(t, `"a\/b"`, string(o.Get("ct")))
		assert.Equal(t, "a/b", string(o.Text(o.Get("ct"))))
		assert.Nil(t, o.Get("TO"))
		assert.Nil(t, o.Get("t\\u006f"))
		assert.Nil(t, o.Text(nil))
		assert.Nil(t, o.Text(o.Get("no")))
		assert.NotNil(t, o.Text(o.Get("e")))

		for name, is := range map[string]func(Value) bool{
			"t": Value.IsString, "n": Value.IsNull, "no": Value.IsNumber, "neg": Value.IsNumber, "list": Value.IsArray, "e": Value.IsEmpty,
		} {
			for i, other := range []func(Value) bool{Value.IsString, Value.IsNull, Value.IsNumber, Value.IsArray} {
				want := name == "t" && i == 0 || name == "e" && i == 0 || name == "n" && i == 1 || (name == "no" || name == "neg") && i == 2 || name == "list" && i == 3
				assert.Equal(t, want, other(o.Get(name)), "%s %d", name, i)
				assert.False(t, other(nil))
			}
			assert.True(t, is(o.Get(name)), name)
		}
		assert.False(t, o.Get("t").IsEmpty())
		b, ok := o.Get("yes").Bool()
		assert.True(t, b && ok)
		b, ok = o.Get("not").Bool()
		assert.True(t, !b && ok)
		for _, name := range []string{"t", "n", "no", "list", "none"} {
			_, ok = o.Get(name).Bool()
			assert.False(t, ok, name)
		}

		var list []string
		for v := range o.Get("list").Elements() {
			list = append(list, string(v))
		}
		assert.Equal(t, []string{`"x"`, `1`, `[2]`, `{"a":"]"}`, `null`}, list)
		for range o.Get("t").Elements() {
			t.Fatal("a string has no elements")
		}
		for v := range o.Get("list").Elements() {
			assert.Equal(t, `"x"`, string(v))
			break
		}
	}
	require.Error(t, o.Parse([]byte(`{"t":1`)))
	assert.Nil(t, o.Get("t"), "nothing of what was refused")
}

func TestEscapes(t *testing.T) {
	var o Object
	require.NoError(t, o.Parse([]byte(`{"a":"\"\\\/\b\f\n\r\t\u0041\u00e9\u20AC\ud834\udd1e\u0000"}`)))
	assert.Equal(t, "\"\\/\b\f\n\r\tAé€𝄞\x00", string(o.Text(o.Get("a"))))
}

// TestPlain: every place of every interesting byte, with the words that plain
// reads.
func TestPlain(t *testing.T) {
	for n := range 20 {
		for at := range n {
			for c := range 256 {
				b := []byte(strings.Repeat("~", n))
				b[at] = byte(c)
				want := n
				if c < ' ' || c == '"' || c == '\\' {
					want = at
				}
				require.Equal(t, want, plain(b, 0), "%q", b)
			}
		}
	}
	// A borrow out of the byte that is found must not hide or move it.
	require.Equal(t, 1, plain([]byte("a\x00!\x20!!!!"), 0))
	require.Equal(t, 2, plain([]byte("!#\"#]\\!!"), 0))
}

// FuzzObject: an Object accepts what jsontext does, and reads the same in it.
func FuzzObject(f *testing.F) {
	for _, s := range []string{
		`{"t":"send","to":"bob","ct":"aGk=","id":"m1"}`, `{"a":[1,{"b":null}],"c":-1.5e3}`, `{"t\u006f":"\ud834\udd1e"}`,
		`{"a":1,"a":2}`, `{"a":{"x":1,"\u0078":1}}`, "{\"a\":\"\xff\"}", `{"a":"\ud834"}`, `{}`, `[]`, `{"a":1}x`,
		`{"01":1,"02":1,"03":1,"04":1,"05":1,"06":1,"07":1,"08":1,"09":1,"10":1,"11":1,"12":1,"13":1,"14":1,"15":1,"16":1,"17":1,"18":1,"18":1}`,
	} {
		f.Add([]byte(s))
	}
	var o Object
	f.Fuzz(func(t *testing.T, b []byte) {
		before := slices.Clone(b)
		err := o.Parse(b)
		require.Equal(t, before, b)
		v := jsontext.Value(b)
		switch valid := v.IsValid() && v.Kind() == '{'; {
		case valid && err != nil:
			require.True(t, isDeep(b), "%q was refused", b)
			return
		case !valid:
			require.Error(t, err, "%q was accepted", b)
			require.Empty(t, o.members)
			return
		}
		checkObject(t, &o, v)
	})
}

func isDeep(b []byte) bool {
	return strings.Count(string(b), "[")+strings.Count(string(b), "{") > maxDepth
}

func checkObject(t *testing.T, o *Object, v jsontext.Value) {
	d := jsontext.NewDecoder(strings.NewReader(string(v)))
	_, err := d.ReadToken()
	require.NoError(t, err)
	n := 0
	for ; d.PeekKind() != '}'; n++ {
		token, err := d.ReadToken()
		require.NoError(t, err)
		name := token.String()
		value, err := d.ReadValue()
		require.NoError(t, err)
		got := o.Get(name)
		require.Equal(t, string(value), string(got), "member %q", name)
		switch value.Kind() {
		case '"':
			var want string
			require.NoError(t, json.Unmarshal(value, &want))
			require.Equal(t, want, string(o.Text(got)))
			require.Equal(t, AppendText(nil, []byte(want)), AppendText(nil, o.Text(got)))
			var again string
			require.NoError(t, json.Unmarshal(AppendText(nil, []byte(want)), &again))
			require.Equal(t, want, again)
		case '[':
			var want []json.RawMessage
			require.NoError(t, json.Unmarshal(value, &want))
			i := 0
			for e := range got.Elements() {
				require.Equal(t, string(want[i]), string(e))
				i++
			}
			require.Len(t, want, i)
		}
	}
	require.Len(t, o.members, n)
}

// A message with all of its names in escapes costs no more memory than another.
var objectSamples = map[string]string{
	"send":    `{"t":"send","to":"bob","pub":"k+wTqpaBBGdhE6EGMjvLVmtn84x6oJ2g7IxnAPQsWCw=","nonce":"/ITIsaskB+yE0WUlKJjG5qY9UZgbK85a","ct":"` + strings.Repeat("QUJD", 32) + `","id":"m1"}`,
	"escaped": `{"\u0074":"send","\u0074o":"b\u00f6b","\u0063t":"\/","\u0069d":"\n"}`,
	"nested":  `{"t":"send","x":{"y":[{"z":1,"\u0079":[[],{}]}]},"to":"bob"}`,
}

func TestObjectAllocations(t *testing.T) {
	for name, in := range objectSamples {
		var o Object
		b := []byte(in)
		n := testing.AllocsPerRun(100, func() {
			if o.Parse(b) != nil || o.Text(o.Get("to")) == nil {
				t.Fatal("refused")
			}
			o.Reset()
		})
		assert.Zero(t, n, name)
	}
}

// TestObjectMemory: what a long message took is not kept, nor any message.
func TestObjectMemory(t *testing.T) {
	var o Object
	var b strings.Builder
	b.WriteString(`{"x":1`)
	for i := range 5000 {
		fmt.Fprintf(&b, `,"\u0061%d":1`, i)
	}
	b.WriteString(`}`)
	require.NoError(t, o.Parse([]byte(b.String())))
	o.Reset()
	assert.Zero(t, cap(o.members))
	assert.Zero(t, cap(o.scratch))

	// Nor is the message.
	require.NoError(t, o.Parse([]byte(`{"a":1,"b":2}`)))
	o.Reset()
	assert.Equal(t, make([]member, cap(o.members)), o.members[:cap(o.members)])
}

func BenchmarkObject(b *testing.B) {
	hostile := make([]string, 7000)
	for i := range hostile {
		hostile[i] = fmt.Sprintf(`"%04x":1`, i)
	}
	samples := map[string]string{"hostile": `{` + strings.Join(hostile, ",") + `}`}
	for name, in := range objectSamples {
		samples[name] = in
	}
	for name, in := range samples {
		b.Run(name, func(b *testing.B) {
			var o Object
			msg := []byte(in)
			b.SetBytes(int64(len(msg)))
			b.ReportAllocs()
			for b.Loop() {
				if o.Parse(msg) != nil {
					b.Fatal("refused")
				}
				o.Reset()
			}
		})
	}
}
