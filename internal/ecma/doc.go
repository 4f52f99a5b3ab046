// Package ecma rewrites JSON text as an ECMAScript engine does that parses it and
// writes it again, JSON.stringify(JSON.parse(text)), to the byte: own property
// order, numbers as doubles, the escapes of strings. Signatures of the mailbox
// dialect cover such text (spec mailbox.md), and encoding/json writes another.
//
// It builds no tree. A text is copied once with its numbers and strings rewritten,
// and once more if keys of an object have to change places, so memory is a
// multiple of the text's length, twelve times at most, and time is n·log n,
// whatever is in it. It is no JSON library: values go in and come out as text.
//
// Strings of ECMAScript may hold surrogates without a partner. In JSON text they
// are escapes. Outside of it (Unquote, AppendEscaped) strings are in WTF-8, which
// is UTF-8 wherever there are none, and encodes each in 3 bytes where there are.
//
// All functions may be called concurrently. They keep none of their arguments.
package ecma

import "errors"

// MaxDepth is how deep arrays and objects may be nested.
const MaxDepth = 1000

// maxText is the length of the longest text that is read: what is made of it, which
// may be five times as long, is still below 4 GiB.
const maxText = 512 << 20

// Errors.
var (
	ErrSyntax = errors.New("ecma: not JSON in UTF-8")
	ErrDepth  = errors.New("ecma: nested too deep")
	ErrKind   = errors.New("ecma: not an object")
	ErrSize   = errors.New("ecma: too long")
)
