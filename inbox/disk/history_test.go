package disk

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"maps"
	"strconv"
	"strings"
	"sync"

	"github.com/sotto-relay/sotto/inbox"
)

var ctx = context.Background()

// A history is what was asked of a store and what it answered. It checks what is
// there after a crash: what was acknowledged is there, once; what was deleted is
// not; what each sender sent to a recipient is in order; and nothing is there
// that nobody put. All its methods may be called concurrently.
type history struct {
	mu       sync.Mutex
	messages map[string]*fate
	values   map[string]*value
}

// A fate is that of one message.
type fate struct{ stored, deleting, deleted bool }

// A value is that of a key of the state, which counts up.
type value struct{ written, durable int }

func newHistory() *history {
	return &history{messages: make(map[string]*fate), values: make(map[string]*value)}
}

// clone is what is known now.
func (h *history) clone() *history {
	h.mu.Lock()
	defer h.mu.Unlock()
	c := newHistory()
	for name, f := range h.messages {
		c.messages[name] = new(fate)
		*c.messages[name] = *f
	}
	for key, v := range h.values {
		c.values[key] = &value{v.written, v.durable}
	}
	return c
}

// since adds what has been begun meanwhile, acknowledged or not, to what was
// known at an earlier time.
func (h *history) since(now *history) {
	for name, f := range now.messages {
		if h.messages[name] == nil {
			h.messages[name] = new(fate)
		}
		h.messages[name].deleting = f.deleting
	}
	for key, v := range now.values {
		if h.values[key] == nil {
			h.values[key] = new(value)
		}
		h.values[key].written = v.written
	}
}

func (h *history) put(name string)     { h.note(name, func(f *fate) {}) }
func (h *history) stored(name string)  { h.note(name, func(f *fate) { f.stored = true }) }
func (h *history) delete(name string)  { h.note(name, func(f *fate) { f.deleting = true }) }
func (h *history) deleted(name string) { h.note(name, func(f *fate) { f.deleted = true }) }

func (h *history) note(name string, what func(*fate)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	f := h.messages[name]
	if f == nil {
		f = new(fate)
		h.messages[name] = f
	}
	what(f)
}

func (h *history) write(key string, n int) { h.noteValue(key, func(v *value) { v.written = n }) }
func (h *history) durable(key string, n int) {
	h.noteValue(key, func(v *value) { v.durable = max(v.durable, n) })
}

func (h *history) noteValue(key string, what func(*value)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	v := h.values[key]
	if v == nil {
		v = new(value)
		h.values[key] = v
	}
	what(v)
}

// check compares with what a store holds: for each recipient the names of his
// messages in order, and the values of the state.
func (h *history) check(boxes map[string][]string, values map[string]int) (faults []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	fault := func(format string, args ...any) { faults = append(faults, fmt.Sprintf(format, args...)) }
	missing := make(map[string]*fate)
	maps.Copy(missing, h.messages)
	for to, names := range boxes {
		last := make(map[string]int)
		for _, name := range names {
			f := h.messages[name]
			recipient, sender, n := split(name)
			switch {
			case f == nil:
				fault("%s: nobody put it", name)
				continue
			case recipient != to:
				fault("%s: in the inbox of %s", name, to)
			case f.deleted:
				fault("%s: was deleted", name)
			case missing[name] == nil:
				fault("%s: twice", name)
			case n <= last[sender]:
				fault("%s: after %d", name, last[sender])
			}
			last[sender] = n
			delete(missing, name)
		}
	}
	for name, f := range missing {
		if f.stored && !f.deleting {
			fault("%s: was acknowledged, and is lost", name)
		}
	}
	for key, v := range h.values {
		if got := values[key]; got < v.durable || got > v.written {
			fault("value of %s: %d, of %d written and %d durable", key, got, v.written, v.durable)
		}
	}
	return faults
}

// settle makes what is there now what has to be there from now on.
func (h *history) settle(boxes map[string][]string, values map[string]int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	there := make(map[string]bool)
	for _, names := range boxes {
		for _, name := range names {
			there[name] = true
		}
	}
	for name := range h.messages {
		h.messages[name] = &fate{stored: there[name], deleting: !there[name], deleted: !there[name]}
	}
	for key := range h.values {
		h.values[key] = &value{values[key], values[key]}
	}
}

// messageName names the nth message, counted from 1, of a sender to a recipient.
func messageName(to, from string, n int) string { return fmt.Sprintf("%s/%s/%d", to, from, n) }

func split(name string) (to, from string, n int) {
	p := strings.Split(name, "/")
	n, _ = strconv.Atoi(p[2])
	return p[0], p[1], n
}

// message makes a message whose data follows from its name: every fifth one is
// long enough to stand alone.
func message(name string) *inbox.Entry {
	to, from, n := split(name)
	e := &inbox.Entry{To: inbox.Address{Realm: 1, Name: to}, From: inbox.Address{Realm: 1, Name: from}}
	size := n * 37 % 300
	if n%5 == 0 {
		size += inlineMax
	}
	sum := fnv.New64a()
	sum.Write([]byte(name))
	seed := sum.Sum64()
	e.Data = append([]byte(name), '|')
	for range size {
		seed = seed*6364136223846793005 + 1442695040888963407
		e.Data = append(e.Data, byte(seed>>56))
	}
	if n%2 == 0 {
		binary.BigEndian.PutUint64(e.ID[:], sum.Sum64())
	}
	return e
}

// contents returns what a store holds, for check.
func contents(db *DB, recipients []string) (boxes map[string][]string, values map[string]int, err error) {
	boxes, values = make(map[string][]string), make(map[string]int)
	for _, to := range recipients {
		for e, err := range db.Inbox().Entries(ctx, inbox.Address{Realm: 1, Name: to}, 0) {
			if err != nil {
				return nil, nil, err
			}
			name, _, _ := strings.Cut(string(e.Data), "|")
			if strings.Count(name, "/") != 2 || !bytes.Equal(e.Data, message(name).Data) || e.From.Name != strings.Split(name, "/")[1] {
				return nil, nil, fmt.Errorf("message %q of %s is not as it was put", name, to)
			}
			boxes[to] = append(boxes[to], name)
		}
	}
	for it, err := range db.State().Range(ctx, "history", "") {
		if err != nil {
			return nil, nil, err
		}
		if values[it.Key], err = strconv.Atoi(string(it.Value)); err != nil {
			return nil, nil, err
		}
	}
	return boxes, values, nil
}
