package relaytest_test

import (
	"log/slog"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sotto-relay/sotto/frame"
	"github.com/sotto-relay/sotto/relay"
	"github.com/sotto-relay/sotto/relay/client"
	"github.com/sotto-relay/sotto/relay/dialect/brep"
	"github.com/sotto-relay/sotto/relay/relaytest"
)

func text(t *testing.T, p *relaytest.Peer) string {
	t.Helper()
	for letter, err := range p.Messages(t.Context()) {
		require.NoError(t, err)
		return letter.Text()
	}
	return ""
}

func TestPair(t *testing.T) {
	pair := relaytest.NewPair(t, nil)
	_, err := pair.Alice.Send(t.Context(), pair.Bob.Key(), client.Text("hello"))
	require.NoError(t, err)
	assert.Equal(t, "hello", text(t, pair.Bob))

	// Somebody who is away.
	carol := pair.Peer(t, nil)
	require.NoError(t, carol.Close())
	receipt, err := pair.Bob.Send(t.Context(), carol.Key(), client.Text("hello again"))
	require.NoError(t, err)
	assert.Contains(t, []client.Status{client.Stored, client.Handed}, receipt.Status)
}

func TestPairOptions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		id := identity("relay")
		server := &relay.Server{Logger: slog.New(slog.DiscardHandler)} // without an inbox
		configured := 0
		pair := relaytest.NewPair(t, &relaytest.PairOptions{
			Server: server, Dialect: brep.Dialect{Identity: id},
			Client: func(c *client.Config) { configured++; c.PendingMessages = 1 },
		})
		assert.Same(t, server, pair.Server)
		assert.Equal(t, id.Public(), pair.Dialect.Identity.Public())
		assert.Equal(t, 2, configured)
		absent := identity("nobody").Public()
		_, err := pair.Alice.Send(t.Context(), absent, client.Text("is anybody there?"))
		var refused *client.RefusedError
		require.ErrorAs(t, err, &refused)
		assert.Equal(t, frame.CodeNotHere, refused.Code)

		alice := pair.Peer(t, pair.Alice.Identity) // takes over
		assert.Equal(t, pair.Alice.Key(), alice.Key())
		synctest.Wait()
		assert.Error(t, pair.Alice.Err())
	})
}
