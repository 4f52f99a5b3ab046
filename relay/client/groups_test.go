package client

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sotto-relay/sotto/crypto"
	"github.com/sotto-relay/sotto/frame"
	"github.com/sotto-relay/sotto/inbox"
)

func takeFrom(owner *crypto.Identity) func(*Config) {
	return func(c *Config) {
		c.Groups = func(k crypto.PublicKey, _ crypto.GroupID) bool { return k == owner.Public() }
	}
}

// TestGroup: who has the key reads topics and rooms, who has left does not, and who
// never had it does not either. A group survives in a store.
func TestGroup(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		alice, bob, carol, eve := identity(t, 1), identity(t, 2), identity(t, 3), identity(t, 4)
		store := inbox.NewMemoryState(nil)
		a := r.client(alice, func(c *Config) { c.Store = store })
		b, c := r.client(bob, takeFrom(alice)), r.client(carol, takeFrom(alice))
		var dropped []error
		e := r.client(eve, func(c *Config) {
			c.Trace = &Trace{Dropped: func(_ crypto.PublicKey, err error) { dropped = append(dropped, err) }}
		})
		g, err := a.NewGroup(t.Context())
		require.NoError(t, err)
		require.NoError(t, g.Add(t.Context(), bob.Public(), carol.Public(), bob.Public(), alice.Public()))
		require.Equal(t, []crypto.PublicKey{bob.Public(), carol.Public()}, g.Members())
		synctest.Wait()
		of := func(c *Client) *Group { return c.Group(alice.Public(), g.ID()) }
		epoch := func(c *Client) uint32 { n, _ := of(c).Epoch(); return n }
		require.Equal(t, []uint32{1, 1, 1, 0}, []uint32{epoch(a), epoch(b), epoch(c), epoch(e)})

		topic := func(c *Client) *Subscription {
			s, err := c.Subscribe(t.Context(), "home/#", of(c).Reading(NamesClear))
			require.NoError(t, err)
			return s
		}
		bs, cs := topic(b), topic(c)
		es, err := e.Subscribe(t.Context(), "home/#")
		require.NoError(t, err)
		publish := func(from *Client, text string) {
			_, err := from.Publish(t.Context(), "home/door", []byte(text), of(from).Writing(NamesClear))
			require.NoError(t, err)
		}
		read := func(s *Subscription) string {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			for p, err := range s.Messages(ctx) {
				if err != nil {
					return err.Error()
				}
				return string(p.Data)
			}
			return ""
		}
		publish(a, "open")
		require.Equal(t, "open", read(bs))
		require.Equal(t, "open", read(cs))
		require.NotContains(t, read(es), "open")
		publish(b, "shut")
		require.Equal(t, "shut", read(cs))

		second := uint32(time.Now().Unix())
		require.NoError(t, g.Remove(t.Context(), carol.Public()))
		synctest.Wait()
		require.Equal(t, []uint32{second, second, 1, 0}, []uint32{epoch(a), epoch(b), epoch(c), epoch(e)})
		require.Equal(t, "shut", read(bs))
		publish(a, "secret")
		require.Equal(t, "secret", read(bs))
		require.Equal(t, context.DeadlineExceeded.Error(), read(cs), "has left")

		room, err := b.JoinRoom(t.Context(), "r", of(b).Reading(NamesClear))
		require.NoError(t, err)
		ar, err := a.JoinRoom(t.Context(), "r", of(a).Reading(NamesClear))
		require.NoError(t, err)
		_, err = ar.Send(t.Context(), []byte("hello"))
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		for p, err := range room.Messages(ctx) {
			require.NoError(t, err)
			require.Equal(t, "hello", string(p.Data))
			require.Equal(t, alice.Public(), p.From)
			break
		}

		// Only the owner's list counts, and the owner's keys.
		require.ErrorIs(t, of(b).Remove(t.Context(), alice.Public()), ErrNotOwner)
		require.ErrorIs(t, of(b).Add(t.Context(), carol.Public()), ErrNotOwner)
		require.ErrorIs(t, of(b).Share(t.Context()), ErrNotOwner)
		_, err = e.Publish(t.Context(), "home/door", []byte("x"), of(e).Writing(NamesClear))
		require.ErrorIs(t, err, ErrNoGroupKey)
		forged := b.groups.all[groupName{alice.Public(), g.ID()}].latest()
		next, err := forged.Next(time.Now())
		require.NoError(t, err)
		for _, to := range []*crypto.Identity{alice, eve} {
			_, err = b.Send(t.Context(), to.Public(), Content{Content: next.Content()})
			require.NoError(t, err)
		}
		synctest.Wait()
		require.Equal(t, []uint32{second, second, 1, 0}, []uint32{epoch(a), epoch(b), epoch(c), epoch(e)})
		require.Len(t, dropped, 1)
		require.ErrorIs(t, dropped[0], errGroupUnasked)

		require.NoError(t, a.Close())
		a = r.client(alice, func(c *Config) { c.Store = store })
		require.Equal(t, second, epoch(a))
		require.Equal(t, []crypto.PublicKey{bob.Public()}, of(a).Members())
		publish(a, "again")
		require.Equal(t, "again", read(bs))
	})
}

// TestGroupKeysTaken: what an owner, a repeat of his, and another may do to a group.
func TestGroupKeysTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		owner, other := identity(t, 1).Public(), identity(t, 2).Public()
		store := inbox.NewMemoryState(nil)
		c := newClient(Config{Identity: identity(t, 3), Store: store,
			Groups: func(k crypto.PublicKey, _ crypto.GroupID) bool { return k == owner }}.withDefaults())
		defer c.kill()
		require.NoError(t, c.openKeys(t.Context()))
		first, err := crypto.NewGroup()
		require.NoError(t, err)
		second, err := first.Next(time.Now())
		require.NoError(t, err)
		another, err := first.Next(time.Now())
		require.NoError(t, err)
		take := func(from crypto.PublicKey, k *crypto.GroupKey, as Protection) error {
			return c.takeGroupKey(&Letter{From: from, Type: crypto.GroupKeys, Data: k.Content().Data, Protection: as})
		}
		name := groupName{owner, first.ID()}
		require.NoError(t, take(owner, first, ProtectionSealed))
		require.NoError(t, take(owner, first, ProtectionSealed), "again")
		require.ErrorIs(t, take(other, second, ProtectionSealed), errGroupUnasked)
		require.ErrorIs(t, take(owner, second, ProtectionEncrypted), errGroupKey)
		require.ErrorIs(t, take(c.cfg.Identity.Public(), second, ProtectionSealed), errGroupKey)
		require.NoError(t, take(owner, second, ProtectionSealed))
		require.ErrorIs(t, take(owner, another, ProtectionSealed), errGroupKey, "for the same epoch")
		require.ErrorIs(t, take(owner, first, ProtectionSealed), errGroupKey, "an old one")
		require.ErrorIs(t, c.takeGroupKey(&Letter{From: owner, Protection: ProtectionSealed, Data: []byte("x")}), errGroupKey)

		s := &groupSealer{c.Group(owner, first.ID()), NamesClear}
		old, err := first.Seal("t", crypto.Content{Data: []byte("old")})
		require.NoError(t, err)
		require.NoError(t, s.open(&Publication{Topic: "t", Data: old}))
		require.ErrorIs(t, s.open(&Publication{Topic: "u", Data: old}), crypto.ErrOpen)
		time.Sleep(groupKeyTime)
		require.ErrorIs(t, s.open(&Publication{Topic: "t", Data: old}), ErrNoGroupKey)

		key := second
		for range 2 * groupKeys {
			key, err = key.Next(time.Now())
			require.NoError(t, err)
			require.NoError(t, take(owner, key, ProtectionSealed))
		}
		state, _ := c.groups.get(name)
		require.Len(t, state.keys, groupKeys)
		again, err := openGroups(t.Context(), c.groups.safe, nil)
		require.NoError(t, err)
		kept, _ := again.get(name)
		require.Equal(t, state.encode(), kept.encode())
		require.NoError(t, store.Put(t.Context(), c.groups.safe.bucket, name.key(), []byte("damaged")))
		again, err = openGroups(t.Context(), c.groups.safe, nil)
		require.NoError(t, err)
		require.Empty(t, again.all)
	})
}

// TestGroupStoreRolledBack: an owner whose store is an old one, which does not know of
// the latest key, does not make another with the number of that.
func TestGroupStoreRolledBack(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		alice, bob, carol := identity(t, 1), identity(t, 2), identity(t, 3)
		store := inbox.NewMemoryState(nil)
		set := func(c *Config) { c.Store = store }
		a, b := r.client(alice, set), r.client(bob, takeFrom(alice))
		g, err := a.NewGroup(t.Context())
		require.NoError(t, err)
		require.NoError(t, g.Add(t.Context(), bob.Public(), carol.Public()))
		bucket, key := a.groups.safe.bucket, g.name.key()
		old, _, err := store.Get(t.Context(), bucket, key)
		require.NoError(t, err)
		require.NoError(t, g.Remove(t.Context(), carol.Public()))
		time.Sleep(time.Second)
		require.NoError(t, a.Close())
		require.NoError(t, store.Put(t.Context(), bucket, key, old))
		a = r.client(alice, set)
		require.NoError(t, a.Group(alice.Public(), g.ID()).Remove(t.Context(), carol.Public()))
		synctest.Wait()
		require.True(t, b.groups.all[g.name].latest().Equal(a.groups.all[g.name].latest()))
	})
}

// TestShareHeldUp: the key reaches the others, though one member's card, which was
// promised, is not to be had.
func TestShareHeldUp(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		alice, bob, carol := identity(t, 1), identity(t, 2), identity(t, 3)
		b := r.client(bob, takeFrom(alice))
		p := tap(t, r.dial)
		a := r.client(alice, withTap(p))
		send(t, a, bob, "so that the card is known")
		require.Equal(t, "so that the card is known", next(t, b).Text())
		require.NoError(t, a.Pair(t.Context(), crypto.Pairing{Key: carol.Public(), Card: 5}))
		g, err := a.NewGroup(t.Context())
		require.NoError(t, err)
		time.Sleep(time.Second) // it is acknowledged
		r.stop()
		time.Sleep(time.Second)
		added := make(chan error, 1)
		go func() { added <- g.Add(t.Context(), carol.Public(), bob.Public()) }()
		synctest.Wait()
		waiting := a.Pending()
		require.Len(t, waiting, 1)
		require.Equal(t, bob.Public(), waiting[0].To)
		require.Empty(t, added)
		r.start()
		requireCardError(t, <-added, carol, ErrCardWithheld)
	})
}

// TestBlindedTopics: a relay sees no name, and matches as it would.
func TestBlindedTopics(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		alice := identity(t, 1)
		a := r.client(alice, nil)
		g, err := a.NewGroup(t.Context())
		require.NoError(t, err)
		for _, o := range []struct {
			names   Names
			filter  string
			matches bool
			err     error
		}{
			{NamesBlinded, "home/#", true, nil},
			{NamesBlinded, "home/door/+", true, nil},
			{NamesBlinded, "home/door/lock", true, nil},
			{NamesBlinded, "home/window/+", false, nil},
			{NamesBlinded, "home/+/lock", false, crypto.ErrBlindFilter},
			{NamesFlat, "home/+/lock", true, nil},
			{NamesFlat, "+/window/lock", false, nil},
			{NamesFlat, "home/door/lock", true, nil},
			{NamesBlinded, "home/a#", false, crypto.ErrMalformed},
		} {
			s, err := a.Subscribe(t.Context(), o.filter, g.Reading(o.names))
			if o.err != nil {
				require.ErrorIs(t, err, o.err)
				continue
			}
			require.NoError(t, err, o.filter)
			all, err := a.Subscribe(t.Context(), "#")
			require.NoError(t, err)
			_, err = a.Publish(t.Context(), "home/door/lock", []byte("open"), g.Writing(o.names))
			require.NoError(t, err)
			got := func(s *Subscription) (p *Publication, err error) {
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				for p, err := range s.Messages(ctx) {
					return p, err
				}
				return nil, errors.New("none")
			}
			p, err := got(s)
			if o.matches {
				require.NoError(t, err, o.filter)
				require.Equal(t, "open", string(p.Data))
			} else {
				require.ErrorIs(t, err, context.DeadlineExceeded, o.filter)
			}
			p, err = got(all)
			require.NoError(t, err)
			for _, word := range []string{"home", "door", "lock"} {
				require.NotContains(t, p.Topic, word)
			}
			require.NotContains(t, string(p.Data), "open")
			s.Close()
			all.Close()
		}
	})
}

// TestSealedSizes: what relays see of sizes are Padmé's only, whatever is said.
func TestSealedSizes(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		bob := identity(t, 2)
		r.client(bob, nil)
		synctest.Wait()
		a := r.client(identity(t, 1), nil)
		sizes := map[int]int{}
		for n := 0; n < 400; n += 5 {
			for _, c := range []Content{
				Raw(make([]byte, n)), Text(string(make([]byte, n))), JSON(make([]byte, n)), File("a", make([]byte, n)),
				{Content: crypto.Content{Type: crypto.FilePart, Data: make([]byte, 21+n)}},
				{Content: crypto.Content{Type: crypto.GroupKeys, Data: make([]byte, n)}},
			} {
				p, err := a.prepare(t.Context(), bob.Public(), c, sendOptions{})
				require.NoError(t, err)
				require.Equal(t, frame.TypeSealed, p.frame.Type)
				require.Equal(t, byte(3), p.frame.Payload[32])
				sizes[len(p.frame.Payload)-(32+1+8)-1120-16]++
			}
		}
		for size := range sizes {
			// A Padmé length of E bits has as many leading bits as E takes to write.
			bits, kept := 0, 0
			for n := size; n > 1; n >>= 1 {
				bits++
			}
			for n := bits; n > 0; n >>= 1 {
				kept++
			}
			require.Zero(t, size&(1<<(bits-kept)-1), size)
		}
		require.Less(t, len(sizes), 60)
	})
}

// TestGroupRoomEmpty: in a room of a group nothing comes from others, and what is empty
// is sealed too.
func TestGroupRoomEmpty(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		a, e := r.client(identity(t, 1), nil), r.client(identity(t, 4), nil)
		var dropped []error
		a.cfg.Trace.Dropped = func(_ crypto.PublicKey, err error) { dropped = append(dropped, err) }
		g, err := a.NewGroup(t.Context())
		require.NoError(t, err)
		room, err := a.JoinRoom(t.Context(), "r", g.Reading(NamesClear))
		require.NoError(t, err)
		stranger := join(t, e, "r")
		for _, s := range []string{"", "x"} {
			_, err = stranger.Send(t.Context(), []byte(s))
			require.NoError(t, err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err = room.feed.next(ctx, a.drop)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Len(t, dropped, 2)
		require.Equal(t, errUnsealed, dropped[0])

		_, err = room.Send(t.Context(), nil)
		require.NoError(t, err)
		sealed, err := stranger.feed.next(t.Context(), e.drop)
		require.NoError(t, err)
		require.NotEmpty(t, sealed.Data)
		p := &Publication{Topic: "r", Data: sealed.Data}
		require.NoError(t, room.feed.sealer.open(p))
		require.Empty(t, p.Data)
	})
}
