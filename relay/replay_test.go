package relay

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/sotto-relay/sotto/inbox"
	"github.com/sotto-relay/sotto/transport"
	"github.com/sotto-relay/sotto/transport/pipe"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Set, replace, clear; what is replayed comes behind the confirmation and before
// what is live (case TO-09).
func TestRetained(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, &Server{Inbox: memory()}, talk{})
		alice, bob := b.as("alice"), b.as("bob")
		for _, topic := range []string{"b", "a/b", "a", "a!", "a/\u00e9", "a/", "c/d"} { // in no order
			alice.say("keep %s 1", topic)
		}
		alice.say("keep a/b 2")
		alice.say("tell a/c live")
		synctest.Wait()
		bob.subscribe("a/#")
		bob.expect("a alice 1 (kept)", "a/ alice 1 (kept)", "a/b alice 2 (kept)", "a/\u00e9 alice 1 (kept)")
		alice.say("keep a/b 3")
		bob.expect("a/b alice 3") // live, and so not marked
		bob.subscribe("+")
		bob.expect("a alice 1 (kept)", "a! alice 1 (kept)", "b alice 1 (kept)")

		// Subscribing again replays again.
		bob.subscribe("a/b")
		bob.expect("a/b alice 3 (kept)")
		bob.subscribe("a/b")
		bob.expect("a/b alice 3 (kept)")

		// Nothing retained is replaced or cleared by what is not retained.
		alice.say("tell a/b ")
		bob.expect("a/b alice ")
		bob.subscribe("a/b")
		bob.expect("a/b alice 3 (kept)")

		// Clearing is a publication, also of what is not there. Anybody can.
		carol := b.as("carol")
		carol.say("drop a/b")
		carol.say("drop a/b")
		carol.say("drop a/none")
		bob.expect("a/b carol ", "a/b carol ", "a/none carol ")
		bob.subscribe("a/b")
		carol.say("keep a/b 4")
		bob.expect("a/b carol 4")
		carol.say("keep a/b 5")
		carol.subscribe("a/b")
		bob.expect("a/b carol 5")
		carol.expect("a/b carol 5 (kept)")
		alice.silent()
		assert.Zero(t, b.balance().Held)
	})
}

// What is live replaces a retained value that has not been replayed yet.
func TestLiveReplacesRetained(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, &Server{Limits: Limits{FlushBytes: 50}}, talk{})
		alice, slow := b.as("alice"), b.dial(1)
		for i := range 20 {
			alice.say("keep %02d old", i)
		}
		synctest.Wait()
		slow.say("claim slow")
		slow.expect("welcome")
		slow.say("sub #")
		synctest.Wait()
		alice.say("keep 15 new")
		alice.say("tell 16 new") // though it is not retained
		alice.say("drop 17")
		alice.say("keep 18 new")
		alice.say("keep 18 newer")
		alice.say("keep 15x new")
		synctest.Wait()
		slow.expect("subscribed #")
		var got []string
		for range 16 + 6 {
			got = append(got, strings.TrimSuffix(slow.hear(), " (kept)"))
		}
		slow.silent()
		want := []string{"15 alice new", "16 alice new", "17 alice ", "18 alice new", "18 alice newer", "15x alice new"}
		for i := range 20 {
			if i < 15 || i > 18 {
				want = append(want, fmt.Sprintf("%02d alice old", i))
			}
		}
		slices.Sort(want)
		require.Len(t, got, len(want))
		live := slices.Index(got, "15 alice new")
		assert.Less(t, live, 5, "live ones do not wait for the replay")
		assert.True(t, slices.Index(got, "18 alice new") < slices.Index(got, "18 alice newer"))
		slices.Sort(got)
		assert.Equal(t, want, got)
		slow.say("sub 16")
		slow.expect("subscribed 16", "16 alice old (kept)")
	})
}

// All of many retained values come to a reader that takes its time, with a
// bounded part of them in memory, whatever is live meanwhile.
func TestReplayIsPaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n, flush = 12_500, 4000
		b := newBench(t, &Server{Limits: Limits{FlushBytes: flush, OutboxMessages: 100}}, talk{})
		alice, slow := b.as("alice"), b.dial(4)
		for i := range n {
			alice.say("keep a/%05d %d", i*7919%n, i)
		}
		synctest.Wait()
		slow.say("claim slow")
		slow.expect("welcome")
		slow.subscribe("#")
		p := b.port("slow")
		next, live, lost := 0, 0, false
		for next < n {
			msg := slow.hear()
			switch {
			case strings.HasPrefix(msg, "live"):
				live++
			case strings.HasPrefix(msg, "gap"):
				lost = true
			default:
				require.Equal(t, fmt.Sprintf("a/%05d alice", next), msg[:13])
				require.True(t, strings.HasSuffix(msg, " (kept)"))
				next++
			}
			if next%500 == 0 {
				for i := range 150 { // more than there is room for
					alice.say("tell live %d", i)
				}
				synctest.Wait()
			}
			if next%10 == 0 {
				synctest.Wait()
				p.out.mu.Lock()
				bytes, slots := p.out.bytes, p.out.slots
				p.out.mu.Unlock()
				require.LessOrEqual(t, slots, 100+n/500) // and the notices
				require.Less(t, bytes, flush+100+100*20)
			}
		}
		synctest.Wait()
		assert.True(t, lost)
		assert.NotZero(t, live)
		for _, msg := range slow.drain(t) {
			if strings.HasPrefix(msg, "live") {
				live++
			}
		}
		synctest.Wait()
		st := b.balance()
		assert.NotZero(t, st.DroppedBy["slow"])
		assert.Equal(t, st.Delivered, uint64(n+live))
		assert.False(t, p.isReplaying())
	})
}

// drain reads what is there.
func (p peer) drain(t *testing.T) (msgs []string) {
	require.NoError(t, p.SetReadDeadline(time.Now().Add(time.Second)))
	for {
		_, msg, err := p.Read()
		if err != nil {
			require.NoError(t, p.SetReadDeadline(time.Time{}))
			return msgs
		}
		msgs = append(msgs, string(msg))
	}
}

// port returns the session of a name.
func (b *bench) port(name string) *Port {
	st := b.router.find(Address{Realm: 1, Name: name})
	require.NotNil(b.t, st)
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.port
}

func (p *Port) isReplaying() bool {
	p.topics.replays.mu.Lock()
	defer p.topics.replays.mu.Unlock()
	return p.topics.replays.running
}

// The end of a subscription is the end of its replay, and so is that of the
// session. What has begun again begins at the beginning.
func TestReplayEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, &Server{Limits: Limits{FlushBytes: 50}}, talk{})
		alice := b.as("alice")
		for i := range 100 {
			alice.say("keep %02d x", i)
		}
		synctest.Wait()
		start := func() peer {
			p := b.dial(1)
			p.say("claim slow")
			p.expect("welcome")
			p.subscribe("#")
			p.expect("00 alice x (kept)", "01 alice x (kept)")
			synctest.Wait()
			return p
		}
		p := start()
		p.say("unsub #")
		synctest.Wait()
		for msg := p.hear(); msg != "unsubscribed #"; msg = p.hear() {
			assert.Less(t, msg, "10")
		}
		p.silent()
		assert.False(t, b.port("slow").isReplaying())
		assert.Zero(t, b.balance().Held)
		_ = p.Close(transport.CloseNormal, "")
		synctest.Wait()

		p = start()
		p.say("sub +")
		p.say("sub #")
		synctest.Wait()
		var all []string
		for len(all) < 100 || all[len(all)-1][:2] != "99" {
			all = append(all, p.hear())
		}
		assert.Contains(t, all, "subscribed +")
		again := slices.Index(all, "subscribed #")
		require.Positive(t, again)
		assert.Contains(t, all[again:], "00 alice x (kept)")
		for i := range 100 { // of +, or the rest of it
			p.expect(fmt.Sprintf("%02d alice x (kept)", i))
		}
		p.silent()
		_ = p.Close(transport.CloseNormal, "")
		synctest.Wait()

		p = start()
		q := b.port("slow")
		assert.True(t, q.isReplaying())
		_ = p.Close(transport.CloseNormal, "")
		synctest.Wait()
		select {
		case <-q.ended:
		default:
			t.Fatal("not ended")
		}
		b.pumps.Wait()
		assert.Zero(t, b.balance().Held)

		p = start()
		done := make(chan error)
		go func() { done <- b.Shutdown(t.Context()) }()
		synctest.Wait()
		msgs, code := p.rest() // what is queued; no more follows
		assert.Equal(t, uint16(transport.CloseGoingAway), code)
		assert.Less(t, len(msgs), 20)
		require.NoError(t, <-done)
		assert.Zero(t, b.balance().Held)
	})
}

// A replay of many small values leaves half of the outbox to what is live.
func TestReplayLeavesRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, &Server{Limits: Limits{OutboxMessages: 100}}, talk{})
		alice, p := b.as("alice"), b.dial(1)
		for i := range 200 {
			alice.say("keep a/%03d x", i)
		}
		synctest.Wait()
		p.say("claim slow")
		p.expect("welcome")
		p.subscribe("#")
		synctest.Wait()
		for i := range 50 {
			alice.say("tell live %d", i)
		}
		synctest.Wait()
		assert.Zero(t, b.balance().Dropped)
		for i := 0; i < 250; i++ {
			p.hear()
		}
		p.silent()
	})
}

// Names belong to the caller.
func TestTopicNamesAreBorrowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		state := &troubled{State: inbox.NewMemoryState(nil)}
		late := make(chan struct{})
		state.set(nil, late)
		b := newBench(t, &Server{State: state, Limits: Limits{FlushBytes: 50}}, talk{})
		alice, bob := b.as("alice"), b.dial(1)
		bob.say("claim bob")
		bob.expect("welcome")
		synctest.Wait()
		borrowed := func(session, name string, f func(*Port, Address)) {
			p, buf := b.port(session), []byte(name)
			p.loop.Lock()
			defer p.loop.Unlock()
			f(p, Address{Realm: 1, Name: unsafe.String(&buf[0], len(buf))})
			clear(buf)
		}
		for i := range 20 {
			borrowed("alice", fmt.Sprintf("a/%02d", i), func(p *Port, topic Address) {
				m := &Message{To: topic, Data: []byte("x")}
				_, err := p.PublishTopic(m, RetainValue)
				assert.NoError(t, err)
				m.Data[0] = 0
			})
		}
		borrowed("bob", "a/+", func(p *Port, filter Address) { assert.NoError(t, p.Subscribe(filter, nil)) })
		for i := range 20 {
			bob.expect(fmt.Sprintf("a/%02d alice x (kept)", i))
		}
		alice.say("tell a/1 live")
		bob.expect("a/1 alice live")
		close(late)
		synctest.Wait()
		assert.Len(t, kept(t, state), 20)
		assert.Equal(t, "1 a/00 alice x", kept(t, state)[0])
	})
}

// Nothing comes before the confirmation, whatever happens at the moment.
func TestConfirmComesFirst(t *testing.T) {
	b := newBench(t, &Server{}, nil)
	var publisher peer
	b.d = talk{confirming: func() {
		publisher.say("tell a live")
		time.Sleep(20 * time.Millisecond) // for the publication to overtake, if it can
	}}
	publisher = b.as("publisher")
	b.as("alice").subscribe("a")
}

// A replay waits for a peer that is unproven, within its credit.
func TestReplayToUnproven(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, &Server{}, talk{})
		alice, p := b.as("alice"), b.dial(0)
		for i := range 10 {
			alice.say("keep %02d %030d", i, i)
		}
		synctest.Wait()
		p.say("unproven bob")
		p.say("credit 60")
		p.say("sub #")
		p.expect("subscribed #")
		for i := range 10 {
			if i == 1 {
				p.silent()
				p.say("prove")
			}
			p.expect(fmt.Sprintf("%02d alice %030d (kept)", i, i))
		}
		p.silent()
	})
}

// Sessions that subscribe while publications are going on get each value either
// retained or live: behind the retained one, all that came after it, in order.
func TestSubscribeWhilePublishing(t *testing.T) {
	const publishers, each, subscribers, topics = 3, 300, 40, 4
	b := newBench(t, &Server{Limits: Limits{OutboxMessages: 1 << 20, OutboxBytes: 1 << 30}}, talk{})
	dial := func(name string) peer {
		client, server := pipe.Options{Messages: 1 << 14, Bytes: 1 << 24}.New()
		b.Speak(b.d).HandleConn(server)
		p := peer{t, client}
		p.say("claim %s", name)
		p.expect("welcome")
		return p
	}
	observer, closer := dial("observer"), dial("closer")
	observer.subscribe("#")
	for i := range topics { // from here on, what is not retained is ordered as well
		closer.say("keep t/%d first", i)
	}
	closer.subscribe("done")
	var publishing, subscribing sync.WaitGroup
	for i := range publishers {
		publishing.Go(func() {
			p := dial(fmt.Sprint("p", i))
			for n := range each {
				verb := []string{"keep", "tell"}[rand.IntN(2)]
				p.say("%s t/%d %s %d", verb, rand.IntN(topics), verb, n)
				if n%10 == 0 {
					time.Sleep(time.Millisecond)
				}
			}
			p.subscribe("done")
		})
	}
	got := make([]map[string][]string, subscribers) // by topic
	for i := range subscribers {
		subscribing.Go(func() {
			p := dial(fmt.Sprint("s", i))
			time.Sleep(time.Duration(i) * time.Millisecond)
			p.say("sub %s", []string{"t/+", "t/#", "#", "+/+"}[i%4])
			p.hear()
			got[i] = p.untilLast(topics)
		})
	}
	publishing.Wait()
	for i := range topics {
		closer.say("keep t/%d last", i)
	}
	all := observer.untilLast(topics)
	subscribing.Wait()
	replayed := 0
	for i, byTopic := range got {
		require.Len(t, byTopic, topics)
		for topic, values := range byTopic {
			first, retained := strings.CutSuffix(values[0], " (kept)")
			from := slices.Index(all[topic], first)
			require.GreaterOrEqual(t, from, 0)
			if !retained {
				require.Equal(t, len(all[topic][from:]), len(values), "subscriber %d, %s", i, topic)
				require.Equal(t, all[topic][from:], values, "subscriber %d, %s", i, topic)
				continue
			}
			replayed++
			values = values[1:]
			live := len(all[topic]) - len(values)
			require.Greater(t, live, from, "retained and live")
			if len(values) > 0 {
				require.Equal(t, all[topic][live:], values, "subscriber %d, %s", i, topic)
			}
			for _, between := range all[topic][from+1 : live] {
				require.Contains(t, between, "tell", "subscriber %d, %s: neither retained nor live", i, topic)
			}
		}
	}
	t.Logf("%d of %d were replayed first", replayed, subscribers*topics)
}

// TestRetainedBesidePlain: a publication that is not retained, to a topic that gets
// its first value just then, does not have that value come twice. (It may take its
// place, if it is the later one.)
func TestRetainedBesidePlain(t *testing.T) {
	b := newBench(t, new(Server), talk{})
	alice, bob, carol := b.as("alice"), b.as("bob"), b.as("carol")
	for i := range 300 {
		topic := fmt.Sprint("t/", i)
		first, plain, last := topic+" alice first", topic+" bob plain", topic+" alice last"
		var all sync.WaitGroup
		all.Go(func() { alice.say("keep %s first", topic) })
		all.Go(func() { bob.say("tell %s plain", topic) })
		all.Go(func() { carol.say("sub %s", topic) })
		all.Wait()
		heard := make(map[string]int)
		until := func(ends ...string) {
			for msg := ""; !slices.Contains(ends, msg); {
				msg = strings.TrimSuffix(carol.hear(), " (kept)")
				heard[msg]++
			}
		}
		until(first, plain)
		alice.say("keep %s last", topic)
		until(last)
		carol.say("unsub %s", topic)
		until("unsubscribed " + topic)
		require.LessOrEqual(t, heard[first], 1)
		require.LessOrEqual(t, heard[plain], 1)
		require.Equal(t, 1, heard[last])
	}
}

// untilLast reads until the last value of each of n topics has come, and returns
// what came by topic.
func (p peer) untilLast(n int) map[string][]string {
	got := make(map[string][]string)
	for n > 0 {
		topic, value, _ := strings.Cut(p.hear(), " ")
		got[topic] = append(got[topic], value)
		if strings.Contains(value, "last") {
			n--
		}
	}
	return got
}
