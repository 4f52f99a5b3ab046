package jsonmsg_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sotto-relay/sotto/crypto"
	"github.com/sotto-relay/sotto/inbox"
	"github.com/sotto-relay/sotto/relay"
	"github.com/sotto-relay/sotto/relay/dialect/jsonmsg"
	"github.com/sotto-relay/sotto/transport"
	"github.com/sotto-relay/sotto/transport/pipe"
)

// An office is a relay and the way to it.
type office struct {
	t       testing.TB
	server  *relay.Server
	dialect jsonmsg.Dialect

	mu    sync.Mutex
	down  bool
	conns []transport.Conn
}

// inOffice runs f with an office in a synctest bubble. set may be nil.
func inOffice(t *testing.T, set func(*office), f func(t *testing.T, o *office)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		o := &office{t: t, server: &relay.Server{Inbox: inbox.NewMemory(nil), Logger: slog.New(slog.DiscardHandler)}}
		if set != nil {
			set(o)
		}
		t.Cleanup(func() { _ = o.server.Close() })
		f(t, o)
	})
}

func (o *office) dial(context.Context) (transport.Conn, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.down {
		return nil, errors.New("nobody listens")
	}
	near, far := pipe.New()
	o.server.Speak(o.dialect).HandleConn(far)
	o.conns = append(o.conns, near)
	return near, nil
}

// cut ends all connections, and refuses others while down.
func (o *office) cut(down bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.down = down
	for _, c := range o.conns {
		_ = c.Close(0, "")
	}
	o.conns = nil
}

func (o *office) set(down bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.down = down
}

// A person is a client under test.
type person struct {
	*jsonmsg.Client
	t testing.TB
}

// person connects a client, which is closed with the test, and takes the event of
// its registration.
func (o *office) person(c *jsonmsg.ClientOptions) *person {
	o.t.Helper()
	p := connect(o.t, o.dial, c)
	want[*jsonmsg.Registered](p)
	return p
}

func connect(t testing.TB, dial transport.Dialer, o *jsonmsg.ClientOptions) *person {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	c, err := jsonmsg.Connect(ctx, dial, o)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return &person{c, t}
}

// next returns the next event, nil if none comes in a while.
func (p *person) next(within time.Duration) jsonmsg.Event {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	for e, err := range p.Events(ctx) {
		if err != nil {
			require.ErrorIs(p.t, err, context.DeadlineExceeded)
			return nil
		}
		return e
	}
	return nil
}

// silent makes sure that no event comes, but for those that something is queued.
func (p *person) silent() {
	p.t.Helper()
	e := p.next(5 * time.Second)
	for _, queued := e.(*jsonmsg.Queued); queued; _, queued = e.(*jsonmsg.Queued) {
		e = p.next(5 * time.Second)
	}
	require.Nil(p.t, e)
}

// want returns the next event, which is an E. A message may be queued even though the
// recipient is just there, so those events are passed over.
func want[E jsonmsg.Event](p *person) E {
	p.t.Helper()
	e := p.next(time.Minute)
	for _, wanted := any(e).(E); !wanted; _, wanted = any(e).(E) {
		if _, queued := e.(*jsonmsg.Queued); !queued {
			break
		}
		e = p.next(time.Minute)
	}
	require.IsType(p.t, *new(E), e, "%+v", e)
	return e.(E)
}

// ended returns what the events of p end with.
func (p *person) ended() error {
	p.t.Helper()
	for _, err := range p.Events(context.Background()) {
		if err != nil {
			return err
		}
	}
	return nil
}

func newKey(t testing.TB) *crypto.X25519PrivateKey {
	t.Helper()
	k, err := crypto.GenerateX25519()
	require.NoError(t, err)
	return k
}

func named(addr string) *jsonmsg.ClientOptions { return &jsonmsg.ClientOptions{Address: addr} }

// TestClientExchange: two that know nothing of one another but their addresses.
func TestClientExchange(t *testing.T) {
	for name, xchacha := range map[string]bool{"XSalsa20": false, "XChaCha20": true} {
		t.Run(name, func(t *testing.T) {
			inOffice(t, nil, func(t *testing.T, o *office) {
				ctx := context.Background()
				key := newKey(t)
				ann := o.person(&jsonmsg.ClientOptions{Key: key, XChaCha: xchacha})
				assert.Equal(t, key.Public().Address(), ann.Address())
				bob := o.person(named("bob"))

				require.NoError(t, ann.Send(ctx, "bob", "m1", []byte("hello")))
				assert.Equal(t, &jsonmsg.PeerKey{Peer: "bob", Key: bob.Key()}, want[*jsonmsg.PeerKey](ann))
				assert.Equal(t, &jsonmsg.PeerKey{Peer: ann.Address(), Key: ann.Key()}, want[*jsonmsg.PeerKey](bob))
				m := want[*jsonmsg.Message](bob)
				assert.Equal(t, &jsonmsg.Message{From: ann.Address(), Key: ann.Key(), ID: "m1", Data: []byte("hello")}, m)

				require.NoError(t, bob.Ack(ctx, m))
				assert.Equal(t, &jsonmsg.Ack{From: "bob", ID: "m1"}, want[*jsonmsg.Ack](ann))
				require.NoError(t, bob.Send(ctx, m.From, "", nil))
				assert.Equal(t, &jsonmsg.Message{From: "bob", Key: bob.Key()}, want[*jsonmsg.Message](ann))
				require.NoError(t, bob.Send(ctx, "bob", "to myself", []byte{0}))
				assert.Equal(t, []byte{0}, want[*jsonmsg.Message](bob).Data)
				ann.silent()
				bob.silent()
			})
		})
	}
}

// TestClientOrder: many messages arrive once and in order, at a pace that the relay
// allows, across the boundary between backlog and live.
func TestClientOrder(t *testing.T) {
	inOffice(t, nil, func(t *testing.T, o *office) {
		ctx, n := context.Background(), 120
		pins := new(jsonmsg.MemoryPins)
		bobs := &jsonmsg.ClientOptions{Address: "bob", Key: newKey(t)}
		require.NoError(t, pins.Remember("bob", bobs.Key.Public()))
		ann := o.person(&jsonmsg.ClientOptions{Address: "ann", Pins: pins})
		var bob *person
		begin := time.Now()
		for i := range n {
			require.NoError(t, ann.Send(ctx, "bob", "", fmt.Append(nil, i)))
			if i == n/3 {
				bob = connect(t, o.dial, bobs)
			}
		}
		assert.InDelta(t, float64(n-16)/18, time.Since(begin).Seconds(), 1)
		want[*jsonmsg.PeerKey](bob)
		queued := 0
		for i := range n {
			e := bob.next(time.Minute)
			if r, ok := e.(*jsonmsg.Registered); ok {
				assert.Equal(t, i, r.Queued)
				queued = i
				e = bob.next(time.Minute)
			}
			require.Equal(t, fmt.Sprint(i), string(e.(*jsonmsg.Message).Data))
		}
		assert.InDelta(t, n/3+1, queued, 2)
		bob.silent()
		ann.silent()
	})
}

func TestClientRooms(t *testing.T) {
	inOffice(t, nil, func(t *testing.T, o *office) {
		ctx := context.Background()
		ann, bob := o.person(named("ann")), o.person(named("bob"))
		n, err := ann.Join(ctx, "hall")
		require.NoError(t, err)
		assert.Equal(t, 1, n)
		n, err = bob.Join(ctx, "hall")
		require.NoError(t, err)
		assert.Equal(t, 2, n)
		n, err = bob.Join(ctx, "hall")
		require.NoError(t, err)
		assert.Equal(t, 2, n, "joining twice")
		require.NoError(t, ann.SendRoom(ctx, "hall", "ct\u2028\""))
		assert.Equal(t, &jsonmsg.RoomMessage{Room: "hall", From: "ann", CT: "ct\u2028\""}, want[*jsonmsg.RoomMessage](bob))
		ann.silent()
		require.NoError(t, bob.Leave(ctx, "hall"))
		require.NoError(t, bob.Leave(ctx, "hall"), "leaving twice")
		require.NoError(t, bob.SendRoom(ctx, "hall", "x"))
		e := want[*jsonmsg.RelayError](bob)
		assert.ErrorIs(t, e, jsonmsg.ErrNotInRoom)
		_, err = bob.Join(ctx, "")
		assert.ErrorIs(t, err, jsonmsg.ErrInvalidRoom)
		bob.silent()
	})
}

func TestClientTopics(t *testing.T) {
	inOffice(t, nil, func(t *testing.T, o *office) {
		ctx := context.Background()
		ann, bob := o.person(named("ann")), o.person(named("bob"))
		require.NoError(t, ann.Publish(ctx, "home/b", "2", true))
		require.NoError(t, ann.Publish(ctx, "home/a", "1", true))
		require.NoError(t, ann.Publish(ctx, "home/c", "3", false))
		synctest.Wait()
		require.NoError(t, bob.Subscribe(ctx, "home/+"))
		for i, topic := range []string{"home/a", "home/b"} {
			assert.Equal(t, &jsonmsg.Publication{Topic: topic, From: "ann", CT: fmt.Sprint(i + 1), Retained: true},
				want[*jsonmsg.Publication](bob))
		}
		require.NoError(t, ann.Publish(ctx, "home/a", "", true))
		assert.Equal(t, &jsonmsg.Publication{Topic: "home/a", From: "ann"}, want[*jsonmsg.Publication](bob))
		require.NoError(t, bob.Publish(ctx, "home/b", "5", false))
		assert.Equal(t, &jsonmsg.Publication{Topic: "home/b", From: "bob", CT: "5"}, want[*jsonmsg.Publication](bob))
		require.NoError(t, bob.Unsubscribe(ctx, "home/+"))
		require.NoError(t, bob.Unsubscribe(ctx, "home/+"), "without a subscription")
		require.NoError(t, ann.Publish(ctx, "home/b", "6", false))
		bob.silent()
		assert.ErrorIs(t, bob.Subscribe(ctx, "a+"), jsonmsg.ErrInvalidFilter)
		require.NoError(t, bob.Publish(ctx, "+", "", false))
		assert.ErrorIs(t, want[*jsonmsg.RelayError](bob), jsonmsg.ErrInvalidTopic)
	})
}

func TestClientMatch(t *testing.T) {
	inOffice(t, nil, func(t *testing.T, o *office) {
		ctx := context.Background()
		ann, bob, carl := o.person(named("ann")), o.person(named("bob")), o.person(named("carl"))
		find := func(ctx context.Context, p *person) func() (string, error) {
			var peer string
			var err error
			done := make(chan struct{})
			go func() {
				defer close(done)
				peer, err = p.FindMatch(ctx, "pong")
			}()
			synctest.Wait()
			return func() (string, error) { <-done; return peer, err }
		}
		a, b := find(ctx, ann), find(ctx, bob)
		for _, c := range []struct {
			found func() (string, error)
			want  string
		}{{a, "bob"}, {b, "ann"}} {
			peer, err := c.found()
			require.NoError(t, err)
			assert.Equal(t, c.want, peer)
		}

		a = find(ctx, ann)
		_, err := ann.FindMatch(ctx, "pong")
		assert.Error(t, err, "one at a time")
		require.NoError(t, ann.CancelMatch(ctx, "pong"))
		_, err = a()
		assert.ErrorIs(t, err, jsonmsg.ErrMatchCancelled)
		require.NoError(t, ann.CancelMatch(ctx, "pong"), "of nothing")

		given, giveUp := context.WithCancel(ctx)
		a = find(given, ann)
		giveUp()
		_, err = a()
		assert.ErrorIs(t, err, context.Canceled)
		synctest.Wait()
		b = find(ctx, bob)
		a = find(ctx, ann) // the answer to the one before does not end it
		peer, err := b()
		require.NoError(t, err)
		assert.Equal(t, "ann", peer)
		peer, err = a()
		require.NoError(t, err)
		assert.Equal(t, "bob", peer)

		_, err = carl.FindMatch(ctx, "\x01")
		assert.ErrorIs(t, err, jsonmsg.ErrInvalidGame)
	})
}

func TestClientCapabilities(t *testing.T) {
	inOffice(t, func(o *office) { o.dialect.Version = "v9" }, func(t *testing.T, o *office) {
		caps, err := o.person(named("ann")).Capabilities(context.Background())
		require.NoError(t, err)
		assert.Equal(t, "v9", caps.Version)
		assert.Equal(t, 65_536, caps.Limits.MessageBytes)
		assert.Equal(t, "normal", caps.LoadTier)
	})
}

// TestClientAway: a message for somebody who is away, with and without his key known.
func TestClientAway(t *testing.T) {
	inOffice(t, nil, func(t *testing.T, o *office) {
		ann := o.person(named("ann"))
		ctx, cancel := context.WithTimeout(context.Background(), 15*time.Second)
		defer cancel()
		err := ann.Send(ctx, "bob", "m1", []byte("are you there?"))
		require.ErrorIs(t, err, jsonmsg.ErrNoKey)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		for range 2 { // asked twice
			assert.Equal(t, &jsonmsg.Queued{To: "bob"}, want[*jsonmsg.Queued](ann))
		}

		bob := connect(t, o.dial, named("bob"))
		want[*jsonmsg.PeerKey](ann)
		assert.Equal(t, ann.Key(), want[*jsonmsg.PeerKey](bob).Key)
		assert.Equal(t, 2, want[*jsonmsg.Registered](bob).Queued)
		_ = bob.Close()
		synctest.Wait()
		require.NoError(t, ann.Send(context.Background(), "bob", "m2", []byte("later")))
		assert.Equal(t, &jsonmsg.Queued{To: "bob", ID: "m2"}, want[*jsonmsg.Queued](ann))
		ann.silent()
	})
}

// TestClientKeyChanges: a new key is told of, and nothing is opened with it, until
// the old one is forgotten.
func TestClientKeyChanges(t *testing.T) {
	inOffice(t, nil, func(t *testing.T, o *office) {
		ctx, pins := context.Background(), new(jsonmsg.MemoryPins)
		ann := o.person(&jsonmsg.ClientOptions{Address: "ann", Pins: pins})
		bob := o.person(named("bob"))
		require.NoError(t, bob.Send(ctx, "ann", "", []byte("I am bob")))
		old := want[*jsonmsg.PeerKey](ann)
		want[*jsonmsg.Message](ann)
		_ = bob.Close()

		bob = o.person(named("bob")) // and another key, as it has none of its own
		require.NoError(t, bob.Announce(ctx, "ann"))
		changed := want[*jsonmsg.PeerKey](ann)
		assert.Equal(t, &jsonmsg.KeyChangedError{Peer: "bob", Pinned: old.Key, Got: bob.Key()}, changed.Err)
		bob.silent() // as ann does not answer it

		require.NoError(t, pins.Forget("bob"))
		time.Sleep(10 * time.Second) // as ann does not answer everybody all the time
		require.NoError(t, bob.Send(ctx, "ann", "", []byte("I am back")))
		assert.Equal(t, bob.Key(), want[*jsonmsg.PeerKey](ann).Key)
		assert.Equal(t, "I am back", string(want[*jsonmsg.Message](ann).Data))
		want[*jsonmsg.PeerKey](bob)
		require.NoError(t, ann.Send(ctx, "bob", "", []byte("welcome")))
		assert.Equal(t, "welcome", string(want[*jsonmsg.Message](bob).Data))
	})
}
