package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"slices"
	"time"

	"github.com/sotto-relay/sotto/inbox"
	"github.com/sotto-relay/sotto/inbox/disk"
	"github.com/sotto-relay/sotto/relay/client"
)

// stateSuffix makes the name of an identity's state of that of its file. It is at
// one place, and used by every command once it is there, since it has keys: what is
// sealed to them is lost to a client without it.
const stateSuffix = ".state"

// openState opens the state of the account's identity, if there is one or is to be.
func (a *account) openState() (_ inbox.State, closeIt func(), err error) {
	file, err := identityPath(a.identity)
	if err != nil {
		return nil, nil, err
	}
	dir := file + stateSuffix
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) && !a.keep {
		return nil, func() {}, nil
	}
	db, err := disk.Open(dir, &disk.Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return nil, nil, fmt.Errorf("the state of the identity: %w", err)
	}
	a.state = dir
	return db.State(), func() {
		if err := db.Close(); err != nil {
			a.p.complain("the state in %s has failed: %v", dir, err)
		}
	}, nil
}

// A keptError means that there was no receipt in time, and that the message is in
// the state.
type keptError struct{ dir string }

func (e *keptError) Error() string {
	return fmt.Sprintf("the receipt has not come yet: the message is kept in %s, and sent again by the next command with this identity, to the relay of that", e.dir)
}

// keepOr calls send with a context that ends with ctx; if there is a state, it ends
// the client instead, so that the message stays there, and returns a keptError.
func (a *account) keepOr(ctx context.Context, c *client.Client, send func(context.Context) (client.Receipt, error)) (client.Receipt, error) {
	if a.state == "" {
		return send(ctx)
	}
	start, kept := time.Now(), false
	defer context.AfterFunc(ctx, func() {
		kept = slices.ContainsFunc(c.Pending(), func(p client.Pending) bool { return !p.Made.Before(start) })
		_ = c.Close()
	})()
	r, err := send(context.WithoutCancel(ctx))
	switch {
	case !errors.Is(err, client.ErrClosed):
		return r, err
	case kept:
		return r, &keptError{a.state}
	}
	return r, ctx.Err()
}
