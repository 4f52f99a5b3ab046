package client

import (
	"context"
	"errors"
	"sync"

	"github.com/sotto-relay/sotto/crypto"
	"github.com/sotto-relay/sotto/frame"
	"github.com/sotto-relay/sotto/relay/dialect/brep"
	"github.com/sotto-relay/sotto/transport"
)

// serve uses a connection until it, or the Client, ends, and returns why.
func (c *Client) serve(s *brep.Client) error {
	ctx, cancel := context.WithCancel(c.life)
	c.out.rewind()
	c.cfg.Logger.Debug("client: connected", "relay", s.Relay().Key, "handshake", s.Relay().Version)
	c.cfg.Trace.Connected(s.Relay())
	c.connected.Do(func() { close(c.online) })

	var wg sync.WaitGroup
	wg.Go(func() {
		<-ctx.Done()
		_ = s.Close()
	})
	wg.Go(func() { c.write(ctx, s) })
	err := c.read(ctx, s)
	cancel()
	wg.Wait()
	return err
}

// write sends what is pending, at the pace that relays allow.
func (c *Client) write(ctx context.Context, s *brep.Client) {
	legacy := s.Relay().Version == 1
	for {
		p, err := c.out.next(ctx)
		if err != nil {
			return
		}
		id := p.frame.ID
		if legacy && (p.frame.Type == frame.TypeSealed || p.frame.Flags&frame.FlagEphemeral != 0) {
			c.out.settle(id, 0, ErrLegacySession)
			continue
		}
		if c.perMsg.Wait(ctx) != nil || c.perByte.WaitN(ctx, min(p.frame.Size(), c.cfg.ByteBurst)) != nil {
			return
		}
		if p.isSettled() { // meanwhile
			continue
		}
		if s.Send(ctx, &p.frame) != nil {
			return
		}
		if legacy {
			c.out.settle(id, Written, nil)
		}
	}
}

// read takes what comes until the connection ends, and returns why.
func (c *Client) read(ctx context.Context, s *brep.Client) error {
	for {
		if err := c.awaitRoom(ctx); err != nil {
			return err
		}
		f, err := s.Receive()
		switch {
		case errors.Is(err, transport.ErrTooLarge):
			c.drop(crypto.PublicKey{}, err)
		case err != nil:
			return err
		case isLetter(f.Type):
			c.receive(s, &f)
		case f.Type == frame.TypeReceipt:
			if r, err := frame.DecodeReceipt(f.Payload); err == nil {
				c.settle(&r)
			}
		case f.Type == frame.TypeError:
			if e, err := frame.DecodeError(f.Flags, f.Payload); err == nil {
				c.out.settle(e.ID, 0, &RefusedError{e.Code, e.Sentence})
			}
		}
	}
}

// awaitRoom waits until the application has taken letters, if there are more than
// a relay with a window has handed out.
func (c *Client) awaitRoom(ctx context.Context) error {
	for c.in.isFull() {
		select {
		case <-c.in.taken:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// receive makes a letter of a frame, if it is a good one and no repeat. What does
// not become one is acknowledged at once, or it would come again for ever.
func (c *Client) receive(s *brep.Client, f *frame.Brep) {
	k, ok := keyOf(f)
	if ok {
		if repeat, ack := c.in.isRepeat(k, f, s); repeat {
			c.count.repeats.Add(1)
			if ack {
				s.Ack(f)
			}
			return
		}
	}
	l, err := c.open.open(f)
	if err != nil {
		c.drop(f.Sender, err)
		s.Ack(f)
		return
	}
	extended := s.Relay().Version > 1
	a := &arrival{
		letter: l, key: k, keyed: ok, session: s, frame: *f,
		kept: extended && f.ID != [16]byte{} && f.Flags&frame.FlagEphemeral == 0,
	}
	a.frame.Payload = nil
	if !c.in.add(a, extended && !a.kept) {
		c.drop(f.Sender, errNoRoom)
		return
	}
	c.count.letters.Add(1)
}

func (c *Client) drop(from crypto.PublicKey, why error) {
	c.count.dropped.Add(1)
	c.cfg.Trace.Dropped(from, why)
}

// settle ends the message of a receipt. ReceiptAcknowledged is the relay's word
// here, like the others: the recipient's signature is not looked at.
func (c *Client) settle(r *frame.Receipt) {
	switch r.Status {
	case frame.ReceiptHandedOver, frame.ReceiptAcknowledged:
		c.out.settle(r.ID, Handed, nil)
	case frame.ReceiptStored:
		c.out.settle(r.ID, Stored, nil)
	default:
		c.out.settle(r.ID, 0, &RefusedError{r.Code, r.Reason})
	}
}
