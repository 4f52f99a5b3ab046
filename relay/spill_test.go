package relay

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sotto-relay/sotto/inbox"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A hookStore calls after when a Put has ended.
type hookStore struct {
	inbox.Store
	after func(*inbox.Entry)
}

func (s *hookStore) Put(ctx context.Context, e *inbox.Entry, q inbox.Quota, done func(inbox.Result)) {
	s.Store.Put(ctx, e, q, done)
	s.after(e)
}

// While what waits in memory for a slow session moves to the inbox, before the message
// that made it so, the inbox can be flushed already: what goes live then does not come
// behind what is stored later.
func TestSpillAndCatchUp(t *testing.T) {
	store := &hookStore{Store: memory()}
	b := newBench(t, &Server{Inbox: store, Limits: Limits{OutboxMessages: 2}}, words{acks: true})
	login := func() peer {
		p := b.dial(1)
		p.say("claim bob")
		p.expect("welcome")
		return p
	}
	bob := login()
	deliver := func(from, text string) {
		m := &Message{To: Address{Realm: 1, Name: "bob"}, From: Address{Realm: 1, Name: from}, ID: wordsID(from + text), Data: []byte(from + " " + text)}
		_, err := b.Deliver(t.Context(), b.d, m)
		assert.NoError(t, err)
	}
	var meanwhile sync.WaitGroup
	store.after = func(e *inbox.Entry) {
		if string(e.Data) != "alice 2" {
			return
		}
		bob.expect("alice 0")
		st := b.router.find(e.To)
		for end := time.Now().Add(200 * time.Millisecond); !st.isCaughtUp() && time.Now().Before(end); {
			time.Sleep(time.Millisecond)
		}
		first := make(chan struct{})
		meanwhile.Go(func() {
			deliver("carol", "1")
			close(first)
			deliver("carol", "2")
		})
		select {
		case <-first:
		case <-time.After(200 * time.Millisecond): // it waits behind the put that is to come
		}
	}
	for _, text := range []string{"0", "1", "2", "3"} {
		deliver("alice", text)
	}
	meanwhile.Wait()
	require.NoError(t, bob.Close(1000, ""))
	require.Eventually(t, func() bool { return len(b.allPorts()) == 0 }, 10*time.Second, time.Millisecond)

	bob = login()
	next := map[string]string{"alice": "0", "carol": "1"}
	for range 6 {
		msg := bob.hear()
		from, n := msg[:5], msg[6:]
		require.Equal(t, next[from], n, "of %s", from)
		next[from] = string(n[0] + 1)
	}
}

// A fullStore refuses everything.
type fullStore struct{ inbox.Store }

func (fullStore) Put(_ context.Context, _ *inbox.Entry, _ inbox.Quota, done func(inbox.Result)) {
	done(inbox.Result{Err: inbox.ErrStorageFull})
}

// Whose message was delivered, and then lost with the session since there was no room
// for it in the inbox, is told so.
func TestNoWayBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, &Server{Inbox: fullStore{memory()}}, words{acks: true, tellMe: true})
		alice, bob := b.as("alice"), b.as("bob")
		synctest.Wait()
		alice.say("send bob hello")
		bob.expect("alice hello")
		alice.silent()
		require.NoError(t, bob.Close(1000, ""))
		alice.expect("bob: hello dropped")
		alice.silent()
		st := b.balance()
		assert.Zero(t, st.Held)
		assert.Equal(t, uint64(1), st.Dropped)
	})
}
