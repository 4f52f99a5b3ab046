package pubsub

import "slices"

// A set is the subscribers of a filter. Most filters have one.
type set struct {
	one  id
	many *[]id // more than one, sorted; then one is zero
}

// list returns the ids. buf is memory for one.
func (s *set) list(buf *[1]id) []id {
	if s.many != nil {
		return *s.many
	}
	buf[0] = s.one
	return buf[:]
}

func (s *set) has(i id) bool {
	if s.many == nil {
		return s.one == i
	}
	_, ok := slices.BinarySearch(*s.many, i)
	return ok
}

// add adds i, which is not in the set.
func (s *set) add(i id) {
	switch {
	case s.many != nil:
		at, _ := slices.BinarySearch(*s.many, i)
		*s.many = slices.Insert(*s.many, at, i)
	case s.one != 0:
		s.many = &[]id{min(s.one, i), max(s.one, i)}
		s.one = 0
	default:
		s.one = i
	}
}

// remove removes i, which is in the set, and says whether that was the last one.
func (s *set) remove(i id) (empty bool) {
	if s.many == nil {
		s.one = 0
		return true
	}
	at, _ := slices.BinarySearch(*s.many, i)
	left := slices.Delete(*s.many, at, at+1)
	switch {
	case len(left) == 1:
		*s = set{one: left[0]}
	case len(left) < cap(left)/4:
		*s.many = slices.Clone(left)
	default:
		*s.many = left
	}
	return false
}
