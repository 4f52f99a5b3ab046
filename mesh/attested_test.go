package mesh

import (
	"encoding/binary"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sotto-relay/sotto/crypto"
	"github.com/sotto-relay/sotto/frame"
	"github.com/sotto-relay/sotto/inbox"
)

// numbered returns a key that is nobody's.
func numbered(i int) (k crypto.PublicKey) {
	binary.BigEndian.PutUint32(k[:], uint32(i+1))
	return k
}

// Who makes up clients pushes out its own.
func TestAttestedShare(t *testing.T) {
	a, honest, evil := newAttested(100), numbered(1000), numbered(1001)
	for i := range 40 {
		a.put(numbered(i), honest)
	}
	for i := 40; i < 2000; i++ {
		a.put(numbered(i), evil)
	}
	assert.Len(t, a.by, 100)
	for i := range 40 {
		assert.True(t, a.has(numbered(i)), i)
	}
	a.put(numbered(5000), numbered(1002)) // a third relay finds room
	assert.True(t, a.has(numbered(5000)))
	assert.True(t, a.has(numbered(0)))
	assert.False(t, a.has(numbered(1940)), "the oldest of the relay with the most")
	a.put(numbered(0), honest) // it is used
	for i := 6000; i < 6100; i++ {
		a.put(numbered(i), honest)
	}
	assert.Len(t, a.by, 100)
	assert.False(t, a.has(numbered(1)), "the oldest")
	sum := 0
	for _, its := range a.from {
		sum += its.order.Len()
	}
	assert.Equal(t, 100, sum)
	assert.LessOrEqual(t, len(a.unsaved), 100)
}

// The clients are there after a restart, and those that were pushed out are not.
func TestAttestedSaved(t *testing.T) {
	state, relay := inbox.NewMemoryState(nil), numbered(1000)
	a := newAttested(300)
	save := func() {
		for len(a.unsaved) > 0 {
			changed := a.some()
			assert.LessOrEqual(t, len(changed), attestedSaved)
			for key, value := range changed {
				if value == nil {
					require.NoError(t, state.Delete(t.Context(), attestedBucket, key))
				} else {
					require.NoError(t, state.Put(t.Context(), attestedBucket, key, value))
				}
			}
		}
	}
	for i := range 300 {
		a.put(numbered(i), relay)
	}
	save()
	for i := 300; i < 350; i++ {
		a.put(numbered(i), relay)
	}
	save()
	require.NoError(t, state.Put(t.Context(), attestedBucket, "short", nil))
	b := newAttested(300)
	require.NoError(t, b.load(t.Context(), state))
	assert.Equal(t, a.by, b.by)
	assert.Empty(t, b.unsaved)
}

// Of a client that has attached here nobody is believed after a restart that it is
// there, who has no statement of it.
func TestClaimAfterRestart(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a := w.start("a", "")
		settle()
		bob := identity(t, 2)
		a.attach(bob).close()
		time.Sleep(2 * time.Second)
		a.stop()
		a.run("")
		settle()
		r, alice := a.rogue(identity(t, 152)), a.login(identity(t, 1))
		synctest.Wait() // until there is the link
		alice.text(bob, "one")
		r.gets(frame.TypeWhere)
		r.say(frame.TypeAt, (&frame.At{Client: bob.Public()}).Append(nil))
		time.Sleep(10 * time.Second)
		synctest.Wait()
		for len(r.in) > 0 {
			f := <-r.in
			n, err := frame.DecodeNodeInfo(f.Payload)
			assert.False(t, f.Type == frame.TypeNodeInfo && err == nil && n.Subtype == frame.NodeInfoQueryClient)
		}
		assert.Equal(t, []string{"one"}, a.login(bob).hears(time.Second))
	})
}

// One relay cannot fill what there is for all: others still tell where clients are, and
// that they hold mail.
func TestOwnedShare(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a := w.start("a", "c")
		c := w.start("c", "")
		settle()
		const room = 40
		a.mesh.mu.Lock()
		a.mesh.ownings += ownedMost - room
		a.mesh.mu.Unlock()
		r := a.rogue(identity(t, 152))
		for i := range room {
			r.here(identity(t, byte(10+i)))
			key := numbered(i)
			r.say(frame.TypeMail, key[:])
		}
		bob := c.attach(identity(t, 2)).id.Public()
		time.Sleep(2 * time.Second)
		a.mesh.mu.Lock()
		assert.Equal(t, room/(ownedShare+1), a.mesh.shares[r.id.Public()])
		assert.Len(t, a.mesh.owned, room/(ownedShare+1)+1, "nothing is kept of what is refused")
		p, _, ok := a.mesh.placeOwned(bob, time.Now())
		assert.True(t, ok)
		assert.Equal(t, c.id.Public(), p.relay)
		a.mesh.mu.Unlock()
	})
}
