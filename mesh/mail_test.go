package mesh

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sotto-relay/sotto/crypto"
	"github.com/sotto-relay/sotto/frame"
	"github.com/sotto-relay/sotto/inbox"
	"github.com/sotto-relay/sotto/internal/race"
	"github.com/sotto-relay/sotto/transport"
)

func (n *node) stored() int {
	n.w.t.Helper()
	count, _, err := n.store.Totals(n.w.t.Context())
	require.NoError(n.w.t, err)
	return count
}

// Mail that waits on one relay is delivered where its owner attaches, and the sender
// hears of it.
func TestMailMoves(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, _, c := w.start("a", "bc"), w.start("b", "c"), w.start("c", "")
		settle()
		alice, id := a.attach(identity(t, 1)), identity(t, 2)
		var want []string
		for i := range 300 { // more than are asked for, and lent, at a time
			alice.text(id, fmt.Sprint(i))
			want = append(want, fmt.Sprint(i))
			time.Sleep(10 * time.Millisecond)
		}
		alice.hears(10 * time.Second)
		assert.Equal(t, 300, a.stored())
		bob := c.attach(id)
		assert.Equal(t, want, bob.hears(time.Minute))
		assert.Zero(t, a.stored())
		assert.Zero(t, c.stored())
		assert.Len(t, alice.hears(time.Second), 300) // read
		assert.Empty(t, a.mesh.mail)
		alice.text(id, "live")
		assert.Equal(t, []string{"live"}, bob.hears(time.Second))
		w.balanced()
	})
}

// Neither the holder nor the client's relay need be an owner of its key.
func TestMailFarOwners(t *testing.T) {
	for _, cut := range []bool{false, true} {
		bubble(t, func(t *testing.T, w *world) {
			a, c := w.start("a", "bcdefgh"), w.start("c", "defgh")
			for _, name := range "bdefgh" {
				w.start(string(name), "ac")
			}
			settle()
			time.Sleep(2 * time.Minute)
			var id *crypto.Identity
			for n := byte(1); ; n++ {
				id = identity(t, n)
				a.mesh.mu.Lock()
				owners := a.mesh.ownersOf(id.Public())
				a.mesh.mu.Unlock()
				if !slices.Contains(owners, a.id.Public()) && !slices.Contains(owners, c.id.Public()) {
					break
				}
			}
			alice := a.attach(identity(t, 200))
			var want []string
			for n := range 200 {
				alice.text(id, fmt.Sprint(n))
				want = append(want, fmt.Sprint(n))
			}
			time.Sleep(time.Minute)
			bob := c.attach(id)
			got := bob.some(50)
			if cut {
				w.cut(func(from, to string) bool { return from+to == "ac" || from+to == "ca" })
			}
			got = append(got, bob.hears(3*time.Minute)...)
			assert.Subset(t, got, want)
			assert.Zero(t, a.stored()+c.stored())
			alice.text(id, "live")
			assert.Equal(t, []string{"live"}, bob.hears(time.Second))
			w.balanced()
		})
	}
}

// A client without an attachment has its mail where it is stored, and gets what is new
// at once.
func TestMailStays(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, c := w.start("a", "c"), w.start("c", "")
		settle()
		alice, id := a.attach(identity(t, 1)), identity(t, 2)
		alice.text(id, "old")
		time.Sleep(time.Minute)
		bob := c.login(id)
		time.Sleep(time.Minute)
		alice.text(id, "new")
		assert.Equal(t, []string{"new"}, bob.hears(time.Minute))
		assert.Equal(t, 1, a.stored())
		bob.close()
		assert.Equal(t, []string{"old"}, a.login(id).hears(time.Minute))
		w.balanced()
	})
}

// New mail goes behind what is being moved.
func TestMailOrder(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, c := w.start("a", "c"), w.start("c", "")
		settle()
		alice, id := a.attach(identity(t, 1)), identity(t, 2)
		var want []string
		text := func(n int) {
			alice.text(id, fmt.Sprint(n))
			want = append(want, fmt.Sprint(n))
		}
		for n := range 100 {
			text(n)
		}
		time.Sleep(time.Minute)
		bob := c.attach(id)
		for n := range 50 {
			text(100 + n)
			if n%10 == 0 {
				time.Sleep(time.Millisecond)
			}
		}
		assert.Equal(t, want, bob.hears(time.Minute))
		w.balanced()
	})
}

// The holder may come back while it moves mail, or stop, or the other relay may, or
// the link may break: nothing is lost, and no application sees a double. The client
// that reads knows what it had.
func TestMailFaults(t *testing.T) {
	for _, fault := range []string{"none", "link", "holder stops", "holder is killed", "other is killed", "client goes home"} {
		most := 6
		if race.Enabled {
			most = 2
		}
		for after := range most {
			t.Run(fmt.Sprint(fault, " after ", after), func(t *testing.T) {
				bubble(t, func(t *testing.T, w *world) {
					a, c := w.start("a", "c"), w.start("c", "a")
					settle()
					alice, id := a.attach(identity(t, 1)), identity(t, 2)
					var want []string
					for n := range 150 {
						alice.text(id, fmt.Sprint(n))
						want = append(want, fmt.Sprint(n))
					}
					time.Sleep(time.Minute)
					alice.close()
					bob := c.attach(id)
					got := bob.some(after * 30)
					switch fault {
					case "link":
						w.cut(func(string, string) bool { return true })
					case "holder stops":
						a.stop()
						got = append(got, bob.hears(time.Minute)...)
						a.run("c")
					case "holder is killed":
						a.kill()
						got = append(got, bob.hears(time.Minute)...)
						a.run("c")
					case "other is killed":
						c.kill()
						got = append(got, bob.hears(0)...)
						c.run("a")
						settle()
						bob = c.attach(id)
					case "client goes home":
						got = append(got, bob.hears(0)...)
						bob.close()
						bob = a.attach(id)
					}
					got = append(got, bob.hears(5*time.Minute)...)
					once := make(map[string]bool)
					for _, text := range got {
						once[text] = true
					}
					assert.Len(t, once, len(want))
					if fault == "none" {
						assert.Equal(t, want, got)
					}
					assert.Zero(t, a.stored()+c.stored())
					w.balanced()
				})
			})
		}
	}
}

// some returns the texts of the next frames.
func (c *client) some(n int) (texts []string) {
	for range n {
		select {
		case f := <-c.in:
			texts = append(texts, string(f.Payload[32:]))
		case <-time.After(time.Minute):
			return texts
		}
	}
	return texts
}

// Mail goes to nobody who cannot show that its owner is there.
func TestMailRefused(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a := w.start("a", "")
		settle()
		alice, bob, evil := a.attach(identity(t, 1)), identity(t, 2), identity(t, 99)
		alice.text(bob, "secret")
		time.Sleep(time.Minute)
		now := time.Now()
		other := a.rogue(identity(t, 151)).id.Public()
		for name, statement := range map[string][crypto.AttachmentSize]byte{
			"of another client":   crypto.Attach(identity(t, 3), evil.Public(), now.Add(time.Hour)),
			"to another relay":    crypto.Attach(bob, other, now.Add(time.Hour)),
			"to the holder":       crypto.Attach(bob, a.id.Public(), now.Add(time.Hour)),
			"of the past":         crypto.Attach(bob, evil.Public(), now.Add(-time.Second)),
			"too far ahead":       crypto.Attach(bob, evil.Public(), now.Add(2*time.Hour)),
			"with another's sign": forged(bob, evil, now),
		} {
			r := a.rogue(evil)
			fetch := frame.Fetch{Attachment: statement, Max: 10}
			r.say(frame.TypeFetch, fetch.Append(nil))
			r.silent(frame.TypeEntry, time.Minute)
			_ = r.conn.Close(0, "")
			time.Sleep(5 * time.Minute)
			assert.Equal(t, 1, a.stored(), name)
		}
		r := a.rogue(evil)
		fetch := frame.Fetch{Attachment: crypto.Attach(bob, evil.Public(), time.Now().Add(time.Hour)), Max: 10}
		r.say(frame.TypeFetch, fetch.Append(nil))
		e, err := frame.DecodeEntry(r.gets(frame.TypeEntry).Payload)
		require.NoError(t, err)
		// DONE for what was not lent deletes nothing.
		r.say(frame.TypeDone, frame.AppendEntryNumbers(nil, e.Number+1, 0, 1<<63))
		time.Sleep(time.Second)
		assert.Equal(t, 1, a.stored())
		r.say(frame.TypeDone, frame.AppendEntryNumbers(nil, e.Number))
		time.Sleep(time.Second)
		assert.Zero(t, a.stored())
		w.balanced()
	})
}

// forged is a statement about bob that evil signed.
func forged(bob, evil *crypto.Identity, now time.Time) [crypto.AttachmentSize]byte {
	b := crypto.Attach(evil, evil.Public(), now.Add(time.Hour))
	key := bob.Public()
	copy(b[32:], key[:])
	return b
}

// Entries come only for clients of ours, and as many as were asked for.
func TestMailUnasked(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a := w.start("a", "")
		settle()
		bob := a.attach(identity(t, 2))
		r := a.rogue(identity(t, 152))
		key := bob.id.Public()
		inner := frame.Brep{Type: frame.TypeData, ID: textID("x"), Sender: identity(t, 1).Public(), Payload: append(key[:], 'x')}
		entry := frame.Entry{Number: 7, Frame: inner.Append(nil)}
		r.say(frame.TypeEntry, entry.Append(nil))
		assert.Empty(t, bob.hears(time.Second))
		r.say(frame.TypeMail, key[:])
		fetch, err := frame.DecodeFetch(r.gets(frame.TypeFetch).Payload)
		require.NoError(t, err)
		assert.EqualValues(t, fetchMost, fetch.Max)
		r.say(frame.TypeEntry, entry.Append(nil))
		assert.Equal(t, []string{"x"}, bob.hears(time.Second))
		assert.Equal(t, frame.AppendEntryNumbers(nil, 7), r.gets(frame.TypeDone).Payload)
		// The same again is answered, and not delivered again.
		entry.Number = 8
		r.say(frame.TypeEntry, entry.Append(nil))
		assert.Equal(t, frame.AppendEntryNumbers(nil, 8), r.gets(frame.TypeDone).Payload)
		assert.Empty(t, bob.hears(time.Second))
		w.balanced()
	})
}

// When a move is broken off, the owners are told again that there is mail.
func TestMailToldAgain(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a := w.start("a", "")
		settle()
		owner, r := a.rogue(identity(t, 151)), a.rogue(identity(t, 152))
		alice, bob := a.attach(identity(t, 1)), identity(t, 2)
		alice.text(bob, "one")
		key := bob.Public()
		assert.Equal(t, key[:], owner.gets(frame.TypeMail).Payload)
		fetch := frame.Fetch{Attachment: crypto.Attach(bob, r.id.Public(), time.Now().Add(time.Hour)), Max: 10}
		r.say(frame.TypeFetch, fetch.Append(nil))
		r.gets(frame.TypeEntry)
		owner.silent(frame.TypeMail, time.Second)
		_ = r.conn.Close(0, "")
		assert.Equal(t, key[:], owner.gets(frame.TypeMail).Payload)
		assert.Equal(t, 1, a.stored())
	})
}

// A relay remembers for whom it has mail.
func TestMailAfterRestart(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, c := w.start("a", ""), w.start("c", "a")
		settle()
		bob := identity(t, 2)
		c.kill()
		a.attach(identity(t, 1)).text(bob, "one")
		time.Sleep(time.Minute)
		a.stop()
		a.run("c")
		c.run("a")
		here := c.attach(bob)
		assert.Equal(t, []string{"one"}, here.hears(5*time.Minute))
		w.balanced()
	})
}

// What a relay that stops had on its way is mail like any other afterwards, and it needs
// nothing but its inbox to know that.
func TestMailOfStopped(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, c := w.start("a", ""), w.start("c", "a")
		r := a.rogue(identity(t, 152)) // an owner that says nothing
		settle()
		alice, bob := a.attach(identity(t, 1)), identity(t, 2)
		alice.text(bob, "searched for")
		synctest.Wait()
		a.mesh.mu.Lock()
		assert.Len(t, a.mesh.searches, 1)
		a.mesh.mu.Unlock()
		a.stop()
		assert.Equal(t, 1, a.stored())
		assert.True(t, r.isGone())
		a.state = inbox.NewMemoryState(nil)
		a.run("c")
		settle()
		here := c.attach(bob)
		assert.Equal(t, []string{"searched for"}, here.hears(5*time.Minute))
		w.balanced()
	})
}

// A durable relay gives nothing to one that could lose it, and has senders not take that
// one's word for durable.
func TestNotDurable(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a := w.start("a", "")
		settle()
		r := a.rogueWith(identity(t, 151), 0)
		alice, bob := a.attach(identity(t, 1)), identity(t, 2)
		r.here(bob)
		alice.text(bob, "one")
		f := r.gets(frame.TypeData)
		r.receipt(&f, frame.ReceiptStored, 0)
		assert.Equal(t, []string{"one:1"}, alice.hears(time.Second))
		alice.text(identity(t, 3), "two")
		time.Sleep(time.Minute)
		fetch := frame.Fetch{Attachment: crypto.Attach(identity(t, 3), r.id.Public(), time.Now().Add(time.Hour)), Max: 10}
		r.say(frame.TypeFetch, fetch.Append(nil))
		r.silent(frame.TypeEntry, time.Minute)
		assert.Equal(t, 1, a.stored())
	})
}

// Relays that said that they hold mail, and have gone, do not keep out the one that does.
func TestMadeUpHolders(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		b := w.start("b", "")
		settle()
		bob := identity(t, 2)
		key := bob.Public()
		for i := range holdersEach {
			r := b.rogue(identity(t, byte(140+i)))
			r.say(frame.TypeMail, key[:])
			synctest.Wait()
			_ = r.conn.Close(0, "")
		}
		a := w.start("a", "b")
		settle()
		alice := a.attach(identity(t, 1))
		alice.text(bob, "mail")
		alice.hears(20 * time.Second)
		b.mesh.mu.Lock()
		assert.Len(t, b.mesh.owned[key].holders, holdersEach)
		assert.Contains(t, b.mesh.owned[key].holders, a.id.Public())
		assert.Equal(t, holdersEach+1, b.mesh.ownings, "and where alice is")
		b.mesh.mu.Unlock()
		assert.Equal(t, []string{"mail"}, b.attach(bob).hears(2*time.Minute))
	})
}

// MAIL that is passed on by a relay that was not told of the client has nobody asked.
func TestMailPassedOnByOthers(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a := w.start("a", "")
		settle()
		r := a.rogue(identity(t, 152))
		bob := a.attach(identity(t, 2)).id.Public()
		r.gets(frame.TypeHere) // it is an owner, of two
		mail := func(holder crypto.PublicKey) int {
			r.write(&frame.Brep{Type: frame.TypeMail, Sender: holder, Payload: bob[:]})
			synctest.Wait()
			a.mesh.mu.Lock()
			defer a.mesh.mu.Unlock()
			return len(a.mesh.here[bob].fetches)
		}
		assert.Equal(t, 1, mail(identity(t, 10).Public()))
		a.mesh.mu.Lock()
		delete(a.mesh.here[bob].told, r.id.Public())
		a.mesh.mu.Unlock()
		assert.Equal(t, 1, mail(identity(t, 11).Public()), "not told, so no owner")
		assert.Equal(t, 2, mail(r.id.Public()), "the holder itself")
	})
}

// An owner that starts anew while there is no link with it hears again of clients and of
// mail; one that has had a link all the time does not.
func TestReminded(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a := w.start("a", "")
		settle()
		r := a.rogue(identity(t, 152))
		alice, bob := a.attach(identity(t, 1)), identity(t, 2).Public()
		told := func() {
			t.Helper()
			h, err := frame.DecodeHere(r.gets(frame.TypeHere).Payload)
			require.NoError(t, err)
			assert.False(t, h.Gone)
		}
		told()
		alice.text(identity(t, 2), "one")
		assert.Equal(t, bob[:], r.gets(frame.TypeMail).Payload)
		_ = r.conn.Close(transport.CloseNormal, "") // not used any more, as it seems
		synctest.Wait()
		r = a.rogue(r.id)
		time.Sleep((remindEvery + 2) * tick)
		told()
		assert.Equal(t, bob[:], r.gets(frame.TypeMail).Payload)
		r.silent(frame.TypeHere, 2*remindEvery*tick)
	})
}

// Owners that hide where mail is keep it from nobody whom they say is attached elsewhere:
// that relay is told by the holder.
func TestMailHiddenByOwners(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a := w.start("a", "")
		synctest.Wait()
		crowd := a.crowd()
		bob := a.ownedBy(func(owners []crypto.PublicKey) bool { return !slices.Contains(owners, a.id.Public()) })
		alice := a.attach(identity(t, 250))
		alice.text(bob, "one")
		time.Sleep(time.Minute)
		assert.Equal(t, 1, a.stored())
		a.mesh.mu.Lock()
		told := maps.Clone(a.mesh.mail[bob.Public()].told)
		a.mesh.mu.Unlock()
		there := crowd[slices.IndexFunc(crowd, func(r *rogue) bool { _, ok := told[r.id.Public()]; return !ok })]
		there.silent(frame.TypeMail, 0)
		alice.text(bob, "two")
		synctest.Wait()
		p := frame.Place{Attachment: crypto.Attach(bob, there.id.Public(), time.Now().Add(time.Hour))}
		for _, r := range crowd {
			if _, ok := told[r.id.Public()]; ok {
				r.say(frame.TypeAt, (&frame.At{Client: bob.Public(), Places: []frame.Place{p}}).Append(nil))
			}
		}
		key := bob.Public()
		assert.Equal(t, key[:], there.gets(frame.TypeMail).Payload)
		there.silent(frame.TypeData, time.Minute)
		assert.Equal(t, 2, a.stored())
	})
}

// Mail that must not go to where its owner is, since it could be lost there, does not keep
// what is new from him.
func TestNewPassesMail(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a := w.start("a", "")
		settle()
		alice, bob := a.attach(identity(t, 1)), identity(t, 2)
		alice.text(bob, "old")
		time.Sleep(time.Minute)
		r := a.rogueWith(identity(t, 151), 0)
		r.here(bob)
		alice.text(bob, "new")
		f := r.gets(frame.TypeData)
		assert.Equal(t, "new", string(f.Payload[32:]))
		r.receipt(&f, frame.ReceiptHandedOver, 0)
		synctest.Wait()
		assert.Equal(t, 1, a.stored())
		w.balanced()
	})
}

// A patient store takes its time to delete.
type patient struct{ inbox.Store }

func (p patient) Delete(ctx context.Context, to inbox.Address, seqs ...uint64) (int, error) {
	time.Sleep(time.Second)
	return p.Store.Delete(ctx, to, seqs...)
}

// Whoever comes home while his mail is being moved gets it before what is new.
func TestHomeBeforeMail(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		n := &node{w: w, name: "a", id: relayID(w.t, "a"), store: patient{inbox.NewMemory(nil)}, state: inbox.NewMemoryState(nil)}
		n.run("")
		settle()
		r := n.rogue(identity(t, 151))
		alice, id := n.attach(identity(t, 1)), identity(t, 2)
		alice.text(id, "moved")
		alice.text(id, "one")
		settle()
		r.here(id)
		f := frame.Fetch{Attachment: crypto.Attach(id, r.id.Public(), time.Now().Add(time.Hour)), Max: 10}
		r.say(frame.TypeFetch, f.Append(nil))
		e := r.gets(frame.TypeEntry)
		r.gets(frame.TypeEntry) // and is not answered
		r.say(frame.TypeDone, e.Payload[:8])
		synctest.Wait()
		bob := n.login(id)
		alice.text(id, "two")
		assert.Equal(t, []string{"one", "two"}, bob.hears(5*time.Second))
		w.balanced()
	})
}
