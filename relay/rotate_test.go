package relay

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sotto-relay/sotto/transport"
)

const grace = 10 * time.Minute

// rotary is words with another verb
//
//	move A B                        answered "moved B", or "no CODE C" where C is what is in the way
//	lead A                          answered what A leads to
//
// whose sessions need no address.
type rotary struct{ words }

func (d rotary) NewSession(p *Port) (Session, error) {
	p.Ready()
	s, err := d.words.NewSession(p)
	return &rotarySession{s.(*wordsSession)}, err
}

func called(name string) Address { return Address{Realm: 1, Name: name} }

type rotarySession struct{ *wordsSession }

func (s *rotarySession) Receive(ctx context.Context, k transport.Kind, msg []byte) error {
	f := strings.Fields(string(msg))
	switch f[0] {
	case "move":
		lead, err := s.p.Move(called(f[1]), called(f[2]), grace)
		if err != nil {
			s.reply("no " + AsRefusal(err).Code.String() + " " + lead.Name)
			return nil
		}
		s.reply("moved " + lead.Name)
	case "lead":
		s.reply(s.p.Lead(called(f[1])).Name)
	default:
		return s.wordsSession.Receive(ctx, k, msg)
	}
	return nil
}

// A turn is what somebody says, and what is answered; "" is nothing.
type turn struct{ who, says, hears string }

func TestRotate(t *testing.T) {
	chain := func(n int) (turns []turn) {
		for i := range n {
			turns = append(turns, turn{"ann", fmt.Sprintf("move k%d k%d", i, i+1), fmt.Sprintf("moved k%d", i+1)})
		}
		return turns
	}
	for name, turns := range map[string][]turn{
		"members move, and the old name leads to the new one": {
			{"ann", "join a", ""}, {"bob", "join a", ""},
			{"cat", "move a b", "moved b"},
			{"ann", "pub a 1", ""}, {"bob", "", "#a  1"},
			{"bob", "pub b 2", ""}, {"ann", "", "#b  2"},
		},
		"who joins by the old name is in the new group": {
			{"ann", "move a b", "moved b"},
			{"bob", "join a", ""}, {"ann", "pub b 1", ""}, {"bob", "", "#b  1"},
		},
		"who leaves by the old name leaves the new group": {
			{"bob", "join a", ""}, {"ann", "move a b", "moved b"},
			{"bob", "leave a", ""}, {"ann", "pub b 1", ""}, {"ann", "pub a 2", ""},
		},
		"to a name that has members: each gets it once": {
			{"ann", "join a", ""}, {"bob", "join a", ""}, {"bob", "join b", ""}, {"cat", "join b", ""},
			{"dan", "move a b", "moved b"},
			{"dan", "pub a 1", ""}, {"ann", "", "#a  1"}, {"bob", "", "#a  1"}, {"cat", "", "#a  1"},
			{"dan", "pub b 2", ""}, {"ann", "", "#b  2"}, {"bob", "", "#b  2"}, {"cat", "", "#b  2"},
			{"bob", "leave a", ""}, {"dan", "pub a 3", ""}, {"ann", "", "#a  3"}, {"cat", "", "#a  3"},
		},
		"again is no error": {
			{"ann", "move a b", "moved b"}, {"ann", "move a b", "moved b"}, {"bob", "move a b", "moved b"},
		},
		"again through a chain": {
			{"ann", "move a b", "moved b"}, {"ann", "move b c", "moved c"}, {"bob", "move a c", "moved c"},
		},
		"an alias does not move": {
			{"ann", "move a b", "moved b"}, {"bob", "move a c", "no denied b"},
			{"ann", "move b d", "moved d"}, {"bob", "move a b", "no denied d"}, {"ann", "lead a", "d"},
		},
		"back": {
			{"bob", "join a", ""},
			{"ann", "move a b", "moved b"}, {"ann", "move b a", "moved a"},
			{"ann", "lead a", "a"}, {"ann", "lead b", "a"},
			{"ann", "pub a 1", ""}, {"bob", "", "#a  1"}, {"ann", "pub b 2", ""}, {"bob", "", "#b  2"},
			{"cat", "join b", ""}, {"ann", "pub a 3", ""}, {"bob", "", "#a  3"}, {"cat", "", "#a  3"},
		},
		"back over a chain": {
			{"bob", "join a", ""},
			{"ann", "move a b", "moved b"}, {"ann", "move b c", "moved c"}, {"ann", "move c a", "moved a"},
			{"ann", "lead b", "a"}, {"ann", "lead c", "a"}, {"ann", "pub b 1", ""}, {"bob", "", "#b  1"},
		},
		"back into a chain": {
			{"ann", "move a b", "moved b"}, {"ann", "move b c", "moved c"}, {"ann", "move c b", "moved b"},
			{"ann", "lead a", "b"}, {"ann", "lead c", "b"},
		},
		"to an alias that leads elsewhere": {
			{"ann", "move b c", "moved c"}, {"bob", "move a b", "no denied c"}, {"bob", "lead a", "a"},
		},
		"eight hops, not nine": append(chain(8),
			turn{"ann", "lead k0", "k8"},
			turn{"ann", "move k8 k9", "no denied k9"},
			turn{"bob", "join k0", ""}, turn{"ann", "pub k8 1", ""}, turn{"bob", "", "#k8  1"}),
		"back from eight hops": append(chain(8),
			turn{"ann", "move k8 k0", "moved k0"}, turn{"ann", "lead k1", "k0"},
			turn{"ann", "move k0 k9", "no denied k9"}),
		"back when there are eight hops leaves all as it was": append(chain(8),
			turn{"ann", "move x k8", "moved k8"}, turn{"ann", "move k8 x", "no denied x"}, turn{"ann", "lead x", "k8"},
			turn{"bob", "join k8", ""}, turn{"ann", "pub x 1", ""}, turn{"bob", "", "#x  1"}),
		"itself": {{"ann", "move a a", "no malformed a"}},
		"a limit of a connection": {
			{"ann", "move a1 b", "moved b"}, {"ann", "move a2 b", "moved b"}, {"ann", "move a3 b", "moved b"},
			{"ann", "move a4 b", "no quota b"}, {"bob", "move a4 b", "moved b"},
			{"ann", "move b a4", "no quota a4"}, {"ann", "lead a4", "b"}, // bob's alias is not hers to spend
			{"ann", "move b a1", "moved a1"}, {"ann", "lead a4", "a1"},
		},
		"the limit of all": {
			{"ann", "move a1 b", "moved b"}, {"ann", "move a2 b", "moved b"}, {"ann", "move a3 b", "moved b"},
			{"bob", "move a4 b", "moved b"}, {"bob", "move a5 b", "moved b"}, {"bob", "move a6 b", "moved b"},
			{"cat", "move a7 b", "moved b"}, {"cat", "move a8 b", "moved b"}, {"cat", "move a9 b", "moved b"},
			{"dan", "move c d", "moved d"}, {"dan", "move e f", "no quota f"}, {"dan", "move c d", "moved d"},
			{"dan", "move d c", "moved c"},
		},
		"who made an alias may go": {
			{"bob", "join a", ""}, {"ann", "move a b", "moved b"}, {"ann", "quit", "bye denied"},
			{"cat", "pub a 1", ""}, {"bob", "", "#a  1"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := rotary{words{limits: DialectLimits{Aliases: 3}}}
				if strings.Contains(name, "hops") {
					d.limits.Aliases = 0
				}
				b := newBench(t, &Server{Limits: Limits{Aliases: 10}}, d)
				peers := make(map[string]peer)
				for _, name := range []string{"ann", "bob", "cat", "dan"} {
					peers[name] = b.dial(0)
				}
				for _, turn := range turns {
					p := peers[turn.who]
					if turn.says != "" {
						p.say("%s", turn.says)
						synctest.Wait()
					}
					if turn.hears != "" {
						p.expect(turn.hears)
					}
				}
				for _, p := range peers {
					p.silent()
				}
				checkBooks(t, b.Server)
				b.balance()
			})
		})
	}
}

// checkBooks checks what is known of aliases and members against what follows from
// it.
func checkBooks(t *testing.T, s *Server) {
	t.Helper()
	r := &s.router
	r.moves.Lock()
	defer r.moves.Unlock()
	n, counted := 0, make(map[Address]chains)
	for i := range r.groups {
		for name, a := range r.groups[i].aliases {
			n++
			require.Equal(t, name, a.from)
			require.Nil(t, r.groups[i].m[name], "an alias has no group")
			require.Same(t, a, r.moves.live[a.index])
			require.Equal(t, a.hops, hopsTo(r, a))
			c := counted[a.to]
			c[a.hops]++
			counted[a.to] = c
		}
		for name, g := range r.groups[i].m {
			require.Equal(t, name, g.addr)
			require.Nil(t, g.into)
			require.NotEmpty(t, g.members)
			for at, p := range g.members {
				require.Equal(t, at, g.index[p])
				_, in := p.groups[g] // (require.Contains would look into what it compares)
				require.True(t, in)
			}
			require.Len(t, g.index, len(g.members))
		}
	}
	require.Len(t, r.moves.live, n)
	require.Len(t, r.moves.chains, len(counted))
	for name, c := range counted {
		require.Equal(t, c, *r.moves.chains[name])
	}
	for _, p := range s.allPorts() {
		for g := range p.groups {
			_, in := g.index[p]
			require.True(t, in)
		}
	}
}

// hopsTo counts the longest chain that ends with a, the slow way.
func hopsTo(r *router, a *alias) int {
	hops := 1
	for i := range r.groups {
		for _, b := range r.groups[i].aliases {
			if b.to == a.from {
				hops = max(hops, hopsTo(r, b)+1)
			}
		}
	}
	return hops
}

// TestRotateExpires: an alias is one until its time is over, to the nanosecond,
// and then a name like any other; nothing of it is kept.
func TestRotateExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, &Server{Limits: Limits{Aliases: 2}}, rotary{})
		ann, bob, cat := b.dial(0), b.dial(0), b.dial(0)
		ann.say("join a")
		synctest.Wait()
		bob.say("move a b")
		bob.expect("moved b")
		time.Sleep(time.Minute)
		bob.say("move b c")
		bob.expect("moved c")
		bob.say("move x y")
		bob.expect("no quota y")

		time.Sleep(grace - time.Minute - 1)
		bob.say("lead a")
		bob.expect("c")
		bob.say("pub a 1")
		ann.expect("#a  1")
		time.Sleep(time.Nanosecond)
		bob.say("lead a")
		bob.expect("a")
		bob.say("lead b")
		bob.expect("c")
		bob.say("pub a 2") // to nobody
		synctest.Wait()
		cat.say("join a")
		synctest.Wait()
		bob.say("pub a 3")
		cat.expect("#a  3")
		bob.say("pub b 4")
		ann.expect("#b  4")
		bob.say("move x y")
		bob.expect("moved y")
		checkBooks(t, b.Server)

		time.Sleep(grace)
		synctest.Wait()
		bob.say("lead b")
		bob.expect("b")
		bob.say("pub c 5")
		ann.expect("#c  5")
		cat.silent()
		r := &b.router
		assert.Empty(t, r.moves.live)
		assert.Empty(t, r.moves.chains)
		for i := range r.groups {
			assert.Empty(t, r.groups[i].aliases)
		}
		checkBooks(t, b.Server)
	})
}

// TestRotateLate: a timer that comes late makes an alias last no longer.
func TestRotateLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, &Server{}, rotary{})
		b.Server.init()
		b.router.moves.stop() // it comes never
		ann, bob := b.dial(0), b.dial(0)
		bob.say("move a b")
		bob.expect("moved b")
		time.Sleep(grace)
		ann.say("room a")
		ann.expect("room 1")
		bob.say("pub a 1")
		ann.expect("#a  1")
		bob.say("lead a")
		bob.expect("a")
		bob.say("move a c")
		bob.expect("moved c")
		checkBooks(t, b.Server)
	})
}

// TestRotateClosed: no timer outlives the server.
func TestRotateClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, &Server{}, rotary{})
		ann := b.dial(0)
		ann.say("move a b")
		ann.expect("moved b")
		require.NoError(t, b.Close())
		assert.False(t, b.router.moves.timer.Stop())
	})
}

// TestRotateUnderway: a publication that has found its group when that is merged
// into another goes where its members are.
func TestRotateUnderway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, &Server{}, rotary{})
		ann, bob, cat := b.dial(0), b.dial(0), b.dial(0)
		ann.say("room a")
		ann.expect("room 1")
		for i, p := range []peer{bob, cat} {
			p.say("room b")
			p.expect(fmt.Sprint("room ", i+1))
		}
		_, g := b.router.findGroup(called("a"))
		ann.say("move a b")
		ann.expect("moved b")
		ann.say("move b c")
		ann.expect("moved c")
		g = g.rlock()
		defer g.mu.RUnlock()
		assert.Equal(t, called("c"), g.addr)
		assert.Len(t, g.members, 3)
	})
}

// TestRotateAsks: the policy is asked about both names.
func TestRotateAsks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, &Server{Policy: Policy{Join: func(_ context.Context, i JoinInfo) error {
			if strings.HasPrefix(i.Group.Name, "secret") {
				return &Refusal{Code: CodeDenied}
			}
			return nil
		}}}, rotary{})
		p := b.dial(0)
		for _, says := range []string{"move secret b", "move a secret"} {
			p.say("%s", says)
			p.expect("no denied " + says[strings.LastIndex(says, " ")+1:])
		}
		p.say("move a b")
		p.expect("moved b")
		checkBooks(t, b.Server)
	})
}

// TestRotateModel: random moves, joins and time against the rules as the spec says
// them.
func TestRotateModel(t *testing.T) {
	for range 6 {
		seed := rand.Uint64()
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { runRotateModel(t, rand.New(rand.NewPCG(seed, 0))) })
		})
	}
}

// rules are the aliases and members as a list.
type rules struct {
	aliases []ruledAlias
	members map[string]map[string]bool // by name of the group
}

type ruledAlias struct {
	from, to string
	expires  time.Time
}

func (r *rules) find(name string) int {
	return slices.IndexFunc(r.aliases, func(a ruledAlias) bool { return a.from == name })
}

func (r *rules) lead(name string) string {
	for i := r.find(name); i >= 0; i = r.find(name) {
		name = r.aliases[i].to
	}
	return name
}

func (r *rules) hops(to string) (most int) {
	for _, a := range r.aliases {
		if a.to == to {
			most = max(most, r.hops(a.from)+1)
		}
	}
	return most
}

func (r *rules) move(from, to string) string {
	if lead := r.lead(from); lead == to {
		return "moved " + to
	} else if lead != from {
		return "no denied " + lead
	}
	before := slices.Clone(r.aliases)
	switch lead := r.lead(to); lead {
	case to:
	case from:
		i := r.find(to)
		r.aliases = slices.Delete(r.aliases, i, i+1)
	default:
		return "no denied " + lead
	}
	if r.hops(from) == 8 {
		r.aliases = before
		return "no denied " + to
	}
	if len(r.aliases) == 12 {
		r.aliases = before
		return "no quota " + to
	}
	r.aliases = append(r.aliases, ruledAlias{from, to, time.Now().Add(grace)})
	if r.members[to] == nil {
		r.members[to] = make(map[string]bool)
	}
	for m := range r.members[from] {
		r.members[to][m] = true
	}
	delete(r.members, from)
	return "moved " + to
}

func runRotateModel(t *testing.T, rnd *rand.Rand) {
	b := newBench(t, &Server{Limits: Limits{Aliases: 12}}, rotary{})
	model := rules{members: make(map[string]map[string]bool)}
	peers, names := make(map[string]peer), []string{"p", "q", "r", "s"}
	for _, name := range append(names, "x") {
		peers[name] = b.dial(0)
	}
	x := peers["x"] // who moves and publishes
	name := func() string { return string(rune('a' + rnd.IntN(12))) }
	for range 300 {
		who := names[rnd.IntN(len(names))]
		switch rnd.IntN(10) {
		case 0, 1:
			a := name()
			peers[who].say("join %s", a)
			lead := model.lead(a)
			if model.members[lead] == nil {
				model.members[lead] = make(map[string]bool)
			}
			model.members[lead][who] = true
		case 2:
			a := name()
			peers[who].say("leave %s", a)
			delete(model.members[model.lead(a)], who)
		case 3:
			time.Sleep(time.Duration(rnd.Int64N(int64(grace / 4))))
			model.aliases = slices.DeleteFunc(model.aliases, func(a ruledAlias) bool { return !time.Now().Before(a.expires) })
		case 4:
			a := name()
			x.say("pub %s text", a)
			for m := range model.members[model.lead(a)] {
				peers[m].expect("#" + a + "  text")
			}
		default:
			from, to := name(), name()
			if from == to {
				continue
			}
			x.say("move %s %s", from, to)
			x.expect(model.move(from, to))
		}
		synctest.Wait()
		checkBooks(t, b.Server)
	}
	for _, p := range peers {
		p.silent()
	}
}
