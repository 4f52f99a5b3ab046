package pubsub

import (
	"hash/maphash"
	"strings"
)

// A trie holds filters with wildcards. No node but the root is there without a
// filter that ends in it, or two children to tell apart: there are at most two
// nodes a filter, however many levels it has.
type trie struct {
	seed maphash.Seed
	root node
}

// A node stands for the levels of its label, behind those of the nodes above it.
type node struct {
	label string                // one level or more, as in the filters: "+/temp"
	plus  *node                 // the child whose label begins with +
	kids  *index[string, *node] // the other children, by their first levels; nil: none
	here  *filter               // that ends with the label
	rest  *filter               // that has a # behind it
}

// is says whether the label begins with a level.
func (n *node) is(level string) bool { return firstLevel(n.label) == level }

func firstLevel(path string) string {
	level, _, _ := strings.Cut(path, "/")
	return level
}

// match appends the filters below n that match what is left of a topic: nothing
// if it has no more levels.
func (t *trie) match(dst []*filter, n *node, topic string, more bool) []*filter {
	if n.rest != nil {
		dst = append(dst, n.rest)
	}
	if !more {
		if n.here != nil {
			dst = append(dst, n.here)
		}
		return dst
	}
	if n.plus != nil {
		if below, more, ok := consume(n.plus.label, topic); ok {
			dst = t.match(dst, n.plus, below, more)
		}
	}
	if c := t.kid(n, firstLevel(topic)); c != nil {
		if below, more, ok := consume(c.label, topic); ok {
			dst = t.match(dst, c, below, more)
		}
	}
	return dst
}

// end returns where in n the filter is that ends there.
func (n *node) end(rest bool) **filter {
	if rest {
		return &n.rest
	}
	return &n.here
}

// get returns a filter, or nil.
func (t *trie) get(text string) *filter {
	path, levels, rest := cut(text)
	n := &t.root
	for levels {
		n = t.child(n, path)
		if n == nil || common(n.label, path) < len(n.label) {
			return nil
		}
		path, levels = after(path, len(n.label))
	}
	return *n.end(rest)
}

// put adds a filter that is not there.
func (t *trie) put(f *filter) {
	path, levels, rest := cut(f.text)
	n := &t.root
	for levels {
		c := t.child(n, path)
		if c == nil {
			c = &node{label: path}
			t.link(n, c)
		} else if k := common(c.label, path); k < len(c.label) {
			c = t.split(n, c, k)
		}
		path, levels = after(path, len(c.label))
		n = c
	}
	*n.end(rest) = f
}

// split makes the child c of n two nodes and returns the upper one, which gets
// the first k bytes of the label.
func (t *trie) split(n, c *node, k int) *node {
	upper := &node{label: strings.Clone(c.label[:k])} // it may outlive the filter
	t.unlink(n, c)
	t.link(n, upper)
	c.label = c.label[k+1:]
	t.link(upper, c)
	return upper
}

// common returns the length of the levels that two paths begin with. The first
// ones are the same.
func common(a, b string) (k int) {
	for i := 0; ; i++ {
		endA, endB := i == len(a) || a[i] == '/', i == len(b) || b[i] == '/'
		switch {
		case endA != endB:
			return k
		case endA:
			if k = i; i == len(a) || i == len(b) {
				return k
			}
		case a[i] != b[i]:
			return k
		}
	}
}

// after returns the levels of a path that come after those of length k.
func after(path string, k int) (below string, more bool) {
	if k == len(path) {
		return "", false
	}
	return path[k+1:], true
}

// remove removes a filter that is there.
func (t *trie) remove(text string) {
	path, levels, rest := cut(text)
	if levels {
		t.removeBelow(&t.root, path, rest)
	} else {
		t.root.rest = nil
	}
}

func (t *trie) removeBelow(n *node, path string, rest bool) {
	c := t.child(n, path)
	if below, more := after(path, len(c.label)); more {
		t.removeBelow(c, below, rest)
	} else {
		*c.end(rest) = nil
	}
	switch {
	case c.here != nil || c.rest != nil:
	case c.plus == nil && c.kids == nil:
		t.unlink(n, c)
	case c.plus == nil && c.kids.n == 1:
		t.join(n, c, c.kids.only())
	case c.plus != nil && c.kids == nil:
		t.join(n, c, c.plus)
	}
}

// join undoes split.
func (t *trie) join(n, upper, c *node) {
	t.unlink(n, upper)
	c.label = upper.label + "/" + c.label
	t.link(n, c)
}

// child returns the child of n whose label begins with the first level of a path,
// or nil.
func (t *trie) child(n *node, path string) *node {
	level := firstLevel(path)
	if level == "+" {
		return n.plus
	}
	return t.kid(n, level)
}

func (t *trie) kid(n *node, level string) *node {
	if n.kids == nil {
		return nil
	}
	c, _ := n.kids.get(hash(t.seed, level), level)
	return c
}

// link makes c a child of n, which has none with that first level.
func (t *trie) link(n, c *node) {
	level := firstLevel(c.label)
	if level == "+" {
		n.plus = c
		return
	}
	if n.kids == nil {
		n.kids = new(index[string, *node])
	}
	n.kids.put(hash(t.seed, level), c)
}

// unlink takes the child c away from n.
func (t *trie) unlink(n, c *node) {
	level := firstLevel(c.label)
	if level == "+" {
		n.plus = nil
		return
	}
	n.kids.delete(hash(t.seed, level), level)
	if n.kids.n == 0 {
		n.kids = nil
	}
}
