package client

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sotto-relay/sotto/crypto"
	"github.com/sotto-relay/sotto/frame"
	"github.com/sotto-relay/sotto/relay"
	"github.com/sotto-relay/sotto/transport"
)

// A line is a way to a relay that can be cut.
type line struct {
	dial transport.Dialer

	mu   sync.Mutex
	conn transport.Conn
	down bool
}

func (l *line) Dial(ctx context.Context) (transport.Conn, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.down {
		return nil, errDown
	}
	c, err := l.dial(ctx)
	l.conn = c
	return c, err
}

// cut ends the connection, and lets no other be made until up.
func (l *line) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.down = true
	_ = l.conn.Close(0, "")
}

func (l *line) up() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.down = false
}

// lineClient returns a Client and its line.
func (r *rig) lineClient(id *crypto.Identity) (*Client, *line) {
	l := &line{dial: r.dial}
	return r.client(id, func(c *Config) { c.Dial = l.Dial }), l
}

func subscribe(t testing.TB, c *Client, filter string, o ...SubscribeOption) *Subscription {
	t.Helper()
	s, err := c.Subscribe(t.Context(), filter, o...)
	require.NoError(t, err)
	return s
}

func publish(t testing.TB, c *Client, topic, data string, o ...SendOption) {
	t.Helper()
	r, err := c.Publish(t.Context(), topic, []byte(data), o...)
	require.NoError(t, err)
	require.NotZero(t, r.ID)
}

// heard returns what comes next, as "topic: data", with " retained", or "gap", or "nothing"
// within a minute.
func heard(t testing.TB, f *feed) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	p, err := f.next(ctx, func(crypto.PublicKey, error) {})
	switch {
	case ctx.Err() != nil:
		return "nothing"
	case err != nil:
		return err.Error()
	case p.Gap:
		require.Equal(t, &Publication{Gap: true}, p)
		return "gap"
	case p.Retained:
		return p.Topic + ": " + string(p.Data) + " retained"
	}
	return p.Topic + ": " + string(p.Data)
}

func requireHeard(t testing.TB, f *feed, want ...string) {
	t.Helper()
	for _, w := range want {
		require.Equal(t, w, heard(t, f))
	}
}

func TestTopics(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		alice, bob := r.client(identity(t, 1), nil), r.client(identity(t, 2), nil)
		publish(t, alice, "a/kept", "old", Retain())
		publish(t, alice, "a/kept", "new", Retain())
		publish(t, alice, "a/x", "nobody listens")

		all, one := subscribe(t, bob, "a/#"), subscribe(t, bob, "a/x")
		requireHeard(t, all.feed, "a/kept: new retained")
		publish(t, alice, "a/x", "")
		publish(t, alice, "b", "of no concern")
		publish(t, alice, "a/kept", "now", Retain())
		requireHeard(t, all.feed, "a/x: ", "a/kept: now", "nothing")
		requireHeard(t, one.feed, "a/x: ", "nothing")

		// TO-12: the publisher gets its own.
		own := subscribe(t, alice, "a/x")
		receipt, err := alice.Publish(t.Context(), "a/x", []byte("mine"))
		require.NoError(t, err)
		require.Equal(t, Handed, receipt.Status)
		for p, err := range own.Messages(t.Context()) {
			require.NoError(t, err)
			require.Equal(t, &Publication{Topic: "a/x", From: identity(t, 1).Public(), ID: receipt.ID, Data: []byte("mine")}, p)
			break
		}
		requireHeard(t, all.feed, "a/x: mine")
		requireHeard(t, one.feed, "a/x: mine")

		one.Close()
		one.Close()
		requireHeard(t, one.feed, "client: closed")
		publish(t, alice, "a/x", "again")
		requireHeard(t, all.feed, "a/x: again", "nothing")
		synctest.Wait()
		all.Close()
		publish(t, alice, "a/kept", "", Retain()) // which clears
		fresh := subscribe(t, bob, "#")
		requireHeard(t, fresh.feed, "nothing")
		require.Equal(t, Stats{Publications: 7}, bob.Stats())
		require.NoError(t, bob.Close())
		requireHeard(t, fresh.feed, "client: closed")
		_, err = bob.Subscribe(t.Context(), "a")
		require.ErrorIs(t, err, ErrClosed)
	})
}

// TestSameFilter: subscriptions to one filter end one by one, and the relay is
// told with the last; who subscribes at once after that is subscribed.
func TestSameFilter(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		c := r.client(identity(t, 1), nil)
		one, other := subscribe(t, c, "a"), subscribe(t, c, "a")
		publish(t, c, "a", "1")
		requireHeard(t, one.feed, "a: 1")
		one.Close()
		synctest.Wait()
		publish(t, c, "a", "2")
		requireHeard(t, other.feed, "a: 1", "a: 2")
		other.Close()
		third := subscribe(t, c, "a")
		publish(t, c, "a", "3")
		requireHeard(t, third.feed, "a: 3", "nothing")
		third.Close()
		synctest.Wait()
		require.Empty(t, c.stand.feeds)
		require.Empty(t, c.ask.openNumbers())
	})
}

// TestResubscription: after a reconnect there is a gap, then what is retained, then
// what is new, and what was published meanwhile goes out after that.
func TestResubscription(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		alice := r.client(identity(t, 1), nil)
		bob, line := r.lineClient(identity(t, 2))
		sub := subscribe(t, bob, "a/#")
		publish(t, alice, "a/1", "before")
		synctest.Wait()
		line.cut()
		synctest.Wait()
		publish(t, alice, "a/1", "lost")
		publish(t, alice, "a/2", "kept", Retain())
		publish(t, bob, "a/3", "own", NoWait())
		requireHeard(t, sub.feed, "a/1: before", "nothing") // the gap ends with the connection
		line.up()
		requireHeard(t, sub.feed, "gap")
		require.ElementsMatch(t, []string{"a/2: kept retained", "a/3: own"},
			[]string{heard(t, sub.feed), heard(t, sub.feed)}, "of two topics, in any order")
		requireHeard(t, sub.feed, "nothing")

		// A subscription that is made, and one that ends, while there is none.
		line.cut()
		synctest.Wait()
		var making sync.WaitGroup
		making.Go(func() {
			late := subscribe(t, bob, "late")
			publish(t, bob, "late", "1")
			requireHeard(t, late.feed, "late: 1")
			late.Close()
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := bob.Subscribe(ctx, "never")
		require.ErrorIs(t, err, context.DeadlineExceeded)
		sub.Close()
		line.up()
		making.Wait()
		requireHeard(t, sub.feed, "client: closed")
		synctest.Wait()
		require.Empty(t, bob.stand.feeds)
	})
}

// TestRelayRestart: a relay that starts anew is told everything again.
func TestRelayRestart(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		c := r.client(identity(t, 1), nil)
		sub := subscribe(t, c, "a")
		for i := range 3 {
			r.stop()
			publish(t, c, "a", "while it is down", NoWait())
			time.Sleep(time.Minute)
			r.start()
			requireHeard(t, sub.feed, "gap", "a: while it is down")
			publish(t, c, "a", strconv.Itoa(i))
			requireHeard(t, sub.feed, "a: "+strconv.Itoa(i), "nothing")
		}
	})
}

// TestGapsWhenCut: whenever the connections break, publications come in order, none
// twice, and where one is missing there was a gap.
func TestGapsWhenCut(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	synctest.Test(t, func(t *testing.T) {
		const messages = 500
		r := newRig(t)
		r.limits = relay.MaxLimits()
		r.start()
		over := func() bool { return false }
		cut := func(n uint64, most int) func(*Config) {
			return func(c *Config) {
				c.Dial = cutting(r.dial, rand.New(rand.NewPCG(seed, n)), most, over)
				c.BackoffMax = time.Second
			}
		}
		alice, bob := r.client(identity(t, 1), cut(1, 60)), r.client(identity(t, 2), cut(2, 100))
		sub := subscribe(t, bob, "n/+")
		var publishing sync.WaitGroup
		publishing.Go(func() {
			for i := range messages {
				publish(t, alice, "n/"+strconv.Itoa(i%3), strconv.Itoa(i))
			}
		})
		next, gaps, gap := 0, 0, false
		for next < messages {
			switch h := heard(t, sub.feed); h {
			case "gap":
				gaps++
				gap = true
			case "nothing": // the last ones are missing
				publish(t, bob, "n/x", strconv.Itoa(messages-1))
			default:
				_, data, _ := strings.Cut(h, ": ")
				n, err := strconv.Atoi(data)
				require.NoError(t, err)
				if n == next-1 && n == messages-1 {
					continue
				}
				require.True(t, n == next || gap && n > next, "%d comes where %d is next", n, next)
				next, gap = n+1, false
			}
		}
		publishing.Wait()
		require.Greater(t, gaps, 3)
	})
}

func TestTopicErrors(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		settled := make(chan error, 1)
		c := r.client(identity(t, 1), func(c *Config) {
			c.Trace = &Trace{Settled: func(to crypto.PublicKey, _ Receipt, err error) {
				assert.Zero(t, to)
				settled <- err
			}}
		})
		refused := func(err error, code frame.Code) {
			t.Helper()
			var re *RefusedError
			require.ErrorAs(t, err, &re)
			require.Equal(t, code, re.Code)
		}
		for _, filter := range []string{"", "a#", "a/#/b", "a\x00", strings.Repeat("x", 513)} {
			_, err := c.Subscribe(t.Context(), filter)
			refused(err, frame.CodeInvalidFilter)
		}
		_, err := c.Subscribe(t.Context(), "\xff")
		refused(err, frame.CodeMalformed)
		_, err = c.Subscribe(t.Context(), strings.Repeat("x", frame.MaxRequest))
		require.ErrorIs(t, err, ErrTooLarge)
		for _, topic := range []string{"", "a/+", "#", "\xff", strings.Repeat("x", 513)} {
			_, err := c.Publish(t.Context(), topic, nil)
			refused(err, frame.CodeInvalidTopic)
			_, err = c.Publish(t.Context(), topic, nil, NoWait())
			require.NoError(t, err)
			refused(<-settled, frame.CodeInvalidTopic)
		}
		for _, o := range []SendOption{Clear(), Signed(), Ephemeral()} {
			_, err := c.Publish(t.Context(), "a", nil, o)
			require.ErrorIs(t, err, errPublishOption)
		}
		_, err = c.Send(t.Context(), identity(t, 2).Public(), Text("x"), Retain())
		require.ErrorIs(t, err, errRetainLetter)
		_, err = c.Publish(t.Context(), strings.Repeat("x", 1<<16), nil)
		require.ErrorIs(t, err, ErrTooLarge)
		_, err = c.Publish(t.Context(), "a", make([]byte, maxPayload-2))
		require.ErrorIs(t, err, ErrTooLarge)
		publish(t, c, "a", string(make([]byte, maxPayload-3)))
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		_, err = c.Publish(ended, "a", nil)
		require.ErrorIs(t, err, context.Canceled)
		_, err = c.Subscribe(ended, "a")
		require.ErrorIs(t, err, context.Canceled)
		for i := range 100 {
			subscribe(t, c, fmt.Sprint(i))
		}
		_, err = c.Subscribe(t.Context(), "x")
		refused(err, frame.CodeQuota)
		require.Len(t, c.stand.feeds, 100)
	})
}

// TestPublicationError: an ERROR about a publication is its answer.
func TestPublicationError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &fakeRelay{t: t, seed: relaySeed, script: func(c *fakeConn) {
			f, err := c.read()
			require.NoError(t, err)
			require.Equal(t, frame.TypePublish, f.Type)
			require.NoError(t, crypto.VerifyFrame(f.Sender, uint8(f.Type), f.ID, f.Payload, &f.Signature))
			require.True(t, bytes.HasSuffix(f.Payload, []byte("data")))
			e := frame.Error{Code: frame.CodeRetainedFull, ID: f.ID}
			c.write(&frame.Brep{Type: frame.TypeError, Flags: e.Flags(), Payload: e.Append(nil)})
			c.hold()
		}}
		c, err := r.client(nil)
		require.NoError(t, err)
		_, err = c.Publish(t.Context(), "a", []byte("data"))
		var re *RefusedError
		require.ErrorAs(t, err, &re)
		require.Equal(t, frame.CodeRetainedFull, re.Code)
		require.NoError(t, c.Close())
	})
}

// TestResubscriptionRefused: a subscription that a relay does not renew ends with
// the reason, after what had come, and others go on.
func TestResubscriptionRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &fakeRelay{t: t, seed: relaySeed, script: func(c *fakeConn) {
			for range 2 {
				q, _, ok := c.asked()
				if !ok {
					return
				}
				if topic := q.Text("topic"); c.n > 0 && topic == "a" {
					c.respond(frame.AppendRefusal(nil, q.Req, frame.CodeDenied, "no more"))
				} else {
					c.respond(frame.AppendResponse(nil, q.Req, frame.AppendSubscribed(nil, topic)))
				}
			}
			if c.n > 0 {
				c.hold()
			}
		}}
		c, err := r.client(nil)
		require.NoError(t, err)
		a, b := subscribe(t, c, "a"), subscribe(t, c, "b")
		requireHeard(t, a.feed, `client: refused: denied: "no more"`, `client: refused: denied: "no more"`)
		requireHeard(t, b.feed, "gap", "nothing")
		require.NoError(t, c.Close())
	})
}

// TestLeavingIsForgotten: what was asked of a session and not answered is not asked
// of the next, where it would end what was asked for since.
func TestLeavingIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var heard []string
		r := &fakeRelay{t: t, seed: relaySeed, script: func(c *fakeConn) {
			for {
				q, _, ok := c.asked()
				if !ok {
					return
				}
				heard = append(heard, fmt.Sprint(c.n, q.Type))
				if q.Type == "unsubscribe" {
					return
				}
				c.respond(frame.AppendResponse(nil, q.Req, frame.AppendSubscribed(nil, "a")))
			}
		}}
		c, err := r.client(nil)
		require.NoError(t, err)
		subscribe(t, c, "a").Close()
		synctest.Wait()
		subscribe(t, c, "a")
		time.Sleep(time.Minute)
		require.Equal(t, []string{"0subscribe", "0unsubscribe", "1subscribe"}, heard)
		require.NoError(t, c.Close())
	})
}

// TestTopicsLegacy: a relay that speaks v1 has no topics, rooms or matches.
func TestTopicsLegacy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &fakeRelay{t: t, seed: relaySeed, legacy: true, script: (*fakeConn).hold}
		c, err := r.client(nil)
		require.NoError(t, err)
		_, err = c.Subscribe(t.Context(), "a")
		require.ErrorIs(t, err, ErrLegacySession)
		_, err = c.Publish(t.Context(), "a", nil)
		require.ErrorIs(t, err, ErrLegacySession)
		_, err = c.JoinRoom(t.Context(), "a")
		require.ErrorIs(t, err, ErrLegacySession)
		_, err = c.FindMatch(t.Context(), "a")
		require.ErrorIs(t, err, ErrLegacySession)
		send(t, c, identity(t, 2), "goes on", Clear())
		require.NoError(t, c.Close())
	})
}
