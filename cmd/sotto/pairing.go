package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/sotto-relay/sotto/crypto"
	"github.com/sotto-relay/sotto/handshake"
	"github.com/sotto-relay/sotto/relay/client"
)

// A meeting is what id --pairing was asked for: to be found at a relay.
type meeting struct {
	*account
	json    bool
	timeout time.Duration
}

func (p *program) parseMeeting(cmd *cli.Command) (*meeting, error) {
	a, err := p.parseAccount(cmd, "--relay", cmd.String("relay"))
	if err != nil {
		return nil, err
	}
	m := &meeting{account: a, json: cmd.Bool("json")}
	switch {
	case !cmd.IsSet("relay"):
		return nil, errors.New("--pairing wants --relay, with the URL at which others reach the relay")
	case !m.isWeb():
		return nil, fmt.Errorf("a pairing string has no room for %s://: --relay has to be ws:// or wss://", m.url.Scheme)
	}
	m.timeout, err = timeout(cmd)
	return m, err
}

func (m *meeting) run(ctx context.Context) error {
	var pairing crypto.Pairing
	err := m.briefly(ctx, m.timeout, false, func(ctx context.Context, c *client.Client) error {
		if _, err := c.Capabilities(ctx); err != nil { // the relay is given our card before it answers
			return m.explain(ctx, err)
		}
		pairing = c.Pairing()
		return nil
	})
	if err != nil {
		return err
	}
	if m.relayKey != nil {
		pairing.Relay = *m.relayKey
	} else if pairing.Relay, _, err = handshake.NewFileTrust(m.known).Lookup(m.address); err != nil {
		return err
	}
	pairing.Host, pairing.Path, pairing.TLS = m.url.Host, m.url.EscapedPath(), m.isTLS()
	text := pairing.String()
	if _, err := crypto.ParsePairing(text); err != nil {
		return fmt.Errorf("a pairing string has no room for %s: it takes a host in lower case and a path without escapes", m.address)
	}
	return m.p.showIdentity(m.identity, text, m.json)
}
