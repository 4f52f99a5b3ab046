package blind

import (
	"context"
	"errors"
	"net"

	"github.com/sotto-relay/sotto/frame"
)

var errRotating = errors.New("blind: this key is being rotated")

// Subscribe subscribes to keys, now and on every connection to come.
func (c *Client) Subscribe(keys ...string) {
	c.change(func() {
		for _, key := range keys {
			c.keys[key] = struct{}{}
		}
		c.tell(keysMessages("subscribe", keys)...)
	})
}

// Unsubscribe ends subscriptions.
func (c *Client) Unsubscribe(keys ...string) {
	c.change(func() {
		for _, key := range keys {
			delete(c.keys, key)
		}
		c.tell(keysMessages("unsubscribe", keys)...)
	})
}

// change runs f alone, unless the client is closed.
func (c *Client) change(f func()) {
	if c.lock(c.life) == nil {
		defer c.unlock()
		f()
	}
}

// Rotate moves all who subscribe to one key to another, and waits for the relay's
// answer, if need be on the next connection. After that, and before the relay's
// grace window ends, the others have to be told the new key, in a frame to the old
// one; they then Follow. (Before the rotation the new key would lead to those only
// who had subscribed to it.) The error is a *[DeniedError], ctx's, or net.ErrClosed.
func (c *Client) Rotate(ctx context.Context, from, to string) error {
	if from == "" || to == "" || from == to || max(len(from), len(to)) > DefaultKeyBytes {
		return errKeys // which a relay ignores
	}
	r := &rotation{to, make(chan error, 1)}
	if err := c.lock(ctx); err != nil {
		return err
	}
	if c.rotations[from] != nil {
		c.unlock()
		return errRotating
	}
	c.rotations[from] = r
	c.tell(rotateMessage(from, to))
	c.unlock()
	defer c.change(func() { delete(c.rotations, from) })
	select {
	case err := <-r.done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	case <-c.life.Done():
		return net.ErrClosed
	}
}

// Follow replaces a key that somebody else has rotated by the new one. (To
// unsubscribe from the old one would be to unsubscribe from the new one, as long
// as it leads there.)
func (c *Client) Follow(from, to string) {
	c.change(func() {
		c.rename(from, to)
		c.tell(keysMessages("subscribe", []string{to})...) // no harm if the relay has moved us
	})
}

// rename replaces a key, if it is there. The caller has locked.
func (c *Client) rename(from, to string) {
	if _, ok := c.keys[from]; ok {
		delete(c.keys, from)
		c.keys[to] = struct{}{}
	}
}

// answered takes the relay's answer to a rotate.
func (c *Client) answered(b []byte) {
	var o frame.Object
	if o.Parse(b) != nil {
		return
	}
	text := func(name string) string { return string(o.Text(o.Get(name))) }
	c.change(func() { c.settle(text("op"), text("from"), text("to"), text("reason")) })
}

func (c *Client) settle(op, from, to, reason string) {
	r := c.rotations[from]
	var err error
	switch {
	case r == nil:
		return
	case op == "rotated" && to == r.to:
		c.rename(from, to)
	case op == "rotate-denied":
		err = &DeniedError{from, to, reason}
	default:
		return
	}
	select {
	case r.done <- err:
	default: // answered already, on the connection before
	}
}

// keysMessages returns control messages about keys, of which none is too long for
// a relay.
func keysMessages(op string, keys []string) (msgs [][]byte) {
	const enough = 64 << 10
	for len(keys) > 0 {
		b := append([]byte{channelControl}, `{"op":"`+op+`","entityIds":[`...)
		for len(keys) > 0 && len(b) < enough {
			b = append(frame.AppendText(b, []byte(keys[0])), ',')
			keys = keys[1:]
		}
		msgs = append(msgs, append(b[:len(b)-1], "]}"...))
	}
	return msgs
}

func rotateMessage(from, to string) []byte {
	return appendRotate([]byte{channelControl}, "rotate", []byte(from), []byte(to))
}

var errKeys = errors.New("blind: the keys of a rotation are two, of 1 to 512 bytes")
