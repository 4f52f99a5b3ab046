package main

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// printable returns s with everything escaped that a terminal could take for a
// command, or that could make it look like another text (controls of direction),
// and what is not UTF-8.
func printable(s string) string {
	var b strings.Builder
	for len(s) > 0 {
		r, n := utf8.DecodeRuneInString(s)
		switch {
		case r == utf8.RuneError && n == 1:
			fmt.Fprintf(&b, `\x%02x`, s[0])
		case unicode.IsPrint(r) || r == '\t':
			b.WriteRune(r)
		default:
			b.WriteString(strings.Trim(strconv.QuoteRune(r), "'"))
		}
		s = s[n:]
	}
	return b.String()
}

// indented is printable with line breaks kept: what follows one is indented, so
// that it is not taken for another message.
func indented(s string) string {
	lines := strings.Split(strings.ReplaceAll(s, "\r\n", "\n"), "\n")
	for i := range lines {
		lines[i] = printable(lines[i])
	}
	return strings.Join(lines, "\n    ")
}

// writeJSON writes v on a line of its own. What printable escapes is escaped in
// JSON's way.
func writeJSON(w io.Writer, v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	line := make([]byte, 0, len(text)+1)
	for _, r := range string(text) {
		if unicode.IsPrint(r) {
			line = utf8.AppendRune(line, r)
			continue
		}
		for _, unit := range utf16.Encode([]rune{r}) {
			line = fmt.Appendf(line, `\u%04x`, unit)
		}
	}
	_, err = w.Write(append(line, '\n'))
	return err
}

// parseSize reads a number of bytes, which may be in K, M or G (powers of 1,024).
func parseSize(s string) (int64, error) {
	number, shift := s, 0
	for i, unit := range []string{"K", "M", "G"} {
		if rest, ok := strings.CutSuffix(s, unit); ok {
			number, shift = rest, 10*(i+1)
		}
	}
	n, err := strconv.ParseInt(number, 10, 64)
	if err != nil || n < 0 || n > math.MaxInt64>>shift {
		return 0, fmt.Errorf("%q is no size such as 500K, 20M or 1G", s)
	}
	return n << shift, nil
}

// nearest returns the word that has the fewest edits to s.
func nearest(s string, words []string) string {
	best, least := "", -1
	for _, w := range words {
		if d := edits(s, w); least < 0 || d < least {
			best, least = w, d
		}
	}
	return best
}

// edits counts the bytes to insert, delete or replace to make b of a
// (Levenshtein's distance).
func edits(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replaced := diagonal
			if a[i] != b[j] {
				replaced++
			}
			diagonal = row[j+1]
			row[j+1] = min(replaced, row[j]+1, diagonal+1)
		}
	}
	return row[len(b)]
}
