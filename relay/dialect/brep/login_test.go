package brep

import (
	"bytes"
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sotto-relay/sotto/crypto"
	"github.com/sotto-relay/sotto/frame"
	"github.com/sotto-relay/sotto/handshake"
	"github.com/sotto-relay/sotto/inbox"
	"github.com/sotto-relay/sotto/relay"
	"github.com/sotto-relay/sotto/transport"
)

// challenge reads the first frame of a connection.
func challenge(t testing.TB, conn transport.Conn) *frame.Brep {
	t.Helper()
	_, msg, err := conn.Read()
	require.NoError(t, err)
	f, err := frame.DecodeBrep(bytes.Clone(msg))
	require.NoError(t, err)
	return &f
}

// answerTo is what a client answers to a challenge, in v1 or v2.
func answerTo(t testing.TB, id *crypto.Identity, f *frame.Brep, version int) *frame.Brep {
	t.Helper()
	q := *f
	if version == 1 {
		q.Sender = [32]byte{}
	}
	reply, err := handshake.NewClient(&handshake.ClientConfig{Identity: id, AllowLegacy: true}).Receive(&q)
	require.NoError(t, err)
	return reply
}

// TestBadAnswers: HS-01, HS-05, HS-07. The session that the key has goes on.
func TestBadAnswers(t *testing.T) {
	for _, version := range []int{1, 2} {
		for _, c := range []struct {
			name   string
			answer func(t *testing.T, r *rig, f *frame.Brep) *frame.Brep
			code   uint16
		}{
			{"signature", func(t *testing.T, r *rig, f *frame.Brep) *frame.Brep {
				a := answerTo(t, identity(t, 1), f, version)
				a.Signature[5] ^= 1
				return a
			}, 1008},
			{"signed by another", func(t *testing.T, r *rig, f *frame.Brep) *frame.Brep {
				a := answerTo(t, identity(t, 2), f, version)
				a.Sender = identity(t, 1).Public()
				return a
			}, 1008},
			{"of another connection", func(t *testing.T, r *rig, f *frame.Brep) *frame.Brep {
				return answerTo(t, identity(t, 1), challenge(t, r.dial()), version)
			}, 1008},
			{"made up", func(t *testing.T, r *rig, f *frame.Brep) *frame.Brep {
				f.Payload = make([]byte, 32)
				return answerTo(t, identity(t, 1), f, version)
			}, 1008},
			{"for the relay in the middle", func(t *testing.T, r *rig, f *frame.Brep) *frame.Brep {
				// A hostile relay passes the challenge on under its own key.
				f.Sender = identity(t, 99).Public()
				return answerTo(t, identity(t, 1), f, 2)
			}, 1008},
			{"the challenge itself", func(t *testing.T, r *rig, f *frame.Brep) *frame.Brep { return f }, 1008},
			{"a challenge of one's own", func(t *testing.T, r *rig, f *frame.Brep) *frame.Brep {
				return &frame.Brep{Type: frame.TypeHandshake, Sender: identity(t, 1).Public(), Payload: make([]byte, 32)}
			}, 1008},
			{"a weak key", func(t *testing.T, r *rig, f *frame.Brep) *frame.Brep {
				a := answerTo(t, identity(t, 1), f, version)
				a.Sender, a.Signature = [32]byte{0: 1}, [64]byte{0: 1}
				return a
			}, 1008},
			{"cut", func(t *testing.T, r *rig, f *frame.Brep) *frame.Brep {
				a := answerTo(t, identity(t, 1), f, version)
				a.Payload = a.Payload[:len(a.Payload)-1]
				return a
			}, 1002},
			{"long", func(t *testing.T, r *rig, f *frame.Brep) *frame.Brep {
				a := answerTo(t, identity(t, 1), f, version)
				a.Payload = append(a.Payload, 0)
				return a
			}, 1002},
		} {
			t.Run(fmt.Sprintf("v%d/%s", version, c.name), func(t *testing.T) {
				bubble(t, nil, func(t *testing.T, r *rig) {
					alice := r.login(identity(t, 1), formExtended)
					if version == 1 { // or v1 would be refused before anything else
						key := alice.id.Public()
						require.NoError(t, r.session(0).port.State().Delete(t.Context(), v2Bucket, string(key[:])))
					}
					conn := r.dial()
					answer := c.answer(t, r, challenge(t, conn))
					_, err := conn.Write(0, [][]byte{answer.Append(nil)})
					require.NoError(t, err)
					_, _, err = conn.Read()
					var ce *transport.CloseError
					require.ErrorAs(t, err, &ce, "neither confirmation nor ERROR")
					require.Equal(t, c.code, ce.Code)

					alice.data(alice.id, "still here")
					require.Equal(t, "still here", alice.text())
				})
			})
		}
	}
}

// TestNoAnswer: HS-04. Connections that say nothing are gone after 10 s.
func TestNoAnswer(t *testing.T) {
	bubble(t, func(r *rig) { r.server.Limits.Unmetered = true }, func(t *testing.T, r *rig) {
		const n = 1000
		start := time.Now()
		var conns []transport.Conn
		for range n {
			conns = append(conns, r.dial())
		}
		time.Sleep(10*time.Second - 1)
		synctest.Wait()
		require.Equal(t, n, r.server.Stats().Sessions)
		for _, c := range conns {
			challenge(t, c)
			require.EqualValues(t, transport.CloseTryLater, closeOf(t, c))
		}
		require.Equal(t, 10*time.Second, time.Since(start))
		synctest.Wait()
		require.Zero(t, r.server.Stats().Sessions)
	})
}

func TestConfirmation(t *testing.T) {
	for _, durable := range []bool{false, true} {
		bubble(t, func(r *rig) { r.Durable = durable }, func(t *testing.T, r *rig) {
			got := r.login(identity(t, 1), formExtended).Relay()
			want := handshake.Relay{Key: r.Identity.Public(), Version: 2, FirstContact: true}
			if durable {
				want.Features = handshake.FeatureDurable
			}
			require.Equal(t, want, got)
			require.Equal(t, handshake.Relay{Version: 1}, r.login(identity(t, 2), formLegacy).Relay())
		})
	}
}

func TestRequireV2(t *testing.T) {
	bubble(t, func(r *rig) { r.RequireV2 = true }, func(t *testing.T, r *rig) {
		_, err := r.tryLogin(identity(t, 1), formLegacy)
		requireRelayError(t, err, frame.CodeDenied)
		r.login(identity(t, 1), formExtended)
	})
}

func requireRelayError(t testing.TB, err error, code frame.Code) {
	t.Helper()
	var re *RelayError
	require.ErrorAs(t, err, &re)
	require.Equal(t, code, re.Code)
}

// TestNoWayBackToV1: HS-06, over a restart too, until the operator lifts it.
func TestNoWayBackToV1(t *testing.T) {
	state := inbox.NewMemoryState(nil)
	withState := func(r *rig) { r.server.State = state }
	alice := identity(t, 1)
	key := alice.Public()
	bubble(t, withState, func(t *testing.T, r *rig) {
		r.login(alice, formLegacy)
		r.login(alice, formLegacy)
		r.login(alice, formExtended)
		_, err := r.tryLogin(alice, formLegacy)
		requireRelayError(t, err, frame.CodeDenied)
		r.login(identity(t, 2), formLegacy)
	})
	bubble(t, withState, func(t *testing.T, r *rig) {
		_, err := r.tryLogin(alice, formLegacy)
		requireRelayError(t, err, frame.CodeDenied)
		require.NoError(t, state.Delete(t.Context(), v2Bucket, string(key[:])))
		r.login(alice, formLegacy)
	})
}

// TestV1NeedsTheState: without an answer from the store nobody goes back to v1,
// and v2 goes on.
func TestV1NeedsTheState(t *testing.T) {
	state := inbox.NewMemoryState(nil)
	require.NoError(t, state.Close())
	bubble(t, func(r *rig) { r.server.State = state }, func(t *testing.T, r *rig) {
		_, err := r.tryLogin(identity(t, 1), formLegacy)
		requireRelayError(t, err, frame.CodeDenied)
		r.login(identity(t, 1), formExtended)
		require.EqualValues(t, 3, r.server.Stats().Ignored["brep: state store failed"], "keys twice, blocks once")
	})
}

// TestTakeover: the newest login of a key has it, unless it is the weaker one.
func TestTakeover(t *testing.T) {
	for _, c := range []struct {
		old, new uint8
		refused  bool
	}{
		{formLegacy, formLegacy, false},
		{formLegacy, formExtended, false},
		{formExtended, formExtended, false},
		{formExtended, formLegacy, true},
	} {
		t.Run(formNames[c.old]+" by "+formNames[c.new], func(t *testing.T) {
			bubble(t, nil, func(t *testing.T, r *rig) {
				alice, bob := identity(t, 1), r.login(identity(t, 2), formExtended)
				old := r.login(alice, c.old)
				key := alice.Public()
				// As if the record had been lifted, or pushed out.
				require.NoError(t, r.session(0).port.State().Delete(t.Context(), v2Bucket, string(key[:])))
				p, err := r.tryLogin(alice, c.new)
				if c.refused {
					requireRelayError(t, err, frame.CodeDenied)
					bob.data(alice, "to the old one")
					require.Equal(t, "to the old one", old.text())
					return
				}
				require.NoError(t, err)
				if c.old == formExtended {
					require.Equal(t, frame.CodeReplaced, old.error().Code)
				}
				code, err := old.closed()
				require.EqualValues(t, transport.ClosePolicy, code)
				var re *RelayError
				require.ErrorAs(t, err, &re)
				require.True(t, re.Final())
				bob.data(alice, "to the new one")
				require.Equal(t, "to the new one", p.text())
			})
		})
	}
}

func TestTrimV2(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, state := t.Context(), inbox.NewMemoryState(nil)
		start := time.Now()
		for i := range 100 {
			// The last two have the same time, and one of them has none that is one.
			at := start.Add(-time.Duration(i/2) * time.Hour)
			require.NoError(t, state.Put(ctx, v2Bucket, fmt.Sprintf("%02d", i), encodeTime(at)))
		}
		require.NoError(t, state.Put(ctx, v2Bucket, "damaged", []byte{1}))
		require.NoError(t, state.Put(ctx, "another", "99", nil))
		keys := func() (list []string) {
			for it, err := range state.Range(ctx, v2Bucket, "") {
				require.NoError(t, err)
				list = append(list, it.Key)
			}
			return list
		}
		require.NoError(t, trim(ctx, state, v2Bucket, 101))
		require.Len(t, keys(), 101)
		require.NoError(t, trim(ctx, state, v2Bucket, 100))
		require.NotContains(t, keys(), "damaged")
		require.NoError(t, trim(ctx, state, v2Bucket, 11))
		require.Len(t, keys(), 11, "the bound holds exactly, also among equals")
		require.Equal(t, "09", keys()[9])
		_, ok, err := state.Get(ctx, "another", "99")
		require.NoError(t, err)
		require.True(t, ok)
	})
}

// TestLastUse: a login a day writes, and no more.
func TestLastUse(t *testing.T) {
	state := &countingState{State: inbox.NewMemoryState(nil)}
	bubble(t, func(r *rig) { r.server.State = state }, func(t *testing.T, r *rig) {
		for _, c := range []struct {
			after time.Duration
			puts  int
		}{{0, 1}, {0, 1}, {23 * time.Hour, 1}, {2 * time.Hour, 2}, {time.Hour, 2}} {
			time.Sleep(c.after)
			r.login(identity(t, 1), formExtended)
			require.Equal(t, c.puts, state.puts)
		}
	})
}

type countingState struct {
	relay.State
	puts int
}

func (s *countingState) Put(ctx context.Context, bucket, key string, value []byte) error {
	s.puts++
	return s.State.Put(ctx, bucket, key, value)
}
