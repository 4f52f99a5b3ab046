package jsonmsg

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/sotto-relay/sotto/frame"
)

// A clientCall is a question that the relay answers with a message of a certain type
// about the same thing, or with an error that has the id of the question.
type clientCall struct {
	id     string
	answer string // the type
	field  string // which names the thing; empty: there is none
	name   string
	out    *outgoing
	take   func(*incoming) // reads the answer; may be nil
	finish func(error)     // may be called more than once; the first counts
	renews bool            // what a connection before had

	// Guarded by the Client's lock: in datagrams, when to ask again.
	next time.Time
	wait time.Duration
}

func newCall(verb, answer, field, name string) *clientCall {
	k := &clientCall{id: rand.Text(), answer: answer, field: field, name: name, wait: time.Second}
	fields := []string{"id", k.id}
	if field != "" {
		fields = []string{field, name, "id", k.id}
	}
	k.out = &outgoing{encode(verb, fields...), func(err error) {
		if err != nil {
			k.finish(err)
		}
	}}
	return k
}

// call asks, and waits for the answer. A connection that is lost meanwhile is waited
// for too: then it is asked again.
func (c *Client) call(ctx context.Context, k *clientCall) error {
	done := make(chan error, 1)
	k.finish = func(err error) {
		select {
		case done <- err:
		default:
		}
	}
	stalled := c.in.stalled()
	if err := c.begin(k); err != nil {
		return err
	}
	err := c.push(k.out)
	if err == nil {
		select {
		case err := <-done:
			c.drop(k)
			return err
		case <-stalled:
			err = ErrUntaken
		case <-ctx.Done():
			err = ctx.Err()
		}
	}
	if !c.drop(k) {
		return <-done // it was answered just now
	}
	return err
}

// begin notes a call.
func (c *Client) begin(k *clientCall) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return c.err
	}
	if k.answer == "matched" && slices.ContainsFunc(c.calls, func(o *clientCall) bool {
		return o.answer == k.answer && o.name == k.name
	}) {
		return errMatching
	}
	k.next = time.Now().Add(k.wait)
	c.calls = append(c.calls, k)
	return nil
}

// drop forgets a call. False: it has been settled, or is being.
func (c *Client) drop(k *clientCall) bool {
	c.out.drop(k.out)
	c.mu.Lock()
	defer c.mu.Unlock()
	i := slices.Index(c.calls, k)
	if i >= 0 {
		c.calls = slices.Delete(c.calls, i, i+1)
	}
	return i >= 0
}

// settle ends the first call that is about what is said, and returns it, or nil.
func (c *Client) settle(is func(*clientCall) bool, take func(*clientCall) error) *clientCall {
	c.mu.Lock()
	i := slices.IndexFunc(c.calls, is)
	if i < 0 {
		c.mu.Unlock()
		return nil
	}
	k := c.calls[i]
	c.calls = slices.Delete(c.calls, i, i+1)
	c.mu.Unlock()
	k.finish(take(k))
	return k
}

// answered ends the call that a message of this type answers, if there is one.
func (c *Client) answered(t string, o *incoming) *clientCall {
	return c.settle(func(k *clientCall) bool {
		return k.answer == t && (k.field == "" || o.text(k.field) == k.name)
	}, func(k *clientCall) error {
		if k.take != nil {
			k.take(o)
		}
		return nil
	})
}

// askAgain has calls asked again that had no answer for a while.
func (c *Client) askAgain(now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, k := range c.calls {
		if now.Before(k.next) {
			continue
		}
		k.wait = min(2*k.wait, clientWriteTimeout)
		k.next = now.Add(k.wait)
		c.out.again(k.out)
	}
}

// resume has everything asked that a new connection has to know before anything
// else: our rooms and filters, and the calls without an answer.
func (c *Client) resume() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls = slices.DeleteFunc(c.calls, func(k *clientCall) bool {
		if k.renews {
			c.out.drop(k.out)
		}
		return k.renews
	})
	for room := range c.rooms {
		k := newCall("join_room", "joined_room", "room", room)
		k.renews = true
		k.finish = func(err error) { c.left(c.rooms, room, &Left{Room: room, Err: err}) }
		c.calls = append(c.calls, k)
	}
	for filter := range c.filters {
		k := newCall("subscribe", "subscribed", "topic", filter)
		k.renews = true
		k.finish = func(err error) { c.left(c.filters, filter, &Left{Filter: filter, Err: err}) }
		c.calls = append(c.calls, k)
	}
	now, list := time.Now(), make([]*outgoing, 0, len(c.calls))
	for _, k := range c.calls {
		k.wait = time.Second
		k.next = now.Add(k.wait)
		list = append(list, k.out)
	}
	c.out.first(list...)
}

// left notes that the relay does not let us in again, if there is an error.
func (c *Client) left(in map[string]bool, name string, e *Left) {
	if e.Err == nil || c.life.Err() != nil {
		return
	}
	c.mu.Lock()
	delete(in, name)
	c.mu.Unlock()
	c.in.add(e)
}

// note has a name be one to return to after a reconnect, or not.
func (c *Client) note(in map[string]bool, name string, yes bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if yes {
		in[name] = true
	} else {
		delete(in, name)
	}
}

// Join enters a room and returns how many are in it, we included. It does no harm to
// join twice.
func (c *Client) Join(ctx context.Context, room string) (members int, err error) {
	k := newCall("join_room", "joined_room", "room", room)
	k.take = func(o *incoming) {
		members, _ = strconv.Atoi(string(o.Get("members")))
		c.note(c.rooms, room, true)
	}
	if err := c.call(ctx, k); err != nil {
		return 0, err
	}
	return members, nil
}

// Leave leaves a room, in which we need not be.
func (c *Client) Leave(ctx context.Context, room string) error {
	c.note(c.rooms, room, false)
	return c.call(ctx, newCall("leave_room", "left_room", "room", room))
}

// Subscribe asks for what is published to the topics that a filter matches: + stands
// for one level, # for all that follow. The values that are retained for them come
// first, as events, in the order of topics; so again if we subscribe again.
func (c *Client) Subscribe(ctx context.Context, filter string) error {
	k := newCall("subscribe", "subscribed", "topic", filter)
	k.take = func(*incoming) { c.note(c.filters, filter, true) }
	return c.call(ctx, k)
}

// Unsubscribe ends a subscription, which there need not be.
func (c *Client) Unsubscribe(ctx context.Context, filter string) error {
	c.note(c.filters, filter, false)
	return c.call(ctx, newCall("unsubscribe", "unsubscribed", "topic", filter))
}

// FindMatch waits for somebody to play with, first come, first served, and returns
// his address. When ctx ends the relay is told to look no further. If it had found
// somebody already, a [Matched] event says so, as he has been told. One call at a
// time can wait for a game.
func (c *Client) FindMatch(ctx context.Context, game string) (peer string, err error) {
	k := newCall("find_match", "matched", "game", game)
	k.take = func(o *incoming) { peer = o.text("peer") }
	err = c.call(ctx, k)
	switch {
	case err == nil:
		return peer, nil
	case ctx.Err() != nil, errors.Is(err, ErrUntaken):
		c.out.offer(encode("cancel_match", "game", game))
	}
	return "", err
}

// CancelMatch has the relay look no further; FindMatch returns ErrMatchCancelled,
// unless it has found somebody.
func (c *Client) CancelMatch(ctx context.Context, game string) error {
	k := newCall("cancel_match", "match_cancelled", "game", game)
	k.take = func(*incoming) {
		c.settle(func(k *clientCall) bool { return k.answer == "matched" && k.name == game },
			func(*clientCall) error { return ErrMatchCancelled })
	}
	return c.call(ctx, k)
}

// Capabilities returns what the relay says of itself.
func (c *Client) Capabilities(ctx context.Context) (*frame.Capabilities, error) {
	var answer []byte
	k := newCall("capabilities", "capabilities", "", "")
	k.take = func(o *incoming) { answer = slices.Clone(o.raw) }
	if err := c.call(ctx, k); err != nil {
		return nil, err
	}
	caps := new(frame.Capabilities)
	return caps, json.Unmarshal(answer, caps)
}
