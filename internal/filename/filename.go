// Package filename makes names for files that strangers have named.
package filename

import (
	"fmt"
	"path/filepath"
	"strings"
	"unicode/utf8"
)

// maxBytes is how long a name may be for file systems.
const maxBytes = 255

// Numbered returns name as the n-th of its kind, from 1: "a (2).txt". It is not
// hidden, and no command takes it for a flag.
func Numbered(name string, n int) string {
	if strings.HasPrefix(name, ".") || strings.HasPrefix(name, "-") {
		name = "_" + name
	}
	ext := filepath.Ext(name)
	if len(ext) > maxBytes/2 {
		ext = ""
	}
	stem, number := strings.TrimSuffix(name, ext), ""
	if n > 1 {
		number = fmt.Sprintf(" (%d)", n)
	}
	for len(stem)+len(number)+len(ext) > maxBytes {
		_, size := utf8.DecodeLastRuneInString(stem)
		stem = stem[:len(stem)-size]
	}
	return stem + number + ext
}
