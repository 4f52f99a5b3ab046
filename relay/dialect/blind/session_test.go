package blind

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sotto-relay/sotto/relay"
	"github.com/sotto-relay/sotto/transport"
)

// TestSpec: the sentences of spec blind.md about subscriptions, frames and
// rotation.
func TestSpec(t *testing.T) {
	long, tooLong := strings.Repeat("k", 512), strings.Repeat("k", 513)
	subscriber := func(r *rig) { r.dialect.Rotate = RotateSubscriber }
	for name, c := range map[string]struct {
		turns   []turn
		set     func(*rig)
		ignored map[string]uint64
	}{
		"to every other subscriber of the key, the same bytes": {turns: []turn{
			{"a", subscribe("x"), ""}, {"b", subscribe("x", "y"), ""}, {"c", subscribe("y"), ""},
			{"s", "x one", ""}, {"a", "", "x one"}, {"b", "", "x one"},
			{"s", "y two", ""}, {"b", "", "y two"}, {"c", "", "y two"},
			{"s", "z three", ""},
		}},
		"no echo to the sender": {turns: []turn{
			{"a", subscribe("x"), ""}, {"b", subscribe("x"), ""}, {"a", "x one", ""}, {"b", "", "x one"},
		}},
		"once per connection": {turns: []turn{
			{"a", subscribe("x", "x"), ""}, {"a", subscribe("x"), ""}, {"s", "x one", ""}, {"a", "", "x one"},
		}},
		"by route, if there is one": {turns: []turn{
			{"a", subscribe("e"), ""}, {"b", subscribe("r"), ""},
			{"s", "e@r one", ""}, {"b", "", "e@r one"}, {"s", "e two", ""}, {"a", "", "e two"},
		}},
		"all kinds": {turns: []turn{
			{"a", subscribe("x"), ""},
			{"s", "snapshot:x 1", ""}, {"a", "", "snapshot:x 1"}, {"s", "wrap-bootstrap:x 2", ""}, {"a", "", "wrap-bootstrap:x 2"},
			{"s", "pairing:x 3", ""}, {"a", "", "pairing:x 3"}, {"s", "awareness:x 4", ""}, {"a", "", "awareness:x 4"},
		}},
		"no answer to subscribe and unsubscribe": {turns: []turn{
			{"a", subscribe("x"), ""}, {"a", unsubscribe("x"), ""}, {"a", unsubscribe("never"), ""}, {"s", "x one", ""},
		}},
		"strings that are not empty count, others are skipped": {turns: []turn{
			{"a", `{"op":"subscribe","entityIds":["x",1,null,"",{"a":"u"},["v"],true,"y"]}`, ""},
			{"s", "x one", ""}, {"a", "", "x one"}, {"s", "y two", ""}, {"a", "", "y two"},
			{"s", "u three", ""}, {"s", "v four", ""},
			{"a", `{"op":"unsubscribe","entityIds":[1,"","x"]}`, ""}, {"s", "x five", ""}, {"s", "y six", ""}, {"a", "", "y six"},
		}},
		"other fields are ignored": {turns: []turn{
			{"a", `{"bundle":{"a":[1]},"entityIds":["x"],"op":"subscribe","more":null}`, ""}, {"s", "x one", ""}, {"a", "", "x one"},
		}},
		"keys as they are unescaped": {turns: []turn{
			{"a", `{"op":"subscribe","entityIds":["\u0078","кл\u044eч/✓"]}`, ""},
			{"s", "x one", ""}, {"a", "", "x one"}, {"s", "ключ/✓ two", ""}, {"a", "", "ключ/✓ two"},
		}},
		"in order until the limit": {
			set: func(r *rig) { r.Limits.Dialects = map[string]relay.DialectLimits{"blind": {Groups: 3}} },
			turns: []turn{
				{"a", subscribe("w"), ""}, {"a", subscribe("w", "", "x", "w", "y", "z"), ""},
				{"s", "z one", ""}, {"s", "y two", ""}, {"a", "", "y two"},
				{"a", unsubscribe("w"), ""}, {"a", subscribe("z"), ""}, {"s", "z three", ""}, {"a", "", "z three"},
			},
			ignored: map[string]uint64{"too many subscriptions": 1},
		},
		"malformed control is dropped and counted": {turns: []turn{
			{"a", subscribe("x"), ""},
			{"a", "{", ""}, {"a", `{"op":"subscribe","entityIds":["y"]} `, ""}, {"a", `{"op":"subscribe","entityIds":["z"]}x`, ""},
			{"a", `{"op":"subscribe","op":"subscribe","entityIds":["z"]}`, ""}, {"a", `{"op":"subscribe","entityIds":"z"}`, ""},
			{"a", `{"op":"subscribe"}`, ""}, {"a", `{"op":"sub","entityIds":["z"]}`, ""}, {"a", `{"entityIds":["z"]}`, ""},
			{"a", `{"op":["subscribe"],"entityIds":["z"]}`, ""}, {"a", `{"op":"unsubscribe","entityIds":{"0":"x"}}`, ""},
			{"s", "x one", ""}, {"a", "", "x one"}, {"s", "y two", ""}, {"a", "", "y two"}, {"s", "z three", ""},
		}, ignored: map[string]uint64{"malformed control": 9}},
		"the length of keys": {turns: []turn{
			{"a", subscribe(long, tooLong, "x"), ""},
			{"s", long + " one", ""}, {"a", "", long + " one"}, {"s", tooLong + " two", ""}, {"s", tooLong + "@x three", ""},
			{"s", "x four", ""}, {"a", "", "x four"}, {"a", unsubscribe(tooLong), ""},
			{"a", rotate(tooLong, "x"), ""}, {"a", rotate("x", tooLong), ""}, {"a", rotate("x", long), rotated("x", long)},
		}, ignored: map[string]uint64{"key too long": 6}},

		"rotate: subscribers move, rotated is sent to the asker, last": {turns: []turn{
			{"a", subscribe("x"), ""}, {"b", subscribe("x"), ""}, {"a", rotate("x", "y"), rotated("x", "y")},
			{"a", "y one", ""}, {"b", "", "y one"}, {"b", "x two", ""}, {"a", "", "x two"},
		}},
		"rotate: the old key for subscribe and unsubscribe": {turns: []turn{
			{"s", rotate("x", "y"), rotated("x", "y")}, {"a", subscribe("x"), ""}, {"s", "y one", ""}, {"a", "", "y one"},
			{"a", unsubscribe("x"), ""}, {"s", "y two", ""}, {"s", "x three", ""},
		}},
		"rotate: a stranger may, when that is open": {turns: []turn{
			{"a", subscribe("x"), ""}, {"s", rotate("x", "y"), rotated("x", "y")}, {"s", "y one", ""}, {"a", "", "y one"},
		}},
		"rotate: an alias is not rotated again": {turns: []turn{
			{"a", rotate("x", "y"), rotated("x", "y")}, {"a", rotate("x", "y"), rotated("x", "y")},
			{"b", rotate("x", "z"), denied("x", "y", "conflict")},
			{"a", rotate("y", "z"), rotated("y", "z")}, {"b", rotate("x", "z"), rotated("x", "z")},
			{"b", rotate("x", "y"), denied("x", "z", "conflict")},
		}},
		"rotate: back": {turns: []turn{
			{"a", subscribe("x"), ""}, {"b", subscribe("y"), ""}, {"s", rotate("x", "y"), rotated("x", "y")}, {"s", rotate("y", "x"), rotated("y", "x")},
			{"s", "x one", ""}, {"a", "", "x one"}, {"b", "", "x one"}, {"s", "y two", ""}, {"a", "", "y two"}, {"b", "", "y two"},
		}},
		"rotate: to an alias that leads elsewhere": {turns: []turn{
			{"a", subscribe("x"), ""}, {"b", subscribe("y"), ""}, {"s", rotate("y", "z"), rotated("y", "z")},
			{"s", rotate("x", "y"), denied("x", "z", "conflict")}, {"s", "x one", ""}, {"a", "", "x one"}, {"s", "y two", ""}, {"b", "", "y two"},
		}},
		"rotate: a ninth hop": {turns: append(chain(8), turn{"s", rotate("k8", "k9"), denied("k8", "k9", "conflict")},
			turn{"a", subscribe("k0"), ""}, turn{"s", "k8 one", ""}, turn{"a", "", "k8 one"})},
		"rotate: a limit": {
			turns: []turn{
				{"a", rotate("u", "x"), rotated("u", "x")}, {"a", rotate("v", "x"), rotated("v", "x")}, {"a", rotate("w", "x"), denied("w", "x", "limit")},
				{"b", rotate("w", "x"), rotated("w", "x")}, {"b", rotate("t", "x"), denied("t", "x", "limit")},
			},
			set: func(r *rig) {
				r.Limits.Dialects = map[string]relay.DialectLimits{"blind": {Aliases: 2}}
				r.Limits.Aliases = 3
			},
		},
		"rotate: malformed": {turns: []turn{
			{"a", subscribe("x"), ""},
			{"a", rotate("x", "x"), ""}, {"a", rotate("", "y"), ""}, {"a", rotate("x", ""), ""}, {"a", `{"op":"rotate","from":"x"}`, ""},
			{"a", `{"op":"rotate","from":"x","to":1}`, ""}, {"a", `{"op":"rotate","from":["x"],"to":"y"}`, ""},
			{"a", `{"op":"rotate","from":"x","to":"y","to":"z"}`, ""},
			{"s", "x one", ""}, {"a", "", "x one"}, {"s", "y two", ""},
		}, ignored: map[string]uint64{"malformed control": 7}},
		"rotate: keys that need escapes": {turns: []turn{
			{"a", `{"op":"rotate","from":"\u0022","to":"\\\n"}`, `{"op":"rotated","from":"\"","to":"\\\u000a"}`},
		}},
		"rotate: subscribers only": {set: subscriber, turns: []turn{
			{"a", subscribe("x"), ""}, {"s", rotate("x", "y"), denied("x", "y", "not-authorized")},
			{"s", rotate("free", "y"), denied("free", "y", "not-authorized")},
			{"a", rotate("x", "y"), rotated("x", "y")}, {"a", rotate("x", "y"), rotated("x", "y")},
			{"s", rotate("x", "z"), denied("x", "z", "not-authorized")}, {"a", rotate("x", "z"), denied("x", "y", "conflict")},
		}},
		"rotate: by the policy": {
			set: func(r *rig) {
				r.Policy.Join = func(_ context.Context, i relay.JoinInfo) error {
					if i.Group.Name == "private" {
						return &relay.Refusal{Code: relay.CodeDenied}
					}
					return nil
				}
			},
			turns: []turn{
				{"a", subscribe("private", "x"), ""}, {"s", "private one", ""}, {"s", "x two", ""}, {"a", "", "x two"},
				{"s", rotate("private", "y"), denied("private", "y", "not-authorized")},
				{"s", rotate("x", "private"), denied("x", "private", "not-authorized")},
			},
			ignored: map[string]uint64{"subscription refused": 1},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := play(t, c.set, c.turns)
				if c.ignored == nil {
					c.ignored = map[string]uint64{}
				}
				assert.Equal(t, c.ignored, r.ignored())
			})
		})
	}
}

func chain(n int) (turns []turn) {
	for i := range n {
		from, to := fmt.Sprint("k", i), fmt.Sprint("k", i+1)
		turns = append(turns, turn{"s", rotate(from, to), rotated(from, to)})
	}
	return turns
}

// TestGrace: for ten minutes, or as long as is set, to the nanosecond; afterwards
// the old key is one like any other.
func TestGrace(t *testing.T) {
	for _, grace := range []time.Duration{0, time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, func(r *rig) { r.dialect.Grace = grace })
			if grace == 0 {
				grace = 10 * time.Minute
			}
			a, b := r.as("a"), r.as("b")
			a.say(subscribe("x"))
			synctest.Wait()
			b.say(rotate("x", "y"))
			assert.Equal(t, rotated("x", "y"), b.hear())
			time.Sleep(grace - 1)
			b.say("x one")
			assert.Equal(t, "x one", a.hear())
			time.Sleep(time.Nanosecond)
			b.say("x two")
			synctest.Wait()
			b.say("y three")
			assert.Equal(t, "y three", a.hear())
			b.say(rotate("x", "z"))
			assert.Equal(t, rotated("x", "z"), b.hear())
			a.silent()
		})
	}
}

// TestVectors: valid frames come to those who subscribe to the routing key, the
// same bytes, and are logged by the entity; others are dropped and counted, and
// the connection stays.
func TestVectors(t *testing.T) {
	for _, v := range vectors(t) {
		t.Run(v.Name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, nil)
				a, s := r.as("a"), r.as("s")
				a.say(subscribe("ent_1", v.RoutingKey, "", "nope"))
				synctest.Wait()
				msg := append([]byte{channelFrame}, unhex(t, v.Frame)...)
				s.write(transport.Binary, msg)
				if v.Valid {
					_, got, err := a.Read()
					require.NoError(t, err)
					assert.Equal(t, msg, got)
					assert.Equal(t, []string{fmt.Sprintf("s>a %s %s %d", v.AuditKey, v.Kind, len(msg)-1)}, r.deliveries())
					assert.Empty(t, r.ignored())
				} else {
					a.silent()
					assert.Equal(t, map[string]uint64{"malformed frame": 1}, r.ignored())
				}
				s.say("ent_1 still here")
				assert.Equal(t, "ent_1 still here", a.hear())
			})
		})
	}
}

// TestDropped: what is no message of the dialect is dropped and counted; the
// connection stays.
func TestDropped(t *testing.T) {
	type message struct {
		kind transport.Kind
		msg  []byte
	}
	var unknown []message
	for channel := 2; channel < 256; channel++ {
		unknown = append(unknown, message{0, []byte{byte(channel), '{', '}'}}, message{0, []byte{byte(channel)}})
	}
	for name, c := range map[string][]message{
		"text message":    {{transport.Text, []byte(subscribe("x"))}, {transport.Text, append([]byte{0}, subscribe("x")...)}, {transport.Text, nil}},
		"empty message":   {{0, nil}},
		"unknown channel": unknown,
		"malformed control": {
			{0, []byte{0}}, {0, []byte("\x00[]")}, {0, []byte("\x00null")}, {0, []byte("\x00\xff")}, {0, []byte("\x00{}")},
		},
		"malformed frame": {
			{0, []byte{1}}, {0, []byte{1, 0, 0, 0, 0}}, {0, []byte{1, 0, 0, 0, 9, '{', '}'}}, {0, []byte{1, 255, 255, 255, 255, '{', '}'}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, func(r *rig) { r.Limits = relay.MaxLimits() })
				a, s := r.as("a"), r.as("s")
				a.say(subscribe("y"))
				synctest.Wait()
				for _, m := range c {
					s.write(m.kind, m.msg)
				}
				s.say("x one")
				s.say("y two")
				assert.Equal(t, "y two", a.hear())
				assert.Equal(t, map[string]uint64{name: uint64(len(c))}, r.ignored())
			})
		})
	}
}

// TestAudit: one line for each delivery, by the entity and never the route; an
// alias as what it leads to.
func TestAudit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now().UnixMilli()
		r := play(t, nil, []turn{
			{"a", subscribe("x", "r"), ""}, {"b", subscribe("x"), ""},
			{"s", "x one", ""}, {"a", "", "x one"}, {"b", "", "x one"},
			{"a", "snapshot:x three", ""}, {"b", "", "snapshot:x three"},
			{"s", "nobody one", ""},
			{"s", "e@r one", ""}, {"a", "", "e@r one"},
			{"s", rotate("e", "f"), rotated("e", "f")}, {"s", rotate("x", "y"), rotated("x", "y")}, {"s", rotate("y", "z"), rotated("y", "z")},
			{"s", "e@r one", ""}, {"a", "", "e@r one"},
			{"b", "x one", ""}, {"a", "", "x one"},
			{"b", "x@r one", ""}, {"a", "", "x@r one"},
			{"b", "e@x one", ""}, {"a", "", "e@x one"},
		})
		size := func(text string) string { return fmt.Sprint(len(message(text)) - 1) }
		assert.Equal(t, []string{
			"s>a x update " + size("x one"), "s>b x update " + size("x one"),
			"a>b x snapshot " + size("snapshot:x three"),
			"s>a e update " + size("e@r one"),
			"s>a f update " + size("e@r one"),
			"b>a z update " + size("x one"),
			"b>a z update " + size("x@r one"),
			"b>a f update " + size("e@x one"),
		}, r.deliveries())
		for _, l := range r.log.Recent() {
			assert.Equal(t, start, l.TS)
		}
	})
}

// TestAuditKeepsNothing: what is logged does not change with the buffers that
// later messages are read into, and holds nothing but what it says.
func TestAuditKeepsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		a, s := r.as("a"), r.as("s")
		a.say(subscribe("route1", "entity1"))
		synctest.Wait()
		for range 2 {
			s.say("entity1@route1 secret")
			s.say("entity1 secret")
			s.say("entityX@routeXX secret")
			for range 2 {
				a.hear()
			}
		}
		for _, l := range r.log.Recent() {
			assert.Equal(t, "entity1", l.Entity)
			assert.NotContains(t, string(l.Append(nil)), "secret")
			assert.NotContains(t, string(l.Append(nil)), "route")
		}
	})
}

// TestConnID: without a function, ids do not repeat, also after a restart.
func TestConnID(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		seen := make(map[string]bool)
		for range 3 {
			r := newRig(t, func(r *rig) { r.dialect.ConnID = nil })
			a, b := r.as("a"), r.as("b")
			a.say(subscribe("x"))
			b.say(subscribe("x"))
			synctest.Wait()
			a.say("x one")
			b.hear()
			line := r.log.Recent()[0]
			for _, id := range []string{line.From, line.To} {
				assert.Regexp(t, `^[0-9a-z]+-[0-9a-z]+$`, id)
				assert.False(t, seen[id])
				seen[id] = true
			}
			require.NoError(t, r.Close())
			time.Sleep(time.Millisecond)
		}
	})
}
