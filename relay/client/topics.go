package client

import (
	"context"
	"crypto/rand"
	"errors"
	"iter"
	"math"
	"time"

	"github.com/sotto-relay/sotto/crypto"
	"github.com/sotto-relay/sotto/frame"
)

// A Subscription is a filter, to whose topics the Client listens. It is renewed
// after every reconnect. Its methods may be called by any goroutine.
type Subscription struct {
	c    *Client
	feed *feed
}

// A SubscribeOption changes how publications are taken.
type SubscribeOption func(*subscribeOptions)

type subscribeOptions struct {
	buffer int
	sealer sealer // nil: none
}

// Buffer sets how many publications wait for the application, at least 2. Without it
// only their size counts: 16 MiB, with 256 bytes for each besides its data and topic.
// The oldest go when there are more, and leave a gap.
func Buffer(publications int) SubscribeOption {
	return func(o *subscribeOptions) { o.buffer = max(publications, 2) }
}

func subscribeOptionsOf(options []SubscribeOption) subscribeOptions {
	o := subscribeOptions{buffer: math.MaxInt}
	for _, set := range options {
		set(&o)
	}
	return o
}

// Subscribe listens to the topics that match a filter: levels between slashes, of
// which + stands for any one, and a last # for any number. It returns when the
// relay has agreed, waiting for a connection if there is none. What is published
// from then on comes with [Subscription.Messages], and before what is new of a
// topic comes what the relay has retained of it.
//
// A publication comes once for each Subscription of the Client that matches. The
// retained ones come again after a reconnect, and when another Subscription is
// made that matches.
//
// The error is a [*RefusedError] for what is no filter, or one too many;
// [ErrLegacySession]; ctx's; or that of [Client.Err].
func (c *Client) Subscribe(ctx context.Context, filter string, options ...SubscribeOption) (*Subscription, error) {
	f, err := c.enter(ctx, feedKey{frame.TypePublish, filter}, subscribeOptionsOf(options))
	if err != nil {
		return nil, err
	}
	return &Subscription{c, f}, nil
}

// enter returns a feed to which the relay has agreed.
func (c *Client) enter(ctx context.Context, key feedKey, o subscribeOptions) (*feed, error) {
	f := newFeed(key, o, &c.count)
	if _, err := f.wire(); err != nil {
		return nil, err
	}
	free, err := c.slot(ctx)
	if err != nil {
		return nil, err
	}
	defer free()
	if err := c.stand.enter(f); err != nil {
		return nil, err
	}
	select {
	case <-f.settled:
		return f, f.refused()
	case <-ctx.Done():
		c.stand.leave(f)
		return nil, ctx.Err()
	}
}

// Messages returns the publications, and the gaps between them, in the order of
// the relay, as long as the loop goes on. It may be called again and goes on then.
// If more than one loop runs, each publication goes to one of them.
//
// Publications are not kept for those who are away, or slow. A [Publication] with
// Gap says where some are missing, or may be; it comes once what is retained and
// new follows.
//
// The last pair has no publication but the reason: ctx's error, ErrClosed after
// Close, that of [Client.Err], or a [*RefusedError] if the relay did not agree
// again after a reconnect.
func (s *Subscription) Messages(ctx context.Context) iter.Seq2[*Publication, error] {
	return s.c.publications(ctx, s.feed)
}

func (c *Client) publications(ctx context.Context, f *feed) iter.Seq2[*Publication, error] {
	return func(yield func(*Publication, error) bool) {
		for {
			p, err := f.next(ctx, c.drop)
			if !yield(p, err) || err != nil {
				return
			}
		}
	}
}

// Close ends the Subscription, and its loops with ErrClosed. It may be called any
// number of times.
func (s *Subscription) Close() { s.c.stand.leave(s.feed) }

// Retain has the relay keep the publication, for those who subscribe to its topic
// later, until there is another with Retain. One without data ends that. It is for
// Publish alone.
func Retain() SendOption { return func(o *sendOptions) { o.retain = true } }

var (
	errPublishOption = errors.New("client: only NoWait, and Retain for a topic, can be said of a publication")
	errRetainLetter  = errors.New("client: Retain is for publications")
)

// Publish publishes data to a topic, signed with the Client's identity, to all who
// are subscribed to it just now, and to itself if it is. It returns at the relay's
// receipt, which is [Handed] whether there is anybody or not, or a
// [*RefusedError]. The options are [Retain] and [NoWait].
//
// Relays can read what is published, and repeat or withhold it.
//
// It waits, and is sent again after a reconnect, as [Client.Send] says, and in
// order with what Send sends; but it ends with the Client, whatever Config.Store is
// there. A relay knows what it has had before, unless it was itself started again:
// then a publication may come twice.
func (c *Client) Publish(ctx context.Context, topic string, data []byte, options ...SendOption) (Receipt, error) {
	return c.publish(ctx, feedKey{frame.TypePublish, topic}, data, sendOptionsOf(options))
}

// publish publishes to a topic or a room.
func (c *Client) publish(ctx context.Context, to feedKey, data []byte, o sendOptions) (Receipt, error) {
	p, err := c.enqueuePublication(ctx, to, data, o)
	if err != nil {
		return Receipt{}, err
	}
	return c.answer(ctx, p)
}

// enqueuePublication puts a publication into the outbox.
func (c *Client) enqueuePublication(ctx context.Context, to feedKey, data []byte, o sendOptions) (*pending, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if o.retain && o.sealer != nil {
		free, err := c.groups.hold(ctx)
		if err != nil {
			return nil, err
		}
		defer free()
	}
	var err error
	switch {
	case o.sealer == nil:
	case o.retain && len(data) == 0: // only what is empty for the relay clears
		to, err = o.sealer.name(to)
	default:
		to, data, err = o.sealer.seal(to, data)
	}
	switch {
	case err != nil:
		return nil, err
	case o.frameType != 0 || o.ephemeral || o.until > Handed || o.retain && to.as != frame.TypePublish:
		return nil, errPublishOption
	case len(to.name) > math.MaxUint16 || len(data) > maxPayload-2-len(to.name):
		return nil, ErrTooLarge
	}
	if o.retain && o.sealer != nil && len(data) > 0 {
		if err := o.sealer.retains(ctx, to.name, data); err != nil {
			return nil, err
		}
	}
	f := frame.Brep{Type: to.as, Flags: frame.FlagReceipt, Sender: c.cfg.Identity.Public()}
	if o.retain {
		f.Flags |= frame.FlagRetain
	}
	if _, err := rand.Read(f.ID[:]); err != nil {
		return nil, err
	}
	content := frame.Publication{Name: []byte(to.name), Content: data}
	f.Payload = content.Append(nil)
	f.Signature = crypto.SignFrame(c.cfg.Identity, uint8(f.Type), f.ID, f.Payload)
	p := &pending{
		frame: f, made: time.Now(), until: Handed,
		awaited: !o.noWait, settled: make(chan struct{}),
	}
	return p, c.enqueue(ctx, p)
}
