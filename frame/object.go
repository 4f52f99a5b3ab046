package frame

import (
	"bytes"
	"iter"
	"slices"
	"unicode/utf8"
)

// An Object is a JSON object that was read strictly (spec json.md, "Every
// message"): no repeated names at any depth, also after unescaping, valid UTF-8,
// no lone surrogates, nothing behind the object.
//
// It keeps a list and no map, and its memory from one Parse to the next, so that
// parsing allocates nothing in steady state. Names and values alias the bytes that
// were parsed: Reset lets go of them. An Object is for one goroutine at a time.
type Object struct {
	members []member
	scratch []byte // what had escapes, without them
}

type member struct {
	name  []byte // unescaped
	value Value
}

// A Value is one JSON value as it stood in its message, valid and without space
// around it. The nil Value stands for one that is not there.
type Value []byte

// IsString reports whether v is a string.
func (v Value) IsString() bool { return len(v) > 0 && v[0] == '"' }

// IsNull reports whether v is null.
func (v Value) IsNull() bool { return len(v) > 0 && v[0] == 'n' }

// IsNumber reports whether v is a number.
func (v Value) IsNumber() bool { return len(v) > 0 && (v[0] == '-' || isDigit(v[0])) }

// IsArray reports whether v is an array.
func (v Value) IsArray() bool { return len(v) > 0 && v[0] == '[' }

// IsEmpty reports whether v is the empty string.
func (v Value) IsEmpty() bool { return string(v) == `""` }

// Bool returns the value of true and false. ok is false for everything else.
func (v Value) Bool() (b, ok bool) {
	switch string(v) {
	case "true":
		return true, true
	case "false":
		return false, true
	}
	return false, false
}

const (
	// bad stands for the end of what is no JSON.
	bad = -1

	// maxDepth bounds how deep values are nested: far more than any message of
	// ours, and little for a stack.
	maxDepth = 64

	// fewMembers are compared with each other; more are sorted.
	fewMembers = 16

	// What an Object keeps for the next message.
	keepMembers = 64
	keepScratch = 4 << 10
)

var errJSON = malformed("not one JSON object")

// Parse reads b, which has to be one JSON object, else the error is ErrMalformed
// and the Object empty. Values may be nested 64 deep.
func (o *Object) Parse(b []byte) error {
	o.Reset()
	i := space(b, 0)
	if i < len(b) && b[i] == '{' && utf8.Valid(b) {
		if i = o.object(b, i, 1); i != bad && space(b, i) == len(b) {
			return nil
		}
	}
	o.Reset()
	return errJSON
}

// Reset empties the Object: it does not refer to what was parsed any more.
func (o *Object) Reset() {
	clear(o.members)
	o.members, o.scratch = o.members[:0], o.scratch[:0]
	if cap(o.members) > keepMembers {
		o.members = nil
	}
	if cap(o.scratch) > keepScratch {
		o.scratch = nil
	}
}

// Get returns the value of a member, nil if there is none.
func (o *Object) Get(name string) Value {
	for i := range o.members {
		if m := &o.members[i]; string(m.name) == name {
			return m.value
		}
	}
	return nil
}

// Text returns what the string v says, nil if v is none. It is valid until the
// next Parse or Reset.
func (o *Object) Text(v Value) []byte {
	if !v.IsString() {
		return nil
	}
	return o.unescape(v)
}

// object reads the object that begins at b[i] and returns where it ends. Of the
// outermost one the members stay.
func (o *Object) object(b []byte, i, depth int) int {
	first := len(o.members)
	i = space(b, i+1)
	if i < len(b) && b[i] == '}' {
		return i + 1
	}
	for {
		end := text(b, i)
		if end == bad {
			return bad
		}
		name := o.unescape(b[i:end])
		if !o.isNew(first, name) {
			return bad
		}
		i = space(b, end)
		if i == len(b) || b[i] != ':' {
			return bad
		}
		i = space(b, i+1)
		at := len(o.members)
		o.members = append(o.members, member{name: name})
		if end = o.value(b, i, depth); end == bad {
			return bad
		}
		o.members[at].value = b[i:end:end]
		i = space(b, end)
		if i == len(b) || b[i] != ',' && b[i] != '}' {
			return bad
		}
		if b[i] == '}' {
			break
		}
		i = space(b, i+1)
	}
	if !o.areUnique(first) {
		return bad
	}
	if depth > 1 {
		o.members = o.members[:first]
	}
	return i + 1
}

// isNew says whether a name is none of those from first on, if they are few.
func (o *Object) isNew(first int, name []byte) bool {
	if len(o.members)-first > fewMembers {
		return true // areUnique will tell
	}
	for i := first; i < len(o.members); i++ {
		if bytes.Equal(o.members[i].name, name) {
			return false
		}
	}
	return true
}

// areUnique says whether no two names from first on are the same, if they are
// more than a few. It sorts: comparing each with each would be a way to keep a
// relay busy.
func (o *Object) areUnique(first int) bool {
	all := o.members[first:]
	if len(all) <= fewMembers {
		return true
	}
	slices.SortFunc(all, func(a, b member) int { return bytes.Compare(a.name, b.name) })
	for i := range all[1:] {
		if bytes.Equal(all[i].name, all[i+1].name) {
			return false
		}
	}
	return true
}

// value reads the value that begins at b[i], depth deep in others, and returns
// where it ends.
func (o *Object) value(b []byte, i, depth int) int {
	if i == len(b) {
		return bad
	}
	switch b[i] {
	case '"':
		return text(b, i)
	case '{', '[':
		switch {
		case depth == maxDepth:
			return bad
		case b[i] == '{':
			return o.object(b, i, depth+1)
		}
		return o.array(b, i, depth+1)
	case 't':
		return literal(b, i, "true")
	case 'f':
		return literal(b, i, "false")
	case 'n':
		return literal(b, i, "null")
	}
	return number(b, i)
}

func (o *Object) array(b []byte, i, depth int) int {
	i = space(b, i+1)
	if i < len(b) && b[i] == ']' {
		return i + 1
	}
	for {
		if i = o.value(b, i, depth); i == bad {
			return bad
		}
		i = space(b, i)
		if i == len(b) || b[i] != ',' && b[i] != ']' {
			return bad
		}
		if b[i] == ']' {
			return i + 1
		}
		i = space(b, i+1)
	}
}

// Elements yields the elements of an array, as Get and Elements return one, in
// order; of other values, none.
func (v Value) Elements() iter.Seq[Value] {
	return func(yield func(Value) bool) {
		if !v.IsArray() {
			return
		}
		var o Object // its memory is for the names of objects in the array
		for i := space(v, 1); v[i] != ']'; {
			end := o.value(v, i, 1)
			if end == bad || !yield(v[i:end:end]) {
				return
			}
			if i = space(v, end); v[i] == ',' {
				i = space(v, i+1)
			}
		}
	}
}
