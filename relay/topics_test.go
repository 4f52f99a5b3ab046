package relay

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sotto-relay/sotto/transport"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// talk is words with topics:
//
//	sub FILTER | unsub FILTER       answered "subscribed FILTER", "unsubscribed FILTER"
//	tell TOPIC TEXT                 a publication: "TOPIC NAME-OF-SENDER TEXT"
//	keep TOPIC TEXT                 one that is retained: replayed as "TOPIC NAME TEXT (kept)"
//	drop TOPIC                      "TOPIC NAME ", and nothing is retained any more
//	erase                           answered "erased N"
//	here TOPIC TEXT                 tell in realm 2; and so is look FILTER to sub
//
// and "gap FILTER" for what was lost. TEXT that starts with '!' does not fit form 9.
type talk struct {
	words
	confirming func() // called before "subscribed" is said
}

type talkSession struct {
	wordsSession
	d talk
}

func (d talk) NewSession(p *Port) (Session, error) {
	return &talkSession{wordsSession{w: d.words, p: p}, d}, nil
}

func (d talk) Render(buf []byte, form uint8, m *Message) (transport.Kind, []byte, error) {
	if form == 9 && strings.HasPrefix(string(m.Data), "!") {
		return 0, nil, ErrUnfit
	}
	if m.Retained {
		return transport.Text, fmt.Appendf(buf, "%s %s %s (kept)", m.To.Name, m.From.Name, m.Data), nil
	}
	return transport.Text, fmt.Appendf(buf, "%s %s %s", m.To.Name, m.From.Name, m.Data), nil
}

func (s *talkSession) Receive(ctx context.Context, k transport.Kind, msg []byte) error {
	verb, rest, _ := strings.Cut(string(msg), " ")
	name, text, _ := strings.Cut(rest, " ")
	m := &Message{To: Address{Realm: 1, Name: name}, Data: []byte(text)}
	var err error
	switch verb {
	case "sub", "look":
		filter := Address{Realm: map[string]Realm{"sub": 1, "look": 2}[verb], Name: rest}
		err = s.p.Subscribe(filter, func() {
			if s.d.confirming != nil {
				s.d.confirming()
			}
			s.reply("subscribed " + rest)
		})
	case "unsub":
		s.p.Unsubscribe(Address{Realm: 1, Name: rest})
		s.reply("unsubscribed " + rest)
	case "tell":
		_, err = s.p.PublishTopic(m, RetainNo)
	case "erase":
		s.reply(fmt.Sprint("erased ", s.p.EraseRetained()))
	case "here":
		m.To.Realm = 2
		_, err = s.p.PublishTopic(m, RetainNo)
	case "keep":
		_, err = s.p.PublishTopic(m, RetainValue)
	case "drop":
		_, err = s.p.PublishTopic(m, RetainClear)
	default:
		return s.wordsSession.Receive(ctx, k, msg)
	}
	if err != nil {
		s.reply("no " + AsRefusal(err).Code.String())
	}
	return nil
}

func (s *talkSession) Notify(n Notice) {
	if n.Kind == NoticeGap {
		s.reply(fmt.Sprintf("gap %s", n.Name.Name))
	}
}

// subscribe subscribes, and reads the confirmation.
func (p peer) subscribe(filters ...string) {
	p.t.Helper()
	for _, f := range filters {
		p.say("sub %s", f)
		p.expect("subscribed " + f)
	}
}

func (b *bench) topic(name string) (values int, subscribers int) {
	sp := b.topics.space(1)
	if _, ok := sp.values.Get(name); ok {
		values++
	}
	hits, _ := sp.tree.Match(nil, name)
	return values, len(hits)
}

func TestTopics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, &Server{Inbox: memory()}, talk{})
		alice, bob, carol := b.as("alice"), b.as("bob"), b.as("carol")
		bob.subscribe("home/+/temp")
		carol.subscribe("home/#")
		alice.say("tell home/hall/temp 20")
		bob.expect("home/hall/temp alice 20")
		carol.expect("home/hall/temp alice 20")
		alice.say("tell home off")
		carol.expect("home alice off")

		// Once each, however many filters match, the publisher included.
		alice.subscribe("home/#", "home/hall/temp", "home/+/temp", "#", "home/#")
		alice.say("tell home/hall/temp 21")
		alice.expect("home/hall/temp alice 21")
		bob.expect("home/hall/temp alice 21")
		carol.expect("home/hall/temp alice 21")

		// Unsubscribing once is enough; what was not subscribed to is no error.
		for _, f := range []string{"home/#", "home/#", "never", "#"} {
			alice.say("unsub %s", f)
			alice.expect("unsubscribed " + f)
		}
		bob.say("tell home/door open")
		bob.say("tell home/hall/temp 22")
		alice.expect("home/hall/temp bob 22")
		carol.expect("home/door bob open", "home/hall/temp bob 22")
		bob.expect("home/hall/temp bob 22")

		// Nothing waits for those who come later or come again.
		_ = carol.Close(transport.CloseNormal, "")
		synctest.Wait()
		alice.say("tell home gone")
		synctest.Wait()
		dave := b.as("dave")
		dave.subscribe("home/#")
		b.as("carol").silent()
		dave.silent()
		alice.silent()
		synctest.Wait()
		assert.Zero(t, b.balance().Held)
	})
}

// Realms keep topics apart, and groups of the same name.
func TestTopicRealms(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, &Server{}, talk{})
		p := b.as("alice")
		p.subscribe("x")
		p.say("look y")
		p.expect("subscribed y")
		p.say("here x 1")
		p.say("tell y 1")
		p.say("echo x 1")
		p.say("here y 2")
		p.expect("y alice 2")
		p.say("tell x 2")
		p.expect("x alice 2")
		p.silent()
	})
}

func TestTopicRefusals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limits := DialectLimits{Subscriptions: 3, TopicBytes: 10, TopicLevels: 3}
		b := newBench(t, &Server{}, talk{words: words{limits: limits}})
		p := b.as("alice")
		for _, f := range []string{"", "a#", "a/#/b", "a+/b", "a\x00b", "01234567890", "a/b/c/d"} {
			p.say("sub %s", f)
			p.expect("no invalid-filter")
		}
		for _, topic := range []string{"", "a/+", "#", "a+b", "a\x00b", "01234567890", "a/b/c/d"} {
			for _, verb := range []string{"tell", "keep", "drop"} {
				p.say("%s %s x", verb, topic)
				p.expect("no invalid-topic")
			}
		}
		p.subscribe("a", "+/b", "c/#", "a", "+/b") // again is no other one
		p.say("sub d")
		p.expect("no quota")
		p.say("look a") // of another realm
		p.expect("no quota")
		p.say("unsub a")
		p.expect("unsubscribed a")
		p.subscribe("d")
		assert.Equal(t, uint64(21), b.balance().Refused)
	})
}

// By default, as spec json.md has it.
func TestTopicLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, &Server{}, talk{})
		p := b.as("alice")
		deep, long := strings.Repeat("/", 31), strings.Repeat("x", 512)
		p.subscribe(deep, long)
		for _, name := range []string{deep + "/", long + "x"} {
			p.say("sub %s", name)
			p.expect("no invalid-filter")
			p.say("tell %s", name)
			p.expect("no invalid-topic")
		}
		for i := range 98 {
			p.subscribe(fmt.Sprint(i))
		}
		p.say("sub one more")
		p.expect("no quota")
	})
}

func TestTopicPolicy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, &Server{Policy: Policy{
			Subscribe: func(_ context.Context, i JoinInfo) error {
				assert.Equal(t, Address{Realm: 1, Name: "alice"}, i.From)
				if i.Group.Name == "secret" {
					return &Refusal{Code: CodeDenied}
				}
				return nil
			},
			Publish: func(_ context.Context, i SendInfo) error {
				if i.To.Name == "secret" {
					return errors.New("internal")
				}
				return nil
			},
		}}, talk{})
		p := b.as("alice")
		p.say("sub secret")
		p.expect("no denied")
		p.subscribe("+")
		p.say("keep secret x")
		p.expect("no internal")
		p.say("keep open x")
		p.expect("open alice x")
		values, _ := b.topic("secret")
		assert.Zero(t, values)
	})
}

// A session that moves to another address keeps its subscriptions, and publishes
// under the new name.
func TestSubscriptionsMove(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, &Server{Inbox: memory()}, talk{})
		p := b.as("alice")
		p.subscribe("a/+")
		p.say("at bob")
		p.expect("at bob 0")
		p.say("keep a/b x")
		p.expect("a/b bob x")
		p.subscribe("a/+")
		p.expect("a/b bob x (kept)")
	})
}

// What a session has subscribed to goes with it, and costs nothing then.
func TestSubscriptionsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, &Server{Limits: MaxLimits()}, talk{words: words{limits: DialectLimits{Subscriptions: 1000}}})
		var ps []peer
		for range 10 {
			p := b.as(fmt.Sprint("p", len(ps)))
			for i := range 100 {
				p.subscribe(fmt.Sprint(len(ps), "/", i), fmt.Sprint("+/", i))
			}
			ps = append(ps, p)
		}
		_, subscribers := b.topic("0/99")
		assert.Equal(t, 10, subscribers)
		for _, p := range ps {
			_ = p.Close(transport.CloseNormal, "")
		}
		synctest.Wait()
		_, subscribers = b.topic("0/99")
		assert.Zero(t, subscribers)
	})
}

// Sessions that cannot take a form go without, live and replayed.
func TestTopicMisfit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, &Server{}, talk{})
		alice := b.as("alice")
		old := b.dial(0)
		old.say("form 9")
		old.say("claim bob")
		old.expect("welcome")
		old.subscribe("#")
		alice.subscribe("#")
		for _, text := range []string{"!new", "plain"} {
			alice.say("keep %s %s", text[1:], text)
		}
		alice.expect("new alice !new", "lain alice plain")
		old.expect("lain alice plain")
		old.subscribe("#")
		old.expect("lain alice plain (kept)")
		old.silent()
		assert.Zero(t, b.balance().Held)
	})
}

// A reader that stops costs the publisher and other readers nothing: it loses its
// oldest publications, is told by filter once for each burst, and is cut in the
// end (case DO-02).
func TestSlowSubscriber(t *testing.T) {
	for name, size := range map[string]int{"copied": 10, "shared": 4096} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const n, room = 500, 4
				limits := Limits{OutboxMessages: 20, OutboxBytes: 20 * (size + 20)}
				b := newBench(t, &Server{Limits: limits}, talk{})
				pub, healthy, frozen := b.as("pub"), b.as("healthy"), b.dial(room)
				frozen.say("claim frozen")
				frozen.expect("welcome")
				frozen.subscribe("a/+", "b/#", "c")
				healthy.subscribe("#")
				text := func(i int) string { return fmt.Sprintf("%0*d", size, i) }
				for i := range n {
					topic := []string{"a/x", "b/x"}[i%2]
					pub.say("tell %s %s", topic, text(i))
					healthy.expect(topic + " pub " + text(i))
				}
				synctest.Wait()
				st := b.balance()
				assert.Greater(t, st.DroppedBy["slow"], uint64(n-30))
				gaps, got, last := map[string]int{}, 0, -1
				for last < n-1 {
					msg := frozen.hear()
					if filter, ok := strings.CutPrefix(msg, "gap "); ok {
						gaps[filter]++
						continue
					}
					var i int
					_, err := fmt.Sscanf(msg[len("a/x pub "):], "%d", &i)
					require.NoError(t, err)
					require.Greater(t, i, last)
					last = i
					got++
				}
				assert.Equal(t, map[string]int{"a/+": 1, "b/#": 1}, gaps)
				synctest.Wait()
				st = b.balance()
				assert.Equal(t, uint64(n-got), st.Dropped)
				assert.Zero(t, st.Held)

				// A burst of its own, in which only one of them loses.
				pub.say("tell c %s", text(0))
				frozen.expect("c pub " + text(0))
				for i := range 50 {
					pub.say("tell b/y %s", text(i))
				}
				healthy.drain(t)
				clear(gaps)
				for msg := ""; msg != "b/y pub "+text(49); {
					msg = frozen.hear()
					if filter, ok := strings.CutPrefix(msg, "gap "); ok {
						gaps[filter]++
					}
				}
				assert.Equal(t, map[string]int{"b/#": 1}, gaps)

				for i := range 50 {
					pub.say("tell b/y %s", text(i))
				}
				healthy.drain(t)
				time.Sleep(28 * time.Second)
				assert.Equal(t, 3, b.Stats().Sessions)
				time.Sleep(5 * time.Second)
				assert.Equal(t, 2, b.Stats().Sessions)
				_, code := frozen.rest()
				assert.Equal(t, uint16(transport.CloseTryLater), code)
				assert.Zero(t, b.balance().Held)
			})
		})
	}
}

// Topics reach sessions that acknowledge, whose window is full of messages.
func TestTopicPassesWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, &Server{Inbox: memory(), Limits: Limits{WindowMessages: 2}}, talk{words: words{acks: true}})
		alice, bob := b.as("alice"), b.as("bob")
		alice.say("keep t old")
		synctest.Wait()
		bob.subscribe("t")
		bob.expect("t alice old (kept)")
		for i := range 5 {
			alice.say("send bob %d", i)
		}
		bob.expect("bob alice alice 0", "bob alice alice 1")
		alice.say("tell t new")
		bob.expect("t alice new")
		bob.subscribe("+")
		bob.expect("t alice old (kept)")
	})
}
