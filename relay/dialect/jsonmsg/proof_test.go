package jsonmsg

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sotto-relay/sotto/crypto"
	"github.com/sotto-relay/sotto/relay"
)

// withProofs gives the relay an identity.
func withProofs(r *rig) {
	id, err := crypto.IdentityFromSeed(bytes.Repeat([]byte{7}, 32))
	require.NoError(r.t, err)
	r.Identity = id
}

// holder returns key number n, and its public half in base64.
func holder(t testing.TB, n byte) (*crypto.X25519PrivateKey, string) {
	key, err := crypto.NewX25519PrivateKey(bytes.Repeat([]byte{n}, 32))
	require.NoError(t, err)
	return key, key.Public().String()
}

// opened is what a challenge says.
type opened struct {
	relay, epk, plain []byte
}

// open hears a challenge and opens it.
func (p *peer) open(key *crypto.X25519PrivateKey) opened {
	p.t.Helper()
	msg := p.hear()
	require.True(p.t, strings.HasPrefix(msg, `{"t":"challenge","relay":"`), msg)
	var c struct{ Relay, EPK, Nonce, Box []byte }
	require.NoError(p.t, json.Unmarshal([]byte(msg), &c))
	require.Len(p.t, c.EPK, 32)
	plain, err := crypto.OpenBox(key, crypto.X25519Key(c.EPK), c.Nonce, c.Box)
	require.NoError(p.t, err)
	return opened{c.Relay, c.EPK, plain}
}

func proofOf(secret []byte) string {
	return `{"t":"proof","proof":"` + base64.StdEncoding.EncodeToString(secret) + `"}`
}

// TestProof: spec json.md, "register", "With proof".
func TestProof(t *testing.T) {
	bubble(t, withProofs, func(t *testing.T, r *rig) {
		key, pub := holder(t, 1)
		register := `{"t":"register","pubkey":"` + pub + `"`
		registered := `{"t":"registered","addr":"` + key.Public().Address() + `","queued":0}`
		p := r.peer("a")

		p.say(register + `}`)
		require.Equal(t, registered, p.hear(), "not proven yet, and not required")
		p.say(register + `,"prove":true}`)
		first := p.open(key)
		require.Len(t, first.plain, 84)
		assert.Equal(t, "sotto json proof v1\x00", string(first.plain[:20]))
		relay := r.Identity.Public()
		assert.Equal(t, relay[:], first.plain[20:52])
		assert.Equal(t, relay[:], first.relay)

		// A new one has a new key and a new secret, and is the one that counts.
		p.say(register + `,"prove":true}`)
		second := p.open(key)
		assert.NotEqual(t, first.epk, second.epk)
		assert.NotEqual(t, first.plain[52:], second.plain[52:])
		p.say(proofOf(second.plain[52:]))
		require.Equal(t, registered, p.hear())

		// From now on only with proof, with every address.
		for _, addr := range []string{"", `,"addr":"alice"`, `,"addr":"bob","prove":false`} {
			q := r.peer("b" + addr)
			q.say(register + addr + `}`)
			c := q.open(key)
			q.say(`{"t":"send","to":"x"}`)
			require.Equal(t, `{"t":"error","msg":"not registered"}`, q.hear())
			q.say(proofOf(c.plain[52:]))
			require.Contains(t, q.hear(), `{"t":"registered","addr":"`)
		}
		msg, _ := p.next(time.Second)
		require.Equal(t, `{"t":"error","msg":"address taken over by a new connection"}`, msg)

		// A proof that nobody asked for.
		q := r.peers["b"]
		q.say(proofOf(second.plain[52:]))
		require.Equal(t, `{"t":"error","msg":"proof failed"}`, q.hear())
		q.silent(time.Minute)
	})
}

func TestProofFails(t *testing.T) {
	key, pub := holder(t, 1)
	for name, answer := range map[string]func(plain []byte) string{
		"another secret":    func(plain []byte) string { return proofOf(make([]byte, 32)) },
		"one bit":           func(plain []byte) string { plain[83] ^= 1; return proofOf(plain[52:]) },
		"too short":         func(plain []byte) string { return proofOf(plain[52:83]) },
		"too long":          func(plain []byte) string { return proofOf(append(plain[52:], 0)) },
		"all of it":         proofOf,
		"empty":             func([]byte) string { return proofOf(nil) },
		"and a newline":     func(plain []byte) string { return strings.Replace(proofOf(plain[52:]), `="`, `=\n"`, 1) },
		"with an id":        func([]byte) string { return `{"t":"proof","proof":"?","id":"m1"}` },
		"not base64":        func([]byte) string { return `{"t":"proof","proof":"?"}` },
		"hex":               func(plain []byte) string { return `{"t":"proof","proof":"` + hex.EncodeToString(plain[52:]) + `"}` },
		"too late":          func(plain []byte) string { time.Sleep(10 * time.Second); return "" },
		"late by a message": func(plain []byte) string { time.Sleep(10*time.Second + 1); return proofOf(plain[52:]) },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, withProofs, func(t *testing.T, r *rig) {
				p := r.peer("a")
				p.say(`{"t":"register","pubkey":"` + pub + `","prove":true}`)
				c := p.open(key)
				if msg := answer(c.plain); msg != "" {
					_, _ = p.Write(1, [][]byte{[]byte(msg)}) // the connection may have ended
				}
				failed := `{"t":"error","msg":"proof failed"}`
				if name == "with an id" {
					failed = `{"t":"error","msg":"proof failed","id":"m1"}`
				}
				require.Equal(t, failed, p.hear())
				require.EqualValues(t, 1008, p.closed())
				// It has not become a proven key.
				q := r.peer("b")
				q.say(`{"t":"register","pubkey":"` + pub + `"}`)
				require.Equal(t, `{"t":"registered","addr":"`+key.Public().Address()+`","queued":0}`, q.hear())
			})
		})
	}
}

// TestProofInTime: the time limit ends with the proof, and a failed registration
// does not end one that waits.
func TestProofInTime(t *testing.T) {
	bubble(t, withProofs, func(t *testing.T, r *rig) {
		key, pub := holder(t, 1)
		p := r.peer("a")
		p.say(`{"t":"register","addr":"alice","pubkey":"` + pub + `","prove":true}`)
		c := p.open(key)
		time.Sleep(10*time.Second - time.Millisecond)
		p.say(`{"t":"register"}`)
		require.Equal(t, `{"t":"error","msg":"addr or pubkey required"}`, p.hear())
		p.say(`{"t":"proof"}`)
		require.Equal(t, `{"t":"error","msg":"invalid field: proof"}`, p.hear())
		p.say(proofOf(c.plain[52:]))
		require.Equal(t, `{"t":"registered","addr":"alice","queued":0}`, p.hear())
		p.silent(time.Minute)

		// The name belongs to the key that was proven, and not before.
		_, other := holder(t, 2)
		q := r.peer("b")
		q.say(`{"t":"register","addr":"alice","pubkey":"` + other + `","prove":true}`)
		require.Equal(t, `{"t":"error","msg":"alias bound to a different key"}`, q.hear())
		q.say(`{"t":"register","addr":"bob","pubkey":"` + other + `","prove":true}`)
		require.Contains(t, q.hear(), `"challenge"`)
		delete(r.peers, "b")
		r.play(`c > {"t":"register","addr":"bob","pubkey":"` + key1 + `"}
			c < {"t":"registered","addr":"bob","queued":0}`)
	})
}

// TestProvenStays: a key stays proven as long as it is used, and so long after.
func TestProvenStays(t *testing.T) {
	bubble(t, func(r *rig) { withProofs(r); r.AliasTTL = time.Hour }, func(t *testing.T, r *rig) {
		key, pub := holder(t, 1)
		p := r.peer("a")
		p.say(`{"t":"register","addr":"alice","pubkey":"` + pub + `","prove":true}`)
		p.say(proofOf(p.open(key).plain[52:]))
		require.Equal(t, `{"t":"registered","addr":"alice","queued":0}`, p.hear())
		challenged := func() bool {
			q := r.dial()
			defer q.Close(0, "")
			z := peer{Conn: q, t: t}
			z.say(`{"t":"register","pubkey":"` + pub + `"}`)
			return strings.HasPrefix(z.hear(), `{"t":"challenge"`)
		}
		time.Sleep(2 * time.Hour)
		require.True(t, challenged())
		_ = p.Close(0, "")
		time.Sleep(59 * time.Minute)
		require.True(t, challenged())
		time.Sleep(2 * time.Minute)
		require.False(t, challenged())
	})
}

// TestChallengeDropped: a registration that needs no proof takes the place of one
// that waits for its own.
func TestChallengeDropped(t *testing.T) {
	bubble(t, withProofs, func(t *testing.T, r *rig) {
		key, pub := holder(t, 1)
		p := r.peer("a")
		p.say(`{"t":"register","pubkey":"` + pub + `","prove":true}`)
		c := p.open(key)
		p.say(`{"t":"register","addr":"alice"}`)
		require.Equal(t, `{"t":"registered","addr":"alice","queued":0}`, p.hear())
		p.silent(time.Minute)
		p.say(proofOf(c.plain[52:]))
		require.Equal(t, `{"t":"error","msg":"proof failed"}`, p.hear())
	})
}

// TestRefusedWhileProving: a registration that is refused changes nothing, also for one
// that waits for its proof.
func TestRefusedWhileProving(t *testing.T) {
	bubble(t, func(r *rig) {
		withProofs(r)
		r.server.Policy.Claim = func(_ context.Context, c relay.ClaimInfo) (relay.Grant, error) {
			if c.Address.Name == "private" {
				return relay.Grant{}, &relay.Refusal{Code: relay.CodeDenied, Reason: "not for you"}
			}
			return relay.Grant{}, nil
		}
	}, func(t *testing.T, r *rig) {
		key, pub := holder(t, 1)
		p := r.peer("a")
		p.say(`{"t":"register","addr":"alice","pubkey":"` + pub + `","prove":true}`)
		c := p.open(key)
		p.say(`{"t":"register","addr":"private"}`)
		require.Equal(t, `{"t":"error","msg":"not for you"}`, p.hear())
		p.say(proofOf(c.plain[52:]))
		require.Equal(t, `{"t":"registered","addr":"alice","queued":0}`, p.hear())
	})
}

// TestRequireProof: the operator can require it for every key.
func TestRequireProof(t *testing.T) {
	bubble(t, func(r *rig) { withProofs(r); r.RequireProof = true }, func(t *testing.T, r *rig) {
		key, pub := holder(t, 1)
		r.as("alice") // without a key there is nothing to prove
		p := r.peer("a")
		p.say(`{"t":"register","pubkey":"` + pub + `"}`)
		p.say(proofOf(p.open(key).plain[52:]))
		require.Equal(t, `{"t":"registered","addr":"`+key.Public().Address()+`","queued":0}`, p.hear())
	})
}

// TestNoProof: a relay without an identity offers none: the wish for one is
// ignored, and what needs one is refused.
func TestNoProof(t *testing.T) {
	_, pub := holder(t, 1)
	script := func(answer string) string {
		return `a > {"t":"register","addr":"alice","pubkey":"` + pub + `","prove":true}
			a < ` + answer
	}
	registered := `{"t":"registered","addr":"alice","queued":0}`
	failed := `{"t":"error","msg":"proof failed"}`
	bubble(t, nil, func(t *testing.T, r *rig) { r.play(script(registered)) })
	bubble(t, func(r *rig) { r.RequireProof = true }, func(t *testing.T, r *rig) { r.play(script(failed)) })

	// A key that has been proven stays so when the identity is gone.
	bubble(t, withProofs, func(t *testing.T, r *rig) {
		key, pub := holder(t, 1)
		p := r.peer("p")
		p.say(`{"t":"register","pubkey":"` + pub + `","prove":true}`)
		p.say(proofOf(p.open(key).plain[52:]))
		require.Contains(t, p.hear(), `"registered"`)
		r.Identity = nil
		r.play(script(failed))
	})
}

// TestWeakKeys: nothing can be sealed to a key of small order, so nobody can prove
// to have one.
func TestWeakKeys(t *testing.T) {
	bubble(t, withProofs, func(t *testing.T, r *rig) {
		zero := base64.StdEncoding.EncodeToString(make([]byte, 32))
		r.play(`a > {"t":"register","pubkey":"` + zero + `","prove":true}
			a < {"t":"error","msg":"invalid pubkey"}`)
	})
}

// TestFeatures: what is not offered is not announced.
func TestFeatures(t *testing.T) {
	for _, with := range []bool{false, true} {
		bubble(t, func(r *rig) {
			if with {
				withProofs(r)
			}
			r.Version, r.Transports = "1.2", []string{"ws"}
		}, func(t *testing.T, r *rig) {
			p := r.peer("a")
			p.say(`{"t":"capabilities"}`)
			msg := p.hear()
			assert.Equal(t, with, strings.Contains(msg, `"proof"`))
			assert.True(t, strings.HasPrefix(msg, `{"t":"capabilities","version":"1.2","dialect":"json","transports":["ws"],"features":["`), msg)
		})
	}
}
