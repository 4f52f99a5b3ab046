package client

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"slices"
	"sync"

	"github.com/sotto-relay/sotto/frame"
	"github.com/sotto-relay/sotto/relay/dialect/brep"
)

// maxRequests is how many requests may be open at a time. With those, what
// PendingMessages and MessageBurst allow by default stays below a relay's burst.
const maxRequests = 12

// request asks the relay, and returns its answer, which is the caller's. body is
// an object of spec json.md, without the number. The error is a *RefusedError if
// the relay refuses, ErrLegacySession, ErrTooLarge, ctx's, or that of Client.Err.
//
// While there is no connection it waits for one, and a request that had no answer
// when its connection ended is asked again in the next: every verb may be done
// twice. Several may be open; those of one goroutine are asked in order.
func (c *Client) request(ctx context.Context, body []byte) (*frame.Response, error) {
	free, err := c.slot(ctx)
	if err != nil {
		return nil, err
	}
	defer free()
	type result struct {
		answer *frame.Response
		err    error
	}
	results := make(chan result, 1)
	k, err := c.ask.add(body, true, func(r *frame.Response, err error) { results <- result{r, err} })
	if err != nil {
		return nil, err
	}
	select {
	case r := <-results:
		return r.answer, r.err
	case <-ctx.Done():
	}
	if c.ask.drop(k) {
		return nil, ctx.Err()
	}
	r := <-results // it was answered just now
	return r.answer, r.err
}

// slot waits until one more request may be open.
func (c *Client) slot(ctx context.Context) (free func(), err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	select {
	case c.ask.slots <- struct{}{}:
		return func() { <-c.ask.slots }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-c.life.Done():
		return nil, c.Err()
	}
}

// A call is a request without an answer.
type call struct {
	number int64
	id     [16]byte // of the frame, so that an ERROR about it is an answer too
	body   []byte
	lasts  bool // beyond its connection: then it is asked again

	// then is called once, unless the call is dropped, and must not block: most
	// often by the goroutine that reads.
	then func(*frame.Response, error)
}

// calls are the requests without an answer. The relay is asked in the order of
// the queue. All methods may be called by any goroutine.
type calls struct {
	slots chan struct{} // see Client.slot
	work  chan struct{} // with room for one: next may have something

	mu     sync.Mutex
	last   int64 // number that was given
	open   map[int64]*call
	queue  []*call // not given to this connection yet, but for some that have ended
	up     bool    // there is a connection
	closed error   // nothing is taken any more
}

func newCalls() *calls {
	return &calls{
		slots: make(chan struct{}, maxRequests), work: make(chan struct{}, 1),
		open: make(map[int64]*call),
	}
}

// add has something asked. What does not last beyond a connection is dropped at
// once if there is none.
func (q *calls) add(body []byte, lasts bool, then func(*frame.Response, error)) (*call, error) {
	k := &call{body: body, lasts: lasts, then: then}
	if _, err := rand.Read(k.id[:]); err != nil {
		return nil, err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.closed != nil:
		return nil, q.closed
	case len(body) > frame.MaxRequest-len(`,"req":`)-len("9223372036854775807"):
		return nil, ErrTooLarge
	case !lasts && !q.up:
		return k, nil
	}
	q.last++
	k.number = q.last
	q.open[k.number] = k
	if q.up {
		q.queue = append(q.queue, k)
		signal(q.work)
	}
	return k, nil
}

// begin begins a connection: what has no answer is asked again.
func (q *calls) begin() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.up = true
	for _, k := range q.open {
		q.queue = append(q.queue, k)
	}
	slices.SortFunc(q.queue, func(a, b *call) int { return cmp.Compare(a.number, b.number) })
	signal(q.work)
}

// sever ends a connection.
func (q *calls) sever() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.up, q.queue = false, nil
	for n, k := range q.open {
		if !k.lasts {
			delete(q.open, n)
		}
	}
}

// next waits for the next call for this connection.
func (q *calls) next(ctx context.Context) (*call, error) {
	for {
		if k := q.pop(); k != nil {
			return k, nil
		}
		select {
		case <-q.work:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (q *calls) pop() *call {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.queue) > 0 {
		k := q.queue[0]
		q.queue = q.queue[1:]
		if q.open[k.number] == k {
			return k
		}
	}
	return nil
}

// drop forgets a call. False: it has ended, or is about to.
func (q *calls) drop(k *call) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.take(k)
	if q.open[k.number] != k {
		return false
	}
	delete(q.open, k.number)
	return true
}

// withdraw forgets a call, if it has not ended, and says whether the relay was not
// asked: then there is nothing to take back. None is nil.
func (q *calls) withdraw(k *call) bool {
	if k == nil {
		return false
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.open[k.number] == k {
		delete(q.open, k.number)
	}
	return q.take(k)
}

// take takes a call out of the queue, and says whether it was there. The caller holds
// mu.
func (q *calls) take(k *call) bool {
	i := slices.Index(q.queue, k)
	if i >= 0 {
		q.queue = slices.Delete(q.queue, i, i+1)
	}
	return i >= 0
}

// settle ends a call, if it has not ended.
func (q *calls) settle(number int64, r *frame.Response, err error) {
	q.mu.Lock()
	k := q.open[number]
	delete(q.open, number)
	q.mu.Unlock()
	if k != nil {
		k.then(r, err)
	}
}

// refuse ends the call whose frame has an id.
func (q *calls) refuse(id [16]byte, err error) {
	q.mu.Lock()
	var number int64
	for n, k := range q.open {
		if k.id == id {
			number = n
		}
	}
	q.mu.Unlock()
	q.settle(number, nil, err)
}

// close ends everything with err, and takes nothing more.
func (q *calls) close(err error) {
	q.mu.Lock()
	open := q.open
	q.closed, q.open, q.queue = err, nil, nil
	q.mu.Unlock()
	for _, k := range open {
		k.then(nil, err)
	}
}

// writeRequests asks what is to be asked, at the pace that relays allow.
func (c *Client) writeRequests(ctx context.Context, s *brep.Client) {
	for {
		k, err := c.ask.next(ctx)
		if err != nil {
			return
		}
		if s.Relay().Version == 1 {
			c.ask.settle(k.number, nil, ErrLegacySession)
			continue
		}
		f := frame.Brep{
			Type: frame.TypeRequest, ID: k.id,
			Payload: frame.AppendRequest(nil, k.number, k.body),
		}
		if c.pace(ctx, f.Size()) != nil || s.Send(ctx, &f) != nil {
			return
		}
	}
}

// pace waits until a frame of some bytes may be sent.
func (c *Client) pace(ctx context.Context, size int) error {
	if err := c.perMsg.Wait(ctx); err != nil {
		return err
	}
	return c.perByte.WaitN(ctx, min(size, c.cfg.ByteBurst))
}

// answered takes a RESPONSE.
func (c *Client) answered(payload []byte) {
	r, err := frame.DecodeResponse(bytes.Clone(payload))
	switch {
	case err != nil: // nothing that we know of
	case r.Req == 0:
		c.stand.notice(r)
	case r.Refused:
		c.ask.settle(r.Req, nil, &RefusedError{r.Code, r.Reason})
	default:
		c.ask.settle(r.Req, r, nil)
	}
}
