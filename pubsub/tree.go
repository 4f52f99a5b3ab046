package pubsub

import (
	"hash/maphash"
	"slices"
	"strings"
	"sync"
)

// A Tree finds the subscribers of topics. S identifies a subscriber, such as a
// pointer. All methods may be called concurrently.
type Tree[S comparable] struct {
	mu      sync.RWMutex
	version uint64
	seed    maphash.Seed
	exact   index[string, *filter]
	wild    trie
	roster  roster[S]

	scratch sync.Pool // of *scratch
}

// A filter that has subscribers.
type filter struct {
	text string
	subs set
}

func (f *filter) is(text string) bool { return f.text == text }

// A Hit is a subscriber of a topic, with one of its filters that match.
type Hit[S comparable] struct {
	Subscriber S
	Filter     string
}

// NewTree returns a Tree without subscriptions.
func NewTree[S comparable]() *Tree[S] {
	seed := maphash.MakeSeed()
	return &Tree[S]{
		seed: seed, wild: trie{seed: seed}, roster: roster[S]{seed: seed},
		scratch: sync.Pool{New: func() any { return new(scratch) }},
	}
}

// Subscribe adds a subscription to a valid filter, unless it is there, and
// returns the new version of the tree: each Match returns the version that it
// has seen, and those from this version on find the subscription. then, if not
// nil, is called before any of them can; it must not call the Tree.
func (t *Tree[S]) Subscribe(s S, text string, then func()) (version uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	f := t.filter(text)
	if f == nil {
		f = t.put(text)
	}
	i := t.roster.of(s)
	if i == 0 {
		i = t.roster.add(s)
	}
	if !f.subs.has(i) {
		f.subs.add(i)
		sub := t.roster.at(i)
		sub.filters = append(sub.filters, f)
	}
	t.version++
	if then != nil {
		then()
	}
	return t.version
}

// Unsubscribe removes a subscription and says whether it was there. It takes
// time in proportion to how many the subscriber has.
func (t *Tree[S]) Unsubscribe(s S, text string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	f, i := t.filter(text), t.roster.of(s)
	if f == nil || !f.subs.has(i) {
		return false
	}
	t.remove(i, slices.Index(t.roster.at(i).filters, f))
	return true
}

// UnsubscribeAll removes all subscriptions of a subscriber, one after the other,
// so that matches need not wait for all of it.
func (t *Tree[S]) UnsubscribeAll(s S) {
	for t.unsubscribeLast(s) {
	}
}

func (t *Tree[S]) unsubscribeLast(s S) (done bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	i := t.roster.of(s)
	if i != 0 {
		t.remove(i, len(t.roster.at(i).filters)-1)
	}
	return i != 0
}

// Has says whether there is a subscription.
func (t *Tree[S]) Has(s S, text string) bool {
	t.mu.RLock()
	defer t.mu.RUnlock()
	f, i := t.filter(text), t.roster.of(s)
	return f != nil && f.subs.has(i)
}

// Count returns how many subscriptions a subscriber has.
func (t *Tree[S]) Count(s S) int {
	t.mu.RLock()
	defer t.mu.RUnlock()
	i := t.roster.of(s)
	if i == 0 {
		return 0
	}
	return len(t.roster.at(i).filters)
}

// Match appends the subscribers that have a filter which matches a valid topic,
// each once and in no order, and returns the version of the tree that it has
// seen. It does not allocate where hits have room.
func (t *Tree[S]) Match(hits []Hit[S], topic string) ([]Hit[S], uint64) {
	x := t.scratch.Get().(*scratch)
	t.mu.RLock()
	if f, ok := t.exact.get(hash(t.seed, topic), topic); ok {
		x.filters = append(x.filters, f)
	}
	x.filters = t.wild.match(x.filters, &t.wild.root, topic, true)
	several := len(x.filters) > 1
	if several {
		x.grow(t.roster.last)
	}
	var one [1]id
	for _, f := range x.filters {
		for _, i := range f.subs.list(&one) {
			if !several || x.isNew(i) {
				hits = append(hits, Hit[S]{t.roster.at(i).who, f.text})
			}
		}
	}
	version := t.version
	t.mu.RUnlock()
	x.reset()
	t.scratch.Put(x)
	return hits, version
}

// filter returns the filter of that text, nil if it has no subscribers.
func (t *Tree[S]) filter(text string) *filter {
	if isExact(text) {
		f, _ := t.exact.get(hash(t.seed, text), text)
		return f
	}
	return t.wild.get(text)
}

func (t *Tree[S]) put(text string) *filter {
	f := &filter{text: strings.Clone(text)} // it may be a part of something large
	if isExact(text) {
		t.exact.put(hash(t.seed, text), f)
	} else {
		t.wild.put(f)
	}
	return f
}

// remove removes a subscription of i, by its place in the roster.
func (t *Tree[S]) remove(i id, at int) {
	sub := t.roster.at(i)
	f, last := sub.filters[at], len(sub.filters)-1
	sub.filters[at], sub.filters[last] = sub.filters[last], nil
	sub.filters = sub.filters[:last]
	if last == 0 {
		t.roster.remove(i)
	}
	switch {
	case !f.subs.remove(i):
	case isExact(f.text):
		t.exact.delete(hash(t.seed, f.text), f.text)
	default:
		t.wild.remove(f.text)
	}
}

// scratch is what a match needs beside its result.
type scratch struct {
	filters []*filter
	found   []id
	bits    []uint64 // of the ids that have been found
}

// grow makes room for ids up to last.
func (x *scratch) grow(last id) {
	if n := int(last)/64 + 1; n > len(x.bits) {
		x.bits = append(x.bits, make([]uint64, n-len(x.bits))...)
	}
}

// isNew says whether i has not been found before.
func (x *scratch) isNew(i id) bool {
	word, bit := &x.bits[i/64], uint64(1)<<(i%64)
	if *word&bit != 0 {
		return false
	}
	*word |= bit
	x.found = append(x.found, i)
	return true
}

func (x *scratch) reset() {
	for _, i := range x.found {
		x.bits[i/64] = 0
	}
	clear(x.filters)
	x.filters, x.found = x.filters[:0], x.found[:0]
}
