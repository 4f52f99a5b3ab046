package client

import (
	"context"
	"errors"
	"sync"

	"github.com/sotto-relay/sotto/crypto"
	"github.com/sotto-relay/sotto/frame"
	"github.com/sotto-relay/sotto/handshake"
	"github.com/sotto-relay/sotto/relay/dialect/brep"
	"github.com/sotto-relay/sotto/transport"
)

// serve uses a connection until it, or the Client, ends, and returns why.
func (c *Client) serve(s *brep.Client) error {
	ctx, cancel := context.WithCancel(c.life)
	c.out.rewind(s.Relay().Features&handshake.FeatureDurable != 0)
	c.cfg.Logger.Debug("client: connected", "relay", s.Relay().Key, "handshake", s.Relay().Version)
	c.cfg.Trace.Connected(s.Relay())
	answered := c.stand.begin() // before New returns, or a Send finds nobody to ask for a card
	c.connected.Do(func() { close(c.online) })

	var wg sync.WaitGroup
	wg.Go(func() {
		<-ctx.Done()
		_ = s.Close()
	})
	if c.cfg.Credential != nil && s.Relay().Version > 1 {
		renewAt := c.renewAt
		wg.Go(func() { c.renew(ctx, renewAt) })
	}
	wg.Go(func() { c.writeRequests(ctx, s) })
	wg.Go(func() {
		select {
		case <-answered: // a room takes nothing from who is not in it yet
			c.write(ctx, s)
		case <-ctx.Done():
		}
	})
	if s.Relay().Version > 1 {
		wg.Go(func() { c.keepCard(ctx) })
		wg.Go(func() { c.keepAttached(ctx, s.Relay().Key) })
	}
	err := c.read(ctx, s)
	cancel()
	wg.Wait()
	c.stand.sever()
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
		if legacy && (p.frame.Type >= frame.TypeRequest || p.frame.Flags&frame.FlagEphemeral != 0) {
			c.out.fail(id, ErrLegacySession)
			continue
		}
		if c.pace(ctx, p.frame.Size()) != nil {
			return
		}
		if !c.out.has(p) { // any more
			continue
		}
		if s.Send(ctx, &p.frame) != nil {
			return
		}
		if legacy {
			c.out.receive(id, Written)
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
				c.receipt(&r)
			}
		case f.Type == frame.TypeResponse:
			c.answered(f.Payload)
		case f.Type == frame.TypeMessage, f.Type == frame.TypeRoomMessage:
			c.stand.deliver(&f)
		case f.Type == frame.TypeError:
			if e, err := frame.DecodeError(f.Flags, f.Payload); err == nil {
				refused := &RefusedError{e.Code, e.Sentence}
				c.out.fail(e.ID, refused)
				c.ask.refuse(e.ID, refused)
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
// not become one is acknowledged at once, or it would come again for ever, but not
// with a signature, which says that it was read.
func (c *Client) receive(s *brep.Client, f *frame.Brep) {
	k, ok := keyOf(f)
	if ok && c.isRepeat(s, f, k) {
		return
	}
	l, err := c.open.open(f)
	if err != nil {
		c.drop(f.Sender, err)
		ackUnread(s, f)
		return
	}
	extended := s.Relay().Version > 1
	a := &arrival{
		letter: l, key: k, keyed: ok, session: s, frame: *f,
		kept: extended && f.ID != [16]byte{} && f.Flags&frame.FlagEphemeral == 0,
	}
	a.frame.Payload = nil
	if isGroupKey(l) {
		c.receiveGroupKey(a)
		return
	}
	if isFile(l) {
		c.receiveFile(a)
		return
	}
	if !c.in.add(a, extended && !a.kept) {
		c.drop(f.Sender, errNoRoom)
		return
	}
	c.count.letters.Add(1)
}

// isRepeat says whether a frame is for nothing, since its letter has come before, and
// acknowledges it where that is due.
func (c *Client) isRepeat(s *brep.Client, f *frame.Brep, k letterKey) bool {
	r := c.in.repeats(k, f, s)
	if r == isNew {
		return false
	}
	c.count.repeats.Add(1)
	switch r {
	case isTaken:
		s.Ack(f)
	case isSpare:
		ackUnread(s, f)
	}
	return true
}

// ackUnread acknowledges a frame and does not sign that it was read.
func ackUnread(s *brep.Client, f *frame.Brep) {
	unsigned := *f
	unsigned.Flags &^= frame.FlagReceipt
	s.Ack(&unsigned)
}

// receiveGroupKey takes a key of a group's. Repeats do no harm.
func (c *Client) receiveGroupKey(a *arrival) {
	if err := c.takeGroupKey(a.letter); err != nil {
		c.drop(a.letter.From, err)
		a.frame.Flags &^= frame.FlagReceipt
	}
	a.acknowledge()
}

// receiveFile takes what files are made of. It knows repeats by itself.
func (c *Client) receiveFile(a *arrival) {
	err := errUnkept
	if a.kept {
		err = c.files.take(a)
	}
	if err != nil {
		c.drop(a.letter.From, err)
	}
	if err != nil && !errors.Is(err, errNoRoom) {
		a.frame.Flags &^= frame.FlagReceipt
		a.acknowledge()
	}
}

func (c *Client) drop(from crypto.PublicKey, why error) {
	c.count.dropped.Add(1)
	c.cfg.Trace.Dropped(from, why)
}

// receipt takes the relay's word, or that of the recipient if it has signed.
func (c *Client) receipt(r *frame.Receipt) {
	switch r.Status {
	case frame.ReceiptHandedOver:
		c.out.receive(r.ID, Handed)
	case frame.ReceiptStored:
		c.out.receive(r.ID, Stored)
	case frame.ReceiptAcknowledged:
		c.acknowledged(r)
	case frame.ReceiptExpired:
		c.out.fail(r.ID, ErrUnread)
	default:
		c.out.fail(r.ID, &RefusedError{r.Code, r.Reason})
	}
}

// acknowledged takes a receipt that the recipient has signed.
func (c *Client) acknowledged(r *frame.Receipt) {
	to, ok := c.out.recipient(r.ID)
	switch {
	case !ok:
	case brep.VerifyAck(r, c.cfg.Identity.Public(), to) != nil:
		if !c.forged { // once, or a relay could fill the log
			c.forged = true
			c.cfg.Logger.Warn("client: a receipt without the recipient's signature", "to", to)
		}
		c.cfg.Trace.BadReceipt(to, r.ID)
		c.out.receive(r.ID, Handed) // or a recipient could hold up what goes to others
	default:
		c.out.receive(r.ID, Read)
	}
}
