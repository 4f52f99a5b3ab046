package handshake

import (
	"testing"

	"github.com/sotto-relay/sotto/crypto"
	"github.com/sotto-relay/sotto/internal/vectors"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

type v2Vector struct {
	Role           Role   `json:"role"`
	ClientSeed     string `json:"client_seed"`
	RelaySeed      string `json:"relay_seed"`
	Challenge      string `json:"challenge"`
	ClientNonce    string `json:"client_nonce"`
	ChallengeFrame string `json:"challenge_frame"`
	ResponseFrame  string `json:"response_frame"`
	ConfirmFrame   string `json:"confirm_frame"`
}

func v2Vectors(t testing.TB) []v2Vector {
	cases := vectors.Cases[v2Vector](t, "handshake_v2.json")
	require.Len(t, cases, 6)
	return cases
}

// Both ends of each vector are played by the machines: what the sides send has to
// be the vector's frames, and what the vector holds has to be taken.
func TestVectorsV2(t *testing.T) {
	other := make([]byte, 32) // randomness of the side that the vector does not show
	for _, v := range v2Vectors(t) {
		client, relay := identityFromSeed(t, vectors.Unhex(t, v.ClientSeed)), identityFromSeed(t, vectors.Unhex(t, v.RelaySeed))
		challenge, nonce := vectors.Unhex(t, v.Challenge), vectors.Unhex(t, v.ClientNonce)

		var asks, answers machine
		var first []byte
		switch v.Role {
		case RoleClient:
			a := newAcceptor(t, &AcceptorConfig{Identity: relay, Rand: random(challenge)})
			first = a.Challenge().Append(nil)
			asks, answers = a, NewClient(&ClientConfig{Identity: client, Rand: random(nonce)})
		case RoleDialler:
			a := newAcceptor(t, &AcceptorConfig{Identity: relay, Rand: random(challenge, other), AdmitRelay: admitAll})
			d := newDialler(t, &DiallerConfig{Identity: client, Rand: random(other, nonce)})
			first = a.Challenge().Append(nil)
			must(t, a, d.Challenge())
			asks, answers = a, d
		case RoleAcceptor:
			d := newDialler(t, &DiallerConfig{Identity: relay, Rand: random(challenge, other)})
			a := newAcceptor(t, &AcceptorConfig{Identity: client, Rand: random(other, nonce), AdmitRelay: admitAll})
			first = d.Challenge().Append(nil)
			must(t, d, a.Challenge())
			asks, answers = d, a
		}
		assert.Equal(t, vectors.Unhex(t, v.ChallengeFrame), first)
		assert.Equal(t, vectors.Unhex(t, v.ResponseFrame), must(t, answers, decode(t, first)).Append(nil))
		assert.Equal(t, vectors.Unhex(t, v.ConfirmFrame), must(t, asks, decode(t, vectors.Unhex(t, v.ResponseFrame))).Append(nil))
		if c, ok := answers.(*Client); ok {
			must(t, c, decode(t, vectors.Unhex(t, v.ConfirmFrame)))
			r, ok := c.Relay()
			require.True(t, ok)
			assert.Equal(t, Relay{Key: relay.Public(), Version: 2, FirstContact: true}, r)
		}
	}
}

func TestVectorsV1(t *testing.T) {
	type vector struct {
		Seed          string `json:"seed"`
		Public        string `json:"public"`
		Challenge     string `json:"challenge"`
		ResponseFrame string `json:"response_frame"`
	}
	relay := testIdentity(t, 1)
	for _, v := range vectors.Cases[vector](t, "brep_handshake_v1.json") {
		id := identityFromSeed(t, vectors.Unhex(t, v.Seed))
		a := newAcceptor(t, &AcceptorConfig{Identity: relay, Rand: random(vectors.Unhex(t, v.Challenge))})
		c := NewClient(&ClientConfig{Identity: id, AllowLegacy: true})

		first := clone(t, a.Challenge())
		first.Sender = crypto.PublicKey{} // as older relays do
		answer := must(t, c, first)
		assert.Equal(t, vectors.Unhex(t, v.ResponseFrame), answer.Append(nil))

		confirm := must(t, a, answer)
		assert.Equal(t, []byte{1}, confirm.Payload)
		assert.Equal(t, [32]byte(relay.Public()), confirm.Sender)
		assert.Zero(t, confirm.Signature)
		p, ok := a.Peer()
		require.True(t, ok)
		assert.True(t, a.Done())
		assert.Equal(t, v.Public, p.Key.String())
		assert.Equal(t, Peer{Key: id.Public(), Role: RoleClient, Version: 1}, p)

		assert.Nil(t, must(t, c, confirm))
		r, ok := c.Relay()
		require.True(t, ok)
		assert.Equal(t, Relay{Version: 1}, r)
	}
}
