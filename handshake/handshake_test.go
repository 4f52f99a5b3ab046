package handshake

import (
	"reflect"
	"strings"
	"testing"

	"github.com/sotto-relay/sotto/crypto"
	"github.com/sotto-relay/sotto/frame"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestClientLogsIn(t *testing.T) {
	relay, id := testIdentity(t, 1), testIdentity(t, 2)
	key := relay.Public()
	for name, expect := range map[string]*crypto.PublicKey{"first contact": nil, "expected": &key} {
		t.Run(name, func(t *testing.T) {
			const features = FeatureDurable | 1<<31
			a := newAcceptor(t, &AcceptorConfig{Identity: relay, Features: features, RequireV2: true})
			// Legacy relays being allowed changes nothing for one that speaks v2.
			c := NewClient(&ClientConfig{Identity: id, Expect: expect, AllowLegacy: true})

			answer := must(t, c, a.Challenge())
			requireNoPeer(t, a)
			confirm := must(t, a, answer)
			p, ok := a.Peer()
			require.True(t, ok)
			assert.Equal(t, Peer{Key: id.Public(), Role: RoleClient, Version: 2}, p)
			assert.True(t, a.Done())

			_, ok = c.Relay()
			require.False(t, ok)
			assert.Nil(t, must(t, c, confirm))
			r, ok := c.Relay()
			require.True(t, ok)
			assert.Equal(t, Relay{Key: key, Version: 2, Features: features, FirstContact: expect == nil}, r)
		})
	}
}

// The relay's own key as a client's: as good as any other.
func TestClientWithRelayKeyLogsIn(t *testing.T) {
	id := testIdentity(t, 1)
	a := newAcceptor(t, &AcceptorConfig{Identity: id})
	c := NewClient(&ClientConfig{Identity: id})
	must(t, c, must(t, a, must(t, c, a.Challenge())))
	assert.True(t, a.Done())
}

func TestRelaysLink(t *testing.T) {
	accepting, dialling := testIdentity(t, 1), testIdentity(t, 2)
	asked := 0
	a := newAcceptor(t, &AcceptorConfig{Identity: accepting, Features: 5, AdmitRelay: func(k crypto.PublicKey) bool {
		asked++
		return k == dialling.Public()
	}})
	d := newDialler(t, &DiallerConfig{Identity: dialling, Features: 6})

	// Both challenges cross.
	answerOfA := must(t, a, d.Challenge())
	answerOfD := must(t, d, a.Challenge())
	assert.Equal(t, 1, asked)
	requireNoPeer(t, a)

	confirmOfA := must(t, a, answerOfD)
	p, ok := a.Peer()
	require.True(t, ok)
	assert.Equal(t, Peer{Key: dialling.Public(), Role: RoleDialler, Version: 2}, p)
	assert.False(t, a.Done(), "the confirmation of the relay is owed")

	confirmOfD := must(t, d, answerOfA)
	_, ok = d.Relay()
	assert.False(t, ok, "the confirmation of the relay is owed")

	assert.Nil(t, must(t, a, confirmOfD))
	assert.True(t, a.Done())
	p, _ = a.Peer()
	assert.Equal(t, Peer{Key: dialling.Public(), Role: RoleDialler, Version: 2, Features: 6}, p)

	assert.Nil(t, must(t, d, confirmOfA))
	r, ok := d.Relay()
	require.True(t, ok)
	assert.Equal(t, Relay{Key: accepting.Public(), Version: 2, Features: 5, FirstContact: true}, r)
}

func TestRandomnessFails(t *testing.T) {
	relay, id := testIdentity(t, 1), testIdentity(t, 2)
	_, err := NewAcceptor(&AcceptorConfig{Identity: relay, Rand: failingReader{}})
	requireCode(t, frame.CodeInternal, err)
	require.ErrorIs(t, err, errRandom)
	_, err = NewDialler(&DiallerConfig{Identity: relay, Rand: failingReader{}})
	requireCode(t, frame.CodeInternal, err)

	// Enough for a challenge, or for nothing, and none left for the nonce.
	for name, m := range map[string]machine{
		"acceptor": newAcceptor(t, &AcceptorConfig{Identity: relay, Rand: random(make([]byte, 32)), AdmitRelay: admitAll}),
		"dialler":  newDialler(t, &DiallerConfig{Identity: relay, Rand: random(make([]byte, 32))}),
		"client":   NewClient(&ClientConfig{Identity: relay, Rand: failingReader{}}),
	} {
		t.Run(name, func(t *testing.T) {
			before := state(m)
			reply, err := m.Receive(newDialler(t, &DiallerConfig{Identity: id}).Challenge())
			requireCode(t, frame.CodeInternal, err)
			assert.Nil(t, reply)
			assert.Equal(t, before, state(m))
		})
	}
}

// A stage is a machine that waits for a message.
type stage struct {
	name string
	make func(t testing.TB) (m machine, right *frame.Brep)
}

// stages returns every machine in every state in which it waits for something
// that is signed.
func stages() []stage {
	type pair struct {
		a *Acceptor
		d *Dialler
	}
	link := func(t testing.TB) pair {
		return pair{
			newAcceptor(t, &AcceptorConfig{Identity: testIdentity(t, 1), AdmitRelay: admitAll}),
			newDialler(t, &DiallerConfig{Identity: testIdentity(t, 2)}),
		}
	}
	return []stage{
		{"acceptor, v1 answer", func(t testing.TB) (machine, *frame.Brep) {
			a := newAcceptor(t, &AcceptorConfig{Identity: testIdentity(t, 1)})
			return a, v1Answer(a.challenge[:], testIdentity(t, 2))
		}},
		{"acceptor, v2 answer", func(t testing.TB) (machine, *frame.Brep) {
			a := newAcceptor(t, &AcceptorConfig{Identity: testIdentity(t, 1)})
			return a, must(t, NewClient(&ClientConfig{Identity: testIdentity(t, 2)}), a.Challenge())
		}},
		{"client, confirmation", func(t testing.TB) (machine, *frame.Brep) {
			a := newAcceptor(t, &AcceptorConfig{Identity: testIdentity(t, 1)})
			c := NewClient(&ClientConfig{Identity: testIdentity(t, 2)})
			return c, must(t, a, must(t, c, a.Challenge()))
		}},
		{"acceptor, relay's answer", func(t testing.TB) (machine, *frame.Brep) {
			p := link(t)
			must(t, p.a, p.d.Challenge())
			return p.a, must(t, p.d, p.a.Challenge())
		}},
		{"acceptor, relay's confirmation", func(t testing.TB) (machine, *frame.Brep) {
			p := link(t)
			answer := must(t, p.a, p.d.Challenge())
			must(t, p.a, must(t, p.d, p.a.Challenge()))
			return p.a, must(t, p.d, answer)
		}},
		{"dialler, relay's answer", func(t testing.TB) (machine, *frame.Brep) {
			p := link(t)
			must(t, p.d, p.a.Challenge())
			return p.d, must(t, p.a, p.d.Challenge())
		}},
		{"dialler, relay's confirmation", func(t testing.TB) (machine, *frame.Brep) {
			p := link(t)
			answer := must(t, p.a, p.d.Challenge())
			confirm := must(t, p.a, must(t, p.d, p.a.Challenge()))
			must(t, p.d, answer)
			return p.d, confirm
		}},
	}
}

func v1Answer(challenge []byte, id *crypto.Identity) *frame.Brep {
	return &frame.Brep{
		Type:      frame.TypeHandshake,
		Sender:    id.Public(),
		Signature: id.Sign(challenge),
		Payload:   challenge,
	}
}

// state returns a copy of what a machine holds.
func state(m machine) any {
	switch m := m.(type) {
	case *Acceptor:
		return *m
	case *Dialler:
		return *m
	default:
		return *m.(*Client)
	}
}

// Flags and id of the header mean nothing in a handshake. Every other bit does.
// (On links one bit of each byte is tried: the codecs are those of the others,
// and the race detector makes signatures slow.)
func TestEveryBitCounts(t *testing.T) {
	for _, s := range stages() {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			m, right := s.make(t)
			encoded := right.Append(nil)
			before := state(m)
			for i := range encoded {
				if i == frame.BrepFlagsOffset || i >= frame.BrepIDOffset && i < frame.BrepIDOffset+16 {
					continue
				}
				for bit := range 8 {
					if strings.Contains(s.name, "relay") && bit != i%8 {
						continue
					}
					encoded[i] ^= 1 << bit
					if f, err := frame.DecodeBrep(encoded); err == nil {
						reply, err := m.Receive(&f)
						require.ErrorAs(t, err, new(*Error), "byte %d, bit %d", i, bit)
						require.Nil(t, reply)
						require.True(t, reflect.DeepEqual(before, state(m)), "byte %d, bit %d changed something", i, bit)
					}
					encoded[i] ^= 1 << bit
				}
			}
			must(t, m, right)
			require.NotEqual(t, before, state(m))
		})
	}
}

// A challenge is not signed: where a bit of it was turned, the answer is refused
// by the relay that made it, if there is one.
func TestChallengeEveryBitCounts(t *testing.T) {
	a := newAcceptor(t, &AcceptorConfig{Identity: testIdentity(t, 1)})
	encoded := a.Challenge().Append(nil)
	for i := range encoded {
		if i == frame.BrepFlagsOffset || i >= frame.BrepIDOffset && i < frame.BrepIDOffset+16 {
			continue
		}
		for bit := range 8 {
			encoded[i] ^= 1 << bit
			if f, err := frame.DecodeBrep(encoded); err == nil {
				if answer, err := NewClient(&ClientConfig{Identity: testIdentity(t, 2)}).Receive(&f); err == nil {
					_, err := a.Receive(answer)
					requireCode(t, frame.CodeNotAuthenticated, err)
				}
			}
			encoded[i] ^= 1 << bit
		}
	}
	requireNoPeer(t, a)
	c := NewClient(&ClientConfig{Identity: testIdentity(t, 2)})
	must(t, a, must(t, c, a.Challenge()))
}

// No stage takes what another stage waits for, the same message twice, or
// anything that is not of the handshake; and it goes on afterwards.
func TestOutOfTurn(t *testing.T) {
	all := stages()
	for _, s := range all {
		t.Run(s.name, func(t *testing.T) {
			m, right := s.make(t)
			before := state(m)
			refuse := func(f *frame.Brep, why string) {
				t.Helper()
				reply, err := m.Receive(f)
				require.ErrorAs(t, err, new(*Error), why)
				require.Nil(t, reply, why)
				require.Equal(t, before, state(m), why)
			}
			for _, other := range all {
				_, f := other.make(t)
				refuse(f, other.name)
			}
			for typ := range 256 {
				if frame.Type(typ) != frame.TypeHandshake {
					f := clone(t, right)
					f.Type = frame.Type(typ)
					_, err := m.Receive(f)
					requireCode(t, frame.CodeNotAuthenticated, err)
				}
			}
			for n := range 200 {
				if n != len(right.Payload) {
					f := clone(t, right)
					f.Payload = append(f.Payload, make([]byte, 200)...)[:n]
					refuse(f, "other length")
				}
			}
			if _, first := m.(*Acceptor); !first || before.(Acceptor).link != nil {
				refuse(newDialler(t, &DiallerConfig{Identity: testIdentity(t, 2)}).Challenge(), "a challenge")
				refuse(newDialler(t, &DiallerConfig{Identity: testIdentity(t, 3)}).Challenge(), "a challenge of a stranger")
			}
			must(t, m, right)

			before = state(m)
			refuse(right, "twice")
			refuse(&frame.Brep{Type: frame.TypeHandshake}, "empty")
		})
	}
}
