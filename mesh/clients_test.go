package mesh

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sotto-relay/sotto/crypto"
	relayclient "github.com/sotto-relay/sotto/relay/client"
)

// user logs a Client of relay/client in.
func (n *node) user(id *crypto.Identity) *relayclient.Client {
	n.w.t.Helper()
	c, err := relayclient.New(context.Background(), &relayclient.Config{Identity: id, Dial: n.net.Dial, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(n.w.t, err)
	n.w.t.Cleanup(func() { _ = c.Close() })
	return c
}

// letter waits for the next letter of a Client's.
func letter(t testing.TB, c *relayclient.Client) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
	defer cancel()
	for l, err := range c.Messages(ctx) {
		require.NoError(t, err)
		return l.Text()
	}
	return ""
}

// Two Clients on two relays find each other through the owners of their keys, and what
// they send is read.
func TestClients(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, b := w.start("a", "c"), w.start("b", "c")
		w.start("c", "")
		settle()
		ann, bob := a.user(identity(t, 1)), b.user(identity(t, 2))
		time.Sleep(time.Second)
		for _, x := range []struct {
			from, to *relayclient.Client
			key      crypto.PublicKey
		}{{ann, bob, identity(t, 2).Public()}, {bob, ann, identity(t, 1).Public()}} {
			got := make(chan string, 1)
			go func() { got <- letter(t, x.to) }()
			r, err := x.from.Send(t.Context(), x.key, relayclient.Text("hello"), relayclient.Until(relayclient.Read))
			require.NoError(t, err)
			require.Equal(t, relayclient.Read, r.Status)
			require.Equal(t, "hello", <-got)
		}
		a.mesh.mu.Lock()
		p, known := a.mesh.places.get(identity(t, 2).Public(), time.Now())
		a.mesh.mu.Unlock()
		require.True(t, known && p.attached && p.relay == b.id.Public(), "%+v", p)
		w.balanced()
	})
}

// Mail that waits at one relay comes to a Client that logs in at another, for as long
// as it stays there.
func TestMailToClient(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a := w.start("a", "b")
		w.start("b", "")
		c := w.start("c", "b")
		settle()
		ann := a.user(identity(t, 1))
		bob := identity(t, 2)
		for _, text := range []string{"one", "two"} {
			r, err := ann.Send(t.Context(), bob.Public(), relayclient.Text(text))
			require.NoError(t, err)
			require.Equal(t, relayclient.Stored, r.Status)
		}
		there := c.user(bob)
		require.Equal(t, "one", letter(t, there))
		require.Equal(t, "two", letter(t, there))
		time.Sleep(5 * time.Hour) // many attachments later
		r, err := ann.Send(t.Context(), bob.Public(), relayclient.Text("three"))
		require.NoError(t, err)
		require.Equal(t, relayclient.Handed, r.Status)
		require.Equal(t, "three", letter(t, there))
		w.balanced()
	})
}
