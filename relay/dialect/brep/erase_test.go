package brep

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sotto-relay/sotto/frame"
)

// TestErase: my inbox, card, retained values and block list; nobody else's.
func TestErase(t *testing.T) {
	bubble(t, unmetered, func(t *testing.T, r *rig) {
		p := r.extended(3)
		alice, bob, carol := p[0], p[1], p[2]
		for i, p := range []*peer{alice, bob} {
			c, _ := card(t, p.id, 1, 0, time.Hour)
			require.Equal(t, cardPut, p.ask(put(c.Bytes())))
			require.Contains(t, p.ask(verbOf("block", carol)), `"ok":true`)
			p.send(p.post(frame.TypePublish, byte(i+1), frame.FlagRetain, "of/"+p.id.Public().String(), "x"))
		}
		// More waits for Alice than is on the way to her at a time.
		bob.leave()
		alice.leave()
		dave := r.login(identity(t, 9), formExtended)
		for i := range 500 {
			f := dave.sealed(alice.id, 0, 0, string(make([]byte, 1000)))
			f.ID = [16]byte{1, byte(i >> 8), byte(i)}
			dave.send(f)
		}
		dave.send(dave.sealed(bob.id, 1, 0, ""))
		synctest.Wait()
		alice = r.login(alice.id, formExtended)
		before := r.server.Stats().Held
		require.Greater(t, before, int64(500))

		alice.send(alice.frame(frame.TypeRequest, []byte(`{"t":"erase","req":5}`)))
		came := 0
		answer := func() frame.Brep {
			f := alice.took()
			for ; f.Type == frame.TypeSealed; f = alice.took() {
				came++ // they were on their way
			}
			return f
		}
		answer()
		alice.send(alice.frame(frame.TypeRequest, []byte(`{"t":"erase","req":6}`)))
		require.Equal(t, `{"t":"erase","req":6,"ok":true}`, string(answer().Payload), "and nothing is left to erase")
		require.Less(t, came, 500)
		requireBalance(t, r.server)
		require.GreaterOrEqual(t, int(r.server.Stats().DroppedBy["erased"]), 500-came)
		alice.leave()
		alice = r.login(alice.id, formExtended)
		alice.nothing()

		require.Equal(t, notFound, dave.ask(get(alice.id.Public())))
		require.NotEqual(t, notFound, dave.ask(get(bob.id.Public())))
		carol.send(carol.sealed(alice.id, 1, 0, ""))
		require.Equal(t, frame.TypeSealed, alice.took().Type)
		carol.send(carol.sealed(bob.id, 2, 0, ""))
		require.Equal(t, frame.CodeDenied, carol.error().Code)
		dave.ask(subscribe("of/+", 1))
		require.Equal(t, [32]byte(bob.id.Public()), dave.took().Sender)
		dave.nothing()
		bob = r.login(bob.id, formExtended)
		require.Equal(t, [32]byte(dave.id.Public()), bob.took().Sender)
	})
}
