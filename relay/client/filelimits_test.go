package client

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sotto-relay/sotto/crypto"
	"github.com/sotto-relay/sotto/relay"
)

// TestFileLimits: transfers are bounded for each sender and in all, and end when
// they make no progress.
func TestFileLimits(t *testing.T) {
	skipInRace(t)
	bubble(t, func(t *testing.T, r *rig) {
		bob := identity(t, 2)
		b := r.receiver(bob, func(b *receiver) { b.policy.Transfers, b.policy.PerSender = 5, 2 })
		data := content(2 * part)
		var hands []*hand
		for from := range 4 {
			h := r.hand(t, identity(t, byte(10+from)), bob.Public())
			for n := range 3 {
				h = &hand{Client: h.Client, t: t, to: h.to, id: [16]byte{byte(n)}}
				h.begin()
				room := n < 2 && len(b.files.in) < 5
				h.part(parts("a", data)[0])
				require.Equal(t, room, h.accepted, "%d %d", from, n)
				require.Equal(t, !room, h.cancelled)
				if !room {
					e, _ := b.last()
					require.Equal(t, FileEvent{FileOffer: FileOffer{From: h.cfg.Identity.Public(), Transfer: h.id, Name: "a", Size: 2 * part}, Err: ErrFileRoom}, e)
				}
				hands = append(hands, h)
			}
		}
		require.Len(t, b.files.in, 5)
		time.Sleep(20 * time.Hour)
		hands[0].part(parts("a", data)[1])
		time.Sleep(9 * time.Hour) // it is looked at four times a day
		synctest.Wait()
		require.Len(t, b.files.in, 1, "the one with progress")
		require.Equal(t, []string{"hidden"}, b.saved())
		require.True(t, hands[1].cancelled)
		time.Sleep(24 * time.Hour)
		synctest.Wait()
		require.Empty(t, b.files.in)
		require.Empty(t, b.saved())
	})
}

// TestFileStrangers: however many strangers come, there is room for who is known, and
// for some strangers.
func TestFileStrangers(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		bob, friend := identity(t, 2), identity(t, 3)
		b := r.receiver(bob, func(b *receiver) {
			b.policy.Transfers, b.policy.PerSender = 5, 3
			b.policy.Known = func(k crypto.PublicKey) bool { return k == friend.Public() }
		})
		offer := func(from *hand, n byte) bool {
			h := &hand{Client: from.Client, t: t, to: from.to, id: [16]byte{n}}
			h.begin()
			h.part(parts("a", content(2*part))[0])
			require.NotEqual(t, h.accepted, h.cancelled)
			return h.accepted
		}
		for n := range byte(4) {
			require.Equal(t, n < 2, offer(r.hand(t, identity(t, 10+n), bob.Public()), 0), n)
		}
		known := r.hand(t, friend, bob.Public())
		for n := range byte(4) {
			require.Equal(t, n < 3, offer(known, n), n)
		}
		require.Len(t, b.files.in, 5)
	})
}

// TestFileControlRefused: what a receiver says is said again when the relay had no
// room for it.
func TestFileControlRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.limits.Dialects = map[string]relay.DialectLimits{"brep": {InboxMessages: 1}}
		r.start()
		alice, bob := identity(t, 1), identity(t, 2)
		b := r.receiver(bob, nil)
		h := r.hand(t, alice, bob.Public())
		require.NoError(t, h.Close())
		synctest.Wait() // until the relay knows
		send(t, b.Client, alice, "in the way")
		b.files.post(0, func() { b.files.say(transferKey{alice.Public(), h.id}, crypto.TransferCancel) })
		time.Sleep(10 * time.Second)
		h = r.hand(t, alice, bob.Public())
		require.Equal(t, "in the way", next(t, h.Client).Text())
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		require.True(t, h.cancelled)
	})
}
