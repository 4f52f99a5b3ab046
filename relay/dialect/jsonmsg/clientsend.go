package jsonmsg

import (
	"context"
	"errors"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/sotto-relay/sotto/crypto"
	"github.com/sotto-relay/sotto/frame"
)

// Send seals data for an address and sends it. id may be empty; with one, what the
// relay and the recipient have to say of the message has it too: a [Queued] event, a
// *[RelayError] event, an [Ack] event. Of a message that the relay hands over at
// once it says nothing.
//
// If no key of the recipient is known, he is told ours and asked for his, now and
// then, until it comes or ctx ends; then the error wraps ErrNoKey.
//
// Send returns when the medium has taken the message. If ctx ends before that, it
// may or may not have been sent.
func (c *Client) Send(ctx context.Context, to, id string, data []byte) error {
	if !frame.IsName(to, frame.MaxName) {
		return ErrInvalidAddr
	}
	key, err := c.keyOf(ctx, to)
	if err != nil {
		return err
	}
	nonce, ct, err := c.peers.seal(to, key, data)
	if err != nil {
		return err
	}
	fields := []string{"to", to, "pub", c.Key().String(), "nonce", nonce, "ct", ct}
	if id != "" {
		fields = append(fields, "id", id)
	}
	return c.post(ctx, encode("send", fields...))
}

// Announce tells somebody our key: a message with an empty ct. A Client answers with
// its own, which is an event when it is new.
func (c *Client) Announce(ctx context.Context, to string) error {
	c.peers.asks(to)
	return c.post(ctx, c.announcement(to))
}

func (c *Client) announcement(to string) []byte {
	return encode("send", "to", to, "pub", c.Key().String(), "nonce", "", "ct", "")
}

// keyOf returns the key of an address, and waits for it.
func (c *Client) keyOf(ctx context.Context, to string) (crypto.X25519Key, error) {
	stalled := c.in.stalled()
	for {
		changed := c.peers.changes()
		key, known, err := c.peers.lookup(to)
		if known || err != nil {
			return key, err
		}
		if err := c.Announce(ctx, to); err != nil {
			return key, withoutKey(err)
		}
		if err := c.awaitKey(ctx, to, changed, stalled); err != nil {
			return key, err
		}
	}
}

// awaitKey returns when the key of an address is known, or it is time to ask again.
func (c *Client) awaitKey(ctx context.Context, to string, changed, stalled <-chan struct{}) error {
	again := time.NewTimer(askAgain)
	defer again.Stop()
	for {
		select {
		case <-changed:
			changed = c.peers.changes()
			if _, known, err := c.peers.lookup(to); known || err != nil {
				return err
			}
		case <-again.C:
			return nil
		case <-stalled:
			return withoutKey(ErrUntaken)
		case <-c.life.Done():
			return c.Err()
		case <-ctx.Done():
			return withoutKey(ctx.Err())
		}
	}
}

// withoutKey returns the error for what ended while the key was not known.
func withoutKey(err error) error { return fmt.Errorf("%w: %w", ErrNoKey, err) }

// Ack tells the sender of a message with an ID that it has arrived. The relay sees
// that.
func (c *Client) Ack(ctx context.Context, m *Message) error {
	if m.ID == "" {
		return errors.New("json: a message without an ID cannot be acknowledged")
	}
	return c.post(ctx, encode("ack", "to", m.From, "id", m.ID))
}

// SendRoom sends to all others in a room. ct is passed on as it is: seal it, with a
// [SharedKey] say.
func (c *Client) SendRoom(ctx context.Context, room, ct string) error {
	return c.post(ctx, encode("room_send", "room", room, "ct", ct))
}

// Publish sends to all that have subscribed to a topic, ourselves included. ct is
// passed on as it is: seal it, with a [SharedKey] say. With retain the relay keeps it
// for those who subscribe later, in the place of the value before; an empty one
// removes that.
func (c *Client) Publish(ctx context.Context, topic, ct string, retain bool) error {
	msg := encode("publish", "topic", topic, "ct", ct)
	if retain {
		msg = withTrue(msg, "retain")
	}
	return c.post(ctx, msg)
}

// post sends a message and waits until it is written.
func (c *Client) post(ctx context.Context, msg []byte) error {
	done := make(chan error, 1)
	o := &outgoing{msg, func(err error) { done <- err }}
	if err := c.push(o); err != nil {
		return err
	}
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		c.out.drop(o)
		return ctx.Err()
	}
}

// push queues a message, if it is text.
func (c *Client) push(o *outgoing) error {
	if !utf8.Valid(o.msg) {
		return ErrText
	}
	c.out.push(o)
	return nil
}
