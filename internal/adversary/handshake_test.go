package adversary

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sotto-relay/sotto/crypto"
	"github.com/sotto-relay/sotto/frame"
	"github.com/sotto-relay/sotto/handshake"
	"github.com/sotto-relay/sotto/relay/dialect/brep"
	"github.com/sotto-relay/sotto/transport"
	"github.com/sotto-relay/sotto/transport/pipe"
)

// Mallory wants to be Alice, who has logged in with v2 and is connected. Nothing
// she answers gets her in, and Alice's session is left alone (HS-01, HS-05 to
// HS-07, CR-01).
func TestImpersonation(t *testing.T) {
	type attempt struct {
		r         *rig
		challenge *frame.Brep // of Mallory's connection
		other     *frame.Brep // of another connection to the same relay
		alice     *crypto.Identity
		seen      *frame.Brep // the answer that Alice gave on her connection
		answer    answer      // right, but for Mallory's signature
	}
	evil := func(t *testing.T) *crypto.Identity { return identity(t, mallory) }
	as := func(f *frame.Brep, key crypto.PublicKey) *frame.Brep {
		f.Sender = key
		return f
	}
	weak := crypto.PublicKey{1} // of order 1: R = 1, S = 0 verifies everything for it
	weakSignature := [64]byte{1}
	for name, try := range map[string]func(t *testing.T, a *attempt) *frame.Brep{
		"signed by another": func(t *testing.T, a *attempt) *frame.Brep {
			return as(a.answer.signedBy(evil(t)), a.alice.Public())
		},
		"replayed": func(_ *testing.T, a *attempt) *frame.Brep { return a.seen },
		"replayed under this challenge": func(_ *testing.T, a *attempt) *frame.Brep {
			copy(a.seen.Payload, a.challenge.Payload)
			return a.seen
		},
		"for another connection": func(_ *testing.T, a *attempt) *frame.Brep {
			a.answer.challenge = a.other.Payload
			return a.answer.signedBy(a.alice)
		},
		"for another relay": func(t *testing.T, a *attempt) *frame.Brep {
			a.answer.relay = identity(t, evilRelay).Public()
			return a.answer.signedBy(a.alice)
		},
		"as a relay that dialled": func(_ *testing.T, a *attempt) *frame.Brep {
			a.answer.role = byte(handshake.RoleDialler)
			return a.answer.signedBy(a.alice)
		},
		"as a relay that accepted": func(_ *testing.T, a *attempt) *frame.Brep {
			a.answer.role = byte(handshake.RoleAcceptor)
			return a.answer.signedBy(a.alice)
		},
		"in an unknown role": func(_ *testing.T, a *attempt) *frame.Brep {
			a.answer.role = 3
			return a.answer.signedBy(a.alice)
		},
		"in v1, after v2": func(_ *testing.T, a *attempt) *frame.Brep {
			return answerV1(a.challenge.Payload, a.alice) // as a hostile relay could have it from her
		},
		"the challenge reflected": func(_ *testing.T, a *attempt) *frame.Brep { return a.challenge },
		"a challenge of her own": func(t *testing.T, _ *attempt) *frame.Brep {
			return &frame.Brep{Type: frame.TypeHandshake, Sender: evil(t).Public(), Payload: make([]byte, 32)}
		},
		"a confirmation": func(_ *testing.T, a *attempt) *frame.Brep {
			return as(&frame.Brep{Type: frame.TypeHandshake, Payload: []byte{1}}, a.alice.Public())
		},
		"with a weak key, in v1": func(_ *testing.T, a *attempt) *frame.Brep {
			f := as(answerV1(a.challenge.Payload, a.alice), weak)
			f.Signature = weakSignature
			return f
		},
		"with a weak key, in v2": func(_ *testing.T, a *attempt) *frame.Brep {
			f := as(a.answer.signedBy(a.alice), weak)
			f.Signature = weakSignature
			return f
		},
		"without a login": func(_ *testing.T, a *attempt) *frame.Brep {
			return as(dataFrame(a.alice.Public(), "hello"), a.alice.Public())
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				r := newRig(t)
				a := &attempt{r: r, alice: identity(t, alice)}
				tap := &tap{Conn: r.from("198.51.100.1")}
				session := connect(t, tap, a.alice)
				seen, err := frame.DecodeBrep(tap.wrote[0])
				require.NoError(t, err)
				a.seen = &seen

				c, other := r.from("192.0.2.66"), r.from("192.0.2.66")
				a.challenge, a.other = readFrame(t, c), readFrame(t, other)
				a.answer = answer{challenge: a.challenge.Payload, relay: a.challenge.Sender}
				putFrame(t, c, try(t, a))
				assert.Contains(t, []uint16{transport.ClosePolicy, transport.CloseProtocol}, closeOf(t, c))
				exchange(t, session, session, a.alice.Public(), "still there")
				other.Close(transport.CloseNormal, "")
			})
		})
	}
}

// A tap is a Conn that keeps what is written.
type tap struct {
	transport.Conn
	wrote [][]byte
}

func (c *tap) Write(k transport.Kind, msgs [][]byte) (int, error) {
	for _, m := range msgs {
		c.wrote = append(c.wrote, append([]byte(nil), m...))
	}
	return c.Conn.Write(k, msgs)
}

// A hostile relay stands between a client and an honest relay and passes on what
// either says (HS-05, HS-06).
func TestRelayInTheMiddle(t *testing.T) {
	honest, evil := identity(t, honestRelay).Public(), identity(t, evilRelay).Public()
	for _, test := range []struct {
		name   string
		sender crypto.PublicKey // of the challenge, as the client sees it
		expect *crypto.PublicKey
		legacy bool
		client error // what the client says, if it refuses
	}{
		{name: "under its own key", sender: evil},
		{name: "under its own key, pinned", sender: evil, expect: &evil},
		{name: "without a key", sender: crypto.PublicKey{}, client: handshake.ErrLegacyRelay},
		{name: "without a key, legacy allowed, pinned", expect: &honest, legacy: true, client: handshake.ErrLegacyRelay},
		{name: "under the honest key, another is pinned", sender: honest, expect: &evil, client: new(handshake.KeyMismatchError)},
	} {
		t.Run(test.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				r := newRig(t)
				out := r.from("192.0.2.66")
				near, far := pipe.New()
				go func() {
					f := readFrame(t, out)
					f.Sender = test.sender
					_ = put(far, f.Append(nil))
					for {
						_, msg, err := far.Read()
						if err != nil || put(out, msg) != nil {
							break
						}
						if _, msg, err = out.Read(); err != nil || put(far, msg) != nil {
							break
						}
					}
					far.Close(0, "")
					out.Close(0, "")
				}()
				_, err := brep.Connect(context.Background(), near, &brep.ClientOptions{
					Identity: identity(t, alice), Expect: test.expect, AllowLegacy: test.legacy,
				})
				require.Error(t, err)
				var mismatch *handshake.KeyMismatchError
				if _, want := test.client.(*handshake.KeyMismatchError); want {
					assert.ErrorAs(t, err, &mismatch)
				} else if test.client != nil {
					assert.ErrorIs(t, err, test.client)
				}
				synctest.Wait()
				assert.Zero(t, len(sessionsOf(r)), "nobody has logged in at the honest relay")
			})
		})
	}
}

// sessionsOf returns the keys that are logged in.
func sessionsOf(r *rig) (keys []string) {
	for s := range r.server.Sessions() {
		if s.Address.Name != "" {
			keys = append(keys, s.Address.Name)
		}
	}
	return keys
}

// At first contact without a pin, whoever is at the address can be in the middle,
// as SECURITY.md says. The client learns the key, and that it was new.
func TestFirstContactIsReported(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		c := connect(t, r.from("192.0.2.66"), identity(t, alice))
		assert.True(t, c.Relay().FirstContact)
		assert.Equal(t, identity(t, honestRelay).Public(), c.Relay().Key)
		require.NoError(t, c.Close())
	})
}

// Two relays that a stranger pipes into each other do not take each other for
// anything (ME-25).
func TestTwoRelaysPiped(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a, b := newRig(t), newRig(t)
		b.dialect.Identity = identity(t, evilRelay)
		ca, cb := a.from("192.0.2.66"), b.from("192.0.2.66")
		done := make(chan struct{}, 2)
		carry := func(from, to transport.Conn) {
			for {
				_, msg, err := from.Read()
				if err != nil || put(to, msg) != nil {
					break
				}
			}
			to.Close(0, "")
			done <- struct{}{}
		}
		go carry(ca, cb)
		go carry(cb, ca)
		<-done
		<-done
		synctest.Wait()
		assert.Empty(t, sessionsOf(a))
		assert.Empty(t, sessionsOf(b))
		assert.Zero(t, a.server.Stats().Sessions+b.server.Stats().Sessions)
	})
}

// Who is logged in can write under no other name, and Alice hears nothing.
func TestSpoofedSender(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		a := connect(t, r.from("198.51.100.1"), identity(t, alice))
		c := r.from("192.0.2.66")
		challenge := readFrame(t, c)
		putFrame(t, c, (&answer{challenge: challenge.Payload, relay: challenge.Sender}).signedBy(identity(t, mallory)))
		readFrame(t, c)
		f := dataFrame(identity(t, alice).Public(), "I am Bob")
		f.Sender = identity(t, bob).Public()
		putFrame(t, c, f)
		assert.Equal(t, uint16(transport.ClosePolicy), closeOf(t, c))
		exchange(t, a, a, identity(t, alice).Public(), "the first that comes")
		assert.Equal(t, uint64(1), r.server.Stats().Ignored["brep: spoofed sender"])
	})
}
