package client

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sotto-relay/sotto/frame"
	"github.com/sotto-relay/sotto/relay"
)

func join(t testing.TB, c *Client, name string) *Room {
	t.Helper()
	r, err := c.JoinRoom(t.Context(), name)
	require.NoError(t, err)
	require.Equal(t, name, r.Name())
	return r
}

func say(t testing.TB, r *Room, data string, o ...SendOption) {
	t.Helper()
	_, err := r.Send(t.Context(), []byte(data), o...)
	require.NoError(t, err)
}

func TestRooms(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		alice, bob := r.client(identity(t, 1), nil), r.client(identity(t, 2), nil)
		a, b := join(t, alice, "r"), join(t, bob, "r")
		require.Equal(t, 1, a.Members())
		require.Equal(t, 2, b.Members())
		subscribe(t, bob, "#")
		other := join(t, bob, "other")
		say(t, a, "hello")
		say(t, b, "hello yourself")
		requireHeard(t, b.feed, "r: hello", "nothing")
		requireHeard(t, a.feed, "r: hello yourself", "nothing")
		requireHeard(t, other.feed, "nothing")
		for p, err := range func() loop { say(t, a, "x"); return b.Messages(t.Context()) }() {
			require.NoError(t, err)
			require.Equal(t, identity(t, 1).Public(), p.From)
			require.Equal(t, "r", p.Topic)
			break
		}

		b.Leave()
		b.Leave()
		say(t, a, "to nobody")
		requireHeard(t, b.feed, "client: closed")
		_, err := b.Send(t.Context(), nil)
		require.ErrorIs(t, err, ErrClosed)
		require.Equal(t, 2, join(t, bob, "r").Members())
		_, err = a.Send(t.Context(), nil, Retain())
		require.ErrorIs(t, err, errPublishOption)

		for _, name := range []string{"", "\n", strings.Repeat("x", 129)} {
			_, err := alice.JoinRoom(t.Context(), name)
			var re *RefusedError
			require.ErrorAs(t, err, &re)
			require.Equal(t, frame.CodeMalformed, re.Code)
		}
	})
}

type loop = func(func(*Publication, error) bool)

// TestRejoin: after a reconnect the Client is in its rooms before it sends to
// them, and their streams have a gap.
func TestRejoin(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		alice := r.client(identity(t, 1), nil)
		bob, line := r.lineClient(identity(t, 2))
		a, b := join(t, alice, "r"), join(t, bob, "r")
		again := join(t, bob, "r") // in the same one twice
		for range 5 {
			line.cut()
			synctest.Wait()
			say(t, a, "lost")
			say(t, b, "kept", NoWait())
			line.up()
			requireHeard(t, a.feed, "r: kept")
			say(t, a, "back")
			requireHeard(t, b.feed, "gap", "r: back", "nothing")
			requireHeard(t, again.feed, "gap", "r: back", "nothing")
		}
		require.Equal(t, 2, b.Members())
		b.Leave()
		say(t, a, "still there")
		requireHeard(t, again.feed, "r: still there")
		require.NoError(t, alice.Close())
		requireHeard(t, a.feed, "client: closed")
	})
}

// TestRejoinRefused: a room that is full when the Client comes back.
func TestRejoinRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.limits.Dialects = map[string]relay.DialectLimits{"brep": {GroupMembers: 1}}
		r.start()
		bob, line := r.lineClient(identity(t, 2))
		b := join(t, bob, "r")
		line.cut()
		synctest.Wait()
		say(t, b, "to nobody", NoWait())
		join(t, r.client(identity(t, 1), nil), "r")
		line.up()
		requireHeard(t, b.feed, `client: refused: quota: "room full"`)
		_, err := b.Send(t.Context(), nil)
		var re *RefusedError
		require.ErrorAs(t, err, &re)
		require.NoError(t, bob.Close())
	})
}

// TestJoinGivenUp: who gives up joining is in no room.
func TestJoinGivenUp(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		bob, line := r.lineClient(identity(t, 2))
		line.cut()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := bob.JoinRoom(ctx, "r")
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Empty(t, bob.ask.openNumbers())
		line.up()
		require.Equal(t, 1, join(t, r.client(identity(t, 1), nil), "r").Members())
	})
}
