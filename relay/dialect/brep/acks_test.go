package brep

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sotto-relay/sotto/frame"
	"github.com/sotto-relay/sotto/inbox"
)

// TestUnacknowledged: what an extended session has not acknowledged comes again,
// byte for byte, before what came later; a legacy session has nothing to
// acknowledge.
func TestUnacknowledged(t *testing.T) {
	bubble(t, func(r *rig) { r.server.Inbox = inbox.NewMemory(nil) }, func(t *testing.T, r *rig) {
		alice, bob, carol := r.login(identity(t, 1), formExtended), identity(t, 2), identity(t, 3)
		first, legacy := r.login(bob, formExtended), r.login(carol, formLegacy)
		synctest.Wait()
		send := func(to [32]byte, n byte) {
			alice.send(withID(alice.frame(frame.TypeData, to[:], []byte{n}), n, 0))
		}
		for n := byte(1); n <= 5; n++ {
			send(bob.Public(), n)
			send(carol.Public(), n)
		}
		var came [][]byte
		for range 5 {
			_, msg, err := first.raw.Conn.Read() // past the Client, which would acknowledge
			require.NoError(t, err)
			came = append(came, append([]byte(nil), msg...))
			require.Equal(t, uint8(len(came)), legacy.next().Payload[recipientSize])
		}
		var acks []byte
		for _, n := range []byte{3, 1} {
			a := frame.Ack{Sender: alice.id.Public(), ID: withID(&frame.Brep{}, n, 0).ID}
			acks = a.Append(acks)
		}
		first.send(first.frame(frame.TypeAck, acks))
		synctest.Wait()
		require.EqualValues(t, 7, r.server.Stats().Delivered)
		_ = first.raw.Close(0, "")
		_ = legacy.raw.Close(0, "")
		synctest.Wait()
		send(bob.Public(), 6)
		synctest.Wait() // it is stored: handed over at once, it would not be held

		again := r.login(bob, formExtended)
		for _, n := range []int{2, 4, 5} {
			_, msg, err := again.raw.Conn.Read()
			require.NoError(t, err)
			require.Equal(t, came[n-1], msg)
		}
		require.Equal(t, uint8(6), again.next().Payload[recipientSize])
		synctest.Wait()
		held, _, err := r.server.Inbox.Totals(t.Context())
		require.NoError(t, err)
		require.Zero(t, held-3-1, "those three, and the last, which is still being handled")
		requireBalance(t, r.server)
	})
}

// TestRepeatBeforeItsFirst: a sender's new session repeats a message that the relay
// is still taking from the old one, and sends another, which does not pass it.
func TestRepeatBeforeItsFirst(t *testing.T) {
	r := newRig(t, nil)
	alice, bob := identity(t, 1), r.login(identity(t, 2), formExtended)
	to := bob.id.Public()
	send := func(p *peer, n byte) { p.send(withID(p.frame(frame.TypeData, to[:], []byte{n}), n, 0)) }
	first := r.login(alice, formExtended)

	blocks := &r.session(0).common.blocks // which every message looks at once it is known to be new
	blocks.count.Add(1)
	blocks.mu.Lock()
	send(first, 1)
	x := r.session(1).sent
	require.Eventually(t, func() bool {
		x.mu.Lock()
		defer x.mu.Unlock()
		return x.find(withID(&frame.Brep{}, 1, 0).ID) != nil
	}, time.Minute, time.Millisecond)
	again := r.login(alice, formExtended)
	send(again, 1)
	send(again, 2)
	time.Sleep(50 * time.Millisecond)
	assert.Zero(t, r.server.Stats().Ignored["brep: repeat"], "it is passed over, and the second message is next")
	blocks.mu.Unlock()
	for n := byte(1); n <= 2; n++ {
		require.Equal(t, n, bob.next().Payload[recipientSize])
	}
}
