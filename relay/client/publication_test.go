package client

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sotto-relay/sotto/crypto"
	"github.com/sotto-relay/sotto/frame"
	"github.com/sotto-relay/sotto/relay"
)

// TestSlowSubscriber: who does not take publications loses the oldest, is told so,
// and holds up neither letters nor other subscriptions.
func TestSlowSubscriber(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const messages = 1000
		r := newRig(t)
		r.limits = relay.MaxLimits()
		r.start()
		alice := r.client(identity(t, 1), func(c *Config) { c.MessageRate = 1e6 })
		bob := r.client(identity(t, 2), nil)
		slow, quick := subscribe(t, bob, "#", Buffer(10)), subscribe(t, bob, "a")
		for i := range messages {
			publish(t, alice, "a", strconv.Itoa(i))
			requireHeard(t, quick.feed, "a: "+strconv.Itoa(i))
			if i%100 == 0 {
				send(t, alice, identity(t, 2), "letter")
				require.Equal(t, "letter", next(t, bob).Text())
			}
		}
		requireHeard(t, slow.feed, "gap")
		for i := messages - 9; i < messages; i++ {
			requireHeard(t, slow.feed, "a: "+strconv.Itoa(i))
		}
		requireHeard(t, slow.feed, "nothing")
		require.Equal(t, uint64(messages-9), bob.Stats().Missed)
		require.Equal(t, uint64(2*messages), bob.Stats().Publications)
	})
}

// TestFeed: what is pushed out leaves one gap where it was, whatever came with it.
func TestFeed(t *testing.T) {
	for _, c := range []struct {
		most    int
		in, out string // m: a publication of 1 MiB in all, g: a gap
		missed  uint64
	}{
		{3, "mmm", "mmm", 0},
		{3, "mmmm", "gmm", 2},
		{3, "gmmm", "gmm", 1},
		{3, "ggmgg", "gmg", 0},
		{3, "mgmm", "gmm", 1},
		{3, "mgmg", "gmg", 1},
		{2, "mgmgmgm", "gm", 3},
		{2, "gggg", "g", 0},
		{99, strings.Repeat("m", 16), strings.Repeat("m", 16), 0},
		{99, strings.Repeat("m", 20), "g" + strings.Repeat("m", 16), 4},
		{99, "m" + strings.Repeat("g", 3) + strings.Repeat("m", 17), "g" + strings.Repeat("m", 16), 2},
	} {
		var n counters
		f := newFeed(feedKey{}, subscribeOptions{buffer: c.most}, &n)
		f.start(0)
		for _, what := range c.in {
			if what == 'g' {
				f.gap()
			} else {
				f.push(&frame.Brep{Type: frame.TypeMessage, Payload: make([]byte, 1<<20-feedOverhead)})
			}
		}
		out := ""
		for {
			b, ok, err := f.pop()
			require.NoError(t, err)
			if !ok {
				break
			}
			out += map[bool]string{true: "g", false: "m"}[b.Type == 0]
		}
		require.Equal(t, c.out, out, c.in)
		require.Equal(t, c.missed, n.missed.Load(), c.in)
		require.Zero(t, f.bytes)
	}
}

// TestRetainedMany: more retained values than are verified while they come.
func TestRetainedMany(t *testing.T) {
	var n counters
	f := newFeed(feedKey{}, subscribeOptionsOf(nil), &n)
	f.start(0)
	for range 40_000 {
		f.push(&frame.Brep{Type: frame.TypeMessage, Payload: make([]byte, 100)})
	}
	require.Zero(t, n.missed.Load())
	for range 40_000 {
		f.push(&frame.Brep{Type: frame.TypeMessage})
	}
	require.Greater(t, n.missed.Load(), uint64(20_000))
	require.LessOrEqual(t, f.bytes, feedBytes)
}

// TestForgedPublications do not reach the application, and are counted.
func TestForgedPublications(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		publisher := identity(t, 3)
		message := func(topic string, change func(*frame.Brep)) *frame.Brep {
			p := frame.Publication{Name: []byte(topic), Content: []byte("x")}
			f := &frame.Brep{Type: frame.TypeMessage, ID: [16]byte{1}, Sender: publisher.Public(), Payload: p.Append(nil)}
			f.Signature = crypto.SignFrame(publisher, uint8(frame.TypePublish), f.ID, f.Payload)
			if change != nil {
				change(f)
			}
			return f
		}
		forgeries := []func(*frame.Brep){
			func(f *frame.Brep) { f.Signature[0]++ },
			func(f *frame.Brep) { f.Signature = [64]byte{} },
			func(f *frame.Brep) { f.Sender = identity(t, 4).Public() },
			func(f *frame.Brep) { f.ID[0]++ },
			func(f *frame.Brep) { f.Payload[2] = 'b' },
			func(f *frame.Brep) { f.Payload[len(f.Payload)-1]++ },
			func(f *frame.Brep) { // signed for a room
				f.Signature = crypto.SignFrame(publisher, uint8(frame.TypeRoomSend), f.ID, f.Payload)
			},
			func(f *frame.Brep) { f.Signature = crypto.SignFrame(publisher, uint8(f.Type), f.ID, f.Payload) },
		}
		r := &fakeRelay{t: t, seed: relaySeed, script: func(c *fakeConn) {
			q, _, ok := c.asked()
			if !ok {
				return
			}
			c.write(message("a", nil)) // before the answer: not for it
			c.respond(frame.AppendResponse(nil, q.Req, frame.AppendSubscribed(nil, "+")))
			for _, forge := range forgeries {
				c.write(message("a", forge))
			}
			c.write(&frame.Brep{Type: frame.TypeMessage, Payload: []byte{0, 9}})
			c.write(&frame.Brep{Type: frame.TypeMessage})
			c.write(message("a/b", nil)) // another topic
			c.respond(frame.AppendGap(nil, "+"))
			c.respond(frame.AppendGap(nil, "#")) // of another filter
			c.write(message("a", func(f *frame.Brep) { f.Flags = frame.FlagRetain }))
			c.respond(frame.AppendGap(nil, "+"))
			c.respond(frame.AppendGap(nil, "+"))
			c.hold()
		}}
		var why []error
		c, err := r.client(func(c *Config) {
			c.Trace = &Trace{Dropped: func(_ crypto.PublicKey, err error) { why = append(why, err) }}
		})
		require.NoError(t, err)
		sub := subscribe(t, c, "+")
		var got []*Publication
		for p, err := range sub.Messages(t.Context()) {
			require.NoError(t, err)
			if got = append(got, p); len(got) == 3 {
				break
			}
		}
		require.Equal(t, []*Publication{
			{Gap: true},
			{Topic: "a", From: publisher.Public(), ID: [16]byte{1}, Data: []byte("x"), Retained: true},
			{Gap: true},
		}, got)
		require.Len(t, why, len(forgeries))
		for _, err := range why {
			require.ErrorIs(t, err, crypto.ErrSignature)
		}
		require.Equal(t, uint64(len(forgeries)), c.Stats().Dropped)
		requireHeard(t, sub.feed, "nothing")
		require.NoError(t, c.Close())
	})
}

// A cipher is a sealer that writes everything backwards.
type cipher struct{}

var errCipher = errors.New("not backwards")

func backwards(b []byte) []byte {
	b = bytes.Clone(b)
	slices.Reverse(b)
	return b
}

func (cipher) name(k feedKey) (feedKey, error) {
	if k.name == "" {
		return feedKey{}, errCipher
	}
	return feedKey{k.as, string(backwards([]byte(k.name)))}, nil
}

func (c cipher) seal(to feedKey, data []byte) (feedKey, []byte, error) {
	k, err := c.name(to)
	return k, append([]byte("!"), backwards(data)...), err
}

func (cipher) retains(context.Context, string, []byte) error { return nil }

func (cipher) open(p *Publication) error {
	if len(p.Data) == 0 {
		p.Topic = string(backwards([]byte(p.Topic)))
		return nil
	}
	sealed, ok := bytes.CutPrefix(p.Data, []byte("!"))
	if !ok {
		return errCipher
	}
	p.Topic, p.Data = string(backwards([]byte(p.Topic))), backwards(sealed)
	return nil
}

// TestSealer: what is published with a sealer, and asked for, is what it makes of
// it, and what it does not open is dropped.
func TestSealer(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		var why []error
		alice := r.client(identity(t, 1), nil)
		bob, line := r.lineClient(identity(t, 2))
		bob.cfg.Trace.Dropped = func(_ crypto.PublicKey, err error) { why = append(why, err) }
		sealed, subscribeSealed := func(o *sendOptions) { o.sealer = cipher{} }, func(o *subscribeOptions) { o.sealer = cipher{} }
		plain, sub := subscribe(t, bob, "+"), subscribe(t, bob, "topic", subscribeSealed)
		publish(t, alice, "topic", "data", sealed)
		publish(t, alice, "cipot", "atad")
		requireHeard(t, plain.feed, "cipot: !atad", "cipot: atad", "nothing")
		requireHeard(t, sub.feed, "topic: data")
		_, err := sub.feed.next(func() context.Context {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			t.Cleanup(cancel)
			return ctx
		}(), bob.drop)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, []error{errCipher}, why)

		room, err := bob.JoinRoom(t.Context(), "room", subscribeSealed)
		require.NoError(t, err)
		require.Equal(t, "room", room.Name())
		other := join(t, alice, "moor")
		require.Equal(t, 2, other.Members())
		say(t, room, "hello")
		requireHeard(t, other.feed, "moor: !olleh")
		say(t, other, "!dlrow")
		requireHeard(t, room.feed, "room: world")
		line.cut()
		synctest.Wait()
		line.up()
		requireHeard(t, room.feed, "gap")
		require.Equal(t, 2, room.Members())

		publish(t, alice, "topic", "kept", sealed, Retain())
		publish(t, alice, "topic", "", sealed, Retain())
		requireHeard(t, sub.feed, "gap", "topic: kept", "topic: ", "nothing")
		requireHeard(t, subscribe(t, alice, "cipot").feed, "nothing")

		_, err = bob.Subscribe(t.Context(), "", subscribeSealed)
		require.ErrorIs(t, err, errCipher)
		_, err = bob.Publish(t.Context(), "", nil, sealed)
		require.ErrorIs(t, err, errCipher)
	})
}
