package brep

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sotto-relay/sotto/crypto"
	"github.com/sotto-relay/sotto/frame"
	"github.com/sotto-relay/sotto/handshake"
	"github.com/sotto-relay/sotto/internal/vectors"
	"github.com/sotto-relay/sotto/transport"
	"github.com/sotto-relay/sotto/transport/pipe"
)

// TestVectorsV1: the answer to a legacy relay is this one, byte for byte.
func TestVectorsV1(t *testing.T) {
	type vector struct {
		Seed, Challenge string
		ResponseFrame   string `json:"response_frame"`
	}
	for _, v := range vectors.Cases[vector](t, "brep_handshake_v1.json") {
		synctest.Test(t, func(t *testing.T) {
			id, err := crypto.IdentityFromSeed(vectors.Unhex(t, v.Seed))
			require.NoError(t, err)
			near, far := pipe.New()
			r := &fakeRelay{t, far}
			var wg sync.WaitGroup
			wg.Go(func() {
				r.write(&frame.Brep{Type: frame.TypeHandshake, Payload: vectors.Unhex(t, v.Challenge)})
				answer := r.read()
				require.Equal(t, vectors.Unhex(t, v.ResponseFrame), answer.Append(nil))
				r.write(&frame.Brep{Type: frame.TypeHandshake, Payload: []byte{1}})
			})
			c, err := Connect(t.Context(), near, &ClientOptions{Identity: id, AllowLegacy: true})
			require.NoError(t, err)
			wg.Wait()
			require.NoError(t, c.Close())
		})
	}
}

// TestConnectFails: the error says why, and the conn is closed.
func TestConnectFails(t *testing.T) {
	pin := identity(t, relaySeed).Public()
	other := identity(t, 9).Public()
	isA := func(target error) func(*testing.T, error) {
		return func(t *testing.T, err error) { require.ErrorIs(t, err, target) }
	}
	for _, c := range []struct {
		name   string
		o      ClientOptions
		relay  func(r *fakeRelay)
		check  func(*testing.T, error)
		closed uint16 // with what the relay sees it closed; zero: it closed itself
	}{
		{"legacy relay", ClientOptions{}, func(r *fakeRelay) {
			r.write(&frame.Brep{Type: frame.TypeHandshake, Payload: make([]byte, 32)})
		}, isA(handshake.ErrLegacyRelay), 1008},
		{"HS-06: the sender of a pinned relay zeroed", ClientOptions{Expect: &pin, AllowLegacy: true}, func(r *fakeRelay) {
			r.write(&frame.Brep{Type: frame.TypeHandshake, Payload: make([]byte, 32)})
		}, isA(handshake.ErrLegacyRelay), 1008},
		{"another key than pinned", ClientOptions{Expect: &other}, func(r *fakeRelay) {
			r.write(&frame.Brep{Type: frame.TypeHandshake, Sender: pin, Payload: make([]byte, 32)})
		}, func(t *testing.T, err error) {
			var e *handshake.KeyMismatchError
			require.ErrorAs(t, err, &e)
		}, 1008},
		{"no challenge", ClientOptions{}, func(r *fakeRelay) {
			r.write(&frame.Brep{Type: frame.TypeHandshake, Sender: pin, Payload: make([]byte, 31)})
		}, func(t *testing.T, err error) {
			var e *handshake.Error
			require.ErrorAs(t, err, &e)
			require.Equal(t, frame.CodeMalformed, e.Code)
		}, 1002},
		{"no frame", ClientOptions{}, func(r *fakeRelay) {
			_, err := r.conn.Write(transport.Binary, [][]byte{[]byte("HTTP/1.1 400 Bad Request")})
			require.NoError(r.t, err)
		}, isA(frame.ErrMalformed), 1002},
		{"text", ClientOptions{}, func(r *fakeRelay) {
			_, err := r.conn.Write(transport.Text, [][]byte{[]byte("{}")})
			require.NoError(r.t, err)
		}, isA(errText), 1003},
		{"refused with a close", ClientOptions{}, func(r *fakeRelay) {
			_ = r.conn.Close(transport.CloseTryLater, "overloaded")
		}, func(t *testing.T, err error) {
			require.Equal(t, &RelayError{Code: frame.CodeOverloaded, Reason: "overloaded"}, err)
		}, 0},
		{"refused with an ERROR", ClientOptions{}, func(r *fakeRelay) {
			e := frame.Error{Code: frame.CodeDenied, Sentence: "members only"}
			r.write(&frame.Brep{Type: frame.TypeError, Payload: e.Append(nil)})
		}, func(t *testing.T, err error) {
			require.Equal(t, &RelayError{Code: frame.CodeDenied, Reason: "members only"}, err)
		}, 1000},
		{"gone", ClientOptions{}, func(r *fakeRelay) { _ = r.conn.Close(0, "") },
			func(t *testing.T, err error) { require.ErrorContains(t, err, "connection lost") }, 0},
		{"silence", ClientOptions{HandshakeTimeout: time.Second}, func(*fakeRelay) {},
			isA(context.DeadlineExceeded), 1000},
		{"silence after the challenge", ClientOptions{}, func(r *fakeRelay) {
			r.write(&frame.Brep{Type: frame.TypeHandshake, Sender: pin, Payload: make([]byte, 32)})
			r.read()
		}, isA(context.DeadlineExceeded), 1000},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				near, far := pipe.New()
				r := &fakeRelay{t, far}
				var wg sync.WaitGroup
				wg.Go(func() { c.relay(r) })
				c.o.Identity = identity(t, 1)
				_, err := Connect(t.Context(), near, &c.o)
				require.Error(t, err)
				c.check(t, err)
				wg.Wait()
				if c.closed != 0 {
					require.Equal(t, c.closed, closeOf(t, far))
				}
				_, _, err = near.Read()
				require.Error(t, err)
			})
		})
	}
}

// TestConnectTime: ctx and the timeout end a handshake, whichever is first.
func TestConnectTime(t *testing.T) {
	for _, c := range []struct {
		timeout, ctx, want time.Duration
	}{{0, time.Minute, 10 * time.Second}, {time.Second, time.Minute, time.Second}, {time.Minute, 2 * time.Second, 2 * time.Second}} {
		synctest.Test(t, func(t *testing.T) {
			near, _ := pipe.New()
			ctx, cancel := context.WithTimeout(t.Context(), c.ctx)
			defer cancel()
			start := time.Now()
			_, err := Connect(ctx, near, &ClientOptions{Identity: identity(t, 1), HandshakeTimeout: c.timeout})
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.Equal(t, c.want, time.Since(start))
		})
	}
}

func TestPinned(t *testing.T) {
	bubble(t, nil, func(t *testing.T, r *rig) {
		pin := r.Identity.Public()
		c, err := Connect(t.Context(), r.dial(), &ClientOptions{Identity: identity(t, 1), Expect: &pin})
		require.NoError(t, err)
		require.Equal(t, handshake.Relay{Key: pin, Version: 2}, c.Relay())
	})
}
