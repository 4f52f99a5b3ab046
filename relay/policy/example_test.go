package policy_test

import (
	"context"
	"fmt"
	"log"

	"github.com/sotto-relay/sotto/crypto"
	"github.com/sotto-relay/sotto/relay"
	"github.com/sotto-relay/sotto/relay/policy"
)

// A relay for those who are in a file. Whoever is taken out of it is cut off
// within seconds.
func ExampleKeyFile() {
	serve := func(ctx context.Context) error {
		keys, err := policy.OpenKeyFile("/etc/sotto/keys")
		if err != nil {
			return err
		}
		srv := &relay.Server{Policy: keys.Policy()}
		defer srv.Close()
		keys.Watch(ctx, func(removed []crypto.PublicKey, err error) {
			if err != nil {
				log.Print("the old keys stay: ", err)
			}
			for _, k := range removed {
				srv.Kick(
					relay.Match{Address: relay.Address{Realm: relay.RealmBrep, Name: string(k[:])}},
					&relay.Refusal{Code: relay.CodeDenied, Reason: "this key may not log in here"},
				)
			}
		})
		return nil
	}
	_ = serve
}

// Only with a token, and never to more than a kilobyte.
func ExampleAll() {
	p := policy.All(
		policy.Tokens(policy.StaticTokens(map[string]policy.Authorization{"c2VjcmV0IHNlY3JldCBzZQ": {}})),
		relay.Policy{Send: func(_ context.Context, m relay.SendInfo) error {
			if m.Size > 1024 {
				return &relay.Refusal{Code: relay.CodeTooLarge}
			}
			return nil
		}},
	)
	_, err := p.Claim(context.Background(), relay.ClaimInfo{Token: "a guess"})
	fmt.Println(relay.AsRefusal(err).Sentence())
	fmt.Println(p.Send(context.Background(), relay.SendInfo{Size: 4096}))
	// Output:
	// the token is not valid
	// too-large
}
