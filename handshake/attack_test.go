package handshake

import (
	"testing"

	"github.com/sotto-relay/sotto/crypto"
	"github.com/sotto-relay/sotto/frame"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A stranger pipes two listening relays into each other (ME-25). Without roles
// each would take the other for a relay that dialled.
func TestTwoAcceptorsDoNotLink(t *testing.T) {
	a := newAcceptor(t, &AcceptorConfig{Identity: testIdentity(t, 1), AdmitRelay: admitAll})
	b := newAcceptor(t, &AcceptorConfig{Identity: testIdentity(t, 2), AdmitRelay: admitAll})
	answerOfA := must(t, a, b.Challenge())
	answerOfB := must(t, b, a.Challenge())
	for _, c := range []struct {
		to     *Acceptor
		answer *frame.Brep
	}{{a, answerOfB}, {b, answerOfA}} {
		_, err := c.to.Receive(c.answer)
		requireCode(t, frame.CodeNotAuthenticated, err)
		requireNoPeer(t, c.to)
	}

	// Nor when only one of them is shown a challenge.
	a = newAcceptor(t, &AcceptorConfig{Identity: testIdentity(t, 1), AdmitRelay: admitAll})
	b = newAcceptor(t, &AcceptorConfig{Identity: testIdentity(t, 2), AdmitRelay: admitAll})
	_, err := a.Receive(must(t, b, a.Challenge()))
	requireCode(t, frame.CodeNotAuthenticated, err)
	requireNoPeer(t, a)
}

// Two relays that dial whoever is in between do not link either.
func TestTwoDiallersDoNotLink(t *testing.T) {
	a := newDialler(t, &DiallerConfig{Identity: testIdentity(t, 1)})
	b := newDialler(t, &DiallerConfig{Identity: testIdentity(t, 2)})
	answerOfA := must(t, a, b.Challenge())
	answerOfB := must(t, b, a.Challenge())
	_, err := a.Receive(answerOfB)
	requireCode(t, frame.CodeNotAuthenticated, err)
	_, err = b.Receive(answerOfA)
	requireCode(t, frame.CodeNotAuthenticated, err)
}

// A hostile relay passes the challenge of an honest one on to its own client
// (HS-05).
func TestForwardedChallenge(t *testing.T) {
	honest, evil, id := testIdentity(t, 1), testIdentity(t, 2), testIdentity(t, 3)
	forwarded := func(t *testing.T, sender crypto.PublicKey) (*Acceptor, *frame.Brep) {
		a := newAcceptor(t, &AcceptorConfig{Identity: honest})
		f := clone(t, a.Challenge())
		f.Sender = sender
		return a, f
	}
	t.Run("under its own key", func(t *testing.T) {
		a, f := forwarded(t, evil.Public())
		_, err := a.Receive(must(t, NewClient(&ClientConfig{Identity: id}), f))
		requireCode(t, frame.CodeNotAuthenticated, err)
		requireNoPeer(t, a)
	})
	t.Run("under the honest key, to a client that knows better", func(t *testing.T) {
		_, f := forwarded(t, honest.Public())
		key := evil.Public()
		_, err := NewClient(&ClientConfig{Identity: id, Expect: &key}).Receive(f)
		var mismatch *KeyMismatchError
		require.ErrorAs(t, err, &mismatch)
	})
	t.Run("under the honest key, at first contact", func(t *testing.T) {
		a, f := forwarded(t, honest.Public())
		c := NewClient(&ClientConfig{Identity: id})
		must(t, c, must(t, a, must(t, c, f)))
		r, _ := c.Relay()
		assert.Equal(t, Relay{Key: honest.Public(), Version: 2, FirstContact: true}, r, "the login is at that relay, and reported")
	})
	t.Run("as a legacy relay's", func(t *testing.T) {
		a, f := forwarded(t, crypto.PublicKey{})
		_, err := NewClient(&ClientConfig{Identity: id}).Receive(f)
		require.ErrorIs(t, err, ErrLegacyRelay)

		// Allowed, it works, and both ends know the session for a weak one.
		c := NewClient(&ClientConfig{Identity: id, AllowLegacy: true})
		must(t, c, must(t, a, must(t, c, f)))
		p, _ := a.Peer()
		assert.Equal(t, 1, p.Version)
		r, _ := c.Relay()
		assert.Equal(t, 1, r.Version)
	})
}

// A relay's messages do not get anybody in elsewhere, in whatever role.
func TestRelayIsNoOracle(t *testing.T) {
	honest, victim := testIdentity(t, 1), testIdentity(t, 2)
	target := newAcceptor(t, &AcceptorConfig{Identity: honest, AdmitRelay: admitAll})
	// The victim answers the target's challenge on a link of its own, dialled or
	// accepted: role 1 or 2, never a client's.
	for name, m := range map[string]machine{
		"accepting": newAcceptor(t, &AcceptorConfig{Identity: victim, AdmitRelay: admitAll}),
		"dialling":  newDialler(t, &DiallerConfig{Identity: victim}),
	} {
		t.Run(name, func(t *testing.T) {
			_, err := target.Receive(must(t, m, target.Challenge()))
			requireCode(t, frame.CodeNotAuthenticated, err)
			requireNoPeer(t, target)
		})
	}
}

// An answer and a confirmation count on their own connection only.
func TestReplay(t *testing.T) {
	relay, id := testIdentity(t, 1), testIdentity(t, 2)
	cfg := &AcceptorConfig{Identity: relay}
	a, c := newAcceptor(t, cfg), NewClient(&ClientConfig{Identity: id})
	answer := must(t, c, a.Challenge())
	confirm := must(t, a, answer)
	must(t, c, confirm)

	a2, c2 := newAcceptor(t, cfg), NewClient(&ClientConfig{Identity: id})
	_, err := a2.Receive(answer)
	requireCode(t, frame.CodeNotAuthenticated, err)
	must(t, c2, a.Challenge()) // even the same challenge: the nonce is new
	_, err = c2.Receive(confirm)
	requireCode(t, frame.CodeBadSignature, err)
}

// The machines keep nothing of a frame that they were given.
func TestFramesAreNotRetained(t *testing.T) {
	a := newAcceptor(t, &AcceptorConfig{Identity: testIdentity(t, 1), AdmitRelay: admitAll})
	d := newDialler(t, &DiallerConfig{Identity: testIdentity(t, 2)})
	receive := func(m machine, f *frame.Brep) *frame.Brep {
		reply, err := m.Receive(f)
		require.NoError(t, err)
		clear(f.Payload)
		return reply
	}
	answerOfA := receive(a, d.Challenge())
	answerOfD := receive(d, a.Challenge())
	confirmOfD := receive(d, answerOfA)
	receive(d, receive(a, answerOfD))
	receive(a, confirmOfD)
	assert.True(t, a.Done())
}
