package mailbox

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sotto-relay/sotto/relay"
)

// TestKeyed: one at a time for an id, others at the same time; who waits can give up,
// and nothing is left.
func TestKeyed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var k keyed
		one, two := relay.ID{1}, relay.ID{2}
		require.NoError(t, k.lock(t.Context(), one))
		require.NoError(t, k.lock(t.Context(), two))
		ctx, cancel := context.WithCancel(t.Context())
		gaveUp, got := make(chan error, 1), make(chan error, 1)
		go func() { gaveUp <- k.lock(ctx, one) }()
		go func() { got <- k.lock(t.Context(), one) }()
		synctest.Wait()
		assert.Empty(t, got)
		cancel()
		assert.ErrorIs(t, <-gaveUp, context.Canceled)
		k.unlock(one)
		require.NoError(t, <-got)
		k.unlock(one)
		k.unlock(two)
		assert.Empty(t, k.locks)
	})
}
