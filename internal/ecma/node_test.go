package ecma

import (
	"bufio"
	"encoding/hex"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sotto-relay/sotto/internal/vectors"
)

var full = flag.Bool("full", false, "compare with Node at full size")

// nodeTexts are the cases of CASES HT-12 and HT-13, and some more.
var nodeTexts = []string{
	`"\"\\\/\b\f\n\r\t"`, "\"\u007f<>&\u2028\u2029😀\ufffd\"", `"\u0000\u0001\u001f\u007f\u2028\u2029\ud83d\ude00\ud83d\ude00x\ude00\ud83d\ufffd"`,
	`{"10":1,"9":2,"a":3,"9":4,"__proto__":{"b":1,"b":2},"a":{"1":[[],{}]}}`, `{"__proto__":null,"constructor":1,"toString":2,"0":3}`,
	`[-0,1e21,1e-7,0.1,0.30000000000000004,1.0,1E3,123456789012345680000,999999999999999900000,1e20,1e-6,0.0000012345,1.5e300]`,
	`{"-0":1,"00":2,"1.5":3,"4294967294":4,"4294967295":5,"9007199254740991":6,"1":7,"":8,"0":9}`,
	`[5e-324,2.2250738585072014e-308,1.7976931348623157e308,1.7976931348623159e308,2e308,4.9406564584124654e-324,2e-324]`,
	" \t\r\n[ ] ", `{"a" : { } }`, "\ufeff1", "[1,]", "\"\t\"", `"\u00G0"`, "01", `{"a":1,}`, "", "nul",
}

const nodeScript = `
const lines = require('readline').createInterface({input: process.stdin, terminal: false});
lines.on('line', line => {
  let out = '!';
  try { out = JSON.stringify(JSON.parse(Buffer.from(line, 'hex').toString('utf8'))); } catch {}
  process.stdout.write(Buffer.from(out, 'utf8').toString('hex') + '\n');
});`

// TestNode compares with Node, on texts that were chosen and on random ones, valid
// and not.
func TestNode(t *testing.T) {
	path, err := exec.LookPath("node")
	if err != nil {
		t.Skip("NOT COMPARED WITH NODE: it is not installed")
	}
	texts := append([]string(nil), nodeTexts...)
	for _, v := range vectors.Cases[vector](t, "json_stringify.json") {
		texts = append(texts, v.BlobRaw)
	}
	n := 20_000
	if *full {
		n = 500_000
	}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	g := generator{rand.New(rand.NewPCG(seed, 0))}
	for range n {
		text := g.value(4)
		texts = append(texts, text)
		if g.IntN(4) == 0 {
			texts = append(texts, g.damage(text))
		}
	}

	cmd := exec.Command(path, "-e", nodeScript)
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	fed := make(chan struct{})
	go func() {
		defer close(fed)
		w := bufio.NewWriter(in)
		for _, text := range texts {
			fmt.Fprintf(w, "%x\n", text)
		}
		_ = w.Flush()
		_ = in.Close()
	}()
	answers := bufio.NewReader(out)
	refused := 0
	for _, text := range texts {
		line, err := answers.ReadString('\n')
		require.NoError(t, err)
		want, err := hex.DecodeString(strings.TrimSuffix(line, "\n"))
		require.NoError(t, err)
		got, err := Stringify([]byte(text))
		if err != nil {
			got = []byte("!")
			refused++
		}
		if !assert.Equal(t, string(want), string(got), "%q", text) {
			break
		}
	}
	_ = out.Close() // node gives up, should lines be left
	<-fed
	_ = cmd.Wait()
	t.Logf("%d texts, %d of them refused by both", len(texts), refused)
}

// A generator makes JSON texts of the kinds that are easy to get wrong.
type generator struct{ *rand.Rand }

func (g generator) pick(of ...string) string { return of[g.IntN(len(of))] }

func (g generator) space() string { return g.pick("", "", "", " ", "\n\t ", "\r") }

func (g generator) value(depth int) string {
	kind := g.IntN(10)
	if depth == 0 {
		kind = 4 + g.IntN(6)
	}
	var b strings.Builder
	switch {
	case kind < 2:
		b.WriteString("[")
		for i := range g.IntN(5) {
			b.WriteString(g.comma(i) + g.value(depth-1))
		}
		b.WriteString("]")
	case kind < 4:
		b.WriteString("{")
		for i := range g.IntN(8) {
			b.WriteString(g.comma(i) + g.key() + g.space() + ":" + g.value(depth-1))
		}
		b.WriteString("}")
	case kind < 6:
		b.WriteString(g.string())
	case kind < 7:
		b.WriteString(g.pick("true", "false", "null"))
	default:
		b.WriteString(g.number())
	}
	return g.space() + b.String() + g.space()
}

func (g generator) comma(i int) string {
	if i == 0 {
		return ""
	}
	return "," + g.space()
}

func (g generator) key() string {
	switch g.IntN(4) {
	case 0:
		return strconv.Quote(strconv.Itoa(g.IntN(12)))
	case 1:
		return `"` + g.pick("4294967293", "4294967294", "4294967295", "42949672940", "00", "-1", "1.0", "", "__proto__", `\u0031`) + `"`
	case 2:
		return g.pick(`"a"`, `"b"`, `"c"`, `"\u0061"`)
	}
	return g.string()
}

func (g generator) string() string {
	var b strings.Builder
	b.WriteByte('"')
	for range g.IntN(8) {
		switch g.IntN(5) {
		case 0:
			b.WriteString(g.pick(`\"`, `\\`, `\/`, `\b`, `\f`, `\n`, `\r`, `\t`))
		case 1:
			fmt.Fprintf(&b, g.pick(`\u%04x`, `\u%04X`), g.IntN(1<<16))
		case 2: // surrogates, often in pairs
			fmt.Fprintf(&b, g.pick(`\u%04x`, `\u%04X`), 0xD800+g.IntN(0x800))
		case 3:
			b.WriteString(g.pick("a", "é", "\u2028", "\u2029", "\u007f", "<", "&", "😀", "\ufffd", "\uffff", "\U0010ffff"))
		default:
			b.WriteByte(byte('a' + g.IntN(26)))
		}
	}
	b.WriteByte('"')
	return b.String()
}

func (g generator) number() string {
	f := math.Float64frombits(g.Uint64())
	switch g.IntN(6) {
	case 0:
		return strconv.Itoa(g.IntN(2001) - 1000)
	case 1:
		f = float64(g.Int64N(1<<60)) * math.Pow10(g.IntN(40)-20)
	case 2:
		return g.digits(1) + "." + g.digits(25) + "e" + strconv.Itoa(g.IntN(700)-350)
	case 3:
		return g.digits(25) + g.pick("", ".0", ".5", "E0", "e+2", "E-3", "e021", "e-7")
	}
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return "-0.0"
	}
	return strconv.FormatFloat(f, []byte("efg")[g.IntN(3)], g.IntN(20)-1, 64)
}

// digits returns at most n digits, without a zero in front.
func (g generator) digits(n int) string {
	b := []byte{byte('1' + g.IntN(9))}
	for range g.IntN(n) {
		b = append(b, byte('0'+g.IntN(10)))
	}
	return string(b)
}

// damage replaces, takes out or repeats a character.
func (g generator) damage(text string) string {
	r := []rune(text)
	i := g.IntN(len(r))
	switch g.IntN(3) {
	case 0:
		r[i] = []rune(`{}[]:,"\u0e-+. ` + "\n\x01")[g.IntN(17)]
	case 1:
		r = append(r[:i], r[i+1:]...)
	default:
		r = append(r[:i+1], r[i:]...)
	}
	return string(r)
}
