package policy_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/sotto-relay/sotto/relay"
	"github.com/sotto-relay/sotto/relay/policy"
	"github.com/sotto-relay/sotto/transport"
)

// issued is a Verifier of tokens that say what they are.
func issued(_ context.Context, token string) (policy.Authorization, error) {
	switch token {
	case "minute":
		return policy.Authorization{Expires: time.Now().Add(time.Minute)}, nil
	case "hour":
		return policy.Authorization{Expires: time.Now().Add(time.Hour)}, nil
	case "ever":
		return policy.Authorization{}, nil
	case "now":
		return policy.Authorization{Expires: time.Now()}, nil
	case "past":
		return policy.Authorization{Expires: time.Now().Add(-time.Minute)}, nil
	case "alice's":
		return policy.Authorization{Address: address("alice")}, nil
	case "outage":
		return policy.Authorization{}, errors.New("secret: the database is away")
	case "limited":
		return policy.Authorization{}, &relay.Refusal{Code: relay.CodeRateLimited, Reason: "too many guesses"}
	}
	return policy.Authorization{}, fmt.Errorf("%w: a secret detail", policy.ErrInvalidToken)
}

func TestTokens(t *testing.T) {
	for name, c := range map[string]struct {
		conn, inBand string // tokens
		bye          string // empty: welcome
		code         uint16
	}{
		"none":                  {"", "", "not-authenticated: a token is required", transport.ClosePolicy},
		"with the connection":   {"ever", "", "", 0},
		"in-band":               {"", "ever", "", 0},
		"in-band comes first":   {"wrong", "ever", "", 0},
		"wrong in-band":         {"ever", "wrong", "not-authenticated: the token is not valid", transport.ClosePolicy},
		"wrong":                 {"wrong", "", "not-authenticated: the token is not valid", transport.ClosePolicy},
		"expires later":         {"minute", "", "", 0},
		"expires now":           {"now", "", "not-authenticated: the token has expired", transport.ClosePolicy},
		"expired":               {"past", "", "not-authenticated: the token has expired", transport.ClosePolicy},
		"for somebody else":     {"alice's", "", "denied: the token is for another address", transport.ClosePolicy},
		"verifier's own answer": {"limited", "", "rate-limited: too many guesses", transport.ClosePolicy},
		"verifier failed":       {"outage", "", "internal: internal", transport.CloseInternal},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, policy.Tokens(issued), func(t *testing.T, r *rig) {
				p := r.dial(c.conn)
				p.say("claim bob " + c.inBand)
				if c.bye == "" {
					p.expect("welcome")
					return
				}
				p.expectEnd(c.bye, c.code)
				assert.Zero(t, r.claimed.Load())
			})
		})
	}
	t.Run("for this address", func(t *testing.T) {
		bubble(t, policy.Tokens(issued), func(t *testing.T, r *rig) {
			p := r.dial("alice's")
			p.say("claim alice")
			p.expect("welcome")
		})
	})
}

// TestExpiry: a session lasts as long as the last token that was good.
func TestExpiry(t *testing.T) {
	const expired = "not-authenticated: the authorization has expired"
	for name, c := range map[string]struct {
		first string
		after time.Duration // then
		token string        // is brought, to be
		said  string
		lasts time.Duration // in all; zero: for ever
	}{
		"not renewed":           {first: "minute", lasts: time.Minute},
		"renewed":               {"minute", 59 * time.Second, "hour", "renewed", time.Hour + 59*time.Second},
		"renewed at once":       {"minute", 0, "hour", "renewed", time.Hour},
		"renewed for ever":      {"minute", 59 * time.Second, "ever", "renewed", 0},
		"shortened":             {"hour", time.Second, "minute", "renewed", time.Minute + time.Second},
		"limited":               {"ever", time.Second, "minute", "renewed", time.Minute + time.Second},
		"renewed by a wrong":    {"minute", time.Second, "wrong", "no not-authenticated: the token is not valid", time.Minute},
		"renewed by an expired": {"minute", time.Second, "past", "no not-authenticated: the token has expired", time.Minute},
		"renewed by another's":  {"minute", time.Second, "alice's", "no denied: the token is for another address", time.Minute},
		"ever, then a wrong":    {"ever", time.Second, "wrong", "no not-authenticated: the token is not valid", 0},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, policy.Tokens(issued), func(t *testing.T, r *rig) {
				start := time.Now()
				p := r.dial(c.first)
				p.say("claim bob")
				p.expect("welcome")
				time.Sleep(c.after)
				if c.token != "" {
					p.say("auth " + c.token)
					p.expect(c.said)
				}
				if c.lasts == 0 {
					time.Sleep(24 * time.Hour)
					p.say("send bob still here")
					p.expect("still here")
					return
				}
				time.Sleep(time.Until(start.Add(c.lasts - 1)))
				p.say("send bob still here")
				p.expect("still here")
				p.expectEnd(expired, transport.ClosePolicy)
				assert.Equal(t, c.lasts, time.Since(start))
			})
		})
	}
	t.Run("too late", func(t *testing.T) {
		bubble(t, policy.Tokens(issued), func(t *testing.T, r *rig) {
			p := r.dial("minute")
			p.say("claim bob")
			p.expect("welcome")
			time.Sleep(time.Minute)
			synctest.Wait()
			_, err := p.Write(transport.Text, [][]byte{[]byte("auth hour")})
			assert.Error(t, err)
			p.expectEnd(expired, transport.ClosePolicy)
			assert.Zero(t, r.Stats().Sessions)
		})
	})
	// The old token ends while the verifier thinks about the new one.
	t.Run("renewed on the way", func(t *testing.T) {
		var answer chan struct{}
		slow := func(ctx context.Context, token string) (policy.Authorization, error) {
			if token == "hour" {
				<-answer
			}
			return issued(ctx, token)
		}
		bubble(t, policy.Tokens(slow), func(t *testing.T, r *rig) {
			answer = make(chan struct{})
			p := r.dial("minute")
			p.say("claim bob")
			p.expect("welcome")
			time.Sleep(59 * time.Second)
			p.say("auth hour")
			time.Sleep(time.Second)
			close(answer)
			p.expect("renewed")
			time.Sleep(time.Minute)
			p.say("send bob still here")
			p.expect("still here")
		})
	})
}

func TestStaticTokens(t *testing.T) {
	end := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	tokens := map[string]policy.Authorization{
		"first token":  {Address: address("alice"), Expires: end},
		"second token": {Expires: end.Add(1)},
		"third token":  {Expires: end.Add(2)},
		"":             {},
	}
	verify := policy.StaticTokens(tokens)
	for token, want := range map[string]policy.Authorization{
		"first token":  tokens["first token"],
		"second token": tokens["second token"],
		"third token":  tokens["third token"],
	} {
		got, err := verify(t.Context(), token)
		assert.NoError(t, err)
		assert.Equal(t, want, got)
	}
	for _, token := range []string{"", "first", "first token ", "First token", "fourth token", "\x00"} {
		got, err := verify(t.Context(), token)
		assert.Equal(t, policy.ErrInvalidToken, err, token)
		assert.Zero(t, got)
	}
	delete(tokens, "first token")
	_, err := verify(t.Context(), "first token")
	assert.NoError(t, err, "the map is copied")
	_, err = policy.StaticTokens(nil)(t.Context(), "first token")
	assert.ErrorIs(t, err, policy.ErrInvalidToken)
}
