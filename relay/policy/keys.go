package policy

import (
	"context"

	"github.com/sotto-relay/sotto/crypto"
	"github.com/sotto-relay/sotto/relay"
)

// AllowKeys returns the policy that lets the holders of these Ed25519 keys log
// in, and nobody else: an address that is not one of them, or no key at all, is
// refused with relay.CodeDenied. Without keys it lets nobody in. For a set that
// changes see [KeyFile].
func AllowKeys(keys ...crypto.PublicKey) relay.Policy {
	set := make(keySet, len(keys))
	for _, k := range keys {
		set[k] = struct{}{}
	}
	return allow(func() keySet { return set })
}

// A keySet is not changed once it is in use.
type keySet map[crypto.PublicKey]struct{}

func (s keySet) has(a relay.Address) bool {
	if a.Realm != relay.RealmBrep || len(a.Name) != len(crypto.PublicKey{}) {
		return false
	}
	_, ok := s[crypto.PublicKey([]byte(a.Name))]
	return ok
}

// allow returns the policy for the set that current returns at the time.
func allow(current func() keySet) relay.Policy {
	return relay.Policy{
		Claim: func(_ context.Context, c relay.ClaimInfo) (relay.Grant, error) {
			if !current().has(c.Address) {
				return relay.Grant{}, &relay.Refusal{Code: relay.CodeDenied, Reason: "this key may not log in here"}
			}
			return relay.Grant{}, nil
		},
	}
}
