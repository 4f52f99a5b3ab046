package client

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sotto-relay/sotto/frame"
	"github.com/sotto-relay/sotto/relay/dialect/brep"
	"github.com/sotto-relay/sotto/relay/policy"
	"github.com/sotto-relay/sotto/transport"
)

// A tokenConn presents a token to the relay.
type tokenConn struct {
	transport.Conn
	token string
}

func (c *tokenConn) Value(key any) any {
	if key == transport.TokenKey {
		return c.token
	}
	return c.Conn.Value(key)
}

// dialWithToken is a transport.Dialer of a medium that presents tokens.
func (r *rig) dialWithToken(ctx context.Context) (transport.Conn, error) {
	near, far := r.pipes.New()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.dials++
	r.conns = append(r.conns, near)
	r.server.Speak(r.dialect).HandleConn(&tokenConn{far, transport.TokenOf(ctx)})
	return near, nil
}

// TestCredential: tokens that expire keep a session up when they are renewed in time,
// whatever fails on the way; one that has expired costs a connection; and one that is
// not good ends the Client. None is logged.
func TestCredential(t *testing.T) {
	skipInRace(t)
	const life = time.Hour // of a token
	errSource := errors.New("the source of tokens is down")
	for _, o := range []struct {
		name  string
		renew time.Duration                // after a token was made; zero: never
		fail  func(call int) (bool, error) // a token that is not good, or an error
		calls [2]int                       // in a day: between these
		dials [2]int
	}{
		{"renewed", life / 2, nil, [2]int{47, 49}, [2]int{1, 1}},
		{"each second one fails", life / 2, func(n int) (bool, error) {
			if n%2 == 1 {
				return false, errSource
			}
			return false, nil
		}, [2]int{90, 98}, [2]int{1, 1}},
		{"each second one is refused", life / 2, func(n int) (bool, error) { return n%2 == 1, nil }, [2]int{90, 98}, [2]int{1, 1}},
		{"never", 0, nil, [2]int{24, 24}, [2]int{24, 24}},
		{"too late", 2 * life, nil, [2]int{24, 24}, [2]int{24, 24}},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t)
			r.policy = policy.Tokens(func(_ context.Context, token string) (policy.Authorization, error) {
				ms, err := strconv.ParseInt(token, 10, 64)
				if err != nil {
					return policy.Authorization{}, policy.ErrInvalidToken
				}
				return policy.Authorization{Expires: time.UnixMilli(ms)}, nil
			})
			r.start()
			var log bytes.Buffer
			calls := 0
			c := r.client(identity(t, 1), func(c *Config) {
				c.Dial = r.dialWithToken
				c.Logger = slog.New(slog.NewTextHandler(&log, nil))
				c.Credential = func(context.Context) (string, time.Time, error) {
					n := calls
					calls++
					made := time.Now()
					var renew time.Time
					if o.renew != 0 {
						renew = made.Add(o.renew)
					}
					if o.fail != nil {
						if bad, err := o.fail(n); bad {
							return "secret nonsense", renew, nil
						} else if err != nil {
							return "", time.Time{}, err
						}
					}
					return strconv.FormatInt(made.Add(life).UnixMilli(), 10), renew, nil
				}
			})
			time.Sleep(24*time.Hour - time.Minute)
			send(t, c, identity(t, 2), "still here")
			require.NoError(t, c.Close())
			require.GreaterOrEqual(t, calls, o.calls[0], o.name)
			require.LessOrEqual(t, calls, o.calls[1], o.name)
			require.GreaterOrEqual(t, r.dialled(), o.dials[0], o.name)
			require.LessOrEqual(t, r.dialled(), o.dials[1], o.name)
			require.NotContains(t, log.String(), "secret")
		})
	}
}

// TestCredentialEnds: a token that is refused at the login ends the Client, and a
// source of tokens that fails does not.
func TestCredentialEnds(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.stop()
		r.policy = policy.Tokens(policy.StaticTokens(map[string]policy.Authorization{"good": {}}))
		r.start()
		token, failures := "", 3
		config := &Config{
			Identity: identity(t, 1), Dial: r.dialWithToken, Logger: slog.New(slog.DiscardHandler),
			Credential: func(context.Context) (string, time.Time, error) {
				if failures--; failures >= 0 {
					return "", time.Time{}, errors.New("not now")
				}
				return token, time.Time{}, nil
			},
		}
		for _, token = range []string{"", "bad"} {
			_, err := New(t.Context(), config)
			var re *brep.RelayError
			require.ErrorAs(t, err, &re)
			require.Equal(t, frame.CodeNotAuthenticated, re.Code)
		}
		token, failures = "good", 3
		c, err := New(t.Context(), config)
		require.NoError(t, err)
		require.NoError(t, c.Close())
	})
}
