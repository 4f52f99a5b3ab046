package mesh

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/sotto-relay/sotto/frame"
	"github.com/sotto-relay/sotto/inbox"
	"github.com/sotto-relay/sotto/internal/race"
	"github.com/sotto-relay/sotto/relay"
)

func TestTwoRelays(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, b := w.start("a", "b"), w.start("b", "")
		settle()
		assert.Equal(t, "b", a.linkedWith())
		assert.Equal(t, "a", b.linkedWith())
		alice, bob := a.attach(identity(t, 1)), b.attach(identity(t, 2))
		settle()
		alice.text(bob.id, "one")
		alice.text(bob.id, "two")
		assert.Equal(t, []string{"one", "two"}, bob.hears(time.Second))
		assert.ElementsMatch(t, []string{"one:1", "two:1", "one:3", "two:3"}, alice.hears(time.Second))
		bob.text(alice.id, "three")
		assert.Equal(t, []string{"three"}, alice.hears(time.Second))
		w.balanced()
	})
}

// orders yields all orders of some names.
func orders(names string) (all []string) {
	if len(names) < 2 {
		return []string{names}
	}
	for i := range names {
		for _, rest := range orders(names[:i] + names[i+1:]) {
			all = append(all, names[i:i+1]+rest)
		}
	}
	return all
}

// startOrders returns all orders, or a sample where they would take too long.
func startOrders(names string) []string {
	all, most := orders(names), 24
	if len(names) > 4 {
		most = 8
	}
	if race.Enabled {
		most /= 4
	}
	step := max(1, len(all)/most)
	var some []string
	for i := 0; i < len(all); i += step {
		some = append(some, all[i])
	}
	return some
}

// Whatever order relays are started in, each message reaches its application once.
func TestStartOrders(t *testing.T) {
	for _, shape := range []map[string]string{
		{"a": "bc", "b": "ac", "c": "ab"},                                 // a triangle
		{"a": "b", "b": "c", "c": "a"},                                    // which each names one of
		{"a": "bd", "b": "ac", "c": "bd", "d": "ca"},                      // a ring of four
		{"a": "be", "b": "ac", "c": "bd", "d": "ce", "e": "da"},           // of five
		{"a": "bcde", "b": "acde", "c": "abde", "d": "abce", "e": "abcd"}, // everybody names everybody
	} {
		for _, order := range startOrders("abcde"[:len(shape)]) {
			bubble(t, func(t *testing.T, w *world) {
				var nodes []*node
				for _, name := range order {
					nodes = append(nodes, w.start(string(name), shape[string(name)]))
					time.Sleep(700 * time.Millisecond)
				}
				settle()
				time.Sleep(2 * time.Minute)
				var clients []*client
				for i, n := range nodes {
					clients = append(clients, n.attach(identity(t, byte(i+1))))
				}
				settle()
				for i, from := range clients {
					for j, to := range clients {
						if i != j {
							from.text(to.id, string(rune('0'+i))+string(rune('0'+j)))
						}
					}
				}
				time.Sleep(10 * time.Second)
				for j, c := range clients {
					var want []string
					for i := range clients {
						if i != j {
							o, r := string(rune('0'+i))+string(rune('0'+j)), string(rune('0'+j))+string(rune('0'+i))
							want = append(want, o, r+":1", r+":3")
						}
					}
					assert.ElementsMatch(t, want, c.hears(0), "order %s, client %d", order, j)
				}
				w.balanced()
			})
		}
	}
}

// Many messages to one recipient who has to be found wait together, in order.
func TestOneSearch(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, b := w.start("a", "b"), w.start("b", "")
		settle()
		alice, bob := a.login(identity(t, 1)), b.login(identity(t, 2)) // not attached: found by QUERY_CLIENT
		var want []string
		for i := range 10 {
			text := string(rune('0' + i))
			alice.text(bob.id, text)
			want = append(want, text)
		}
		assert.Equal(t, want, bob.hears(time.Second))
		assert.Empty(t, a.mesh.searches)
		// Nobody has carol: she is asked for once, and her messages are stored.
		carol := identity(t, 3)
		for i := range 10 {
			alice.text(carol, string(rune('a'+i)))
		}
		got := alice.hears(time.Second)
		assert.Contains(t, got, "j:2")
		assert.Zero(t, a.mesh.waiting)
		w.balanced()
	})
}

// A client that moves while messages are on their way gets each of them once.
func TestMove(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, b, c := w.start("a", "bc"), w.start("b", "c"), w.start("c", "")
		settle()
		alice, id := a.attach(identity(t, 1)), identity(t, 2)
		bob := b.attach(id)
		alice.text(id, "one")
		assert.Equal(t, []string{"one"}, bob.hears(time.Second))
		for i, at := range []*node{c, b, a, c} {
			alice.text(id, string(rune('p'+i))) // on its way while bob leaves
			bob.close()
			alice.text(id, string(rune('P'+i)))
			bob = at.attach(id)
			alice.text(id, string(rune('x'+i)))
			got := bob.hears(time.Minute)
			want := []string{string(rune('p' + i)), string(rune('P' + i)), string(rune('x' + i))}
			if len(got) == 2 {
				want = want[1:] // the first came before he left
			}
			// What the relay that he left had been given comes from there, perhaps later.
			assert.ElementsMatch(t, want, got)
			assert.Less(t, slices.Index(got, string(rune('P'+i))), slices.Index(got, string(rune('x'+i))))
		}
		w.balanced()
	})
}

// Of two places the one whose attachment ends last counts.
func TestTwoPlaces(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, b, c := w.start("a", "bc"), w.start("b", "c"), w.start("c", "")
		settle()
		alice, id := a.attach(identity(t, 1)), identity(t, 2)
		old := b.attach(id)
		time.Sleep(time.Minute)
		latest := c.attach(id)
		time.Sleep(time.Second)
		alice.text(id, "one")
		assert.Equal(t, []string{"one"}, latest.hears(time.Second))
		assert.Empty(t, old.hears(0))
	})
}

// A relay that is gone gets its messages when it is back.
func TestPartition(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, b, c := w.start("a", "bc"), w.start("b", "c"), w.start("c", "")
		settle()
		alice, bob := a.attach(identity(t, 1)), c.attach(identity(t, 2))
		settle()
		w.part("ab")
		alice.text(bob.id, "one")
		alice.text(bob.id, "two")
		assert.ElementsMatch(t, []string{"one:2", "two:2"}, alice.hears(30*time.Second))
		assert.Empty(t, bob.hears(time.Minute))
		w.part("")
		assert.Equal(t, []string{"one", "two"}, bob.hears(5*time.Minute))
		alice.text(bob.id, "three")
		assert.Equal(t, []string{"three"}, bob.hears(time.Second))
		assert.Contains(t, alice.hears(0), "one:3")
		assert.NotEmpty(t, b.linkedWith())
		w.balanced()
	})
}

// A client goes elsewhere, or comes here, while a message for it is with another relay:
// what follows waits for that one's answer.
func TestFlying(t *testing.T) {
	for _, home := range []bool{false, true} {
		bubble(t, func(t *testing.T, w *world) {
			a := w.start("a", "")
			settle()
			r, s := a.rogue(identity(t, 151)), a.rogue(identity(t, 152))
			alice, bob := a.attach(identity(t, 1)), identity(t, 2)
			r.here(bob)
			alice.text(bob, "one")
			alice.text(bob, "two")
			f := r.gets(frame.TypeData)
			time.Sleep(time.Second)
			var here *client
			if home {
				here = a.login(bob)
			} else {
				s.here(bob)
			}
			alice.text(bob, "three")
			s.silent(frame.TypeData, 2*time.Second)
			r.receipt(&f, frame.ReceiptRefused, frame.CodeNotHere)
			if home {
				assert.Equal(t, []string{"one", "two", "three"}, here.hears(time.Second))
				return
			}
			for _, want := range []string{"one", "two", "three"} {
				f := s.gets(frame.TypeData)
				assert.Equal(t, want, string(f.Payload[32:]))
				assert.EqualValues(t, 1, f.Flags&frame.FlagHops>>4)
				s.receipt(&f, frame.ReceiptHandedOver, 0)
			}
			assert.Equal(t, []string{"one:1", "two:1", "three:1"}, alice.hears(time.Second))
			w.balanced()
		})
	}
}

// What legacy clients send crosses a link, and leaves it as it came.
func TestLegacyClients(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, b := w.start("a", "b"), w.start("b", "")
		settle()
		alice, bob := a.legacy(identity(t, 1)), b.legacy(identity(t, 2))
		key := bob.id.Public()
		sent := frame.Brep{Type: frame.TypeSignedData, Sender: alice.id.Public(), Signature: [64]byte{7}, Payload: append(key[:], "text"...)}
		alice.send(sent.Type, sent.ID, 0, sent.Payload)
		f := bob.next()
		assert.Zero(t, f.ID)
		assert.Zero(t, f.Flags)
		assert.Equal(t, sent.Payload, f.Payload)
		assert.Equal(t, sent.Sender, f.Sender)
		carol := b.attach(identity(t, 3))
		key = carol.id.Public()
		alice.send(frame.TypeData, [16]byte{}, 0, append(key[:], "text"...))
		f = carol.next()
		assert.NotZero(t, f.ID)
		assert.EqualValues(t, 1<<4, f.Flags)
		w.balanced()
	})
}

// A link that is slow holds up what goes over it, and nothing else; what it has no room
// for waits, or is stored.
func TestSlowLink(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a := w.start("a", "")
		settle()
		r, s := a.rogue(identity(t, 151)), a.rogue(identity(t, 152))
		alice, bob, carol := a.attach(identity(t, 1)), identity(t, 2), identity(t, 3)
		r.here(bob)
		s.here(carol)
		const more = 100
		for i := range windowMessages + more {
			alice.text(bob, fmt.Sprint(i))
			time.Sleep(5 * time.Millisecond)
		}
		alice.text(carol, "hello")
		f := s.gets(frame.TypeData)
		assert.Equal(t, "hello", string(f.Payload[32:]))
		synctest.Wait()
		assert.Zero(t, a.stored()) // it may have to go behind what comes back
		a.mesh.mu.Lock()
		assert.Len(t, a.mesh.links[r.id.Public()].window, windowMessages)
		a.mesh.mu.Unlock()
		s.receipt(&f, frame.ReceiptHandedOver, 0)
		settle()                          // r has not answered for 10 s
		assert.Equal(t, 1000, a.stored()) // of one sender
		w.balanced()
	})
}

// What a link has no room for is stored behind what it has, for which there may be no
// answer.
func TestSlowLinkInOrder(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a := w.start("a", "")
		settle()
		r := a.rogue(identity(t, 151))
		alice, bob := a.attach(identity(t, 1)), identity(t, 2)
		r.here(bob)
		key := bob.Public()
		const messages, size = 10, 1 << 20
		for i := range messages {
			alice.send(frame.TypeData, textID(fmt.Sprint(i)), frame.FlagReceipt, append(key[:], make([]byte, size)...))
			synctest.Wait()
		}
		settle() // r has not answered for 10 s
		assert.Equal(t, messages, a.stored())
		at := a.login(bob)
		for i := range messages {
			f := at.next()
			assert.Equal(t, textID(fmt.Sprint(i)), f.ID)
		}
		w.balanced()
	})
}

// A message that was at two relays in vain is stored, and what waited behind it does not
// wait for longer.
func TestNowhereTwice(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a := w.start("a", "")
		settle()
		r, s := a.rogue(identity(t, 151)), a.rogue(identity(t, 152))
		alice, bob := a.attach(identity(t, 1)), identity(t, 2)
		r.here(bob)
		alice.text(bob, "one")
		f := r.gets(frame.TypeData)
		time.Sleep(time.Second)
		s.here(bob)
		r.receipt(&f, frame.ReceiptRefused, frame.CodeNotHere)
		f = s.gets(frame.TypeData)
		time.Sleep(time.Second)
		r.here(bob)
		alice.text(bob, "two")
		synctest.Wait()
		s.receipt(&f, frame.ReceiptRefused, frame.CodeNotHere)
		assert.ElementsMatch(t, []string{"one:2", "two:2"}, alice.hears(time.Second))
		assert.Equal(t, []string{"one", "two"}, a.login(bob).hears(time.Second))
		w.balanced()
	})
}

// Messages that a relay did not have the recipient for keep their order, also where the
// answers to those that followed come when they have been sent again.
func TestNowhereInOrder(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a := w.start("a", "")
		settle()
		r := a.rogue(identity(t, 151))
		alice, bob := a.attach(identity(t, 1)), identity(t, 2)
		r.here(bob)
		texts := []string{"one", "two", "three"}
		for _, text := range texts {
			alice.text(bob, text)
		}
		synctest.Wait()
		for range texts {
			f := r.gets(frame.TypeData)
			r.receipt(&f, frame.ReceiptRefused, frame.CodeNotHere)
		}
		assert.ElementsMatch(t, []string{"one:2", "two:2", "three:2"}, alice.hears(time.Second))
		assert.Equal(t, texts, a.login(bob).hears(time.Second))
		w.balanced()
	})
}

// What a relay sent before it learned that a recipient or a sender is not where it was
// thought to be does not come before what was refused, if that has changed meanwhile.
func TestRefusedUntilHeard(t *testing.T) {
	for _, spoofed := range []bool{false, true} {
		bubble(t, func(t *testing.T, w *world) {
			b := w.start("b", "")
			settle()
			r := b.rogue(identity(t, 151))
			r.mute.Store(true)
			alice, bob := identity(t, 1), identity(t, 2)
			code := frame.CodeNotHere
			var at *client
			if spoofed {
				at, code = b.attach(bob), frame.CodeSpoofedSender
				old := b.login(alice)
				r.data(alice, bob, "one")
				synctest.Wait()
				old.close()
			} else {
				r.data(alice, bob, "one")
				synctest.Wait()
				at = b.attach(bob)
			}
			r.data(alice, bob, "two")
			var ping frame.Brep
			for i := range 2 {
				f := r.gets(frame.TypeReceipt)
				got, err := frame.DecodeLinkReceipt(f.Payload)
				assert.NoError(t, err)
				assert.Equal(t, frame.ReceiptRefused, got.Status)
				assert.Equal(t, code, got.Code)
				if i == 0 {
					ping = r.gets(frame.TypePing)
				}
			}
			assert.Empty(t, at.hears(time.Second))
			if spoofed { // the other relay keeps them, and sends what comes then
				r.say(frame.TypePong, ping.Payload)
			} else {
				r.data(alice, bob, "one")
				r.data(alice, bob, "two")
			}
			r.data(alice, bob, "three")
			want := []string{"one", "two", "three"}
			if spoofed {
				want = want[2:]
			}
			assert.Equal(t, want, at.hears(time.Second))
			w.balanced()
		})
	}
}

// A slowPut takes its time for one message.
type slowPut struct {
	inbox.Store
	id relay.ID
}

func (s slowPut) Put(ctx context.Context, e *inbox.Entry, q inbox.Quota, done func(inbox.Result)) {
	if e.ID == s.id {
		time.Sleep(time.Second)
	}
	s.Store.Put(ctx, e, q, done)
}

// When the mesh ends and the relay goes on, what is new is stored behind what the mesh
// gives back.
func TestEndInOrder(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a := &node{w: w, name: "a", id: relayID(t, "a"), store: slowPut{inbox.NewMemory(nil), textID("one")}, state: inbox.NewMemoryState(nil)}
		a.run("")
		settle()
		r := a.rogue(identity(t, 151))
		alice, bob := a.attach(identity(t, 1)), identity(t, 2)
		r.here(bob)
		alice.text(bob, "one")
		synctest.Wait()
		a.cancel()
		synctest.Wait()
		alice.text(bob, "two")
		time.Sleep(5 * time.Second)
		assert.Equal(t, []string{"one", "two"}, a.login(bob).hears(time.Second))
		w.balanced()
	})
}
