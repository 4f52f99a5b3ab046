package brep

import (
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sotto-relay/sotto/crypto"
	"github.com/sotto-relay/sotto/frame"
	"github.com/sotto-relay/sotto/inbox"
)

// TestBlock: what a blocked key sends is refused as denied, live and where it would
// be stored, to him alone, and after a restart.
func TestBlock(t *testing.T) {
	state := inbox.NewMemoryState(nil)
	set := func(r *rig) {
		withInbox(r)
		r.server.State = state
	}
	blocked := func(t *testing.T, sender, recipient *peer, id byte) {
		t.Helper()
		sender.send(sender.sealed(recipient.id, id, frame.FlagReceipt, ""))
		got := sender.receipt(id)
		require.Equal(t, refused, got.Status)
		require.Equal(t, frame.CodeDenied, got.Code)
		sender.send(sender.sealed(recipient.id, id, 0, ""))
		require.Equal(t, frame.CodeDenied, sender.error().Code)
	}
	bubble(t, set, func(t *testing.T, r *rig) {
		p := r.extended(3)
		alice, mallory, carol := p[0], p[1], p[2]
		mallory.send(mallory.sealed(alice.id, 1, frame.FlagReceipt, "before"))
		mallory.hears(1, handedOver)
		before := alice.took()
		for range 2 {
			require.Equal(t, `{"t":"block","req":3,"ok":true}`, alice.ask(verbOf("block", mallory)))
		}
		alice.acks(before)
		require.Equal(t, acknowledged, mallory.receipt(1).Status, "what came before is hers")
		mallory.send(mallory.sealed(alice.id, 1, frame.FlagReceipt, "before"))
		mallory.hears(1, acknowledged)
		blocked(t, mallory, alice, 2)
		alice.nothing()
		legacy := r.login(identity(t, 9), formLegacy)
		alice.ask(verbOf("block", legacy))
		legacy.data(alice.id, "v1")
		legacy.nothing()
		alice.nothing()

		// Others may, he may write to others, and she may write to him.
		carol.send(carol.sealed(alice.id, 3, 0, ""))
		require.Equal(t, frame.TypeSealed, alice.next().Type)
		mallory.send(mallory.sealed(carol.id, 4, 0, ""))
		require.Equal(t, frame.TypeSealed, carol.next().Type)
		alice.send(alice.sealed(mallory.id, 5, 0, ""))
		require.Equal(t, frame.TypeSealed, mallory.next().Type)

		alice.leave()
		blocked(t, mallory, alice, 6)
		require.EqualValues(t, 5, r.server.Stats().Ignored["brep: blocked"])
		requireBalance(t, r.server)
	})
	bubble(t, set, func(t *testing.T, r *rig) {
		p := r.extended(2)
		alice, mallory := p[0], p[1]
		blocked(t, mallory, alice, 7)
		for range 2 {
			require.Equal(t, `{"t":"unblock","req":3,"ok":true}`, alice.ask(verbOf("unblock", mallory)))
		}
		mallory.send(mallory.sealed(alice.id, 7, 0, ""))
		require.Equal(t, frame.TypeSealed, alice.took().Type)
	})
	bubble(t, set, func(t *testing.T, r *rig) {
		p := r.extended(2)
		p[1].send(p[1].sealed(p[0].id, 8, 0, ""))
		require.Equal(t, frame.TypeSealed, p[0].took().Type, "for good")
	})
}

// TestBlocksAreBounded: a key has so many, and a relay, and who has none left to
// have is told so.
func TestBlocksAreBounded(t *testing.T) {
	state, b := inbox.NewMemoryState(nil), new(blocks)
	key := func(n int) (k crypto.PublicKey) {
		binary.BigEndian.PutUint32(k[:], uint32(n))
		return k
	}
	for i := range maxBlocks {
		require.NoError(t, b.add(t.Context(), state, block{key(0), key(i)}))
	}
	require.ErrorIs(t, b.add(t.Context(), state, block{key(0), key(maxBlocks)}), errBlocks)
	require.NoError(t, b.add(t.Context(), state, block{key(0), key(0)}), "it is there")
	require.False(t, b.has(key(0), key(maxBlocks)))
	require.NoError(t, b.remove(t.Context(), state, block{key(0), key(0)}))
	require.NoError(t, b.add(t.Context(), state, block{key(0), key(maxBlocks)}))

	for i := range maxAllBlocks - maxBlocks {
		require.NoError(t, b.note(block{key(1 + i), key(0)}))
	}
	require.Error(t, b.add(t.Context(), state, block{key(maxAllBlocks), key(0)}))
	require.EqualValues(t, maxAllBlocks, b.count.Load())

	// Another server finds what is in the store.
	again := new(blocks)
	require.NoError(t, again.load(t.Context(), state))
	require.EqualValues(t, maxBlocks, again.count.Load())
	require.True(t, again.has(key(0), key(maxBlocks)))
	require.NoError(t, again.add(t.Context(), state, block{key(1), key(0)}))
	require.NoError(t, again.clear(t.Context(), state, key(0)))
	require.True(t, again.has(key(1), key(0)), "that of another")
	require.NoError(t, again.clear(t.Context(), state, key(1)))
	require.Zero(t, again.count.Load())
	require.Empty(t, again.per)
	for range state.Range(t.Context(), blocksBucket, "") {
		t.Fatal("something is left in the store")
	}
}
