package client

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sotto-relay/sotto/frame"
	"github.com/sotto-relay/sotto/relay/dialect/brep"
	"github.com/sotto-relay/sotto/transport"
)

// withToken returns the context to dial with, and notes when a new token is due.
func (c *Client) withToken(ctx context.Context) (context.Context, error) {
	if c.cfg.Credential == nil {
		return ctx, nil
	}
	token, renew, err := c.cfg.Credential(ctx)
	if err != nil {
		return nil, fmt.Errorf("client: credential: %w", err)
	}
	c.renewAt = renew
	return transport.WithToken(ctx, token), nil
}

// renew brings the relay new tokens as long as a connection lasts. When that fails
// it is tried again: until the old one has expired the session goes on.
func (c *Client) renew(ctx context.Context, at time.Time) {
	for attempt := 0; !at.IsZero(); {
		t := time.NewTimer(max(time.Until(at), c.cfg.BackoffMin))
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return
		}
		token, next, err := c.cfg.Credential(ctx)
		if err == nil {
			_, err = c.request(ctx, body("auth", "token", token))
		}
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			c.cfg.Logger.Warn("client: the credential is not renewed", "err", err)
			at = time.Now().Add(backoff(attempt, c.cfg.BackoffMin, c.cfg.BackoffMax))
			attempt++
		default:
			at, attempt = next, 0
		}
	}
}

// isExpired says whether a session has ended since its token has, so that another
// one may do.
func (c *Client) isExpired(err error) bool {
	var re *brep.RelayError
	return c.cfg.Credential != nil && errors.As(err, &re) && re.Code == frame.CodeNotAuthenticated
}
