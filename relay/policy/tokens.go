package policy

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"time"

	"github.com/sotto-relay/sotto/relay"
)

// An Authorization is what a valid token stands for.
type Authorization struct {
	// Address is the only one that the token is good for. Zero: any.
	Address relay.Address

	// Expires is when the token, and with it the session, ends. Zero: never.
	Expires time.Time
}

// A Verifier returns what a token stands for, under the rules of a
// [relay.Policy]: called concurrently, and given up when ctx ends. The token is
// never empty, otherwise as the peer sent it.
//
// It returns ErrInvalidToken, wrapped or not, for a token that is not good. Any
// other error says that it could not find out: the peer is told no more than
// relay.CodeInternal and tries again later, unless the error is a *relay.Refusal
// of its own. The token does not belong into an error, since errors are logged.
type Verifier func(ctx context.Context, token string) (Authorization, error)

// ErrInvalidToken is what a [Verifier] returns for a token that is not good:
// unknown, forged, revoked.
var ErrInvalidToken = errors.New("policy: invalid token")

// Tokens returns the policy that lets a session log in with a token that verify
// accepts: that of the connection or one that came in-band, as the dialect has it
// (spec native.md, "Tokens"). No token, one that is not good and one that has
// expired are refused with relay.CodeNotAuthenticated; one for another address
// with relay.CodeDenied.
//
// A session lasts as long as its token, unless it brings a new one before
// (relay.Port.Renew), which is checked alike. One that is refused changes nothing.
func Tokens(verify Verifier) relay.Policy {
	return relay.Policy{
		Claim: func(ctx context.Context, c relay.ClaimInfo) (relay.Grant, error) {
			if c.Token == "" {
				return relay.Grant{}, notAuthenticated("a token is required", nil)
			}
			auth, err := verify(ctx, c.Token)
			switch {
			case errors.Is(err, ErrInvalidToken):
				return relay.Grant{}, notAuthenticated("the token is not valid", err)
			case err != nil:
				return relay.Grant{}, err
			case auth.Address != relay.Address{} && auth.Address != c.Address:
				return relay.Grant{}, &relay.Refusal{Code: relay.CodeDenied, Reason: "the token is for another address"}
			case !auth.Expires.IsZero() && !time.Now().Before(auth.Expires):
				return relay.Grant{}, notAuthenticated("the token has expired", nil)
			}
			return relay.Grant{Expires: auth.Expires}, nil
		},
	}
}

func notAuthenticated(reason string, err error) *relay.Refusal {
	return &relay.Refusal{Code: relay.CodeNotAuthenticated, Reason: reason, Err: err}
}

// StaticTokens returns the Verifier of a fixed set of tokens. It keeps only their
// SHA-256 hashes, and compares a token's with all of them in constant time, so
// neither its time nor a dump of it tells how close a guess was. That is linear:
// meant for hundreds, not for a database. Tokens are secrets to be drawn at random,
// of 16 bytes at least: the hash is a fast one.
//
// An empty token is never valid. The map is copied.
func StaticTokens(tokens map[string]Authorization) Verifier {
	type known struct {
		hash [sha256.Size]byte
		auth Authorization
	}
	set := make([]known, 0, len(tokens))
	for token, auth := range tokens {
		set = append(set, known{sha256.Sum256([]byte(token)), auth})
	}
	return func(_ context.Context, token string) (Authorization, error) {
		hash := sha256.Sum256([]byte(token))
		found := -1
		for i := range set {
			found = subtle.ConstantTimeSelect(subtle.ConstantTimeCompare(hash[:], set[i].hash[:]), i, found)
		}
		if found < 0 || token == "" {
			return Authorization{}, ErrInvalidToken
		}
		return set[found].auth, nil
	}
}
