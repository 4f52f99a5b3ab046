package relay

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sotto-relay/sotto/transport"
)

// A courier is a Forwarder that keeps what it gets.
type courier struct {
	mu     sync.Mutex
	has    []*Forwarded
	events []string
	no     bool // takes nothing
}

func (c *courier) Forward(f *Forwarded) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.no {
		c.has = append(c.has, f)
	}
	return !c.no
}

func (c *courier) event(format string, a ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.events = append(c.events, fmt.Sprintf(format, a...))
}

func (c *courier) Comes(Address)  {}
func (c *courier) Came(a Address) { c.event("came %s", a.Name) }
func (c *courier) Went(a Address) { c.event("went %s", a.Name) }
func (c *courier) Kept(a Address) { c.event("kept %s", a.Name) }
func (c *courier) Follow(a Address, n Notice) {
	c.event("%s is told that %s has %q", a.Name, n.Peer.Name, strings.TrimRight(string(n.ID[:]), "\x00"))
}

func (c *courier) Stop() {
	for _, f := range c.take() {
		f.Return()
	}
}

func (c *courier) take() []*Forwarded {
	c.mu.Lock()
	defer c.mu.Unlock()
	defer func() { c.has = nil }()
	return c.has
}

func (c *courier) heard() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	defer func() { c.events = nil }()
	return slices.Clone(c.events)
}

func TestForward(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mesh := new(courier)
		b := newBench(t, &Server{Inbox: memory(), Mesh: mesh}, words{settled: nil})
		alice := b.as("alice")
		alice.say("send bob 1")
		alice.say("send bob 2")
		alice.say("once bob 3")
		synctest.Wait()
		has := mesh.take()
		require.Len(t, has, 3)
		assert.Equal(t, "alice 1", string(has[0].Data))
		assert.Equal(t, "alice", has[0].From.Name)
		assert.Zero(t, b.balance().Accepted)
		has[0].Settle(Outcome{Status: Delivered})
		alice.expect("settled none")
		has[1].Settle(Outcome{Code: CodeInboxFull})
		alice.expect("settled inbox-full")
		has[2].Return() // never stored
		alice.expect("settled not-here")
		st := b.balance()
		assert.EqualValues(t, 1, st.Delivered)
		assert.EqualValues(t, 2, st.Refused)
		assert.Zero(t, st.Held)

		mesh.no = true
		alice.say("send bob 4")
		alice.expect("stored")
		assert.Nil(t, b.router.find(Address{Realm: 1, Name: "bob"}), "no seat is left over")
		assert.Equal(t, []string{"came alice", "kept bob"}, mesh.heard())
	})
}

// Messages for one recipient keep their order, whatever happens meanwhile.
func TestForwardOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mesh := new(courier)
		b := newBench(t, &Server{Inbox: memory(), Mesh: mesh}, words{settled: func(Receipt) {}})
		alice := b.as("alice")
		alice.say("send bob 1")
		alice.say("send bob 2")
		synctest.Wait()
		bob := b.as("bob")
		alice.say("send bob 3") // behind the first two, although bob is here
		bob.silent()
		has := mesh.take()
		require.Len(t, has, 3)
		for _, f := range has {
			f.Return()
		}
		bob.expect("alice 1", "alice 2", "alice 3")
		synctest.Wait()
		alice.say("send bob 4")
		bob.expect("alice 4")
		synctest.Wait()
		assert.Empty(t, mesh.take())
		assert.Zero(t, b.balance().Held)
		require.NoError(t, bob.Close(0, ""))
		synctest.Wait()
		assert.Equal(t, []string{"came alice", "came bob", "went bob"}, mesh.heard())
	})
}

// Without an inbox, what is returned goes to whoever has come.
func TestForwardWithoutInbox(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mesh := new(courier)
		b := newBench(t, &Server{Mesh: mesh}, words{})
		alice := b.as("alice")
		alice.say("send bob 1")
		synctest.Wait()
		bob := b.as("bob")
		for _, f := range mesh.take() {
			f.Return()
		}
		bob.expect("alice 1")
		alice.expect("settled none")
	})
}

// A server that ends gets back what was on its way.
func TestForwardStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, &Server{Inbox: memory(), Mesh: new(courier)}, words{})
		b.as("alice").say("send bob 1")
		synctest.Wait()
		require.NoError(t, b.Close())
		assert.EqualValues(t, 1, b.balance().Held)
	})
}

func TestArrive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mesh := new(courier)
		b := newBench(t, &Server{Inbox: memory(), Mesh: mesh}, words{acks: true, settled: func(Receipt) {}})
		link := b.as("link")
		link.say("arrive alice bob one")
		link.expect("no")
		bob := b.as("bob")
		synctest.Wait()
		link.say("arrive alice bob two")
		link.expect("delivered")
		bob.expect("alice two")
		bob.say("ack alice two")
		synctest.Wait()
		assert.Equal(t, []string{"came link", "came bob", `alice is told that bob has "two"`}, mesh.heard())

		// What has been stored is stored here first.
		link.say("keep alice bob three")
		link.expect("stored")
		bob.expect("alice three")
		n, _, err := b.Inbox.Totals(t.Context())
		require.NoError(t, err)
		assert.Equal(t, 1, n)
		bob.say("ack alice three")
		synctest.Wait()
		require.NoError(t, bob.Close(0, ""))
		synctest.Wait()
		mesh.heard()
		link.say("keep alice bob four")
		link.expect("stored")
		assert.Equal(t, []string{"kept bob"}, mesh.heard())
		assert.True(t, b.Waiting(Address{Realm: 1, Name: "bob"}))
		assert.False(t, b.Waiting(Address{Realm: 1, Name: "alice"}))
		b.balance()
	})
}

// Whom the policy has not write here does not by way of another relay either, and that
// relay's link goes on.
func TestArrivePolicy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		send := func(_ context.Context, i SendInfo) error {
			switch i.From.Name {
			case "eve":
				return &Refusal{Code: CodeDenied, Close: transport.ClosePolicy}
			case "mallory":
				panic("oh")
			}
			return nil
		}
		b := newBench(t, &Server{Inbox: memory(), Mesh: new(courier), Policy: Policy{Send: send}}, words{})
		link, bob := b.as("link"), b.as("bob")
		synctest.Wait()
		for _, verb := range []string{"arrive", "keep"} {
			for _, from := range []string{"eve", "mallory"} {
				link.say("%s %s bob x", verb, from)
				link.expect("no")
			}
		}
		link.say("arrive alice bob one")
		link.expect("delivered")
		link.say("keep alice bob two")
		link.expect("stored")
		bob.expect("alice one", "alice two")
		assert.EqualValues(t, 4, b.balance().Refused)
	})
}

// Entries whose lease has ended go to a session that was here all the time, once.
func TestFlush(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, &Server{Inbox: memory()}, words{acks: true, settled: func(Receipt) {}})
		alice, to := b.as("alice"), Address{Realm: 1, Name: "bob"}
		alice.say("send bob 1")
		alice.say("send bob 2")
		alice.expect("stored", "stored")
		leased, err := b.Inbox.Lease(t.Context(), to, time.Now().Add(time.Hour), 1)
		require.NoError(t, err)
		require.Len(t, leased, 1)
		bob := b.as("bob")
		bob.expect("alice 2")
		bob.silent()
		require.NoError(t, b.Inbox.Release(t.Context(), to, 1))
		b.Flush(to)
		bob.silent() // what it was sent may still be in the inbox
		bob.say("ack alice 2")
		bob.expect("alice 1")
		bob.say("ack alice 1")
		synctest.Wait()
		b.Flush(to)
		alice.say("send bob 3")
		bob.expect("alice 3")
		bob.silent()
		b.balance()
	})
}

// They do so also when there were copies of later ones in the inbox meanwhile.
func TestFlushBehindCopies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, &Server{Inbox: memory()}, words{acks: true, settled: func(Receipt) {}})
		alice, to := b.as("alice"), Address{Realm: 1, Name: "bob"}
		alice.say("send bob 1")
		alice.expect("stored")
		leased, err := b.Inbox.Lease(t.Context(), to, time.Now().Add(time.Hour), 1)
		require.NoError(t, err)
		require.Len(t, leased, 1)
		bob := b.as("bob")
		synctest.Wait()
		alice.say("send bob 2")
		bob.expect("alice 2")
		time.Sleep(time.Minute) // it is stored as well
		require.NoError(t, b.Inbox.Release(t.Context(), to, 1))
		b.Flush(to)
		bob.silent()
		bob.say("ack alice 2")
		bob.expect("alice 1")
		bob.say("ack alice 1")
		synctest.Wait()
		assert.Zero(t, b.balance().Held)
	})
}

// silence is a dialect that turns its sessions into those of another.
type silence struct{ then Dialect }

func (silence) Name() string { return "silence" }
func (silence) Limits() DialectLimits {
	return DialectLimits{MessageBytes: 10, MessageRate: 1, MessageBurst: 1}
}
func (d silence) Render(buf []byte, form uint8, m *Message) (transport.Kind, []byte, error) {
	return d.then.Render(buf, form, m)
}

func (d silence) NewSession(p *Port) (Session, error) {
	s := &wordsSession{p: p}
	s.receive = func([]byte) error {
		next, err := d.then.NewSession(p)
		if err == nil {
			p.Become(d.then, next)
		}
		return err
	}
	return s, nil
}

func TestBecome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, new(Server), silence{then: words{}})
		p := b.dial(0)
		looked := make(chan struct{})
		go func() {
			defer close(looked)
			for range 100 {
				for s := range b.Sessions() {
					assert.Equal(t, "silence", s.Dialect)
				}
			}
		}()
		p.say("hello")
		<-looked
		p.say("%s", strings.Repeat("x", 100)) // neither too long nor too fast
		p.expect("what?")
		synctest.Wait()
		assert.EqualValues(t, 1, b.Stats().Sessions)
		time.Sleep(time.Hour) // it is ready
		p.say("quit")
		p.expect("bye denied")
	})
}
