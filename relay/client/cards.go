package client

import (
	"context"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/sotto-relay/sotto/crypto"
	"github.com/sotto-relay/sotto/frame"
	"github.com/sotto-relay/sotto/inbox"
)

// Pairing returns who we are and the serial of our card, so that who gets it cannot
// be made to do without. The caller adds where the relay is.
func (c *Client) Pairing() crypto.Pairing {
	p := crypto.Pairing{Key: c.cfg.Identity.Public()}
	if card, _ := c.keys.current(); card != nil {
		p.Card = card.Serial()
	}
	return p
}

// Pair notes what a pairing string says of its owner's card: that there is one, with
// at least that serial. Without one nothing is sent then, not even at first contact.
// The relay in it is for Config.Dial and Config.Relay.
func (c *Client) Pair(ctx context.Context, p crypto.Pairing) error {
	if err := p.Key.Check(); err != nil {
		return fmt.Errorf("client: contact: %w", err)
	}
	return c.book.promise(ctx, p.Key, p.Card)
}

// Forget forgets which card a contact had, so that the next message to it is sealed
// as to somebody new. It is for a [*CardError] that has an explanation: the contact
// has lost its identity's keys, say, or uses a program without cards now. Messages
// to it may then be sealed with suite 2.
func (c *Client) Forget(ctx context.Context, contact crypto.PublicKey) error {
	return c.book.forget(ctx, contact)
}

// openKeys makes the Client's keyring and cardbook. Without a store both last as long
// as the Client.
func (c *Client) openKeys(ctx context.Context) error {
	id, store := c.cfg.Identity, c.cfg.Store
	var own *safe
	if store == nil {
		store = inbox.NewMemoryState(nil)
	} else {
		var err error
		if own, err = newSafe(&c.cfg, cardsBucket, store); err != nil {
			return err
		}
	}
	contacts, err := newSafe(&c.cfg, contactsBucket, store)
	if err != nil {
		return err
	}
	if c.keys, err = newKeyring(ctx, id, own, c.cfg.Logger); err != nil {
		return err
	}
	shared, err := newSafe(&c.cfg, groupsBucket, store)
	if err != nil {
		return err
	}
	if c.groups, err = openGroups(ctx, shared, c.stand.rename); err != nil {
		return err
	}
	c.open = &opener{id, c.keys}
	c.book = &cardbook{
		safe: contacts, relay: c, alarm: c.cfg.Trace.Card,
		contacts: make(map[crypto.PublicKey]*contact),
	}
	return nil
}

// isOnline implements cardSource.
func (c *Client) isOnline() bool {
	c.ask.mu.Lock()
	defer c.ask.mu.Unlock()
	return c.ask.up
}

// getCard implements cardSource.
func (c *Client) getCard(ctx context.Context, who crypto.PublicKey) ([]byte, error) {
	answer, err := c.request(ctx, withText(`{"t":"get_card","key":`, hex.EncodeToString(who[:])))
	switch {
	case errors.Is(err, ErrLegacySession), isRefused(err, frame.CodeNotFound), isRefused(err, frame.CodeUnknownVerb):
		return nil, errNoCard
	case err != nil:
		return nil, err
	}
	card, err := base64.StdEncoding.DecodeString(answer.Text("card"))
	if err != nil {
		return nil, nil // which is no card
	}
	return card, nil
}

// putCard has the relay keep our card.
func (c *Client) putCard(ctx context.Context, card *crypto.Card) error {
	_, err := c.request(ctx, withText(`{"t":"put_card","card":`, base64.StdEncoding.EncodeToString(card.Bytes())))
	return err
}

// withText returns an object that ends with a string.
func withText(begin, text string) []byte {
	return append(frame.AppendText([]byte(begin), text), '}')
}

func isRefused(err error, code frame.Code) bool {
	var r *RefusedError
	return errors.As(err, &r) && r.Code == code
}

// keepCard sees to it that the relay has our card, until the connection ends.
func (c *Client) keepCard(ctx context.Context) {
	for {
		card, renewed := c.keys.current()
		var err error
		if card != nil {
			err = c.putCard(ctx, card)
		}
		switch {
		case ctx.Err() != nil:
			return
		case err == nil && card != nil:
			c.keys.keep(card)
		case isRefused(err, frame.CodeDenied):
			signal(c.keys.outdone)
		}
		again := time.NewTimer(askAgain)
		if err == nil || isRefused(err, frame.CodeUnknownVerb) {
			again.Stop()
		} else {
			c.cfg.Logger.Warn("client: the relay has not taken our card", "err", err)
		}
		select {
		case <-again.C:
		case <-renewed:
		case <-ctx.Done():
		}
		again.Stop()
	}
}
