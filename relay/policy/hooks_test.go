package policy_test

import (
	"context"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/sotto-relay/sotto/relay"
	"github.com/sotto-relay/sotto/relay/policy"
	"github.com/sotto-relay/sotto/transport"
)

// logins returns policies that ask f, by the question; claiming has Tokens ask it.
func logins(f func() error) map[string]relay.Policy {
	return map[string]relay.Policy{
		"connect": policy.All(relay.Policy{Connect: func(context.Context, relay.ConnInfo) error { return f() }}, policy.Open()),
		"claim": policy.All(policy.Open(), policy.Tokens(func(context.Context, string) (policy.Authorization, error) {
			return policy.Authorization{}, f()
		})),
	}
}

// TestSlow: a function that takes 10 s and pays no attention to its context has
// refused after 5 (Limits.HookTimeout). What it returns then makes no session.
func TestSlow(t *testing.T) {
	for name, p := range logins(func() error { time.Sleep(10 * time.Second); return nil }) {
		t.Run(name, func(t *testing.T) {
			bubble(t, p, func(t *testing.T, r *rig) {
				start := time.Now()
				slow := r.dial("any")
				slow.say("claim bob")
				bye := "overloaded: the policy took too long"
				if name == "connect" {
					bye = "" // there was no session to say it
				}
				slow.expectEnd(bye, transport.CloseTryLater)
				assert.Equal(t, 5*time.Second, time.Since(start))
				time.Sleep(time.Minute)
				synctest.Wait()
				assert.Zero(t, r.claimed.Load())
				assert.Zero(t, r.Stats().Sessions)
			})
		})
	}
}

// TestLate: a function that allows when its connection has ended, for whatever
// reason, has allowed nothing, and holds nothing up. That a peer went is noticed
// when the function has returned, since the session that asked reads nothing
// meanwhile: what it claims then ends at once.
func TestLate(t *testing.T) {
	gone := netip.MustParsePrefix("192.0.2.0/24")
	for end, c := range map[string]struct {
		do      func(*rig, peer)
		unaware bool
	}{
		"the peer went": {func(_ *rig, p peer) { _ = p.Close(transport.CloseNormal, "") }, true},
		"kicked": {func(r *rig, _ peer) {
			assert.Equal(r.t, 1, r.Kick(relay.Match{Source: gone}, &relay.Refusal{Code: relay.CodeDenied}))
		}, false},
		"blocked":  {func(r *rig, _ peer) { assert.Equal(r.t, 1, r.Block(gone, time.Hour)) }, false},
		"shutdown": {func(r *rig, _ peer) { _ = r.Close() }, false},
	} {
		for name, p := range logins(func() error { time.Sleep(4 * time.Second); return nil }) {
			t.Run(name+"/"+end, func(t *testing.T) {
				bubble(t, p, func(t *testing.T, r *rig) {
					late := r.dial("any")
					late.say("claim bob")
					time.Sleep(time.Second)
					start := time.Now()
					c.do(r, late)
					synctest.Wait()
					assert.Less(t, time.Since(start), time.Second)
					if !c.unaware {
						assert.Zero(t, r.Stats().Sessions)
						time.Sleep(time.Minute)
						assert.Zero(t, r.claimed.Load())
						return
					}
					time.Sleep(7 * time.Second) // connect and claim take 4 each
					synctest.Wait()
					assert.Zero(t, r.Stats().Sessions)
				})
			})
		}
	}
}

// TestPanic: it ends the session that asked, which learns nothing of it, and no
// other.
func TestPanic(t *testing.T) {
	panics := false
	f := func() error {
		if panics {
			panic("a secret")
		}
		return nil
	}
	for name, p := range logins(f) {
		t.Run(name, func(t *testing.T) {
			panics = false
			bubble(t, p, func(t *testing.T, r *rig) {
				alice := r.dial("any")
				alice.say("claim alice")
				alice.expect("welcome")

				panics = true
				bob := r.dial("any")
				bye := ""
				if name != "connect" { // which ends it before anything is said
					bob.say("claim bob")
					bye = "internal: internal"
				}
				bob.expectEnd(bye, transport.CloseInternal)

				alice.say("send alice still here")
				alice.expect("still here")
				assert.EqualValues(t, 1, r.claimed.Load())
			})
		})
	}
}

func TestKickAndBlock(t *testing.T) {
	bubble(t, policy.Open(), func(t *testing.T, r *rig) {
		alice, bob := r.login("alice"), r.login("bob")
		assert.Equal(t, 1, r.Kick(relay.Match{Address: address("bob")}, &relay.Refusal{Code: relay.CodeDenied, Reason: "revoked"}))
		bob.expectEnd("denied: revoked", transport.ClosePolicy)
		alice.say("send bob gone?")
		alice.expect("no not-here: not-here")
		bob = r.login("bob") // it was no ban

		here := netip.MustParsePrefix("192.0.2.1/32")
		assert.Equal(t, 2, r.Block(here, time.Hour))
		alice.expectEnd("denied: blocked", transport.ClosePolicy)
		bob.expectEnd("denied: blocked", transport.ClosePolicy)
		time.Sleep(time.Hour - 1)
		r.dial("").expectEnd("", transport.ClosePolicy)
		assert.EqualValues(t, 1, r.Stats().Turned["denied"])
		time.Sleep(time.Nanosecond)
		r.login("alice")
		assert.Zero(t, r.Block(here, 0))
		r.login("bob")
	})
}

// TestSend: functions for messages, beside a policy for logins, refuse one
// message or end the session.
func TestSend(t *testing.T) {
	sending := func(_ context.Context, m relay.SendInfo) error {
		switch m.To.Name {
		case "carol":
			return &relay.Refusal{Code: relay.CodeDenied, Reason: "not to carol"}
		case "dave":
			return &relay.Refusal{Code: relay.CodeDenied, Reason: "never to dave", Close: 4000}
		}
		return nil
	}
	joining := func(_ context.Context, j relay.JoinInfo) error {
		if j.Group.Name == "closed" {
			return &relay.Refusal{Code: relay.CodeDenied, Reason: "a closed group"}
		}
		return nil
	}
	p := policy.All(policy.Tokens(issued), relay.Policy{Send: sending}, relay.Policy{Publish: sending, Join: joining})
	for verb, refused := range map[string]string{"send": "no denied: denied", "pub": "no denied: not to carol"} {
		t.Run(verb, func(t *testing.T) {
			bubble(t, p, func(t *testing.T, r *rig) {
				alice := r.dial("ever")
				alice.say("claim alice")
				alice.expect("welcome")
				alice.say("join closed")
				alice.expect("no denied: a closed group")
				alice.say("join alice")
				alice.say(verb + " carol hello")
				alice.expect(refused)
				alice.say(verb + " alice hello")
				alice.expect("hello")
				alice.say(verb + " dave hello")
				alice.expect("no denied: " + map[string]string{"send": "denied", "pub": "never to dave"}[verb])
				alice.expectEnd("denied: never to dave", 4000)
				assert.EqualValues(t, 2, r.Stats().Refused)
			})
		})
	}
}
