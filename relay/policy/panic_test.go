package policy_test

import (
	"context"
	"testing"

	"github.com/sotto-relay/sotto/relay"
	"github.com/sotto-relay/sotto/transport"
)

// TestPanicLater: a panic over what a session does ends that session.
func TestPanicLater(t *testing.T) {
	p := relay.Policy{
		Claim: func(_ context.Context, c relay.ClaimInfo) (relay.Grant, error) {
			if c.Token == "panic" {
				panic("a secret")
			}
			return relay.Grant{}, nil
		},
		Send:    func(context.Context, relay.SendInfo) error { panic("a secret") },
		Publish: func(context.Context, relay.SendInfo) error { panic("a secret") },
		Join:    func(context.Context, relay.JoinInfo) error { panic("a secret") },
	}
	for _, say := range []string{"send alice x", "pub group x", "join group", "auth panic"} {
		t.Run(say, func(t *testing.T) {
			bubble(t, p, func(t *testing.T, r *rig) {
				alice := r.login("alice")
				alice.say(say)
				alice.expect("no internal: internal")
				alice.expectEnd("internal: internal", transport.CloseInternal)
			})
		})
	}
}
