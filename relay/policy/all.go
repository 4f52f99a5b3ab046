package policy

import (
	"context"

	"github.com/sotto-relay/sotto/relay"
)

// Open returns the policy that allows everything, which is also the zero value.
// It says in a program's text that this is meant.
func Open() relay.Policy { return relay.Policy{} }

// All returns the policy that allows what every one of policies allows. They are
// asked in their order, up to the first that refuses, whose error it is; a nil
// function is passed over. A session may stay until the earliest time at which a
// grant expires. All of none is [Open].
//
// The policies share relay.Limits.HookTimeout.
func All(policies ...relay.Policy) relay.Policy {
	return relay.Policy{
		Connect:   each(policies, func(p relay.Policy) hook[relay.ConnInfo] { return p.Connect }),
		Claim:     eachClaim(policies),
		Send:      each(policies, func(p relay.Policy) hook[relay.SendInfo] { return p.Send }),
		Publish:   each(policies, func(p relay.Policy) hook[relay.SendInfo] { return p.Publish }),
		Join:      each(policies, func(p relay.Policy) hook[relay.JoinInfo] { return p.Join }),
		Subscribe: each(policies, func(p relay.Policy) hook[relay.JoinInfo] { return p.Subscribe }),
	}
}

type hook[T any] = func(context.Context, T) error

// each joins one function of the policies; nil when none has it, since a relay
// need not ask then.
func each[T any](policies []relay.Policy, of func(relay.Policy) hook[T]) hook[T] {
	var hooks []hook[T]
	for _, p := range policies {
		if h := of(p); h != nil {
			hooks = append(hooks, h)
		}
	}
	if hooks == nil {
		return nil
	}
	return func(ctx context.Context, info T) error {
		for _, h := range hooks {
			if err := h(ctx, info); err != nil {
				return err
			}
		}
		return nil
	}
}

// eachClaim is each for Claim, whose grants have to be joined as well.
func eachClaim(policies []relay.Policy) func(context.Context, relay.ClaimInfo) (relay.Grant, error) {
	var claims []func(context.Context, relay.ClaimInfo) (relay.Grant, error)
	for _, p := range policies {
		if p.Claim != nil {
			claims = append(claims, p.Claim)
		}
	}
	if claims == nil {
		return nil
	}
	return func(ctx context.Context, info relay.ClaimInfo) (relay.Grant, error) {
		var all relay.Grant
		for _, claim := range claims {
			g, err := claim(ctx, info)
			if err != nil {
				return relay.Grant{}, err
			}
			if all.Expires.IsZero() || !g.Expires.IsZero() && g.Expires.Before(all.Expires) {
				all.Expires = g.Expires
			}
		}
		return all, nil
	}
}
