package jsonmsg

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sotto-relay/sotto/relay"
)

// rounds is how often what depends on chance is tried.
const rounds = 12

// racing runs f so many times, in real time, on a relay without rates.
func racing(t *testing.T, f func(t *testing.T, r *rig)) {
	for range rounds {
		r := newRig(t, func(r *rig) { r.server.Limits, r.hurry = relay.MaxLimits(), true })
		f(t, r)
		_ = r.server.Close()
		r.balance()
	}
}

// all returns what comes until nothing has come for a moment.
func (p *peer) all() (msgs []string) {
	for {
		msg, ok := p.next(20 * time.Millisecond)
		if !ok {
			return msgs
		}
		msgs = append(msgs, msg)
	}
}

// some is all, and waits longer for the first: on a busy machine a moment is short.
func (p *peer) some() (msgs []string) {
	if msg, ok := p.next(5 * time.Second); ok {
		msgs = append(msgs, msg)
	}
	return append(msgs, p.all()...)
}

// TestRegisterAtOnce: two registrations of one address at once: one has it in the
// end, and the other has been told.
func TestRegisterAtOnce(t *testing.T) {
	for name, keys := range map[string][2]string{"without keys": {}, "two keys": {key1, key2}} {
		t.Run(name, func(t *testing.T) {
			racing(t, func(t *testing.T, r *rig) {
				carol := r.as("carol")
				peers := []*peer{r.peer("a"), r.peer("b")}
				var wg sync.WaitGroup
				for i, p := range peers {
					msg := `{"t":"register","addr":"alice"}`
					if keys[i] != "" {
						msg = `{"t":"register","addr":"alice","pubkey":"` + keys[i] + `"}`
					}
					wg.Go(func() { p.say(msg) })
				}
				wg.Wait()
				said := [2]string{strings.Join(peers[0].some(), ""), strings.Join(peers[1].some(), "")}
				const (
					registered = `{"t":"registered","addr":"alice","queued":0}`
					replaced   = `{"t":"error","msg":"address taken over by a new connection"}`
					bound      = `{"t":"error","msg":"alias bound to a different key"}`
				)
				others := []string{registered + replaced, replaced} // the second, if it had no time for more
				if keys[0] != "" {
					others = []string{bound}
				}
				if said[0] != registered {
					said[0], said[1] = said[1], said[0]
				}
				assert.Equal(t, registered, said[0])
				assert.Contains(t, others, said[1])
				carol.say(`{"t":"send","to":"alice","ct":"x"}`)
				var got []string
				for try := 0; try < 100 && len(got) == 0; try++ {
					got = append(peers[0].all(), peers[1].all()...)
				}
				assert.Equal(t, []string{`{"t":"deliver","from":"carol","ct":"x"}`}, got)
			})
		})
	}
}

// TestSendWhileRegistering: what is sent to somebody exactly while he registers
// arrives in that session, in order.
func TestSendWhileRegistering(t *testing.T) {
	racing(t, func(t *testing.T, r *rig) {
		alice, bob := r.as("alice"), r.peer("bob")
		const n = 50
		var wg sync.WaitGroup
		wg.Go(func() {
			for i := range n {
				alice.say(fmt.Sprintf(`{"t":"send","to":"bob","id":"%d"}`, i))
			}
		})
		wg.Go(func() { bob.say(`{"t":"register","addr":"bob"}`) })
		next, registered := 0, false
		for next < n || !registered {
			msg := bob.hear()
			if strings.HasPrefix(msg, `{"t":"registered"`) {
				require.False(t, registered)
				registered = true
				continue
			}
			require.Equal(t, fmt.Sprintf(`{"t":"deliver","from":"alice","id":"%d"}`, next), msg)
			next++
		}
		wg.Wait()
	})
}

// TestPublishWhileSubscribing: the subscriber gets the value as retained or live,
// never neither, and never an old one last.
func TestPublishWhileSubscribing(t *testing.T) {
	racing(t, func(t *testing.T, r *rig) {
		alice, bob := r.as("alice"), r.as("bob")
		const n = 20
		var wg sync.WaitGroup
		wg.Go(func() {
			for i := range n {
				alice.say(fmt.Sprintf(`{"t":"publish","topic":"a","ct":"%d","retain":true}`, i))
			}
		})
		wg.Go(func() { bob.say(`{"t":"subscribe","topic":"#"}`) })
		last := `"ct":"` + fmt.Sprint(n-1) + `"`
		require.Equal(t, `{"t":"subscribed","topic":"#"}`, bob.hear())
		for seen := -1; seen < n-1; {
			msg := bob.hear()
			var got int
			_, err := fmt.Sscanf(msg, `{"t":"message","topic":"a","from":"alice","ct":"%d"`, &got)
			require.NoError(t, err, msg)
			require.Greater(t, got, seen)
			if seen >= 0 {
				require.Contains(t, msg, `"retained":false`)
				require.Equal(t, seen+1, got, "none is left out once they come live")
			}
			seen = got
			if seen == n-1 {
				require.Contains(t, msg, last)
			}
		}
		wg.Wait()
	})
}

// TestConnectionsOfASource: the 21st connection of an IP address is closed, and a
// freed slot can be used at once (case DO-05).
func TestConnectionsOfASource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		r.dial = r.dialFrom("192.0.2.1")
		for i := range 20 {
			r.as(fmt.Sprint("peer", i))
			time.Sleep(100 * time.Millisecond)
		}
		p := r.peer("more")
		require.EqualValues(t, 1013, p.closed())
		_ = r.peer("peer7").Close(0, "")
		time.Sleep(time.Millisecond)
		r.as("less")
		r.dial = r.dialFrom("192.0.2.2")
		r.as("elsewhere")
	})
}
