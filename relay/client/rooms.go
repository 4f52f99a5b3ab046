package client

import (
	"context"
	"iter"

	"github.com/sotto-relay/sotto/frame"
)

// A Room is one that the Client is in. It joins again after every reconnect. Its
// methods may be called by any goroutine.
type Room struct {
	c    *Client
	name string
	feed *feed
}

// JoinRoom joins a room, which exists as long as somebody is in it, and has a name
// of at most 128 bytes without control characters. It returns when the relay has
// agreed, with errors as [Client.Subscribe].
func (c *Client) JoinRoom(ctx context.Context, name string, options ...SubscribeOption) (*Room, error) {
	f, err := c.enter(ctx, feedKey{frame.TypeRoomSend, name}, subscribeOptionsOf(options))
	if err != nil {
		return nil, err
	}
	return &Room{c, name, f}, nil
}

// Name returns the name of the room.
func (r *Room) Name() string { return r.name }

// Members returns how many were in the room when the Client joined it, the last
// time, itself included. It is the relay's word.
func (r *Room) Members() int {
	r.feed.mu.Lock()
	defer r.feed.mu.Unlock()
	return r.feed.members
}

// Send sends data to all others in the room, signed with the Client's identity, and
// returns as [Client.Publish] does. The option is [NoWait].
func (r *Room) Send(ctx context.Context, data []byte, options ...SendOption) (Receipt, error) {
	if err := r.feed.reason(); err != nil {
		return Receipt{}, err
	}
	o := sendOptionsOf(options)
	o.sealer = r.feed.sealer
	return r.c.publish(ctx, feedKey{frame.TypeRoomSend, r.name}, data, o)
}

// Messages returns what the others send, as [Subscription.Messages] does.
func (r *Room) Messages(ctx context.Context) iter.Seq2[*Publication, error] {
	return r.c.publications(ctx, r.feed)
}

// Leave leaves the room, unless the Client has joined it more than once, and ends
// the loops with ErrClosed. It may be called any number of times.
func (r *Room) Leave() { r.c.stand.leave(r.feed) }
