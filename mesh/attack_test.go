package mesh

import (
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sotto-relay/sotto/crypto"
	"github.com/sotto-relay/sotto/frame"
	"github.com/sotto-relay/sotto/internal/race"
)

// A client that attached here, and is away: another relay cannot claim its messages.
func TestClaimAttached(t *testing.T) {
	for name, wait := range map[string]time.Duration{"soon": time.Minute, "a day later": 25 * time.Hour} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world) {
				a := w.start("a", "")
				settle()
				bob := a.attach(identity(t, 2))
				bob.close()
				time.Sleep(wait)
				r := a.rogue(identity(t, 152))
				alice := a.login(identity(t, 1))
				alice.text(bob.id, "one")
				stolen := false
				late := time.After(30 * time.Second)
				for on := true; on; {
					select {
					case f := <-r.in:
						switch f.Type {
						case frame.TypeWhere:
							r.say(frame.TypeAt, (&frame.At{Client: bob.id.Public()}).Append(nil))
						case frame.TypeNodeInfo:
							if n, err := frame.DecodeNodeInfo(f.Payload); err == nil && n.Subtype == frame.NodeInfoQueryClient {
								r.queryResponse(bob.id.Public(), true, r.id.Public())
							}
						case frame.TypeData:
							stolen = true
							r.receipt(&f, frame.ReceiptStored, 0)
						}
					case <-late:
						on = false
					}
				}
				t.Log("alice hears", alice.hears(time.Second))
				assert.False(t, stolen)
				assert.Equal(t, []string{"one"}, a.login(bob.id).hears(time.Second))
			})
		})
	}
}

// The same address under many keys is not dialled for each.
func TestSameAddress(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		var dials recorder
		a := w.start("a", "", func(c *Config) { c.Dial = dials.dial })
		synctest.Wait()
		r := a.rogue(identity(t, 152))
		for range 2 {
			n := frame.NodeInfo{Subtype: frame.NodeInfoResponseServers}
			for range 250 {
				id, err := crypto.GenerateIdentity()
				require.NoError(t, err)
				n.Servers = append(n.Servers, frame.ServerInfo{Key: id.Public(), Address: "ws://victim.example"})
			}
			payload, err := n.Append(nil)
			require.NoError(t, err)
			r.say(frame.TypeNodeInfo, payload)
		}
		time.Sleep(20 * time.Minute)
		synctest.Wait()
		assert.LessOrEqual(t, len(dials.all()), 30)
	})
}

// In a closed mesh, relays that are not admitted own nothing.
func TestClosedOwners(t *testing.T) {
	if race.Enabled {
		t.Skip("long, and no race that others have not")
	}
	bubble(t, func(t *testing.T, w *world) {
		rogueID := identity(t, 152)
		list := Closed{relayID(t, "a").Public(), relayID(t, "b").Public(), relayID(t, "c").Public(), rogueID.Public()}
		shut := func(c *Config) { c.Admission = list }
		a, b := w.start("a", "bc", shut), w.start("b", "c", shut)
		c := w.start("c", "", shut)
		settle()
		for _, n := range []*node{a, b, c} {
			r := n.rogue(rogueID)
			s := frame.NodeInfo{Subtype: frame.NodeInfoResponseServers}
			for i := range 250 {
				id, err := crypto.GenerateIdentity()
				require.NoError(t, err)
				s.Servers = append(s.Servers, frame.ServerInfo{Key: id.Public(), Address: fmt.Sprintf("ws://r%d.example", i)})
			}
			payload, err := s.Append(nil)
			require.NoError(t, err)
			r.say(frame.TypeNodeInfo, payload)
			time.Sleep(time.Second)
			_ = r.conn.Close(0, "")
		}
		settle()
		time.Sleep(time.Hour)
		alice, bobID := a.attach(identity(t, 1)), identity(t, 2)
		alice.text(bobID, "mail")
		alice.hears(30 * time.Second)
		bob := c.attach(bobID)
		assert.Equal(t, []string{"mail"}, bob.hears(time.Minute))
	})
}

// A relay that the client has left for another one is sent no mail, though what the
// client said to it has not ended.
func TestFetchLeft(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a := w.start("a", "c")
		c := w.start("c", "")
		settle()
		bob, evil := identity(t, 2), identity(t, 152)
		old := crypto.Attach(bob, evil.Public(), time.Now().Add(30*time.Minute))
		alice := a.attach(identity(t, 1))
		b := c.attach(bob)
		time.Sleep(5 * time.Second)
		w.part("a")
		alice.text(bob, "one")
		assert.Equal(t, []string{"one:2"}, alice.hears(25*time.Second))
		r := a.rogue(evil)
		fetch := frame.Fetch{Attachment: old, Max: 10}
		r.say(frame.TypeFetch, fetch.Append(nil))
		r.silent(frame.TypeEntry, 30*time.Second)
		w.part("")
		assert.Equal(t, []string{"one"}, b.hears(3*time.Minute))
	})
}

// One message that is never answered, among others that are.
func TestNoReceipt(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a := w.start("a", "")
		settle()
		r := a.rogue(identity(t, 152))
		alice, bob, carol := a.login(identity(t, 1)), identity(t, 2), identity(t, 3)
		r.here(bob)
		r.here(carol)
		go func() {
			for {
				select {
				case f := <-r.in:
					if f.Type == frame.TypeData && string(f.Payload[32:]) != "one" {
						r.receipt(&f, frame.ReceiptHandedOver, 0)
					}
				case <-r.gone:
					return
				}
			}
		}()
		alice.text(bob, "one")
		for i := range 60 {
			alice.text(carol, fmt.Sprint("c", i))
			time.Sleep(5 * time.Second)
		}
		all := alice.hears(time.Second)
		assert.Contains(t, all, "one:2", "stored here, after 10 s")
		assert.Equal(t, 1, a.stored())
	})
}

// For whom there was mail is forgotten with the mail.
func TestMailForgotten(t *testing.T) {
	if race.Enabled {
		t.Skip("eight days, and no race that others have not")
	}
	bubble(t, func(t *testing.T, w *world) {
		a := w.start("a", "")
		settle()
		alice := a.login(identity(t, 1))
		for i := range 20 {
			alice.text(identity(t, byte(100+i)), fmt.Sprint(i))
		}
		alice.close()
		time.Sleep(8 * 24 * time.Hour)
		synctest.Wait()
		n := a.stored()
		a.mesh.mu.Lock()
		t.Log("stored", n, "holdings", len(a.mesh.mail))
		assert.Empty(t, a.mesh.mail)
		a.mesh.mu.Unlock()
	})
}

// A flood of messages for nobody.
func TestUselessFlood(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a := w.start("a", "")
		settle()
		r := a.rogue(identity(t, 152))
		r.mute.Store(true) // or it would wait for itself
		x, y := identity(t, 1), identity(t, 2)
		for i := range 50_000 {
			r.data(x, y, fmt.Sprint(i))
		}
		time.Sleep(time.Minute)
		assert.True(t, r.isGone(), "flood")
	})
}

// Somebody says that another key is at a relay's address: that relay is found all the
// same.
func TestPoisonedAddress(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a := w.start("a", "")
		b := w.start("b", "")
		settle()
		r := a.rogue(identity(t, 152))
		list := func(s ...frame.ServerInfo) {
			n := frame.NodeInfo{Subtype: frame.NodeInfoResponseServers, Servers: s}
			payload, err := n.Append(nil)
			require.NoError(t, err)
			r.say(frame.TypeNodeInfo, payload)
		}
		list(frame.ServerInfo{Key: identity(t, 77).Public(), Address: addressFor("b")})
		settle()
		for range 6 { // an honest one
			list(frame.ServerInfo{Key: b.id.Public(), Address: addressFor("b")})
			time.Sleep(5 * time.Minute)
		}
		synctest.Wait()
		assert.Equal(t, "b", a.linkedWith())
	})
}

// Lists that nobody can have asked for cost no more than a few do.
func TestListFlood(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a := w.start("a", "")
		settle()
		r := a.rogue(identity(t, 152))
		list := frame.NodeInfo{Subtype: frame.NodeInfoResponseServers}
		for i := range listMost {
			key := crypto.PublicKey{byte(i), 1} // checking them is what costs
			list.Servers = append(list.Servers, frame.ServerInfo{Key: key, Address: fmt.Sprintf("ws://r%d.example", i)})
		}
		payload, err := list.Append(nil)
		require.NoError(t, err)
		before := a.srv.Stats().Ignored["mesh: too many relays suggested"]
		for range 100 {
			r.say(frame.TypeNodeInfo, payload)
		}
		synctest.Wait()
		assert.EqualValues(t, 100-gossipBurst/listMost, a.srv.Stats().Ignored["mesh: too many relays suggested"]-before)
	})
}

// An admitting is a list that changes.
type admitting struct{ none atomic.Bool }

func (a *admitting) Admit(crypto.PublicKey) bool { return !a.none.Load() }

// A relay that is taken off the list loses its link.
func TestAdmittedNoMore(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		list := new(admitting)
		a := w.start("a", "b", func(c *Config) { c.Admission = list })
		w.start("b", "")
		settle()
		r := a.rogue(identity(t, 152))
		synctest.Wait()
		list.none.Store(true)
		time.Sleep(2 * tick)
		assert.True(t, r.isGone())
		assert.Equal(t, "b", a.linkedWith(), "named by the operator")
	})
}

// What became of a message is passed on once, however often a relay says it, and who goes
// on saying it loses its link.
func TestReceiptFlood(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a := w.start("a", "")
		settle()
		r := a.rogue(identity(t, 152))
		alice, bob := a.attach(identity(t, 1)), identity(t, 2)
		r.here(bob)
		alice.text(bob, "one")
		f := r.gets(frame.TypeData)
		r.receipt(&f, frame.ReceiptHandedOver, 0)
		for _, status := range []frame.ReceiptStatus{frame.ReceiptStored, frame.ReceiptAcknowledged, frame.ReceiptStored, frame.ReceiptExpired} {
			for range 100 {
				r.receipt(&f, status, 0)
			}
			synctest.Wait()
		}
		assert.Equal(t, []string{"one:1", "one:2", "one:3", "one:5 expired"}, alice.hears(time.Second))
		for range controlBurst + scoreMost {
			r.receipt(&f, frame.ReceiptExpired, 0)
		}
		assert.True(t, r.isGone())
		assert.Empty(t, alice.hears(time.Second))
	})
}

// Relays that come all at once get no more links than those that come one by one.
func TestTooManyLinks(t *testing.T) {
	if race.Enabled {
		t.Skip("hundreds of handshakes, and no race that others have not")
	}
	bubble(t, func(t *testing.T, w *world) {
		a, b := w.start("a", "b"), w.start("b", "")
		settle()
		crowd := func(n, from int) {
			for i := range n {
				seed := [32]byte{1, byte(from), byte(i), byte(i >> 8)}
				id, err := crypto.IdentityFromSeed(seed[:])
				require.NoError(t, err)
				a.rogue(id)
			}
		}
		links := func() int {
			synctest.Wait()
			a.mesh.mu.Lock()
			defer a.mesh.mu.Unlock()
			return len(a.mesh.all)
		}
		for i := range (acceptMost + 3) / 100 { // not more at a time than the server lets in
			crowd(100, i)
			time.Sleep(time.Second)
		}
		crowd(15, 100)
		assert.Equal(t, acceptMost, links())
		a.mesh.doing.Lock() // so that those that are to go are there still
		crowd(20, 101)
		a.mesh.doing.Unlock()
		a.mesh.do()
		assert.Equal(t, acceptMost, links())
		assert.NotNil(t, a.mesh.links[b.id.Public()], "named by the operator")
	})
}

// An owner that makes up who holds mail does not keep the true holder out, nor have us
// remember all of them.
func TestManyHolders(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a := w.start("a", "")
		settle()
		r, holder := a.rogue(identity(t, 152)), a.rogue(identity(t, 151))
		bob := a.attach(identity(t, 2)).id.Public()
		r.gets(frame.TypeHere)
		made := func(from, to int) {
			for i := from; i < to; i++ {
				r.write(&frame.Brep{Type: frame.TypeMail, Sender: key(i), Payload: bob[:]})
			}
			synctest.Wait()
		}
		made(0, 50)
		holder.say(frame.TypeMail, bob[:])
		holder.gets(frame.TypeFetch)
		made(50, 400)
		a.mesh.mu.Lock()
		fetches := a.mesh.here[bob].fetches
		assert.Len(t, fetches, fetchesMost)
		assert.Contains(t, fetches, holder.id.Public())
		a.mesh.here[bob].notAfter = time.Now()
		a.mesh.voters.changed()
		a.mesh.mu.Unlock()
		time.Sleep(2 * tick)
		a.mesh.mu.Lock()
		defer a.mesh.mu.Unlock()
		assert.Empty(t, a.mesh.here, "it does not say any more that it is here")
		assert.Empty(t, a.mesh.fetching)
	})
}
