package client_test

import (
	"context"
	"log/slog"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sotto-relay/sotto/crypto"
	"github.com/sotto-relay/sotto/inbox"
	"github.com/sotto-relay/sotto/inbox/disk"
	"github.com/sotto-relay/sotto/relay"
	"github.com/sotto-relay/sotto/relay/client"
	"github.com/sotto-relay/sotto/relay/dialect/brep"
	"github.com/sotto-relay/sotto/transport"
)

// TestDisk: a sender and a recipient with stores on disk, started again and again.
func TestDisk(t *testing.T) {
	server, dialect := &relay.Server{Inbox: inbox.NewMemory(nil)}, brep.Dialect{Identity: newIdentity(), Durable: true}
	dial := func(context.Context) (transport.Conn, error) { return server.Dial(dialect), nil }
	me, friend := newIdentity(), newIdentity()
	dir := t.TempDir()
	live := func(id *crypto.Identity, f func(*client.Client)) {
		db, err := disk.Open(filepath.Join(dir, id.String()), nil)
		require.NoError(t, err)
		defer func() { require.NoError(t, db.State().Close()) }()
		c, err := client.New(t.Context(), &client.Config{
			Identity: id, Store: db.State(), Dial: dial, Logger: slog.New(slog.DiscardHandler),
		})
		require.NoError(t, err)
		defer c.Close()
		f(c)
	}
	const messages = 60
	var sent, got int
	for got < messages {
		live(me, func(from *client.Client) {
			for range 15 {
				if sent == messages {
					break
				}
				_, err := from.Send(t.Context(), friend.Public(), client.Text(strconv.Itoa(sent)), client.NoWait())
				require.NoError(t, err)
				sent++
			}
			live(friend, func(to *client.Client) {
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				defer cancel()
				before := got
				for l, err := range to.Messages(ctx) {
					require.NoError(t, err)
					require.Equal(t, strconv.Itoa(got), l.Text())
					if got++; got-before == 15 {
						break
					}
				}
			})
		})
	}
	require.Equal(t, messages, got)
}

// BenchmarkDiskSend is the price of a message that has to be on disk first.
func BenchmarkDiskSend(b *testing.B) {
	db, err := disk.Open(b.TempDir(), nil)
	require.NoError(b, err)
	b.Cleanup(func() { _ = db.State().Close() })
	c, err := client.New(b.Context(), &client.Config{
		Identity: newIdentity(), Store: db.State(), StartOffline: true, PendingMessages: 1 << 30, PendingBytes: 1 << 40,
		Dial: func(ctx context.Context) (transport.Conn, error) { <-ctx.Done(); return nil, ctx.Err() },
	})
	require.NoError(b, err)
	defer c.Close()
	to := newIdentity().Public()
	for b.Loop() {
		_, err := c.Send(b.Context(), to, client.Text("hello"), client.NoWait(), client.Clear())
		require.NoError(b, err)
	}
}
