package mesh

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sotto-relay/sotto/crypto"
	"github.com/sotto-relay/sotto/frame"
	"github.com/sotto-relay/sotto/internal/race"
)

// shapes are whom each relay names.
var shapes = map[string]map[string]string{
	"triangle":          {"a": "bc", "b": "ac", "c": "ab"},
	"ring of four":      {"a": "bd", "b": "ac", "c": "bd", "d": "ca"},
	"ring of five":      {"a": "b", "b": "c", "c": "d", "d": "e", "e": "a"},
	"full mesh of five": {"a": "bcde", "b": "acde", "c": "abde", "d": "abce", "e": "abcd"},
	"star":              {"a": "", "b": "a", "c": "a", "d": "a", "e": "a"},
}

// A party is a client on each relay of a shape, and what they sent one another.
type party struct {
	w       *world
	nodes   []*node
	clients []*client
	sent    int
	taken   map[string]bool // by the sender's relay
	came    map[string]int
}

// gather starts the relays, all of them closed to others than named ones or open.
func (w *world) gather(shape map[string]string, set ...func(*Config)) *party {
	p := &party{w: w, taken: make(map[string]bool), came: make(map[string]int)}
	for i := range len(shape) {
		name := string(rune('a' + i))
		p.nodes = append(p.nodes, w.start(name, shape[name], set...))
	}
	settle()
	for i, n := range p.nodes {
		p.clients = append(p.clients, n.attach(identity(w.t, byte(i+1))))
	}
	settle()
	return p
}

// chat has everybody write to everybody.
func (p *party) chat() {
	for i, from := range p.clients {
		for j, to := range p.clients {
			if i != j {
				from.text(to.id, fmt.Sprintf("%d-%d-%d", i, j, p.sent))
			}
		}
	}
	p.sent++
}

// listen notes what has come to all within a time.
func (p *party) listen(within time.Duration) {
	time.Sleep(within)
	for j, c := range p.clients {
		for _, what := range c.hears(0) {
			text, status, isReceipt := strings.Cut(what, ":")
			switch {
			case !isReceipt:
				require.Contains(p.w.t, text, fmt.Sprintf("-%d-", j), "it came to somebody else")
				p.came[text]++
			case status <= "3":
				p.taken[text] = true
			}
		}
	}
}

// complete says that all was taken, and came.
func (p *party) complete() {
	p.w.t.Helper()
	n := len(p.clients)
	assert.Len(p.w.t, p.taken, p.sent*n*(n-1))
	assert.Len(p.w.t, p.came, p.sent*n*(n-1))
	p.w.balanced()
}

// once says that nothing came twice to a connection that lasted.
func (p *party) once() {
	p.w.t.Helper()
	for text, n := range p.came {
		assert.Equal(p.w.t, 1, n, text)
	}
}

// In whatever shape relays are named, each message goes straight to its recipient's,
// and reaches the application once.
func TestShapes(t *testing.T) {
	for name, shape := range shapes {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world) {
				p := w.gather(shape)
				for range 3 {
					p.chat()
					p.listen(10 * time.Second)
				}
				p.complete()
				p.once()
				from, to := p.clients[0], p.clients[2]
				from.text(to.id, "hops")
				f := to.next()
				for f.Type != frame.TypeData {
					f = to.next()
				}
				assert.EqualValues(t, 1<<4, f.Flags&frame.FlagHops)
			})
		})
	}
}

// Links that break again and again, under the messages that they carry, lose none. What
// comes twice, because a link broke before its receipt, is dropped by clients.
func TestFlapping(t *testing.T) {
	seeds, rounds := uint64(3), 20
	if race.Enabled {
		seeds, rounds = 1, 5
	}
	for name, shape := range shapes {
		for seed := range seeds {
			t.Run(fmt.Sprint(name, seed), func(t *testing.T) {
				bubble(t, func(t *testing.T, w *world) {
					rng := rand.New(rand.NewPCG(seed, 0))
					p := w.gather(shape)
					for range rounds {
						w.cut(func(string, string) bool { return rng.IntN(3) == 0 })
						p.chat()
						w.cut(func(string, string) bool { return rng.IntN(3) == 0 })
						p.listen(time.Duration(rng.IntN(3000)) * time.Millisecond)
					}
					p.listen(10 * time.Minute)
					p.complete()
				})
			})
		}
	}
}

// Groups of relays that lose one another, and find one another again.
func TestPartitions(t *testing.T) {
	seeds := uint64(3)
	if race.Enabled {
		seeds = 1
	}
	for _, name := range []string{"triangle", "ring of four", "star"} {
		for seed := range seeds {
			t.Run(fmt.Sprint(name, seed), func(t *testing.T) {
				bubble(t, func(t *testing.T, w *world) {
					rng := rand.New(rand.NewPCG(seed, 0))
					p := w.gather(shapes[name])
					for range 6 {
						var group string
						for _, n := range p.nodes {
							if rng.IntN(2) == 0 {
								group += n.name
							}
						}
						w.part(group)
						p.chat()
						p.listen(time.Duration(rng.IntN(40)) * time.Second)
						i := rng.IntN(len(p.clients)) // moves, perhaps to the other side
						p.listen(0)
						p.clients[i].close()
						p.clients[i] = p.nodes[rng.IntN(len(p.nodes))].attach(p.clients[i].id)
						p.clients[i].mute.Store(rng.IntN(2) == 0) // what it gets from now on goes where it goes next
						p.chat()
						p.listen(time.Duration(rng.IntN(40)) * time.Second)
						w.part("")
						p.listen(time.Duration(rng.IntN(40)) * time.Second)
					}
					p.listen(20 * time.Minute)
					p.complete()
				})
			})
		}
	}
}

// A client on both sides of a partition gets what each side has for it; when that is
// over, where it attached last.
func TestSplit(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, b := w.start("a", "b"), w.start("b", "")
		settle()
		alice, bill, id := a.attach(identity(t, 1)), b.attach(identity(t, 3)), identity(t, 2)
		w.part("a")
		here := a.attach(id)
		time.Sleep(time.Minute)
		there := b.attach(id)
		alice.text(id, "on a")
		bill.text(id, "on b")
		assert.Equal(t, []string{"on a"}, here.hears(time.Minute))
		assert.Equal(t, []string{"on b"}, there.hears(0))
		w.part("")
		time.Sleep(5 * time.Minute)
		alice.text(id, "still on a") // who has a session here is not looked for
		bill.text(id, "still on b")
		assert.Equal(t, []string{"still on a"}, here.hears(time.Second))
		assert.Equal(t, []string{"still on b"}, there.hears(0))
		here.close()
		alice.text(id, "now on b")
		assert.Equal(t, []string{"now on b"}, there.hears(time.Minute))
		w.balanced()
	})
}

// A link that takes nothing delays what goes over it, and nothing else; and what waits
// for it is bounded.
func TestSlowLinkBytes(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, b := w.start("a", "b"), w.start("b", "")
		settle()
		slow := a.rogue(identity(t, 152)) // answers nothing
		lost, bob := identity(t, 3), b.attach(identity(t, 2))
		slow.here(lost)
		alice := a.attach(identity(t, 1))
		settle()
		key := lost.Public()
		const many, size = 150, 100_000
		for n := range many {
			alice.send(frame.TypeData, textID(fmt.Sprint(n)), frame.FlagReceipt, append(key[:], make([]byte, size)...))
			if n%50 == 49 {
				alice.text(bob.id, fmt.Sprint("meanwhile ", n))
			}
		}
		assert.Equal(t, []string{"meanwhile 49", "meanwhile 99", "meanwhile 149"}, bob.hears(time.Second))
		a.mesh.mu.Lock()
		for l := range a.mesh.all {
			assert.LessOrEqual(t, l.bytes, windowBytes)
		}
		assert.LessOrEqual(t, a.mesh.waiting, searchBytes+size)
		a.mesh.mu.Unlock()
		time.Sleep(time.Minute)
		assert.True(t, slow.isGone())
		assert.Equal(t, many, a.stored())
		w.balanced()
	})
}

// A client that is asked for with QUERY_CLIENT attaches elsewhere before all have
// answered: what waits goes there, once.
func TestMoveDuringQuery(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, b := w.start("a", "b"), w.start("b", "")
		settle()
		r := a.rogue(identity(t, 152)) // asked, and silent
		alice, id := a.attach(identity(t, 1)), identity(t, 2)
		alice.text(id, "one")
		alice.text(id, "two")
		r.gets(frame.TypeNodeInfo)
		time.Sleep(time.Second)
		bob := b.attach(id)
		assert.Equal(t, []string{"one", "two"}, bob.hears(time.Second))
		r.silent(frame.TypeData, time.Second)
		// It was somewhere without an attachment, and its relay answers late.
		q := frame.NodeInfo{Subtype: frame.NodeInfoQueryResponse, Client: id.Public(), Found: true, Relay: r.id.Public()}
		payload, err := q.Append(nil)
		require.NoError(t, err)
		r.say(frame.TypeNodeInfo, payload)
		synctest.Wait()
		alice.text(id, "three")
		assert.Equal(t, []string{"three"}, bob.hears(time.Minute))
		r.silent(frame.TypeData, time.Second)
		w.balanced()
	})
}

// Ten relays and more that say they are where a client is: those whose word ends last
// count, and the places are bounded.
func TestManyPlaces(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a := w.start("a", "")
		synctest.Wait()
		id := identity(t, 2)
		for i := range placesEach + 4 {
			r := a.rogue(identity(t, byte(100+i)))
			h := frame.Here{Attachment: crypto.Attach(id, r.id.Public(), time.Now().Add(time.Duration(10+i)*time.Minute))}
			r.say(frame.TypeHere, h.Append(nil))
			synctest.Wait()
		}
		a.mesh.mu.Lock()
		defer a.mesh.mu.Unlock()
		assert.Len(t, a.mesh.owned[id.Public()].places, placesEach)
		assert.Equal(t, placesEach, a.mesh.ownings)
		p, _, ok := a.mesh.placeOwned(id.Public(), time.Now())
		assert.True(t, ok)
		assert.Equal(t, identity(t, byte(100+placesEach+3)).Public(), p.relay)
	})
}
