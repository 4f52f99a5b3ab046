package client

import (
	"context"
	"encoding/base64"
	"time"

	"github.com/sotto-relay/sotto/crypto"
	"github.com/sotto-relay/sotto/frame"
)

const (
	attachFor   = time.Hour // at most (spec mesh.md, "Attachment")
	attachAgain = 10 * time.Second
)

// keepAttached tells a relay, in the mesh's words, that we are there, so that other
// relays bring our messages and our mail: at once, and again at half time, until the
// connection ends. A relay that knows no mesh is left in peace; one whose mesh has not
// begun, or whose clock differs, is told again.
func (c *Client) keepAttached(ctx context.Context, relay crypto.PublicKey) {
	again := attachAgain
	for {
		statement := crypto.Attach(c.cfg.Identity, relay, time.Now().Add(attachFor))
		_, err := c.request(ctx, withText(`{"t":"attach","stmt":`, base64.StdEncoding.EncodeToString(statement[:])))
		wait := attachFor / 2
		switch {
		case ctx.Err() != nil || isRefused(err, frame.CodeUnknownVerb):
			return
		case err != nil:
			c.cfg.Logger.Warn("client: the relay has not taken that we are there", "err", err)
			wait, again = again, min(2*again, wait)
		default:
			again = attachAgain
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return
		}
	}
}
