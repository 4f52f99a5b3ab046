package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync/atomic"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/sotto-relay/sotto/crypto"
	"github.com/sotto-relay/sotto/frame"
	"github.com/sotto-relay/sotto/handshake"
	"github.com/sotto-relay/sotto/relay/client"
	"github.com/sotto-relay/sotto/relay/dialect/brep"
)

const defaultRelay = "ws://127.0.0.1:8080"

// clientFlags are those of every command that connects to a relay.
func (p *program) clientFlags() []cli.Flag {
	return []cli.Flag{
		p.stringFlag("relay", defaultRelay, "`URL` of the relay: ws://, wss://, tcp:// or tls://"),
		p.relayKeyFlag(),
		p.caFlag(),
		p.identityFlag(),
		p.knownRelaysFlag(),
		p.boolFlag("state", "keep what has to survive in a directory beside the identity; see sotto id --help"),
		p.boolFlag("json", "print JSON, one value a line"),
	}
}

func (p *program) relayKeyFlag() cli.Flag {
	return p.stringFlag("relay-key", "", "the key that the relay must have, in `HEX` (default the one seen there before)")
}

func (p *program) caFlag() cli.Flag {
	return p.stringFlag("ca", "", "`FILE` with the certificate of an authority of your own, in PEM (default those of the system)")
}

func (p *program) knownRelaysFlag() cli.Flag {
	return p.stringFlag("known-relays", "", "`FILE` that remembers the keys of relays (default sotto/known_relays where configuration is kept)")
}

// An account is an identity at a relay.
type account struct {
	*remote
	p        *program
	relayKey *crypto.PublicKey
	identity string // a file, or empty
	known    string // likewise
	keep     bool   // make a state if there is none

	files *client.FilePolicy // nil: large files are left to recv

	state    string      // a directory, or empty; since connect
	patience *time.Timer // ends what is done briefly
}

// parseAccount reads the flags of an account at a relay, whose URL what names.
func (p *program) parseAccount(cmd *cli.Command, what, url string) (*account, error) {
	r, err := parseRemote(what, url, cmd.String("ca"))
	if err != nil {
		return nil, err
	}
	a := &account{remote: r, p: p, identity: cmd.String("identity"), known: cmd.String("known-relays"), keep: cmd.Bool("state")}
	if a.relayKey, err = parseRelayKey(cmd); err != nil {
		return nil, err
	}
	return a, nil
}

// parseRelayKey reads the value of --relay-key; nil if there is none.
func parseRelayKey(cmd *cli.Command) (*crypto.PublicKey, error) {
	s := cmd.String("relay-key")
	if s == "" {
		return nil, nil
	}
	key, err := parseKey(s)
	if err != nil {
		return nil, fmt.Errorf("--relay-key: %w", err)
	}
	return &key, nil
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

// connect logs in, for which it has until ctx ends, or returns at once if offline and
// there is a state. Whenever the relay is not reached, or lost, then or later, the client tries
// again if persist says so, which is asked whether there has been a login; if not,
// cancel is called with a goneError. What is returned is closed with hangUp.
func (a *account) connect(ctx context.Context, cancel context.CancelCauseFunc, persist func(loggedIn bool) bool, offline bool) (_ *client.Client, hangUp func(), err error) {
	id, err := a.p.loadIdentity(a.identity)
	if err != nil {
		return nil, nil, err
	}
	if a.known, err = knownRelays(a.known); err != nil {
		return nil, nil, err
	}
	dial, err := a.dialer()
	if err != nil {
		return nil, nil, err
	}
	store, closeStore, err := a.openState()
	if err != nil {
		return nil, nil, err
	}
	c, err := client.New(ctx, &client.Config{
		Identity:     id,
		Dial:         dial,
		Address:      a.address,
		Relay:        a.relayKey,
		Trust:        handshake.NewFileTrust(a.known),
		Encrypted:    isEncrypted,
		StartOffline: offline && a.state != "",
		PingInterval: a.pingInterval(),
		Store:        store,
		Files:        cmp.Or(a.files, &client.FilePolicy{Accept: leaveToRecv}),
		Logger:       slog.New(slog.DiscardHandler), // what follows tells the user
		Trace:        a.trace(cancel, persist),
	})
	if err != nil {
		closeStore()
		return nil, nil, a.explain(ctx, err)
	}
	return c, func() {
		_ = c.Close()
		closeStore()
	}, nil
}

// leaveToRecv answers no offer, so that it comes again.
func leaveToRecv(ctx context.Context, _ client.FileOffer) (string, error) {
	<-ctx.Done()
	return "", ctx.Err()
}

// trace tells the user what a client does.
func (a *account) trace(cancel context.CancelCauseFunc, persist func(loggedIn bool) bool) *client.Trace {
	var loggedIn atomic.Bool
	return &client.Trace{
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
		Card: func(contact crypto.PublicKey, why error) {
			a.p.complain("what the relay says of the card of %.8v is doubtful, and the one from before is used: %v", contact, why)
		},
		Settled: func(to crypto.PublicKey, r client.Receipt, err error) {
			if err != nil {
				a.p.complain("a message from before, to %.8v, has failed: %v", to, err)
				return
			}
			a.p.complain("a message from before, to %.8v, is %v now", to, r.Status)
		},
		Revoked: func(to crypto.PublicKey, r client.Receipt, err error) {
			a.p.complain("a message to %.8v that was %v has failed after all: %v", to, r.Status, err)
		},
		StoreFailed: func(err error) {
			a.p.complain("the state in %s has failed: %v", a.state, err)
		},
	}
}

// briefly calls do with a client, for which there is so much time. If offline and
// there is a state, there need be no relay before that has passed.
func (a *account) briefly(ctx context.Context, timeout time.Duration, offline bool, do func(context.Context, *client.Client) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	a.patience = time.AfterFunc(timeout, func() { cancel(context.DeadlineExceeded) })
	defer a.patience.Stop()
	c, hangUp, err := a.connect(ctx, cancel, func(loggedIn bool) bool { return loggedIn || offline && a.state != "" }, offline)
	if err != nil {
		return err
	}
	defer hangUp()
	return do(ctx, c)
}

// patiently calls do with a client that is connected again whenever the relay is
// lost, and from the start as soon as there is one. An interrupt is a good end.
func (a *account) patiently(interrupt context.Context, do func(context.Context, *client.Client) error) error {
	ctx, cancel := context.WithCancelCause(interrupt)
	defer cancel(nil)
	c, hangUp, err := a.connect(ctx, cancel, func(bool) bool { return true }, false)
	if err == nil {
		defer hangUp()
		err = do(ctx, c)
	}
	if interrupt.Err() != nil {
		return nil
	}
	return err
}

// knownRelays returns file, or the default one.
func knownRelays(file string) (string, error) {
	if file != "" {
		return file, nil
	}
	file, err := configFile("known_relays")
	if err != nil {
		return "", fmt.Errorf("%w; give --known-relays a file", err)
	}
	return file, nil
}

// warnUnencrypted is called at most once.
func (a *account) warnUnencrypted(net.Addr) {
	a.p.complain("the way to %s is not encrypted: who writes to whom can be seen on it, and what is sent --clear or --signed; use wss:// or tls:// if the relay has it", a.address)
}

// explain says what err means for the user, and what to do.
func (a *account) explain(ctx context.Context, err error) error {
	var (
		mismatch *handshake.KeyMismatchError
		refused  *client.RefusedError
		relayErr *brep.RelayError
		card     *client.CardError
		gone     *goneError
		network  *net.OpError
	)
	switch cause := context.Cause(ctx); {
	case errors.As(cause, &gone):
		err = gone.err
	case errors.Is(cause, context.DeadlineExceeded) && errors.Is(err, context.Canceled):
		err = cause
	}
	switch {
	case errors.As(err, &mismatch) && a.relayKey != nil:
		return fmt.Errorf("the relay at %s has the key %v, not that of --relay-key: it is another relay, or somebody is in between", a.address, mismatch.Got)
	case errors.As(err, &mismatch):
		return fmt.Errorf("the relay at %s has the key %v, and had %v before: somebody may be in between. If its operator confirms the new one, delete its line in %s", a.address, mismatch.Got, mismatch.Want, a.known)
	case errors.Is(err, handshake.ErrLegacyRelay):
		return fmt.Errorf("%s speaks the old handshake only, or somebody in between wants it to look so; use another relay, or have it updated", a.address)
	case errors.As(err, &card):
		return fmt.Errorf("nothing was sent to %.8v: the relay at %s gives no good card of it, and may lie so that it is sealed with less: %w. If the recipient confirms it, give --forget-card, and the address alone", card.Contact, a.address, card.Err)
	case errors.As(err, &refused):
		return fmt.Errorf("the relay at %s has refused it: %w", a.address, refused)
	case errors.As(err, &relayErr) && relayErr.Code == frame.CodeReplaced:
		return errors.New("another program has logged in with this identity; each needs its own")
	case errors.As(err, &relayErr):
		return fmt.Errorf("the relay at %s ended the connection: %w", a.address, relayErr)
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("no answer from %s within --timeout; what was sent may have arrived or not", a.address)
	case errors.Is(err, context.Canceled):
		return errInterrupted
	case errors.As(err, &network):
		return fmt.Errorf("cannot reach the relay at %s: %w; is it running, and is --relay right?", a.address, network.Err)
	case gone != nil:
		return fmt.Errorf("cannot reach the relay at %s: %w; is it running, and is --relay right?", a.address, err)
	}
	return err
}
