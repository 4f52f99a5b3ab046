package blind

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sotto-relay/sotto/frame"
	"github.com/sotto-relay/sotto/transport"
	"github.com/sotto-relay/sotto/transport/pipe"
)

// backwards is a Sealer that seals nothing.
type backwards struct{}

var errForged = errors.New("forged")

func (backwards) Nonce() string { return "nonce" }

func (backwards) Seal(h *frame.BlindHeader, encoded, data []byte) (signature, ciphertext []byte, err error) {
	if !bytes.Equal(encoded, h.Append(nil)) {
		return nil, nil, errors.New("encoded is not the header")
	}
	if string(data) == "unsealable" {
		return nil, nil, errForged
	}
	return encoded[len(encoded)-9:], reversed(data), nil
}

func (backwards) Open(f *frame.BlindFrame) ([]byte, error) {
	if !bytes.HasSuffix(f.Encoded, f.Signature) {
		return nil, errForged
	}
	return reversed(f.Ciphertext), nil
}

func reversed(b []byte) []byte {
	b = bytes.Clone(b)
	slices.Reverse(b)
	return b
}

// A device is a client with somebody in Receive.
type device struct {
	*Client
	t      *testing.T
	events chan Event
	done   chan error
	lost   chan time.Duration
}

// device starts a client that dials the rig, or what dial says.
func (r *rig) device(t *testing.T, name string, dial transport.Dialer) *device {
	d := &device{t: t, events: make(chan Event, 10_000), done: make(chan error, 1), lost: make(chan time.Duration, 10_000)}
	if dial == nil {
		dial = func(context.Context) (transport.Conn, error) {
			near, far := pipe.New()
			r.Speak(r.dialect).HandleConn(named{far, far.(transport.TryWriter), far.(transport.Batcher), name})
			return near, nil
		}
	}
	d.Client = NewClient(ClientConfig{Dial: dial, Sealer: backwards{}, Sender: name, Lost: func(_ error, in time.Duration) { d.lost <- in }})
	go func() {
		for {
			e, err := d.Receive(t.Context())
			if err != nil {
				d.done <- err
				return
			}
			e.Data = bytes.Clone(e.Data)
			d.events <- e
		}
	}()
	t.Cleanup(func() {
		assert.NoError(t, d.Close())
		<-d.done
	})
	return d
}

// next returns what comes next: "connected", "FROM KEY DATA" or the error.
func (d *device) next() string {
	d.t.Helper()
	select {
	case e := <-d.events:
		switch {
		case e.Connected:
			return "connected"
		case e.Err != nil:
			return e.Err.Error()
		}
		return e.Header.Sender + " " + e.Header.Key() + " " + string(e.Data)
	case <-time.After(time.Hour):
		return "nothing"
	}
}

func (d *device) send(key, data string) {
	d.t.Helper()
	require.NoError(d.t, d.Send(d.t.Context(), Message{Kind: frame.BlindUpdate, EntityID: key, Data: []byte(data)}))
}

// bubble runs f with a rig in a synctest bubble.
func bubble(t *testing.T, f func(t *testing.T, r *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(t, newRig(t, nil)) })
}

func TestClient(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		ann, bob := r.device(t, "ann", nil), r.device(t, "bob", nil)
		ann.Subscribe("x", "y") // before the connection or after it
		require.Equal(t, "connected", ann.next())
		require.Equal(t, "connected", bob.next())
		bob.Subscribe("x")
		synctest.Wait()

		ann.send("x", "one")
		require.Equal(t, "ann x one", bob.next())
		bob.send("x", "two")
		require.Equal(t, "bob x two", ann.next())
		m := Message{Kind: frame.BlindPairing, EntityID: "e", Route: "y", Data: []byte("three")}
		require.NoError(t, bob.Send(t.Context(), m))
		e := <-ann.events
		assert.Equal(t, Event{Data: []byte("three"), Header: frame.BlindHeader{
			Kind: frame.BlindPairing, EntityID: "e", Sender: "bob", Seq: 2, Nonce: "nonce", TS: float64(time.Now().UnixMilli()), Route: "y",
		}}, e)
		ann.Unsubscribe("y")
		synctest.Wait()
		require.NoError(t, bob.Send(t.Context(), m))
		bob.send("x", "four")
		require.Equal(t, "bob x four", ann.next())
		assert.ErrorIs(t, bob.Send(t.Context(), Message{Kind: frame.BlindUpdate, EntityID: "x", Data: []byte("unsealable")}), errForged)
		assert.Empty(t, r.ignored())
	})
}

// TestClientBadFrames: what cannot be parsed or opened is reported, and passes.
func TestClientBadFrames(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		ann, s := r.device(t, "ann", nil), r.as("s")
		ann.Subscribe("x")
		ann.next()
		synctest.Wait()
		s.say("x forged")
		e := <-ann.events
		assert.ErrorIs(t, e.Err, errForged)
		assert.Equal(t, "x", e.Header.EntityID)
		assert.Nil(t, e.Data)
		s.write(transport.Binary, message("x short")[:120])
		e = <-ann.events
		assert.ErrorIs(t, e.Err, frame.ErrMalformed)
		assert.Zero(t, e.Header)
	})
}

// TestClientReconnects: with all subscriptions, those of the time without a
// connection too; Send waits for that.
func TestClientReconnects(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		ann, bob := r.device(t, "ann", nil), r.device(t, "bob", nil)
		ann.Subscribe("x", "y")
		bob.Subscribe("z")
		ann.next()
		bob.next()
		synctest.Wait()
		r.kick("ann")
		ann.Unsubscribe("y")
		ann.Subscribe("z")
		ann.send("z", "sent while away")
		require.Equal(t, "connected", ann.next())
		require.Equal(t, "ann z sent while away", bob.next())
		for _, key := range []string{"x", "y", "z"} {
			bob.send(key, "hello")
		}
		require.Equal(t, "bob x hello", ann.next())
		require.Equal(t, "bob z hello", ann.next())
		assert.Len(t, ann.lost, 1)
	})
}

// TestClientWaits: between tries to connect, longer and longer, up to half a
// minute; and from the beginning after a connection that held.
func TestClientWaits(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		var tries int
		var conns []transport.Conn
		dial := func(context.Context) (transport.Conn, error) {
			if tries++; tries <= 100 {
				return nil, errors.New("no network")
			}
			near, far := pipe.New()
			conns = append(conns, far)
			return near, nil
		}
		start := time.Now()
		ann := r.device(t, "ann", dial)
		require.Equal(t, "connected", ann.next())
		var sum time.Duration
		for i := range 100 {
			d := <-ann.lost
			require.LessOrEqual(t, d, min(longestWait, shortestWait<<min(i, 20)))
			sum += d
		}
		assert.Equal(t, sum, time.Since(start))
		assert.Greater(t, sum, 10*time.Minute)

		_ = conns[0].Close(transport.CloseTryLater, "")
		assert.Equal(t, "connected", ann.next())
		<-ann.lost
		time.Sleep(longEnough)
		_ = conns[1].Close(transport.CloseTryLater, "")
		assert.Equal(t, "connected", ann.next())
		assert.Less(t, <-ann.lost, shortestWait)
	})
}

func TestClientRotates(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		ann, bob, cat := r.device(t, "ann", nil), r.device(t, "bob", nil), r.device(t, "cat", nil)
		for _, d := range []*device{ann, bob} {
			d.next()
			d.Subscribe("x")
		}
		synctest.Wait()
		require.NoError(t, ann.Rotate(t.Context(), "x", "y"))
		require.NoError(t, ann.Rotate(t.Context(), "x", "y"), "again")
		assert.Equal(t, &DeniedError{"x", "y", "conflict"}, ann.Rotate(t.Context(), "x", "z"))
		bob.Follow("x", "y")
		synctest.Wait()
		ann.send("y", "one")
		require.Equal(t, "ann y one", bob.next())

		// Both know the new key only, also when they come back.
		time.Sleep(DefaultGrace)
		r.kick("ann")
		r.kick("bob")
		require.Equal(t, "connected", ann.next())
		require.Equal(t, "connected", bob.next())
		synctest.Wait()
		cat.send("x", "two")
		cat.send("y", "three")
		require.Equal(t, "cat y three", ann.next())
		require.Equal(t, "cat y three", bob.next())
	})
}

// TestClientRotatesAgain: an answer that was lost with the connection is asked for
// again.
func TestClientRotatesAgain(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		relays := make(chan *peer, 2)
		ann := r.device(t, "ann", func(context.Context) (transport.Conn, error) {
			near, far := pipe.New()
			relays <- &peer{Conn: far, t: t}
			return near, nil
		})
		ann.next()
		ann.Subscribe("x")
		first := <-relays
		require.Equal(t, subscribe("x"), first.hear())
		result := make(chan error)
		go func() { result <- ann.Rotate(t.Context(), "x", "y") }()
		require.Equal(t, rotate("x", "y"), first.hear())
		assert.Equal(t, errRotating, ann.Rotate(t.Context(), "x", "z"))
		_ = first.Conn.Close(0, "")
		require.Equal(t, "connected", ann.next())
		second := <-relays
		require.Equal(t, subscribe("x"), second.hear())
		require.Equal(t, rotate("x", "y"), second.hear())
		for _, answer := range []string{ // only the last is one
			"{", `{"op":"rotated"}`, rotated("z", "y"), rotated("x", "z"), `{"op":"news","from":"x","to":"y"}`, rotated("x", "y"), rotated("x", "y"),
		} {
			second.say(answer)
		}
		require.NoError(t, <-result)

		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, ann.Rotate(ctx, "y", "z"), context.DeadlineExceeded)
		require.Equal(t, rotate("y", "z"), second.hear())
		_ = second.Conn.Close(0, "")
		require.Equal(t, "connected", ann.next())
		third := <-relays
		require.Equal(t, subscribe("y"), third.hear())
		third.silent() // who gave up is not answered
	})
}

// TestClientManyKeys: in messages that a relay takes.
func TestClientManyKeys(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		ann, bob := r.device(t, "ann", nil), r.device(t, "bob", nil)
		for i := range 1000 {
			ann.Subscribe(fmt.Sprintf("%04d%s", i, strings.Repeat("\"", 250)))
			if i == 0 {
				ann.next()
				synctest.Wait()
				r.kick("ann") // all others are subscribed to at once
				synctest.Wait()
				<-ann.lost
			}
		}
		require.Equal(t, "connected", ann.next())
		synctest.Wait()
		assert.Empty(t, r.ignored())
		bob.next()
		for _, i := range []int{0, 1, 999} {
			key := fmt.Sprintf("%04d%s", i, strings.Repeat("\"", 250))
			bob.send(key, "hello")
			require.Equal(t, "bob "+key+" hello", ann.next())
		}
	})
}

// TestClientContext: the end of a context ends the call and nothing else.
func TestClientContext(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		near, far := pipe.New()
		dials := 0
		c := NewClient(ClientConfig{Sealer: backwards{}, Sender: "ann", Dial: func(ctx context.Context) (transport.Conn, error) {
			if dials++; dials == 1 {
				<-ctx.Done()
				return nil, ctx.Err()
			}
			return near, nil
		}})
		defer c.Close()
		for _, call := range []func(context.Context) error{
			func(ctx context.Context) error { _, err := c.Receive(ctx); return err },
			func(ctx context.Context) error { return c.Send(ctx, Message{Kind: frame.BlindUpdate, EntityID: "k"}) },
			func(ctx context.Context) error { return c.Rotate(ctx, "a", "b") },
		} {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			start := time.Now()
			assert.ErrorIs(t, call(ctx), context.DeadlineExceeded)
			assert.Equal(t, time.Second, time.Since(start))
			cancel()
		}
		e, err := c.Receive(t.Context())
		require.NoError(t, err)
		require.True(t, e.Connected)
		for range 3 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			_, err = c.Receive(ctx)
			assert.ErrorIs(t, err, context.DeadlineExceeded)
			cancel()
			(&peer{Conn: far, t: t}).say("x one")
			e, err = c.Receive(t.Context())
			require.NoError(t, err)
			require.Equal(t, "x", e.Header.EntityID)
		}
		assert.Equal(t, 2, dials)
	})
}

// TestClientClose: whatever waits ends with net.ErrClosed.
func TestClientClose(t *testing.T) {
	for name, dial := range map[string]transport.Dialer{
		"connected": func(context.Context) (transport.Conn, error) { near, _ := pipe.New(); return near, nil },
		"dialling":  func(ctx context.Context) (transport.Conn, error) { <-ctx.Done(); return nil, ctx.Err() },
		"waiting":   func(ctx context.Context) (transport.Conn, error) { return nil, errors.New("no network") },
		"unreadable": func(ctx context.Context) (transport.Conn, error) {
			near, _ := pipe.Options{Messages: 1}.New()
			return near, nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := NewClient(ClientConfig{Dial: dial, Sealer: backwards{}, Sender: "ann"})
				var wg sync.WaitGroup
				wg.Go(func() {
					for {
						if _, err := c.Receive(t.Context()); err != nil {
							assert.Equal(t, net.ErrClosed, err)
							return
						}
					}
				})
				wg.Go(func() { assert.Equal(t, net.ErrClosed, c.Rotate(t.Context(), "a", "b")) })
				wg.Go(func() {
					for {
						if err := c.Send(t.Context(), Message{Kind: frame.BlindUpdate, EntityID: "k"}); err != nil {
							assert.Equal(t, net.ErrClosed, err)
							return
						}
						time.Sleep(time.Second)
					}
				})
				time.Sleep(10 * time.Second)
				require.NoError(t, c.Close())
				require.NoError(t, c.Close())
				start := time.Now()
				wg.Wait()
				assert.LessOrEqual(t, time.Since(start), time.Second)
				_, err := c.Receive(t.Context())
				assert.Equal(t, net.ErrClosed, err)
			})
		})
	}
}

// What a relay would drop without a word is an error before it is sent.
func TestClientRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := NewClient(ClientConfig{Sender: "a", Sealer: longSignature{}, Dial: func(context.Context) (transport.Conn, error) {
			return nil, errors.New("nobody there")
		}})
		defer c.Close()
		long := strings.Repeat("k", DefaultKeyBytes+1)
		for name, m := range map[string]Message{
			"no kind":   {EntityID: "k"},
			"no entity": {Kind: frame.BlindUpdate},
			"UTF-8":     {Kind: frame.BlindUpdate, EntityID: "k\xff"},
			"key":       {Kind: frame.BlindUpdate, EntityID: "k", Route: long},
			"size":      {Kind: frame.BlindUpdate, EntityID: "k", Data: make([]byte, 1<<20)},
			"signature": {Kind: frame.BlindUpdate, EntityID: "k", Data: []byte("long")},
		} {
			assert.Error(t, c.Send(t.Context(), m), name)
		}
		for _, pair := range [][2]string{{"", "k"}, {"k", ""}, {"k", "k"}, {"k", long}} {
			assert.Equal(t, errKeys, c.Rotate(t.Context(), pair[0], pair[1]))
		}
	})
}

// longSignature signs "long" with more than fits.
type longSignature struct{}

func (longSignature) Nonce() string { return "n" }
func (longSignature) Seal(_ *frame.BlindHeader, _, data []byte) (signature, ciphertext []byte, err error) {
	if string(data) == "long" {
		signature = make([]byte, 1<<16)
	}
	return signature, data, nil
}
func (longSignature) Open(*frame.BlindFrame) ([]byte, error) { return nil, nil }
