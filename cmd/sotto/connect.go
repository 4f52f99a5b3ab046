package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"sync/atomic"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/sotto-relay/sotto/crypto"
	"github.com/sotto-relay/sotto/frame"
	"github.com/sotto-relay/sotto/handshake"
	"github.com/sotto-relay/sotto/relay/client"
	"github.com/sotto-relay/sotto/relay/dialect/brep"
	"github.com/sotto-relay/sotto/transport"
	"github.com/sotto-relay/sotto/transport/ws"
)

const defaultRelay = "ws://127.0.0.1:8080"

// clientFlags are those of every command that connects to a relay.
func (p *program) clientFlags() []cli.Flag {
	return []cli.Flag{
		p.stringFlag("relay", defaultRelay, "`URL` of the relay, ws:// or wss://"),
		p.stringFlag("relay-key", "", "the key that the relay must have, in `HEX` (default the one seen there before)"),
		p.identityFlag(),
		p.stringFlag("known-relays", "", "`FILE` that remembers the keys of relays (default sotto/known_relays where configuration is kept)"),
		p.boolFlag("json", "print JSON, one value a line"),
	}
}

// An account is an identity at a relay.
type account struct {
	p        *program
	url      string
	address  string // of the relay, for trust
	relayKey *crypto.PublicKey
	identity string // a file, or empty
	known    string // likewise
}

func (p *program) parseAccount(cmd *cli.Command) (*account, error) {
	a := &account{p: p, url: cmd.String("relay"), identity: cmd.String("identity"), known: cmd.String("known-relays")}
	u, err := url.Parse(a.url)
	if err != nil || u.Scheme != "ws" && u.Scheme != "wss" || u.Hostname() == "" || u.User != nil || u.Fragment != "" {
		return nil, fmt.Errorf("--relay is no URL of a relay, such as %s", defaultRelay)
	}
	u.RawQuery, u.ForceQuery = "", false
	a.address = u.String()
	if s := cmd.String("relay-key"); s != "" {
		key, err := parseKey(s)
		if err != nil {
			return nil, fmt.Errorf("--relay-key: %w", err)
		}
		a.relayKey = &key
	}
	return a, nil
}

// parseKey reads an address, or the key of a relay.
func parseKey(s string) (crypto.PublicKey, error) {
	key, err := crypto.ParsePublicKey(s)
	if err != nil {
		const want = "wanted are 64 hexadecimal digits in lower case, as sotto id shows them"
		if _, err := crypto.ParseX25519Key(s); err == nil {
			return key, fmt.Errorf("%q is base64, as X25519 keys are written, which cannot be written to: %s", s, want)
		}
		return key, fmt.Errorf("%q is no key: %s", s, want)
	}
	if key.Check() != nil {
		return key, fmt.Errorf("%q is no valid Ed25519 key, but a weak one or one of another kind", s)
	}
	return key, nil
}

// A goneError is why a context ended: the relay was not reached, or lost.
type goneError struct{ err error }

func (e *goneError) Error() string { return e.err.Error() }

// connect logs in, for which it has until ctx ends. Whenever the relay is not
// reached, or lost, then or later, the client tries again if persist says so,
// which is asked whether there has been a login; if not, cancel is called with a
// goneError.
func (a *account) connect(ctx context.Context, cancel context.CancelCauseFunc, persist func(loggedIn bool) bool) (*client.Client, error) {
	id, err := a.p.loadIdentity(a.identity)
	if err != nil {
		return nil, err
	}
	if a.known == "" {
		if a.known, err = configFile("known_relays"); err != nil {
			return nil, fmt.Errorf("%w; give --known-relays a file", err)
		}
	}
	var loggedIn atomic.Bool
	c, err := client.New(ctx, &client.Config{
		Identity:  id,
		Dial:      ws.Dialer(a.url, nil),
		Address:   a.address,
		Relay:     a.relayKey,
		Trust:     handshake.NewFileTrust(a.known),
		Encrypted: func(c transport.Conn) bool { return c.Value(ws.TLSKey) != nil },
		Logger:    slog.New(slog.DiscardHandler), // what follows tells the user
		Trace: &client.Trace{
			Connected: func(handshake.Relay) {
				if loggedIn.Swap(true) {
					a.p.complain("connected again")
				}
			},
			Disconnected: func(err error, _ time.Duration) {
				if persist(loggedIn.Load()) {
					a.p.complain("no connection to %s, which is tried again: %v", a.address, err)
					return
				}
				cancel(&goneError{err})
			},
			FirstContact: func(key crypto.PublicKey) {
				a.p.complain("first contact with %s; its key, remembered from now on, is %v (%s)", a.address, key, key.Fingerprint())
			},
			Unencrypted: a.warnUnencrypted,
			Dropped: func(from crypto.PublicKey, why error) {
				a.p.complain("a message was dropped, by its own account from %.8v: %v", from, why)
			},
		},
	})
	if err != nil {
		return nil, a.explain(ctx, err)
	}
	return c, nil
}

// warnUnencrypted is called at most once.
func (a *account) warnUnencrypted(net.Addr) {
	a.p.complain("the way to %s is not encrypted: who writes to whom can be seen on it, and what is sent --clear or --signed; use wss:// if the relay has it", a.address)
}

// explain says what err means for the user, and what to do.
func (a *account) explain(ctx context.Context, err error) error {
	var (
		mismatch *handshake.KeyMismatchError
		refused  *client.RefusedError
		relayErr *brep.RelayError
		gone     *goneError
		network  *net.OpError
	)
	if errors.As(context.Cause(ctx), &gone) {
		err = gone.err
	}
	switch {
	case errors.As(err, &mismatch) && a.relayKey != nil:
		return fmt.Errorf("the relay at %s has the key %v, not that of --relay-key: it is another relay, or somebody is in between", a.address, mismatch.Got)
	case errors.As(err, &mismatch):
		return fmt.Errorf("the relay at %s has the key %v, and had %v before: somebody may be in between. If its operator confirms the new one, delete its line in %s", a.address, mismatch.Got, mismatch.Want, a.known)
	case errors.Is(err, handshake.ErrLegacyRelay):
		return fmt.Errorf("%s speaks the old handshake only, or somebody in between wants it to look so; use another relay, or have it updated", a.address)
	case errors.As(err, &refused):
		return fmt.Errorf("the relay refused the message: %w", refused)
	case errors.As(err, &relayErr) && relayErr.Code == frame.CodeReplaced:
		return errors.New("another program has logged in with this identity; each needs its own")
	case errors.As(err, &relayErr):
		return fmt.Errorf("the relay at %s ended the connection: %w", a.address, relayErr)
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("no answer from %s within --timeout; what was sent may have arrived or not", a.address)
	case errors.Is(err, context.Canceled):
		return errors.New("interrupted")
	case errors.As(err, &network):
		return fmt.Errorf("cannot reach the relay at %s: %w; is it running, and is --relay right?", a.address, network.Err)
	case gone != nil:
		return fmt.Errorf("cannot reach the relay at %s: %w; is it running, and is --relay right?", a.address, err)
	}
	return err
}
