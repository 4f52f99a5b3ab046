package ecma

import (
	"unicode/utf16"
	"unicode/utf8"
)

// string copies a string, with its escapes as JSON.stringify chooses them.
func (s *scanner) string() error {
	s.out = append(s.out, '"')
	for b := s.src[1:]; ; {
		n := plain(b)
		s.out = append(s.out, b[:n]...)
		b = b[n:]
		switch {
		case len(b) >= 1 && b[0] == '"':
			s.out = append(s.out, '"')
			s.src = b[1:]
			return nil
		case len(b) >= 2 && b[0] == '\\':
			r, n := unescape(b)
			if n == 0 {
				return ErrSyntax
			}
			if utf16.IsSurrogate(r) {
				if low, m := unescape(b[n:]); m > 0 && utf16.DecodeRune(r, low) != utf8.RuneError {
					r, n = utf16.DecodeRune(r, low), n+m
				}
			}
			s.out = appendUnit(s.out, r)
			b = b[n:]
		default: // the end, a control character, or no UTF-8
			return ErrSyntax
		}
	}
}

// plain returns how many bytes at the beginning of b stand for themselves, in JSON
// text as well as in what JSON.stringify writes.
func plain(b []byte) (n int) {
	for n < len(b) {
		switch c := b[n]; {
		case c < ' ' || c == '"' || c == '\\':
			return n
		case c < utf8.RuneSelf:
			n++
		default:
			r, size := utf8.DecodeRune(b[n:])
			if r == utf8.RuneError && size == 1 {
				return n
			}
			n += size
		}
	}
	return n
}

// unescape reads the escape that b begins with: a character, or one half of one
// outside of the basic plane. n is 0 if there is none.
func unescape(b []byte) (r rune, n int) {
	if len(b) < 2 || b[0] != '\\' {
		return 0, 0
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
	case 'u':
		if len(b) < 6 {
			return 0, 0
		}
		for _, c := range b[2:6] {
			switch {
			case '0' <= c && c <= '9':
				c -= '0'
			case 'a' <= c|0x20 && c|0x20 <= 'f':
				c = c | 0x20 - 'a' + 10
			default:
				return 0, 0
			}
			r = r<<4 | rune(c)
		}
		return r, 6
	}
	return 0, 0
}

// appendUnit appends a character as JSON.stringify writes it within a string. A
// surrogate, which has no partner here, is escaped.
func appendUnit(dst []byte, r rune) []byte {
	switch r {
	case '"', '\\':
		return append(dst, '\\', byte(r))
	case '\b':
		return append(dst, `\b`...)
	case '\f':
		return append(dst, `\f`...)
	case '\n':
		return append(dst, `\n`...)
	case '\r':
		return append(dst, `\r`...)
	case '\t':
		return append(dst, `\t`...)
	}
	if r < ' ' || utf16.IsSurrogate(r) {
		const hex = "0123456789abcdef"
		return append(dst, '\\', 'u', hex[r>>12], hex[r>>8&0xf], hex[r>>4&0xf], hex[r&0xf])
	}
	return utf8.AppendRune(dst, r)
}

// AppendEscaped appends a string as JSON.stringify writes it, without the quotes.
// s is in WTF-8; bytes that are not become U+FFFD. A long string may be given in
// parts that end where characters do (see Whole).
func AppendEscaped(dst, s []byte) []byte {
	for len(s) > 0 {
		n := plain(s)
		dst = append(dst, s[:n]...)
		if s = s[n:]; len(s) == 0 {
			break
		}
		r, size := rune(s[0]), 1
		if r >= utf8.RuneSelf {
			if r = utf8.RuneError; isSurrogate(s) {
				r, size = 0xD000|rune(s[1]&0x3F)<<6|rune(s[2]&0x3F), 3
			}
		}
		dst = appendUnit(dst, r)
		s = s[size:]
	}
	return dst
}

// isSurrogate says whether s begins with a surrogate in WTF-8.
func isSurrogate(s []byte) bool {
	return len(s) >= 3 && s[0] == 0xED && s[1]&0xE0 == 0xA0 && s[2]&0xC0 == 0x80
}

// Whole returns the longest beginning of s, of at most n bytes and nearly so many,
// that cuts no character in two. n is at least 4.
func Whole(s []byte, n int) []byte {
	if n >= len(s) {
		return s
	}
	for i := n; i > n-utf8.UTFMax; i-- {
		if utf8.RuneStart(s[i]) {
			return s[:i]
		}
	}
	return s[:n] // it is not WTF-8 here
}

// Unquote returns the string that a value stands for, in WTF-8. ok is false if it
// is another kind of value. The value is as Stringify or Members returned it.
func Unquote(value []byte) (s []byte, ok bool) {
	if len(value) < 2 || value[0] != '"' {
		return nil, false
	}
	s = make([]byte, 0, len(value)-2)
	for b := value[1 : len(value)-1]; len(b) > 0; {
		n := plain(b)
		s = append(s, b[:n]...)
		if b = b[n:]; len(b) == 0 {
			break
		}
		r, n := unescape(b)
		switch {
		case n == 0:
			return nil, false
		case utf16.IsSurrogate(r):
			s = append(s, 0xED, 0x80|byte(r>>6&0x3F), 0x80|byte(r&0x3F))
		default:
			s = utf8.AppendRune(s, r)
		}
		b = b[n:]
	}
	return s, true
}
