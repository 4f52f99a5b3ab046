package mesh

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/sotto-relay/sotto/crypto"
	"github.com/sotto-relay/sotto/frame"
	"github.com/sotto-relay/sotto/relay"
)

// ownedBy returns a client whose owners, as n sees it, are as wished.
func (n *node) ownedBy(as func(owners []crypto.PublicKey) bool) *crypto.Identity {
	n.mesh.mu.Lock()
	defer n.mesh.mu.Unlock()
	for i := byte(1); ; i++ {
		if id := identity(n.w.t, i); as(n.mesh.ownersOf(id.Public())) {
			return id
		}
	}
}

// A relay that holds mail cannot be reached when it is told of, or may not be dialled
// yet: it is asked when it can.
func TestFetchAgain(t *testing.T) {
	for _, wait := range []time.Duration{0, 10 * time.Second} {
		bubble(t, func(t *testing.T, w *world) {
			a, c := w.start("a", ""), w.start("c", "")
			synctest.Wait()
			alice, bob := a.attach(identity(t, 1)), identity(t, 2)
			alice.text(bob, "one")
			assert.Equal(t, []string{"one:2"}, alice.hears(time.Minute))
			crowd := c.crowd()
			c.knows(a)
			w.part("a")
			at := c.attach(bob)
			key := bob.Public()
			c.mesh.mu.Lock()
			c.mesh.peer(a.id.Public()).notBefore = time.Now().Add(wait)
			told := c.mesh.here[key].told
			owner := crowd[slices.IndexFunc(crowd, func(r *rogue) bool { _, ok := told[r.id.Public()]; return ok })]
			c.mesh.mu.Unlock()
			owner.write(&frame.Brep{Type: frame.TypeMail, Sender: a.id.Public(), Payload: key[:]})
			assert.Empty(t, at.hears(time.Second))
			w.part("")
			assert.Equal(t, []string{"one"}, at.hears(time.Minute))
			assert.Contains(t, alice.hears(time.Second), "one:3")
		})
	}
}

// An owner that hears of mail tells the client's relay, also if there is no link.
func TestMailPassedOn(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		o, c := w.start("o", ""), w.start("c", "o")
		settle()
		bob := c.attach(identity(t, 2))
		settle()
		holder := identity(t, 152)
		toOwner, toPlace := o.rogue(holder), c.rogue(holder)
		synctest.Wait()
		o.mesh.mu.Lock()
		o.mesh.end(o.mesh.links[c.id.Public()], &relay.Refusal{Code: relay.CodeNone})
		o.mesh.mu.Unlock()
		synctest.Wait()
		assert.NotContains(t, o.linkedWith(), "c")
		key := bob.id.Public()
		toOwner.say(frame.TypeMail, key[:])
		f, err := frame.DecodeFetch(toPlace.gets(frame.TypeFetch).Payload)
		assert.NoError(t, err)
		a, err := attachment(&f.Attachment, time.Now())
		assert.NoError(t, err)
		assert.Equal(t, key, a.Client)
	})
}

// crowd gives a relay all the links that it keeps, so that it dials on demand only.
func (n *node) crowd() (others []*rogue) {
	for i := range linksMost {
		others = append(others, n.rogue(identity(n.w.t, byte(200+i))))
	}
	synctest.Wait()
	return others
}

// knows has a relay know of another one.
func (n *node) knows(other *node) {
	n.mesh.mu.Lock()
	defer n.mesh.mu.Unlock()
	n.mesh.learn(other.id.Public(), addressFor(other.name), suggested, n.id.Public(), time.Now())
}

func (n *node) owns(id *crypto.Identity) bool {
	n.mesh.mu.Lock()
	defer n.mesh.mu.Unlock()
	return n.mesh.owned[id.Public()] != nil
}

// An owner that cannot be asked now is told later.
func TestToldLater(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, o := w.start("a", ""), w.start("o", "")
		synctest.Wait()
		a.crowd()
		a.knows(o)
		bob := a.login(a.ownedBy(func(owners []crypto.PublicKey) bool { return slices.Contains(owners, o.id.Public()) }))
		a.mesh.mu.Lock()
		a.mesh.peer(o.id.Public()).notBefore = time.Now().Add(20 * time.Second)
		a.mesh.mu.Unlock()
		bob.say(crypto.Attach(bob.id, a.id.Public(), time.Now().Add(time.Hour)))
		assert.Contains(t, bob.response(), `"ok":true`)
		time.Sleep(15 * time.Second)
		assert.False(t, o.owns(bob.id))
		time.Sleep(75 * time.Second)
		assert.True(t, o.owns(bob.id))
	})
}

// A relay that was not there is an owner again soon after it came back, also for one
// that has all the links it wants, and keeps no more than it wants.
func TestFailuresLapse(t *testing.T) {
	for name, c := range map[string]struct {
		trust      trust
		away, soon time.Duration
	}{
		"one attempt":   {suggested, 20 * time.Second, backoffMost},
		"many attempts": {linked, 10 * time.Minute, failedFor + time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world) {
				a, o := w.start("a", ""), w.start("o", "")
				synctest.Wait()
				a.crowd()
				w.part("a")
				a.mesh.mu.Lock()
				a.mesh.learn(o.id.Public(), addressFor("o"), c.trust, a.id.Public(), time.Now())
				assert.True(t, a.mesh.ask(o.id.Public(), frame.TypePing, make([]byte, 8), time.Now()))
				a.mesh.mu.Unlock()
				fails := func() bool {
					a.mesh.mu.Lock()
					defer a.mesh.mu.Unlock()
					return a.mesh.fails(o.id.Public())
				}
				time.Sleep(c.away)
				assert.True(t, fails())
				w.part("")
				for end := time.Now().Add(c.soon); fails() && time.Now().Before(end); {
					time.Sleep(time.Second)
				}
				assert.False(t, fails())
				a.ownedBy(func(owners []crypto.PublicKey) bool { return slices.Contains(owners, o.id.Public()) })
				a.mesh.mu.Lock()
				defer a.mesh.mu.Unlock()
				if l := a.mesh.links[o.id.Public()]; l != nil && l.dialled {
					assert.True(t, l.onDemand)
				}
			})
		})
	}
}
