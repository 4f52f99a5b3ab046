package client

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/sotto-relay/sotto/crypto"
	"github.com/sotto-relay/sotto/frame"
)

// Block has the relay keep from us what the key sends, and refuse it with
// frame.CodeDenied, until Unblock. Publications and rooms are not concerned.
//
// Errors of this and the following methods are as those of [Client.Subscribe].
func (c *Client) Block(ctx context.Context, key crypto.PublicKey) error {
	_, err := c.request(ctx, body("block", "key", key.String()))
	return err
}

// Unblock ends Block. It is no error if the key was not blocked.
func (c *Client) Unblock(ctx context.Context, key crypto.PublicKey) error {
	_, err := c.request(ctx, body("unblock", "key", key.String()))
	return err
}

// Erase has the relay remove what it keeps of us: what waits in our inbox, our
// card, what we had it retain, and whom we have blocked. It is for who leaves: until
// the next login, which brings the card again, the relay tells others that there is none.
func (c *Client) Erase(ctx context.Context) error {
	_, err := c.request(ctx, []byte(`{"t":"erase"}`))
	return err
}

// Capabilities returns what the relay says of itself: its limits, features and load.
func (c *Client) Capabilities(ctx context.Context) (*frame.Capabilities, error) {
	r, err := c.request(ctx, []byte(`{"t":"capabilities"}`))
	if err != nil {
		return nil, err
	}
	said := new(frame.Capabilities)
	if err := json.Unmarshal(r.Payload, said); err != nil {
		return nil, fmt.Errorf("client: capabilities: %w", err)
	}
	return said, nil
}
