package ecma

import (
	"cmp"
	"slices"
	"strconv"
)

// A scanner checks a text and copies it: white space left out, numbers and strings
// rewritten, the members of objects in the order in which they came.
type scanner struct {
	src   []byte // what is left
	depth int

	out     []byte
	members []member // of the objects that are open, outermost first
	moved   []object // sorted by start once the text has been read
	kept    []member // of those
}

func newScanner(text []byte) *scanner {
	return &scanner{src: text, out: make([]byte, 0, len(text))}
}

// document reads a text that is one value, with read.
func (s *scanner) document(read func(*scanner) error) error {
	if len(s.src) > maxText {
		return ErrSize
	}
	s.space()
	if err := read(s); err != nil {
		return err
	}
	if s.space(); len(s.src) > 0 {
		return ErrSyntax
	}
	slices.SortFunc(s.moved, func(a, b object) int { return cmp.Compare(a.start, b.start) })
	return nil
}

// peek returns the next byte, or 0, which stands nowhere in JSON.
func (s *scanner) peek() byte {
	if len(s.src) == 0 {
		return 0
	}
	return s.src[0]
}

// space skips white space.
func (s *scanner) space() {
	for len(s.src) > 0 && (s.src[0] == ' ' || s.src[0] == '\n' || s.src[0] == '\r' || s.src[0] == '\t') {
		s.src = s.src[1:]
	}
}

// take copies the next byte if it is c, with the white space behind it left out.
func (s *scanner) take(c byte) bool {
	if s.peek() != c {
		return false
	}
	s.out = append(s.out, c)
	s.src = s.src[1:]
	s.space()
	return true
}

// value reads one value. White space before it has been skipped; the caller skips
// what follows.
func (s *scanner) value() error {
	switch c := s.peek(); c {
	case '{':
		start, first := place(len(s.out)), len(s.members)
		if err := s.object(); err != nil {
			return err
		}
		s.arrange(start, s.members[first:])
		s.members = s.members[:first]
		return nil
	case '[':
		return s.array()
	case '"':
		return s.string()
	case 't':
		return s.literal("true")
	case 'f':
		return s.literal("false")
	case 'n':
		return s.literal("null")
	default:
		return s.number()
	}
}

// object reads an object and leaves its members on the stack.
func (s *scanner) object() error {
	if s.peek() != '{' {
		return s.noObject()
	}
	return s.list('{', '}', func() error {
		at := place(len(s.out))
		m := member{key: at, first: at}
		if s.peek() != '"' {
			return ErrSyntax
		}
		if err := s.string(); err != nil {
			return err
		}
		s.space()
		if !s.take(':') {
			return ErrSyntax
		}
		m.value = place(len(s.out))
		if err := s.value(); err != nil {
			return err
		}
		m.end = place(len(s.out))
		s.members = append(s.members, m)
		return nil
	})
}

// noObject tells a text that is another value from one that is none.
func (s *scanner) noObject() error {
	if err := s.document((*scanner).value); err != nil {
		return err
	}
	return ErrKind
}

func (s *scanner) array() error { return s.list('[', ']', s.value) }

// list reads what stands between brackets, separated by commas.
func (s *scanner) list(left, right byte, element func() error) error {
	if s.depth == MaxDepth {
		return ErrDepth
	}
	s.depth++
	s.take(left)
	if s.peek() != right {
		for {
			if err := element(); err != nil {
				return err
			}
			if s.space(); !s.take(',') {
				break
			}
		}
	}
	if s.peek() != right {
		return ErrSyntax
	}
	s.out = append(s.out, right)
	s.src = s.src[1:]
	s.depth--
	return nil
}

func (s *scanner) literal(word string) error {
	if len(s.src) < len(word) || string(s.src[:len(word)]) != word {
		return ErrSyntax
	}
	s.out = append(s.out, word...)
	s.src = s.src[len(word):]
	return nil
}

func (s *scanner) number() error {
	b := s.src
	if len(b) > 0 && b[0] == '-' {
		b = b[1:]
	}
	integer := digits(b)
	if integer == 0 || b[0] == '0' && integer > 1 {
		return ErrSyntax
	}
	b = b[integer:]
	if len(b) > 0 && b[0] == '.' {
		n := digits(b[1:])
		if n == 0 {
			return ErrSyntax
		}
		b = b[1+n:]
	}
	if len(b) > 0 && (b[0] == 'e' || b[0] == 'E') {
		b = b[1:]
		if len(b) > 0 && (b[0] == '+' || b[0] == '-') {
			b = b[1:]
		}
		n := digits(b)
		if n == 0 {
			return ErrSyntax
		}
		b = b[n:]
	}
	text := s.src[:len(s.src)-len(b)]
	f, _ := strconv.ParseFloat(string(text), 64) // out of range is an infinity
	s.out = appendNumber(s.out, f)
	s.src = b
	return nil
}

// digits returns how many digits b begins with.
func digits(b []byte) (n int) {
	for n < len(b) && '0' <= b[n] && b[n] <= '9' {
		n++
	}
	return n
}
