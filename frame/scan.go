package frame

import (
	"bytes"
	"encoding/binary"
	"math/bits"
	"unicode/utf16"
	"unicode/utf8"
)

// The grammar of JSON, for [Object]: most functions read what begins at b[i] and
// return where it ends, or bad.

// space returns where the space that begins at b[i] ends.
func space(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\n' || b[i] == '\r' || b[i] == '\t') {
		i++
	}
	return i
}

func literal(b []byte, i int, want string) int {
	if len(b)-i < len(want) || string(b[i:i+len(want)]) != want {
		return bad
	}
	return i + len(want)
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

// digits returns where the digits that begin at b[i] end: at least one.
func digits(b []byte, i int) int {
	if i == len(b) || !isDigit(b[i]) {
		return bad
	}
	for i < len(b) && isDigit(b[i]) {
		i++
	}
	return i
}

func number(b []byte, i int) int {
	if b[i] == '-' {
		i++
	}
	if i < len(b) && b[i] == '0' {
		i++
	} else if i = digits(b, i); i == bad {
		return bad
	}
	if i < len(b) && b[i] == '.' {
		if i = digits(b, i+1); i == bad {
			return bad
		}
	}
	if i < len(b) && (b[i] == 'e' || b[i] == 'E') {
		i++
		if i < len(b) && (b[i] == '+' || b[i] == '-') {
			i++
		}
		return digits(b, i)
	}
	return i
}

// text reads the string that begins at b[i], quotes included.
func text(b []byte, i int) int {
	if i == len(b) || b[i] != '"' {
		return bad
	}
	for i++; ; {
		i = plain(b, i)
		switch {
		case i == len(b) || b[i] < ' ':
			return bad
		case b[i] == '"':
			return i + 1
		}
		_, n := escape(b[i:])
		if n == bad {
			return bad
		}
		i += n
	}
}

// plain returns where the part of a string that begins at b[i] has its first
// quote, backslash or control character.
func plain(b []byte, i int) int {
	const (
		ones  = 0x0101010101010101
		highs = 0x80 * ones
	)
	for ; len(b)-i >= 8; i += 8 {
		x := binary.LittleEndian.Uint64(b[i:])
		quote, slash := x^'"'*ones, x^'\\'*ones
		// The lowest byte of each term with its high bit set is the first one that is
		// less than a space, or zero; a borrow only reaches bytes above that.
		found := (x-' '*ones)&^x | (quote-ones)&^quote | (slash-ones)&^slash
		if found &= highs; found != 0 {
			return i + bits.TrailingZeros64(found)/8
		}
	}
	for i < len(b) && b[i] >= ' ' && b[i] != '"' && b[i] != '\\' {
		i++
	}
	return i
}

// escape returns what the escape at the beginning of b stands for, and its
// length: bad when it is none, or one half of a surrogate pair.
func escape(b []byte) (r rune, n int) {
	if len(b) < 2 {
		return 0, bad
	}
	switch b[1] {
	case '"', '\\', '/':
		return rune(b[1]), 2
	case 'b':
		return '\b', 2
	case 'f':
		return '\f', 2
	case 'n':
		return '\n', 2
	case 'r':
		return '\r', 2
	case 't':
		return '\t', 2
	}
	r = codeUnit(b)
	switch {
	case r == bad:
		return 0, bad
	case !utf16.IsSurrogate(r):
		return r, 6
	}
	r = utf16.DecodeRune(r, codeUnit(b[6:]))
	if r == utf8.RuneError { // the two are no pair
		return 0, bad
	}
	return r, 12
}

// codeUnit returns that of the escape \uXXXX at the beginning of b, else bad.
func codeUnit(b []byte) (r rune) {
	if len(b) < 6 || b[0] != '\\' || b[1] != 'u' {
		return bad
	}
	for _, c := range b[2:6] {
		switch {
		case isDigit(c):
			c -= '0'
		case c >= 'a' && c <= 'f':
			c -= 'a' - 10
		case c >= 'A' && c <= 'F':
			c -= 'A' - 10
		default:
			return bad
		}
		r = r<<4 | rune(c)
	}
	return r
}

// unescape returns what a valid string with its quotes says.
func (o *Object) unescape(quoted []byte) []byte {
	s := quoted[1 : len(quoted)-1]
	i := bytes.IndexByte(s, '\\')
	if i < 0 {
		return s
	}
	begin := len(o.scratch)
	for ; i >= 0; i = bytes.IndexByte(s, '\\') {
		r, n := escape(s[i:])
		o.scratch = utf8.AppendRune(append(o.scratch, s[:i]...), r)
		s = s[i+n:]
	}
	o.scratch = append(o.scratch, s...)
	return o.scratch[begin:len(o.scratch):len(o.scratch)]
}
