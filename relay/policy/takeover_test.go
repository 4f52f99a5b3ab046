package policy_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sotto-relay/sotto/relay"
)

func TestLateTakeover(t *testing.T) {
	p := relay.Policy{Claim: func(_ context.Context, c relay.ClaimInfo) (relay.Grant, error) {
		if c.Token == "slow" {
			time.Sleep(4 * time.Second)
		}
		return relay.Grant{}, nil
	}}
	bubble(t, p, func(t *testing.T, r *rig) {
		old := r.dial("slow")
		old.say("claim bob")
		time.Sleep(time.Second)
		_ = old.Close(1000, "")
		bob := r.login("bob")
		time.Sleep(10 * time.Second)
		synctest.Wait()
		bob.say("send bob hello")
		bob.expect("hello")
	})
}
