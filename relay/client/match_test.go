package client

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sotto-relay/sotto/crypto"
	"github.com/sotto-relay/sotto/frame"
)

// A searching is a FindMatch that runs.
type searching struct {
	done   sync.WaitGroup
	cancel context.CancelFunc
	peer   crypto.PublicKey
	err    error
}

func find(t testing.TB, c *Client, game string) *searching {
	ctx, cancel := context.WithCancel(t.Context())
	s := &searching{cancel: cancel}
	s.done.Go(func() { s.peer, s.err = c.FindMatch(ctx, game) })
	synctest.Wait()
	return s
}

func (s *searching) wait() (crypto.PublicKey, error) {
	s.done.Wait()
	return s.peer, s.err
}

func requireMatched(t testing.TB, a *searching, b *searching, alice, bob *crypto.Identity) {
	t.Helper()
	peer, err := a.wait()
	require.NoError(t, err)
	require.Equal(t, bob.Public(), peer)
	peer, err = b.wait()
	require.NoError(t, err)
	require.Equal(t, alice.Public(), peer)
}

func TestMatch(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		alice, bob, carol := identity(t, 1), identity(t, 2), identity(t, 3)
		a, b, c := r.client(alice, nil), r.client(bob, nil), r.client(carol, nil)
		first := find(t, a, "pong")
		chess := find(t, a, "chess")
		_, err := a.FindMatch(t.Context(), "pong")
		require.ErrorIs(t, err, errSearching)
		requireMatched(t, first, find(t, b, "pong"), alice, bob)

		// Who has given up is not found, and may begin again.
		gone := find(t, a, "pong")
		gone.cancel()
		_, err = gone.wait()
		require.ErrorIs(t, err, context.Canceled)
		_, err = a.FindMatch(func() context.Context { ctx, stop := context.WithCancel(t.Context()); stop(); return ctx }(), "pong")
		require.ErrorIs(t, err, context.Canceled)
		synctest.Wait() // the relay knows
		second := find(t, b, "pong")
		requireMatched(t, second, find(t, c, "pong"), bob, carol)
		requireMatched(t, chess, find(t, c, "chess"), alice, carol)

		_, err = a.FindMatch(t.Context(), "")
		var re *RefusedError
		require.ErrorAs(t, err, &re)
		last := find(t, a, "go")
		require.NoError(t, a.Close())
		_, err = last.wait()
		require.ErrorIs(t, err, ErrClosed)
		_, err = a.FindMatch(t.Context(), "pong")
		require.ErrorIs(t, err, ErrClosed)
		require.Empty(t, b.stand.searches)
	})
}

// TestMatchAfterReconnect: a search goes on in the next session, and one that was
// given up meanwhile does not.
func TestMatchAfterReconnect(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		alice, bob := identity(t, 1), identity(t, 2)
		a, line := r.lineClient(alice)
		b := r.client(bob, nil)
		waiting, gone := find(t, a, "pong"), find(t, a, "chess")
		line.cut()
		synctest.Wait()
		gone.cancel()
		_, err := gone.wait()
		require.ErrorIs(t, err, context.Canceled)
		pong, chess := find(t, b, "pong"), find(t, b, "chess")
		line.up()
		requireMatched(t, waiting, pong, alice, bob)
		chess.cancel()
		_, err = chess.wait()
		require.ErrorIs(t, err, context.Canceled)

		// A relay that starts anew has nobody waiting.
		waiting = find(t, b, "pong")
		r.stop()
		r.start()
		time.Sleep(time.Minute)
		requireMatched(t, find(t, a, "pong"), waiting, alice, bob)
	})
}

// TestStaleMatch: who was found for a search that had been given up is not taken
// for the next one, and a peer that is none ends a search.
func TestStaleMatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stale, peer := identity(t, 8).Public(), identity(t, 9).Public()
		r := &fakeRelay{t: t, seed: relaySeed, script: func(c *fakeConn) {
			q, _, _ := c.asked()
			c.respond(frame.AppendResponse(nil, q.Req, frame.AppendWaiting(nil, "g")))
			q, _, _ = c.asked()
			assert.Equal(t, "cancel_match", q.Type)
			q2, _, _ := c.asked()
			assert.Equal(t, "find_match", q2.Type)
			c.respond(frame.AppendMatched(nil, "g", stale.String()))
			c.respond(frame.AppendResponse(nil, q.Req, frame.AppendMatchCancelled(nil, "g")))
			c.respond(frame.AppendResponse(nil, q2.Req, frame.AppendWaiting(nil, "g")))
			c.respond(frame.AppendMatched(nil, "other", stale.String()))
			c.respond(frame.AppendMatched(nil, "g", peer.String()))
			c.respond(frame.AppendMatched(nil, "g", stale.String()))
			q, _, _ = c.asked()
			c.respond(frame.AppendResponse(nil, q.Req, frame.AppendMatched(nil, "g", "nobody")))
			c.hold()
		}}
		c, err := r.client(nil)
		require.NoError(t, err)
		first := find(t, c, "g")
		first.cancel()
		_, err = first.wait()
		require.ErrorIs(t, err, context.Canceled)
		got, err := c.FindMatch(t.Context(), "g")
		require.NoError(t, err)
		require.Equal(t, peer, got)
		_, err = c.FindMatch(t.Context(), "g")
		require.Error(t, err)
		require.NoError(t, c.Close())
	})
}

// TestMatchGivenUp: who searches, and gives up, faster than requests may be sent leaves
// none of them behind; and so it is with subscriptions.
func TestMatchGivenUp(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		alice, bob := identity(t, 1), identity(t, 2)
		a, b := r.client(alice, func(c *Config) { c.MessageRate, c.MessageBurst = 1, 16 }), r.client(bob, nil)
		held, err := a.Subscribe(t.Context(), "held")
		require.NoError(t, err)
		for n := range 1700 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
			_, err := a.FindMatch(ctx, "pong")
			require.ErrorIs(t, err, context.DeadlineExceeded)
			filter := "held"
			if n%2 == 0 {
				filter = "new"
			}
			_, err = a.Subscribe(ctx, filter)
			require.ErrorIs(t, err, context.DeadlineExceeded)
			cancel()
		}
		a.ask.mu.Lock()
		queued, open := len(a.ask.queue), len(a.ask.open)
		a.ask.mu.Unlock()
		require.Less(t, queued, 5)
		require.Less(t, open, 10)
		time.Sleep(time.Minute) // what was sent is answered
		synctest.Wait()
		require.Empty(t, a.ask.open)
		require.Empty(t, a.stand.searches)
		bobs := find(t, b, "pong")
		requireMatched(t, find(t, a, "pong"), bobs, alice, bob)

		// A subscription that was not withdrawn is there, and one that was is not.
		_, err = b.Publish(t.Context(), "new", []byte("x"))
		require.NoError(t, err)
		_, err = b.Publish(t.Context(), "held", []byte("y"))
		require.NoError(t, err)
		for p, err := range held.Messages(t.Context()) {
			require.NoError(t, err)
			require.Equal(t, "y", string(p.Data))
			break
		}
		require.EqualValues(t, 1, a.Stats().Publications)
		// Who gives up last takes back what the others were given.
		for a.perMsg.Allow() {
		}
		chess := find(t, a, "chess") // comes first
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		time.AfterFunc(time.Microsecond, held.Close)
		_, err = a.Subscribe(ctx, "held")
		require.ErrorIs(t, err, context.DeadlineExceeded)
		chess.cancel()
		_, err = chess.wait()
		require.ErrorIs(t, err, context.Canceled)
		time.Sleep(time.Minute)
		before := r.server.Stats().Accepted
		_, err = b.Publish(t.Context(), "held", []byte("z"))
		require.NoError(t, err)
		synctest.Wait()
		require.Equal(t, before, r.server.Stats().Accepted, "nobody is subscribed")
	})
}
