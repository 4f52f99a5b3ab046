package jsonmsg

import (
	"context"
	"slices"
	"sync"

	"github.com/sotto-relay/sotto/frame"
)

// encode returns a message: its type, and the fields with their values, all
// strings, in turn.
func encode(verb string, fields ...string) []byte {
	return appendFields(frame.AppendText([]byte(`{"t":`), verb), fields...)
}

// extend returns msg with more fields at its end.
func extend(msg []byte, fields ...string) []byte {
	return appendFields(slices.Clone(msg[:len(msg)-1]), fields...)
}

func appendFields(b []byte, fields ...string) []byte {
	for i := 0; i < len(fields); i += 2 {
		b = append(frame.AppendText(append(b, ','), fields[i]), ':')
		b = frame.AppendText(b, fields[i+1])
	}
	return append(b, '}')
}

// withTrue returns msg with a field that is true.
func withTrue(msg []byte, field string) []byte {
	b := frame.AppendText(append(slices.Clone(msg[:len(msg)-1]), ','), field)
	return append(b, `:true}`...)
}

// An outgoing message waits to be written. ended is called with nil when it has
// been, by one goroutine at a time and under no lock. It is called again if the
// message is written again.
type outgoing struct {
	msg   []byte
	ended func(error)
}

// clientOutbox is the queue of what is to be written, whatever connection there is.
// Its length is that of what callers wait for. All methods may be called by any
// goroutine.
type clientOutbox struct {
	more chan struct{} // with room for one: next may have something

	mu     sync.Mutex
	queue  []*outgoing
	closed error
}

func newClientOutbox() *clientOutbox { return &clientOutbox{more: make(chan struct{}, 1)} }

// push adds a message that is not in the queue; again one that may be.
func (q *clientOutbox) push(o *outgoing) { q.put(o, false) }

func (q *clientOutbox) again(o *outgoing) { q.put(o, true) }

func (q *clientOutbox) put(o *outgoing, again bool) {
	q.mu.Lock()
	err := q.closed
	if err == nil && !(again && slices.Contains(q.queue, o)) {
		q.queue = append(q.queue, o)
		signal(q.more)
	}
	q.mu.Unlock()
	if err != nil {
		o.ended(err)
	}
}

// offer adds a message that nobody waits for, unless there are many.
func (q *clientOutbox) offer(msg []byte) {
	const many = 256
	q.mu.Lock()
	full := len(q.queue) >= many
	q.mu.Unlock()
	if !full {
		q.push(&outgoing{msg, func(error) {}})
	}
}

// first puts messages at the beginning of the queue, in which they may be already.
func (q *clientOutbox) first(list ...*outgoing) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed != nil {
		return // what they are for has been told
	}
	rest := slices.DeleteFunc(q.queue, func(o *outgoing) bool { return slices.Contains(list, o) })
	q.queue = append(slices.Clone(list), rest...)
	signal(q.more)
}

// drop removes a message. It may have been written.
func (q *clientOutbox) drop(o *outgoing) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.queue = slices.DeleteFunc(q.queue, func(p *outgoing) bool { return p == o })
}

// next waits for the first message and takes it.
func (q *clientOutbox) next(ctx context.Context) (*outgoing, error) {
	for {
		q.mu.Lock()
		if len(q.queue) > 0 {
			o := q.queue[0]
			q.queue[0] = nil
			q.queue = q.queue[1:]
			q.mu.Unlock()
			return o, nil
		}
		q.mu.Unlock()
		select {
		case <-q.more:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// close ends what waits, and all that comes.
func (q *clientOutbox) close(err error) {
	q.mu.Lock()
	queue := q.queue
	q.queue, q.closed = nil, err
	q.mu.Unlock()
	for _, o := range queue {
		o.ended(err)
	}
}
