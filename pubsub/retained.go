package pubsub

import (
	"hash/maphash"
	"strings"
	"sync"
)

// Retained holds a value for each topic that has one. All methods may be called
// concurrently.
type Retained[V any] struct {
	seed   maphash.Seed
	mu     sync.RWMutex
	values index[string, *value[V]]
	topics order
}

type value[V any] struct {
	topic string
	v     V
}

func (v *value[V]) is(topic string) bool { return v.topic == topic }

// NewRetained returns a Retained without values.
func NewRetained[V any]() *Retained[V] {
	return &Retained[V]{seed: maphash.MakeSeed()}
}

// Get returns the value of a topic. ok is false if it has none.
func (r *Retained[V]) Get(topic string) (v V, ok bool) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if x, ok := r.values.get(hash(r.seed, topic), topic); ok {
		return x.v, true
	}
	return v, false
}

// Set sets the value of a topic.
func (r *Retained[V]) Set(topic string, v V) {
	r.mu.Lock()
	defer r.mu.Unlock()
	h := hash(r.seed, topic)
	if x, ok := r.values.get(h, topic); ok {
		x.v = v
		return
	}
	topic = strings.Clone(topic) // it may be a part of something large
	r.values.put(h, &value[V]{topic, v})
	r.topics.add(topic)
}

// Clear removes the value of a topic. It is no error if there is none.
func (r *Retained[V]) Clear(topic string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	h := hash(r.seed, topic)
	if _, ok := r.values.get(h, topic); ok {
		r.values.delete(h, topic)
		r.topics.remove(topic)
	}
}

// Topics looks at up to look topics that have a value, in order of their bytes
// and from one on ("" for the first), and appends those that a valid filter
// matches. It returns where to go on, "" at the end. So a long list is gone
// through in steps of bounded time; what is set or cleared between them may or
// may not be seen.
func (r *Retained[V]) Topics(dst []string, filter, from string, look int) (topics []string, next string) {
	first, end := span(filter)
	r.mu.RLock()
	defer r.mu.RUnlock()
	for topic := range r.topics.from(max(from, first)) {
		switch {
		case end != "" && topic >= end:
			return dst, ""
		case look == 0:
			return dst, topic
		case Match(filter, topic):
			dst = append(dst, topic)
		}
		look--
	}
	return dst, ""
}

// span returns the bounds of the topics that a filter can match: the first, and
// what is behind the last, "" if nothing is.
func span(filter string) (first, end string) {
	i := strings.IndexAny(filter, "+#")
	if i < 0 {
		return filter, filter + "\x00"
	}
	first = filter[:i]
	if first == "" {
		return "", ""
	}
	end = first[:i-1] + "0" // which comes after '/'
	if filter[i:] == "#" {
		first = first[:i-1] // a/# matches a as well
	}
	return first, end
}
