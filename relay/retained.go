package relay

import (
	"bytes"
	"sync"
)

// A retained is the value that a topic retains. All but live never changes.
type retained struct {
	from  Address
	id    ID
	form  uint8
	flags uint8
	data  []byte

	// live is the version of the tree of subscriptions that the newest publication
	// to the topic was matched with. Under the topic's lock.
	live uint64
}

// values are the accounts of the retained values of all topics, and their way to
// the State: a goroutine that is there while there are changes to write. Changes
// of one topic that come faster are written as one.
type values struct {
	s     *Server
	state State // nil: they are not written

	mu      sync.Mutex
	sum     usage
	of      map[Address]usage    // by publisher
	dirty   map[Address]struct{} // topics whose value is to be written
	writing bool
}

// usage is a number of values, and the bytes of them and of their topics.
type usage struct {
	values int
	bytes  int64
}

func (u usage) exceeds(values int, bytes int64) bool {
	return u.values > max(values, 1) || u.bytes > bytes
}

// change makes m the value of its topic, or clears that. The caller holds the
// topic's lock.
func (a *values) change(sp *space, m *Message, r Retain) *Refusal {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.behind(m.To) {
		return &Refusal{Code: CodeOverloaded, Reason: "relay overloaded, retry later"}
	}
	if r == RetainClear {
		a.clear(sp, m.To.Name)
		return nil
	}
	v := &retained{from: m.From, id: m.ID, form: m.Form, flags: m.Flags, data: bytes.Clone(m.Data)}
	if !a.set(sp, m.To.Name, v) {
		return &Refusal{Code: CodeRetainedFull}
	}
	a.changed(m.To)
	return nil
}

// set sets the value of a topic, if there is room.
func (a *values) set(sp *space, topic string, v *retained) bool {
	old, replaces := sp.values.Get(topic)
	if replaces {
		a.account(topic, old, -1)
	}
	a.account(topic, v, 1)
	l := &a.s.limits
	if a.sum.exceeds(l.RetainedValues, l.RetainedBytes) || a.of[v.from].exceeds(l.RetainedValues/4, l.RetainedBytes/4) {
		a.account(topic, v, -1)
		if replaces {
			a.account(topic, old, 1)
		}
		return false
	}
	sp.values.Set(topic, v)
	return true
}

// clear clears the value of a topic, if it has one.
func (a *values) clear(sp *space, topic string) {
	if old, ok := sp.values.Get(topic); ok {
		a.account(topic, old, -1)
		sp.values.Clear(topic)
		a.changed(Address{Realm: sp.realm, Name: topic})
	}
}

// account adds v to the sums, n being 1, or takes it off, n being -1.
func (a *values) account(topic string, v *retained, n int) {
	size := int64(n) * int64(len(topic)+len(v.data))
	a.sum.values += n
	a.sum.bytes += size
	mine := a.of[v.from]
	mine.values += n
	mine.bytes += size
	if mine.values == 0 {
		delete(a.of, v.from)
		return
	}
	if a.of == nil {
		a.of = make(map[Address]usage)
	}
	a.of[v.from] = mine
}

// EraseRetained clears the values that topics retain of the session's address, and
// returns how many those were. Subscribers are not told.
func (p *Port) EraseRetained() (n int) {
	for _, sp := range p.s.topics.spaces.Range {
		n += p.s.topics.retained.erase(sp.(*space), p.Address())
	}
	return n
}

// erase clears the values of a publisher.
func (a *values) erase(sp *space, publisher Address) (n int) {
	var topics []string
	for more, next := a.has(publisher), ""; more; more = next != "" && a.has(publisher) {
		topics, next = a.s.topics.look(topics[:0], sp, "#", next)
		for _, topic := range topics {
			if a.eraseOne(sp, topic, publisher) {
				n++
			}
		}
	}
	return n
}

func (a *values) has(publisher Address) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.of[publisher].values > 0
}

func (a *values) eraseOne(sp *space, topic string, publisher Address) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	v, ok := sp.values.Get(topic)
	if !ok || v.from != publisher {
		return false
	}
	a.clear(sp, topic)
	return true
}
