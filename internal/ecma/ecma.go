package ecma

import (
	"bytes"
	"cmp"
	"slices"
)

// Stringify returns what JSON.stringify(JSON.parse(text)) gives, in UTF-8. text is
// strict JSON (RFC 8259) in UTF-8, without a byte order mark; anything else is
// ErrSyntax, and what is nested deeper than MaxDepth ErrDepth.
func Stringify(text []byte) ([]byte, error) {
	s := newScanner(text)
	if err := s.document((*scanner).value); err != nil {
		return nil, err
	}
	return s.text(0, place(len(s.out))), nil
}

// Members returns, of the object that text is, the values of the members with the
// given names, each as Stringify has it; nil where there is no such member. Names
// are plain ASCII. Of members with the same name the last one counts. Text that is
// no object is ErrKind; other errors are those of Stringify.
func Members(text []byte, names ...string) ([][]byte, error) {
	s := newScanner(text)
	if err := s.document((*scanner).object); err != nil {
		return nil, err
	}
	values := make([][]byte, len(names))
	for i, name := range names {
		for _, m := range slices.Backward(s.members) {
			if key := s.out[m.key : m.value-1]; string(key[1:len(key)-1]) == name {
				values[i] = s.text(m.value, m.end)
				break
			}
		}
	}
	return values, nil
}

// text returns what stands in s.out between two values' bounds, with the members of
// all objects in the order of ECMAScript.
func (s *scanner) text(from, to place) []byte {
	if i := s.nextMoved(from); i == len(s.moved) || s.moved[i].start >= to {
		return s.out[from:to:to]
	}
	return s.appendText(make([]byte, 0, to-from), from, to)
}

func (s *scanner) appendText(dst []byte, from, to place) []byte {
	for {
		i := s.nextMoved(from)
		if i == len(s.moved) || s.moved[i].start >= to {
			return append(dst, s.out[from:to]...)
		}
		o := s.moved[i]
		dst = append(append(dst, s.out[from:o.start]...), '{')
		for i, m := range s.kept[o.first:o.last] {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = append(dst, s.out[m.key:m.value]...)
			dst = s.appendText(dst, m.value, m.end)
		}
		dst = append(dst, '}')
		from = o.end
	}
}

// nextMoved returns the index of the first moved object that starts at from or
// behind it.
func (s *scanner) nextMoved(from place) int {
	i, _ := slices.BinarySearchFunc(s.moved, from, func(o object, from place) int { return cmp.Compare(o.start, from) })
	return i
}

// An object whose members do not stand in s.out as ECMAScript has them.
type object struct {
	start, end  place
	first, last uint32 // its members in s.kept, in order
}

// A member of an object. A text has very many, for its length.
type member struct {
	key, value, end place // a colon stands before value
	first           place // where its key stood first
}

// A place is an offset in s.out.
type place uint32

// arrange notes the order of an object's members, if it is not the one in which
// they stand: array indices come first, ascending; a repeated key keeps its first
// place and its last value. It leaves members in disorder.
func (s *scanner) arrange(start place, members []member) {
	if len(members) < 2 {
		return
	}
	slices.SortFunc(members, func(a, b member) int {
		return cmp.Or(bytes.Compare(s.key(a), s.key(b)), cmp.Compare(a.key, b.key))
	})
	kept := members[:0]
	for _, m := range members {
		if n := len(kept); n > 0 && bytes.Equal(s.key(kept[n-1]), s.key(m)) {
			m.first = kept[n-1].first
			kept[n-1] = m
			continue
		}
		kept = append(kept, m)
	}
	slices.SortFunc(kept, s.compare)
	if len(kept) == len(members) && slices.IsSortedFunc(kept, func(a, b member) int { return cmp.Compare(a.first, b.first) }) {
		return
	}
	first := len(s.kept)
	s.kept = append(s.kept, kept...)
	s.moved = append(s.moved, object{start, place(len(s.out)), uint32(first), uint32(len(s.kept))})
}

func (s *scanner) key(m member) []byte { return s.out[m.key : m.value-1] }

// compare orders the keys of an object.
func (s *scanner) compare(a, b member) int {
	i, aIsIndex := arrayIndex(s.key(a))
	j, bIsIndex := arrayIndex(s.key(b))
	switch {
	case aIsIndex && bIsIndex:
		return cmp.Compare(i, j)
	case aIsIndex:
		return -1
	case bIsIndex:
		return 1
	}
	return cmp.Compare(a.first, b.first)
}

// arrayIndex reads a quoted key that is an array index: the canonical decimal of a
// number below 2^32-1.
func arrayIndex(key []byte) (n int64, ok bool) {
	digits := key[1 : len(key)-1]
	if len(digits) == 0 || len(digits) > 10 || digits[0] == '0' && len(digits) > 1 {
		return 0, false
	}
	for _, c := range digits {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = 10*n + int64(c-'0')
	}
	return n, n < 1<<32-1
}
