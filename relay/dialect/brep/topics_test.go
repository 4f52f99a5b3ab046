package brep

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/sotto-relay/sotto/frame"
	"github.com/sotto-relay/sotto/relay"
)

func subscribe(filter string, n int) string {
	return fmt.Sprintf(`{"t":"subscribe","topic":%q,"req":%d}`, filter, n)
}

func TestTopics(t *testing.T) {
	bubble(t, nil, func(t *testing.T, r *rig) {
		p := r.extended(2)
		alice, bob := p[0], p[1]
		require.Equal(t, `{"t":"subscribed","topic":"a/#","req":1,"ok":true}`, bob.ask(subscribe("a/#", 1)))
		require.Equal(t, `{"t":"subscribed","topic":"a/+","req":2,"ok":true}`, bob.ask(subscribe("a/+", 2)))

		// Byte for byte but for the type and the flags; once, however many filters match.
		sent := alice.post(frame.TypePublish, 1, 0x30, "a/b", "hello")
		alice.send(sent)
		requirePublished(t, frame.TypeMessage, 0x30, sent, bob.took())
		bob.nothing()
		alice.nothing()

		// TO-12: the publisher gets its own.
		alice.ask(subscribe("a/b", 1))
		sent = alice.post(frame.TypePublish, 2, frame.FlagReceipt, "a/b", "")
		alice.send(sent)
		requirePublished(t, frame.TypeMessage, 0, sent, alice.took())
		alice.hears(2, handedOver)
		requirePublished(t, frame.TypeMessage, 0, sent, bob.took())

		require.Equal(t, `{"t":"unsubscribed","topic":"a/#","req":3,"ok":true}`, bob.ask(`{"t":"unsubscribe","topic":"a/#","req":3}`))
		require.Equal(t, `{"t":"unsubscribed","topic":"x","req":4,"ok":true}`, bob.ask(`{"t":"unsubscribe","topic":"x","req":4}`), "there was none")
		alice.send(alice.post(frame.TypePublish, 3, 0, "a", ""))
		bob.nothing()
	})
}

// TestRetained: RESPONSE to subscribe, then retained MESSAGEs, which say so, then
// live ones, which do not (TO-09).
func TestRetained(t *testing.T) {
	bubble(t, nil, func(t *testing.T, r *rig) {
		p := r.extended(2)
		alice, bob := p[0], p[1]
		values := map[string]*frame.Brep{}
		for i, topic := range []string{"b", "a", "c"} {
			values[topic] = alice.post(frame.TypePublish, byte(i+1), 0x40|frame.FlagRetain|frame.FlagReceipt, topic, "kept "+topic)
			alice.send(values[topic])
			require.Equal(t, handedOver, alice.receipt(byte(i+1)).Status)
		}
		alice.send(alice.post(frame.TypePublish, 9, 0, "a", ""))       // empty, and not to be retained: clears nothing
		alice.send(alice.post(frame.TypePublish, 10, 0, "a", "fleet")) // nor does this replace
		alice.leave()                                                  // the values stay
		alice = r.login(alice.id, formExtended)

		bob.send(bob.frame(frame.TypeRequest, []byte(subscribe("#", 1))))
		require.Equal(t, `{"t":"subscribed","topic":"#","req":1,"ok":true}`, bob.response())
		for _, topic := range []string{"a", "b", "c"} {
			requirePublished(t, frame.TypeMessage, 0x40|frame.FlagRetain, values[topic], bob.took())
		}
		live := alice.post(frame.TypePublish, 11, frame.FlagRetain, "a", "live")
		alice.send(live)
		requirePublished(t, frame.TypeMessage, 0, live, bob.took())

		clears := alice.post(frame.TypePublish, 12, frame.FlagRetain, "b", "")
		alice.send(clears)
		requirePublished(t, frame.TypeMessage, 0, clears, bob.took())
		bob.ask(subscribe("#", 2)) // again: replays again
		requirePublished(t, frame.TypeMessage, frame.FlagRetain, live, bob.took())
		requirePublished(t, frame.TypeMessage, 0x40|frame.FlagRetain, values["c"], bob.took())
		bob.nothing()
	})
}

func TestTopicRefusals(t *testing.T) {
	bubble(t, func(r *rig) { r.server.Limits.RetainedBytes = 4 * 1000 }, func(t *testing.T, r *rig) {
		p := r.login(identity(t, 1), formExtended)
		for i, c := range []struct {
			topic, content string
			flags          uint8
			code           frame.Code
		}{
			{"", "", 0, frame.CodeInvalidTopic},
			{"a/+", "", 0, frame.CodeInvalidTopic},
			{"#", "", 0, frame.CodeInvalidTopic},
			{"a\x00", "", 0, frame.CodeInvalidTopic},
			{"\xff", "", 0, frame.CodeInvalidTopic},
			{strings.Repeat("x", 513), "", 0, frame.CodeInvalidTopic},
			{strings.Repeat("/", 32), "", 0, frame.CodeInvalidTopic},
			{"a", strings.Repeat("x", 1000), frame.FlagRetain, frame.CodeRetainedFull},
		} {
			id := byte(i + 1)
			f := p.post(frame.TypePublish, id, c.flags|frame.FlagReceipt, c.topic, c.content)
			p.send(f)
			got := p.receipt(id)
			require.Equal(t, refused, got.Status)
			require.Equal(t, c.code, got.Code)
			f.Flags = c.flags
			p.send(f)
			require.Equal(t, c.code, p.error().Code)
		}
		p.send(p.signed(frame.TypePublish, 1, 0, []byte{0, 9}))
		require.Equal(t, frame.CodeMalformed, p.error().Code)
		for _, filter := range []string{"", "a#", "#/a", "a/#/b", "a+", "a\x00", strings.Repeat("x", 513)} {
			denied(t, frame.CodeInvalidFilter, p.ask(`{"t":"subscribe","topic":"`+strings.ReplaceAll(filter, "\x00", `\u0000`)+`","req":1}`))
		}
		for _, verb := range []string{"subscribe", "unsubscribe"} {
			denied(t, frame.CodeMalformed, p.ask(`{"t":"`+verb+`","req":1}`))
		}
		for i := range 100 {
			p.ask(subscribe(fmt.Sprint(i), 1))
		}
		require.Equal(t, `{"req":1,"ok":false,"code":"quota","msg":"too many subscriptions"}`, p.ask(subscribe("x", 1)))
	})
}

// TestGap: who lost publications is told by which filter, unasked.
func TestGap(t *testing.T) {
	bubble(t, func(r *rig) {
		r.server.Limits = relay.MaxLimits()
		r.server.Limits.OutboxMessages = 16
	}, func(t *testing.T, r *rig) {
		p := r.extended(2)
		alice, frozen := p[0], p[1]
		frozen.ask(subscribe("a/+", 1))
		const n = 1000
		for range n {
			alice.send(alice.post(frame.TypePublish, 0, 0, "a/b", "x"))
		}
		synctest.Wait()
		lost := int(r.server.Stats().DroppedBy["slow"])
		require.NotZero(t, lost)
		gaps, came := 0, 0
		for came < n-lost {
			f := frozen.took()
			if f.Type == frame.TypeMessage {
				came++
				continue
			}
			require.Equal(t, `{"t":"gap","topic":"a/+"}`, string(f.Payload))
			gaps++
		}
		require.NotZero(t, gaps)
		frozen.nothing()
	})
}

// TestNamesAreARealm: what json names is nothing here, and a topic is no room.
func TestNamesAreARealm(t *testing.T) {
	bubble(t, nil, func(t *testing.T, r *rig) {
		p := r.extended(2)
		alice, bob := p[0], p[1]
		bob.ask(subscribe("n", 1))
		alice.ask(`{"t":"join_room","room":"n","req":1}`)
		alice.send(alice.post(frame.TypeRoomSend, 0, 0, "n", ""))
		bob.nothing()
		require.Equal(t, relay.Address{Realm: relay.RealmNative, Name: "n"}, name("n"))
	})
}
