package mesh

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// What a Mesh counts is what it does.
func TestStats(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a := w.start("a", "b")
		require.Zero(t, New(&Config{Identity: a.id}).Stats())
		b := w.start("b", "")
		settle()
		alice := a.attach(identity(t, 1))
		bob := b.attach(identity(t, 2))
		carol := b.login(identity(t, 3)) // not attached: found by QUERY_CLIENT
		settle()
		require.Equal(t, Stats{Links: 1, Relays: 1, Attached: 1, Owned: 2, Cached: 1}, a.mesh.Stats())

		alice.text(bob.id, "cached, since he came")
		alice.hears(2 * time.Minute)
		alice.text(bob.id, "owned here: nobody has to be asked")
		alice.hears(time.Second)
		alice.text(carol.id, "asked for")
		alice.hears(time.Second)
		s := a.mesh.Stats()
		require.Equal(t, Stats{Links: 1, Relays: 1, Attached: 1, Owned: 2, Cached: 2,
			CacheHits: 1, CacheMisses: 2, Lookups: 2, Queries: 1, Found: 2, Carried: 3}, s)

		nobody := identity(t, 4)
		alice.text(nobody, "for nobody")
		require.Equal(t, []string{"for nobody:2"}, alice.hears(10*time.Millisecond))
		alice.text(nobody, "for nobody, and it is known")
		alice.hears(10 * time.Millisecond)
		s.MailFor, s.Owned, s.Cached = 1, 3, 3
		s.Lookups, s.Queries, s.Missing, s.CacheMisses, s.CacheHits = 3, 2, 1, 3, 2
		require.Equal(t, s, a.mesh.Stats())

		bob.close()
		settle()
		s = a.mesh.Stats()
		require.Equal(t, 2, s.Owned, "%+v", s)
		b.kill()
		settle()
		s = a.mesh.Stats()
		require.Zero(t, s.Links)
		require.Equal(t, uint64(3), s.Carried)
	})
}

// A client that was where it is not any more is counted.
func TestStatsNotHere(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, b := w.start("a", "b"), w.start("b", "")
		settle()
		alice, bob := a.login(identity(t, 1)), b.login(identity(t, 2))
		alice.text(bob.id, "one")
		alice.hears(time.Second)
		bob.close()
		alice.text(bob.id, "two")
		alice.hears(30 * time.Second)
		s := a.mesh.Stats()
		require.Equal(t, []uint64{2, 1, 1}, []uint64{s.Carried, s.NotHere, s.Missing}, "%+v", s)
		require.Zero(t, s.Searching+s.Waiting)
	})
}
