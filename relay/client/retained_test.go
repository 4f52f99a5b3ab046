package client

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sotto-relay/sotto/crypto"
	"github.com/sotto-relay/sotto/frame"
	"github.com/sotto-relay/sotto/inbox"
	"github.com/sotto-relay/sotto/relay"
)

// told returns what comes of a subscription within a second.
func told(t *testing.T, s *Subscription) (all []*Publication) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	for p, err := range s.Messages(ctx) {
		if err != nil {
			require.ErrorIs(t, err, context.DeadlineExceeded)
			break
		}
		all = append(all, p)
	}
	return all
}

// words returns what publications say; of gaps, "gap".
func words(all []*Publication) (said []string) {
	for _, p := range all {
		if p.Gap {
			said = append(said, "gap")
		} else {
			said = append(said, string(p.Data))
		}
	}
	return said
}

func retain(t *testing.T, c *Client, g *Group, topic, text string, n Names) {
	t.Helper()
	_, err := c.Publish(t.Context(), topic, []byte(text), g.Writing(n), Retain())
	require.NoError(t, err)
}

func listen(t *testing.T, c *Client, filter string, o ...SubscribeOption) *Subscription {
	t.Helper()
	s, err := c.Subscribe(t.Context(), filter, o...)
	require.NoError(t, err)
	return s
}

// A trio is a group of three, of which the third is removed.
type trio struct {
	alice, bob, carol *crypto.Identity
	store             inbox.State // alice's
	a, b, c, eve      *Client
	g, bg, cg         *Group
}

func newTrio(t *testing.T, r *rig) *trio {
	t.Helper()
	x := &trio{alice: identity(t, 1), bob: identity(t, 2), carol: identity(t, 3), store: inbox.NewMemoryState(nil)}
	x.start(r)
	x.b, x.c = r.client(x.bob, takeFrom(x.alice)), r.client(x.carol, takeFrom(x.alice))
	x.eve = r.client(identity(t, 4), nil)
	g, err := x.a.NewGroup(t.Context())
	require.NoError(t, err)
	require.NoError(t, g.Add(t.Context(), x.bob.Public(), x.carol.Public()))
	synctest.Wait()
	x.g, x.bg, x.cg = g, x.b.Group(x.alice.Public(), g.ID()), x.c.Group(x.alice.Public(), g.ID())
	return x
}

func (x *trio) start(r *rig) {
	x.a = r.client(x.alice, func(c *Config) { c.Store = x.store })
}

// TestRekey: what the owner and a member had retained goes, under the names that it had,
// the owner's before there is a new epoch; who is left goes on after a gap, and who is
// removed hears nothing new.
func TestRekey(t *testing.T) {
	for _, n := range []Names{NamesBlinded, NamesFlat} {
		bubble(t, func(t *testing.T, r *rig) {
			x := newTrio(t, r)
			retain(t, x.a, x.g, "home/door", "open", n)
			retain(t, x.a, x.g, "home/window", "shut", n)
			retain(t, x.b, x.bg, "home/lamp", "on", n)
			retain(t, x.a, x.g, "clear", "stays", NamesClear)
			as, bs := listen(t, x.a, "home/#", x.g.Reading(n)), listen(t, x.b, "home/#", x.bg.Reading(n))
			cs := listen(t, x.c, "home/#", x.cg.Reading(n))
			es := listen(t, x.eve, "#")
			require.ElementsMatch(t, []string{"open", "shut", "on"}, words(told(t, bs)))
			require.Len(t, told(t, as), 3)
			require.Len(t, told(t, cs), 3)
			names := map[string]bool{}
			for _, p := range told(t, es) {
				require.True(t, p.Retained)
				names[p.Topic] = true
			}
			require.Len(t, names, 4)

			// Alice starts again, and knows by her store what is retained.
			require.NoError(t, x.a.Close())
			x.start(r)
			x.g = x.a.Group(x.alice.Public(), x.g.ID())
			as = listen(t, x.a, "home/#", x.g.Reading(n))
			require.Len(t, told(t, as), 3)

			require.NoError(t, x.g.Remove(t.Context(), x.carol.Public()))
			cleared := told(t, es)
			require.Len(t, cleared, 3)
			for i, p := range cleared {
				require.Empty(t, p.Data)
				require.True(t, names[p.Topic])
				delete(names, p.Topic)
				require.Equal(t, i == 2, p.From == x.bob.Public(), "the owner's first")
			}
			require.Equal(t, map[string]bool{"clear": true}, names)
			late := told(t, listen(t, x.eve, "#"))
			require.Len(t, late, 1)
			require.Equal(t, "clear", late[0].Topic)
			told(t, es) // what is retained comes again

			retain(t, x.a, x.g, "home/door", "new", n)
			retain(t, x.b, x.bg, "home/lamp", "off", n)
			for _, s := range []*Subscription{as, bs} {
				all := words(told(t, s))
				require.Equal(t, []string{"gap", "new", "off"}, all[len(all)-3:])
			}
			for _, p := range told(t, cs) {
				require.False(t, p.Gap)
				require.Empty(t, p.Data, "only the clearing")
			}
			require.Len(t, told(t, es), 2)
			for _, c := range []*Client{x.a, x.b} { // the old names are left
				require.Len(t, c.stand.feeds, 1)
				require.Empty(t, c.stand.leaving)
			}
			for _, g := range []*Group{x.g, x.bg} {
				state := g.c.groups.retained(g.name)
				require.NotEmpty(t, state)
				require.Greater(t, state[len(state)-1].epoch, uint32(1))
			}
			require.Empty(t, x.b.groups.old(x.bg.name))
		})
	}
}

// TestRekeyOffline: without a connection Remove changes nothing, and goes on waiting no
// longer than its context. A member that was away clears when it is back.
func TestRekeyOffline(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.stop()
		r.state = inbox.NewMemoryState(nil)
		r.start()
		x := newTrio(t, r)
		bs := listen(t, x.b, "b", x.bg.Reading(NamesBlinded))
		retain(t, x.a, x.g, "a", "x", NamesBlinded)
		retain(t, x.b, x.bg, "b", "y", NamesBlinded)
		time.Sleep(time.Minute) // until the relay has written it
		r.stop()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, x.g.Remove(ctx, x.carol.Public()), context.DeadlineExceeded)
		epoch, _ := x.g.Epoch()
		require.Equal(t, uint32(1), epoch)
		require.Len(t, x.g.Members(), 2)
		require.Len(t, x.a.groups.retained(x.g.name), 1)

		r.start()
		time.Sleep(time.Minute)
		require.Len(t, told(t, listen(t, x.eve, "#")), 2)
		r.stop()
		time.Sleep(time.Second)
		key, err := x.g.latest(t).Next(time.Now()) // as it comes to Bob, who loses the connection with that
		require.NoError(t, err)
		require.NoError(t, x.b.takeGroupKey(&Letter{From: x.alice.Public(), Type: crypto.GroupKeys, Data: key.Content().Data, Protection: ProtectionSealed}))
		require.Len(t, x.b.groups.old(x.bg.name), 1)
		r.start()
		time.Sleep(time.Minute)
		require.Empty(t, x.b.groups.old(x.bg.name))
		require.Len(t, told(t, listen(t, x.eve, "#")), 1)
		retain(t, x.b, x.bg, "b", "z", NamesBlinded)
		said := words(told(t, bs))
		require.Equal(t, []string{"gap", "z"}, said[len(said)-2:])
	})
}

func (g *Group) latest(t *testing.T) *crypto.GroupKey {
	t.Helper()
	s, _ := g.c.groups.get(g.name)
	require.NotNil(t, s)
	return s.latest()
}

// TestRekeyRefused: a relay that refuses to clear cannot keep a member in the group; it is
// asked again by the next Client.
func TestRekeyRefused(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		var refuses atomic.Bool
		r.stop()
		r.policy.Publish = func(context.Context, relay.SendInfo) error {
			if refuses.Load() {
				return errors.New("not now")
			}
			return nil
		}
		r.start()
		x := newTrio(t, r)
		retain(t, x.a, x.g, "a", "x", NamesBlinded)
		require.ErrorIs(t, x.bg.Remove(t.Context(), x.carol.Public()), ErrNotOwner)
		refuses.Store(true)
		var refused *RefusedError
		require.ErrorAs(t, x.g.Remove(t.Context(), x.carol.Public()), &refused)
		synctest.Wait()
		for _, g := range []*Group{x.g, x.bg} {
			epoch, _ := g.Epoch()
			require.Greater(t, epoch, uint32(1))
		}
		require.Equal(t, []crypto.PublicKey{x.bob.Public()}, x.g.Members())
		require.Len(t, x.a.groups.old(x.g.name), 1)

		refuses.Store(false)
		require.NoError(t, x.a.Close())
		require.Len(t, told(t, listen(t, x.eve, "#")), 1)
		x.start(r)
		synctest.Wait()
		require.Empty(t, x.a.groups.retained(x.g.name))
		require.Empty(t, told(t, listen(t, x.eve, "#")))
	})
}

// TestRekeyStored: no name of a topic is in the store, and the names are bounded.
func TestRekeyStored(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		store := inbox.NewMemoryState(nil)
		a := r.client(identity(t, 1), func(c *Config) { c.Store = store })
		g, err := a.NewGroup(t.Context())
		require.NoError(t, err)
		retain(t, a, g, "home/doorbell", "x", NamesBlinded)
		retain(t, a, g, "home/doorbell", "y", NamesBlinded)
		first := a.groups.retained(g.name)
		require.Len(t, first, 1)
		for item, err := range store.Range(t.Context(), a.groups.safe.bucket, "") {
			require.NoError(t, err)
			require.NotContains(t, item.Key+string(item.Value), "doorbell")
			require.NotContains(t, item.Key+string(item.Value), first[0].name)
		}
		s := &groupSealer{g, NamesBlinded}
		for i := range retainedNames {
			to, data, err := s.seal(feedKey{frame.TypePublish, fmt.Sprint(i)}, []byte("x"))
			require.NoError(t, err)
			require.NoError(t, s.retains(t.Context(), to.name, data))
		}
		all := a.groups.retained(g.name)
		require.Len(t, all, retainedNames)
		require.NotContains(t, all, first[0], "the oldest goes")
		again, err := openGroups(t.Context(), a.groups.safe, nil)
		require.NoError(t, err)
		require.Equal(t, all, again.retained(g.name))
	})
}

// TestRekeyOnTheWay: who publishes while the owner clears waits, and so nothing is
// retained under an old name afterwards.
func TestRekeyOnTheWay(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.stop()
		r.policy.Publish = func(context.Context, relay.SendInfo) error {
			time.Sleep(10 * time.Millisecond)
			return nil
		}
		r.start()
		x := newTrio(t, r)
		for i := range 20 {
			retain(t, x.a, x.g, fmt.Sprint("t/", i), "old", NamesBlinded)
		}
		removed := make(chan error, 1)
		go func() { removed <- x.g.Remove(t.Context(), x.carol.Public()) }()
		time.Sleep(50 * time.Millisecond) // it has asked for all, and has no receipt yet
		for i := range 20 {
			retain(t, x.a, x.g, fmt.Sprint("t/", i), "new", NamesBlinded)
		}
		require.NoError(t, <-removed)
		synctest.Wait()
		left := map[string]bool{}
		for _, p := range told(t, listen(t, x.eve, "#")) {
			left[p.Topic] = true
		}
		for i := range 20 {
			name, err := x.g.latest(t).BlindTopic(fmt.Sprint("t/", i), false)
			require.NoError(t, err)
			delete(left, name)
		}
		require.Empty(t, left, "under old names")
	})
}

// TestRekeyMove: a feed takes what comes under its old name until the relay has agreed to
// the new one, then a gap, and nothing more from there.
func TestRekeyMove(t *testing.T) {
	name := "old"
	ask := newCalls()
	ask.begin()
	s := newStanding(ask)
	f := newFeed(feedKey{frame.TypePublish, "asked"}, subscribeOptionsOf([]SubscribeOption{func(o *subscribeOptions) { o.sealer = renamer{as: &name} }}), new(counters))
	require.NoError(t, s.enter(f))
	asked := func() (bodies []string) {
		for k := ask.pop(); k != nil; k = ask.pop() {
			bodies = append(bodies, strings.TrimPrefix(string(k.body), `{"t":`))
		}
		return bodies
	}
	require.Equal(t, []string{`"subscribe","topic":"old"}`}, asked())
	agree := func(n int64) { ask.settle(n, new(frame.Response), nil) }
	agree(1)
	publish := func(topic string) {
		p := frame.Publication{Name: []byte(topic)}
		s.deliver(&frame.Brep{Type: frame.TypePublish, Payload: p.Append(nil)})
	}
	s.rename()
	require.Empty(t, asked(), "nothing has changed")
	name = "new"
	s.rename()
	require.Equal(t, []string{`"unsubscribe","topic":"old"}`, `"subscribe","topic":"new"}`}, asked())
	publish("old")
	agree(2)
	agree(3)
	publish("old")
	publish("new")
	require.Len(t, f.queue, 3)
	require.Equal(t, []frame.Type{frame.TypePublish, 0, frame.TypePublish}, []frame.Type{f.queue[0].Type, f.queue[1].Type, f.queue[2].Type})
	require.Empty(t, s.leaving)

	// A connection that ends meanwhile leaves nothing of the old name.
	name = "newer"
	s.rename()
	s.sever()
	asked()
	s.begin()
	require.Equal(t, []string{`"subscribe","topic":"newer"}`}, asked())
	require.Empty(t, s.leaving)
	s.leave(f)
	require.Equal(t, []string{`"unsubscribe","topic":"newer"}`}, asked())
	require.Empty(t, s.feeds)
}

// A renamer is a sealer that calls everything by one name.
type renamer struct {
	cipher
	as *string
}

func (r renamer) name(k feedKey) (feedKey, error) { return feedKey{k.as, *r.as}, nil }

// FuzzGroupState: what is taken from a store is what would be put there.
func FuzzGroupState(f *testing.F) {
	key, err := crypto.NewGroup()
	require.NoError(f, err)
	s := new(groupState).with(key, time.Now())
	f.Add(s.encode())
	s.members = append(s.members, crypto.PublicKey{1})
	s.retained = []retainedName{{1, "abc"}, {2, ""}}
	f.Add(s.encode())
	f.Add([]byte{1})
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := decodeGroup(b)
		if err != nil {
			return
		}
		again, err := decodeGroup(s.encode())
		require.NoError(t, err)
		require.Equal(t, s.encode(), again.encode())
		require.Equal(t, s.retained, again.retained)
	})
}
