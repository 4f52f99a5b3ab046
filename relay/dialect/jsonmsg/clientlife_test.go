package jsonmsg_test

import (
	"context"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sotto-relay/sotto/crypto"
	"github.com/sotto-relay/sotto/handshake"
	"github.com/sotto-relay/sotto/relay"
	"github.com/sotto-relay/sotto/relay/dialect/jsonmsg"
)

func newIdentity(t testing.TB) *crypto.Identity {
	t.Helper()
	id, err := crypto.GenerateIdentity()
	require.NoError(t, err)
	return id
}

// attempt connects, and is closed at once.
func (o *office) attempt(c *jsonmsg.ClientOptions) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	client, err := jsonmsg.Connect(ctx, o.dial, c)
	if err == nil {
		err = client.Close()
	}
	return err
}

func TestClientRegisters(t *testing.T) {
	inOffice(t, nil, func(t *testing.T, o *office) {
		key, other := newKey(t), newKey(t)
		require.NoError(t, o.attempt(&jsonmsg.ClientOptions{Address: "ann", Key: key}))
		require.NoError(t, o.attempt(&jsonmsg.ClientOptions{Address: "ann", Key: key}))
		require.NoError(t, o.attempt(&jsonmsg.ClientOptions{Key: key}))
		require.NoError(t, o.attempt(named("bob")))
		require.NoError(t, o.attempt(&jsonmsg.ClientOptions{Address: key.Public().Address(), Key: key}))
		for _, c := range []struct {
			name    string
			options *jsonmsg.ClientOptions
			want    jsonmsg.Reason
		}{
			{"bound, with another key", &jsonmsg.ClientOptions{Address: "ann", Key: other}, jsonmsg.ErrAliasBound},
			{"bound, without a key", named("ann"), jsonmsg.ErrAliasBound},
			{"a hash without a key", named(key.Public().Address()), jsonmsg.ErrNeedsKey},
			{"a hash of another key", &jsonmsg.ClientOptions{Address: key.Public().Address(), Key: other}, jsonmsg.ErrNeedsKey},
			{"no address", named("a\nb"), jsonmsg.ErrInvalidAddr},
		} {
			c.options.Reconnect = true // which is no use, so it is not done
			err := o.attempt(c.options)
			var re *jsonmsg.RelayError
			require.ErrorAs(t, err, &re, c.name)
			assert.ErrorIs(t, err, c.want, c.name)
		}
		assert.Error(t, o.attempt(&jsonmsg.ClientOptions{}), "neither")
		assert.Error(t, o.attempt(&jsonmsg.ClientOptions{Address: "ann", Prove: true}), "nothing to prove")
		assert.Error(t, o.attempt(&jsonmsg.ClientOptions{Address: "ann", Trust: new(handshake.MemoryTrust)}), "no relay address")
		_, err := jsonmsg.Connect(t.Context(), nil, named("ann"))
		assert.ErrorContains(t, err, "no Dialer")
	})
}

func TestClientToken(t *testing.T) {
	inOffice(t, func(o *office) {
		o.server.Policy = relay.Policy{Claim: func(_ context.Context, c relay.ClaimInfo) (relay.Grant, error) {
			if c.Token != "sesame" {
				return relay.Grant{}, &relay.Refusal{Code: relay.CodeDenied, Reason: "no entry"}
			}
			return relay.Grant{}, nil
		}}
	}, func(t *testing.T, o *office) {
		require.NoError(t, o.attempt(&jsonmsg.ClientOptions{Address: "ann", Token: "sesame"}))
		err := o.attempt(&jsonmsg.ClientOptions{Address: "ann", Token: "guess", Reconnect: true})
		assert.ErrorIs(t, err, jsonmsg.Reason("no entry"))
	})
}

func TestClientProves(t *testing.T) {
	id := newIdentity(t)
	inOffice(t, func(o *office) { o.dialect.Identity = id }, func(t *testing.T, o *office) {
		key, trust := newKey(t), new(handshake.MemoryTrust)
		with := func(set func(*jsonmsg.ClientOptions)) *jsonmsg.ClientOptions {
			c := &jsonmsg.ClientOptions{Address: "ann", Key: key, Trust: trust, RelayAddress: "relay.example"}
			set(c)
			return c
		}
		p := connect(t, o.dial, with(func(*jsonmsg.ClientOptions) {}))
		assert.False(t, want[*jsonmsg.Registered](p).Proven)
		_ = p.Close()
		p = connect(t, o.dial, with(func(c *jsonmsg.ClientOptions) { c.Prove = true }))
		assert.True(t, want[*jsonmsg.Registered](p).Proven)
		_ = p.Close()
		known, ok, err := trust.Lookup("relay.example")
		require.NoError(t, err)
		assert.True(t, ok)
		assert.Equal(t, id.Public(), known)

		p = connect(t, o.dial, with(func(*jsonmsg.ClientOptions) {}))
		assert.True(t, want[*jsonmsg.Registered](p).Proven, "once proven, always")
		_ = p.Close()
		pin := id.Public()
		require.NoError(t, o.attempt(with(func(c *jsonmsg.ClientOptions) { c.Relay, c.Trust = &pin, nil })))

		wrong := newIdentity(t).Public()
		var mismatch *handshake.KeyMismatchError
		err = o.attempt(with(func(c *jsonmsg.ClientOptions) { c.Relay, c.Reconnect = &wrong, true }))
		require.ErrorAs(t, err, &mismatch)
		assert.Equal(t, handshake.KeyMismatchError{Want: wrong, Got: pin}, *mismatch)
		o.dialect.Identity = newIdentity(t)
		require.ErrorAs(t, o.attempt(with(func(c *jsonmsg.ClientOptions) { c.Reconnect = true })), &mismatch, "another relay there")
	})
}

// TestClientReconnects: a lost connection is made again, and rooms, subscriptions
// and what is being waited for with it.
func TestClientReconnects(t *testing.T) {
	inOffice(t, nil, func(t *testing.T, o *office) {
		ctx := context.Background()
		ann := o.person(&jsonmsg.ClientOptions{Address: "ann", Reconnect: true})
		for _, room := range []string{"hall", "attic"} {
			_, err := ann.Join(ctx, room)
			require.NoError(t, err)
		}
		require.NoError(t, ann.Leave(ctx, "attic"))
		require.NoError(t, ann.Subscribe(ctx, "home/#"))
		require.NoError(t, ann.Publish(ctx, "home/a", "1", true))
		want[*jsonmsg.Publication](ann)
		found := make(chan string, 1)
		go func() {
			peer, err := ann.FindMatch(ctx, "pong")
			assert.NoError(t, err)
			found <- peer
		}()
		synctest.Wait()

		o.cut(true)
		assert.Error(t, want[*jsonmsg.Disconnected](ann).Err)
		time.Sleep(time.Minute)
		sent := make(chan error, 1)
		go func() { sent <- ann.SendRoom(ctx, "hall", "after all") }() // waits for the connection, and for the room
		synctest.Wait()
		o.set(false)
		bob := o.person(named("bob"))
		_, err := bob.Join(ctx, "hall")
		require.NoError(t, err)
		want[*jsonmsg.Registered](ann)
		assert.Equal(t, &jsonmsg.Publication{Topic: "home/a", From: "ann", CT: "1", Retained: true}, want[*jsonmsg.Publication](ann))
		require.NoError(t, <-sent)
		assert.Equal(t, "after all", want[*jsonmsg.RoomMessage](bob).CT)
		peer, err := bob.FindMatch(ctx, "pong")
		require.NoError(t, err)
		assert.Equal(t, "ann", peer)
		assert.Equal(t, "bob", <-found)
		n, err := bob.Join(ctx, "attic")
		require.NoError(t, err)
		assert.Equal(t, 1, n, "ann has left it")
		ann.silent()
	})
}

// TestClientLeft: a room that is full when we come back.
func TestClientLeft(t *testing.T) {
	inOffice(t, func(o *office) {
		o.server.Limits.Dialects = map[string]relay.DialectLimits{"json": {GroupMembers: 1}}
	}, func(t *testing.T, o *office) {
		ctx := context.Background()
		ann := o.person(&jsonmsg.ClientOptions{Address: "ann", Reconnect: true, BackoffMin: time.Hour, BackoffMax: time.Hour})
		_, err := ann.Join(ctx, "hall")
		require.NoError(t, err)
		o.cut(false)
		want[*jsonmsg.Disconnected](ann)
		synctest.Wait()
		bob := o.person(named("bob"))
		_, err = bob.Join(ctx, "hall")
		require.NoError(t, err)

		ctx, cancel := context.WithTimeout(ctx, 2*time.Hour)
		defer cancel()
		var got []jsonmsg.Event
		for e, err := range ann.Events(ctx) {
			require.NoError(t, err)
			if got = append(got, e); len(got) == 2 {
				break
			}
		}
		assert.Equal(t, &jsonmsg.Registered{}, got[0])
		left := got[1].(*jsonmsg.Left)
		assert.Equal(t, "hall", left.Room)
		assert.ErrorIs(t, left.Err, jsonmsg.ErrRoomFull)
	})
}

// TestClientEnds: what a client's methods and events end with.
func TestClientEnds(t *testing.T) {
	t.Run("closed", func(t *testing.T) {
		inOffice(t, nil, func(t *testing.T, o *office) {
			ctx := context.Background()
			ann := o.person(&jsonmsg.ClientOptions{Address: "ann", Reconnect: true})
			require.NoError(t, ann.Announce(ctx, "ann"))
			errs := make(chan error, 2)
			go func() { _, err := ann.FindMatch(ctx, "pong"); errs <- err }()
			go func() { errs <- ann.Send(ctx, "nobody", "", nil) }()
			synctest.Wait()
			assert.NoError(t, ann.Err())
			require.NoError(t, ann.Close())
			require.NoError(t, ann.Close())
			for range 2 {
				assert.ErrorIs(t, <-errs, net.ErrClosed)
			}
			want[*jsonmsg.Queued](ann) // for nobody
			assert.ErrorIs(t, ann.ended(), net.ErrClosed)
			assert.ErrorIs(t, ann.Err(), net.ErrClosed)
			assert.ErrorIs(t, ann.SendRoom(ctx, "hall", ""), net.ErrClosed)
			_, err := ann.Join(ctx, "hall")
			assert.ErrorIs(t, err, net.ErrClosed)
		})
	})
	t.Run("taken over", func(t *testing.T) {
		inOffice(t, nil, func(t *testing.T, o *office) {
			ann := o.person(&jsonmsg.ClientOptions{Address: "ann", Reconnect: true})
			o.person(named("ann")) // and is not replaced in turn
			assert.ErrorIs(t, want[*jsonmsg.RelayError](ann), jsonmsg.ErrTakenOver)
			assert.ErrorIs(t, ann.ended(), jsonmsg.ErrTakenOver)
			var re *jsonmsg.RelayError
			assert.ErrorAs(t, ann.Err(), &re)
		})
	})
	t.Run("lost", func(t *testing.T) {
		inOffice(t, nil, func(t *testing.T, o *office) {
			ann := o.person(named("ann"))
			o.cut(false)
			assert.Error(t, ann.ended())
			assert.Equal(t, ann.Err(), ann.SendRoom(context.Background(), "hall", ""))
		})
	})
	t.Run("no relay", func(t *testing.T) {
		inOffice(t, nil, func(t *testing.T, o *office) {
			o.cut(true)
			assert.ErrorContains(t, o.attempt(named("ann")), "nobody listens")
			begin := time.Now()
			err := o.attempt(&jsonmsg.ClientOptions{Address: "ann", Reconnect: true})
			assert.ErrorIs(t, err, context.DeadlineExceeded)
			assert.ErrorContains(t, err, "nobody listens")
			assert.Equal(t, time.Minute, time.Since(begin))
		})
	})
	t.Run("address in use", func(t *testing.T) {
		inOffice(t, func(o *office) { o.dialect.InUse = relay.Reject }, func(t *testing.T, o *office) {
			first := o.person(named("ann"))
			assert.ErrorIs(t, o.attempt(named("ann")), jsonmsg.ErrAddressInUse)
			time.AfterFunc(10*time.Second, func() { _ = first.Close() })
			o.person(&jsonmsg.ClientOptions{Address: "ann", Reconnect: true}) // waits for it
		})
	})
}
