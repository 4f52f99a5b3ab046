package crypto

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// A ContentType is the first byte of what is signed or encrypted. The types of
// brep.md are listed; those from 4 up (native.md) occur in SEALED only, and a
// Content has all of theirs as Data.
type ContentType uint8

const (
	Raw  ContentType = 0 // any bytes
	Text ContentType = 1 // UTF-8
	JSON ContentType = 2 // a JSON text; not checked here
	File ContentType = 3 // a name and any bytes
)

// A Content is what one client tells another, in the clear.
type Content struct {
	Type ContentType
	Name string // of a File, otherwise empty
	Data []byte
}

// AppendBinary appends the type byte and the content (brep.md "Content") to b.
// Text that is not UTF-8, a name that [SafeFileName] refuses and a name without
// a file are [ErrMalformed].
func (c Content) AppendBinary(b []byte) ([]byte, error) {
	if c.check() != nil {
		return nil, ErrMalformed
	}
	b = append(b, byte(c.Type))
	if c.Type == File {
		b = append(b, byte(len(c.Name)))
		b = append(b, c.Name...)
	}
	return append(b, c.Data...), nil
}

// encodedLen is the length of what AppendBinary appends.
func (c Content) encodedLen() int {
	n := 1 + len(c.Data)
	if c.Type == File {
		n += 1 + len(c.Name)
	}
	return n
}

// ParseContent reads what AppendBinary wrote, under the same rules. Data is a
// part of b.
func ParseContent(b []byte) (Content, error) {
	if len(b) == 0 {
		return Content{}, ErrMalformed
	}
	c := Content{Type: ContentType(b[0]), Data: b[1:]}
	if c.Type == File {
		if len(c.Data) == 0 || len(c.Data) < 1+int(c.Data[0]) {
			return Content{}, ErrMalformed
		}
		n := 1 + int(c.Data[0])
		c.Name, c.Data = string(c.Data[1:n]), c.Data[n:]
	}
	if err := c.check(); err != nil {
		return Content{}, err
	}
	return c, nil
}

func (c Content) check() error {
	switch {
	case c.Type == Text && !utf8.Valid(c.Data),
		c.Type == File && !SafeFileName(c.Name),
		c.Type != File && c.Name != "":
		return ErrMalformed
	}
	return nil
}

// SafeFileName reports whether name, joined to a directory, names a file in that
// directory on any system: 1 to 255 bytes of UTF-8 without separators (/ and \)
// and control characters, not "." or "..".
//
// The answer is the same everywhere, so that a sender learns what a recipient
// will refuse. So names that Windows takes for something else are refused too:
// those with a colon (a drive or a stream), those that end in a dot or a space
// (which it drops), and its devices with or without an extension ("nul.txt").
// A name that begins with a dot or looks like another is safe in this sense;
// what is shown to people and what may be overwritten is for the caller to mind.
func SafeFileName(name string) bool {
	if name == "" || len(name) > 255 || !utf8.ValidString(name) {
		return false
	}
	for _, r := range name {
		if r == '/' || r == '\\' || r == ':' || unicode.IsControl(r) {
			return false
		}
	}
	if last := name[len(name)-1]; last == '.' || last == ' ' {
		return false // "." and ".." among them
	}
	return !isWindowsDevice(name)
}

// isWindowsDevice knows the names in Microsoft's "Naming Files, Paths, and
// Namespaces"; the superscript digits count as digits there.
func isWindowsDevice(name string) bool {
	base, _, _ := strings.Cut(name, ".")
	base = strings.ToUpper(strings.TrimRight(base, " "))
	switch base {
	case "CON", "PRN", "AUX", "NUL", "CONIN$", "CONOUT$":
		return true
	}
	digit, isPort := strings.CutPrefix(base, "COM")
	if !isPort {
		digit, isPort = strings.CutPrefix(base, "LPT")
	}
	return isPort && utf8.RuneCountInString(digit) == 1 && strings.Contains("0123456789¹²³", digit)
}
