package handshake

import (
	"strings"
	"testing"

	"github.com/sotto-relay/sotto/crypto"
	"github.com/sotto-relay/sotto/frame"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// weakKeys are encodings that no peer may have for a key.
func weakKeys(t testing.TB) map[string]crypto.PublicKey {
	ff := strings.Repeat("ff", 30)
	keys := make(map[string]crypto.PublicKey)
	for name, digits := range map[string]string{
		"identity":           "01" + strings.Repeat("00", 31),
		"identity, sign bit": "01" + strings.Repeat("00", 30) + "80",
		"order 2":            "ec" + ff + "7f",
		"order 4":            strings.Repeat("00", 32),
		"not canonical":      "f0" + ff + "7f",
		"not on the curve":   "02" + strings.Repeat("00", 31),
	} {
		key, err := crypto.ParsePublicKey(digits)
		require.NoError(t, err)
		keys[name] = key
	}
	return keys
}

// forge returns an answer with any content, signed by id.
func forge(id *crypto.Identity, x exchange) *frame.Brep { return x.answer(id) }

func TestAcceptorRefuses(t *testing.T) {
	relay, id, other := testIdentity(t, 1), testIdentity(t, 2), testIdentity(t, 3)
	right := func(a *Acceptor) exchange {
		return exchange{relay.Public(), a.challenge, [32]byte{9}, id.Public(), RoleClient}
	}
	with := func(change func(*exchange)) func(*Acceptor) *frame.Brep {
		return func(a *Acceptor) *frame.Brep {
			x := right(a)
			change(&x)
			return forge(id, x)
		}
	}
	challengeBy := func(key crypto.PublicKey) func(*Acceptor) *frame.Brep {
		return func(*Acceptor) *frame.Brep {
			c := challenge{7}
			return c.frame(key)
		}
	}
	deny := func(crypto.PublicKey) bool { return false }

	for _, c := range []struct {
		name  string
		cfg   AcceptorConfig
		frame func(*Acceptor) *frame.Brep
		code  frame.Code
	}{
		{"stale challenge", AcceptorConfig{}, with(func(x *exchange) { x.challenge[0]++ }), frame.CodeNotAuthenticated},
		{"forwarded: the answer names the relay in between", AcceptorConfig{},
			with(func(x *exchange) { x.relay = other.Public() }), frame.CodeNotAuthenticated},
		{"role of a dialler without a challenge", AcceptorConfig{AdmitRelay: admitAll},
			with(func(x *exchange) { x.role = RoleDialler }), frame.CodeNotAuthenticated},
		{"role of an acceptor", AcceptorConfig{AdmitRelay: admitAll},
			with(func(x *exchange) { x.role = RoleAcceptor }), frame.CodeNotAuthenticated},
		{"role 3", AcceptorConfig{}, with(func(x *exchange) { x.role = 3 }), frame.CodeNotAuthenticated},
		{"signed by another key", AcceptorConfig{},
			with(func(x *exchange) { x.client = other.Public() }), frame.CodeBadSignature},
		{"signature of another purpose", AcceptorConfig{}, func(a *Acceptor) *frame.Brep {
			x := right(a)
			f := forge(id, x)
			f.Signature = id.Sign(x.signedConfirm(0))
			return f
		}, frame.CodeBadSignature},
		{"signature over the payload", AcceptorConfig{}, func(a *Acceptor) *frame.Brep {
			f := forge(id, right(a))
			f.Signature = id.Sign(f.Payload)
			return f
		}, frame.CodeBadSignature},
		{"no signature", AcceptorConfig{}, func(a *Acceptor) *frame.Brep {
			f := forge(id, right(a))
			f.Signature = [64]byte{}
			return f
		}, frame.CodeBadSignature},
		{"empty", AcceptorConfig{}, func(*Acceptor) *frame.Brep {
			return &frame.Brep{Type: frame.TypeHandshake}
		}, frame.CodeMalformed},
		{"data", AcceptorConfig{}, func(*Acceptor) *frame.Brep {
			return &frame.Brep{Type: frame.TypeData, Sender: id.Public(), Payload: make([]byte, 64)}
		}, frame.CodeNotAuthenticated},
		{"node info", AcceptorConfig{}, func(*Acceptor) *frame.Brep {
			return &frame.Brep{Type: frame.TypeNodeInfo, Payload: []byte{2}}
		}, frame.CodeNotAuthenticated},

		{"v1 where v2 is required", AcceptorConfig{RequireV2: true}, func(a *Acceptor) *frame.Brep {
			return v1Answer(a.challenge[:], id)
		}, frame.CodeDenied},
		{"v1 by a key that did v2", AcceptorConfig{AllowV1: deny}, func(a *Acceptor) *frame.Brep {
			return v1Answer(a.challenge[:], id)
		}, frame.CodeDenied},
		{"v1 by a key that did v2, badly signed", AcceptorConfig{AllowV1: deny}, func(a *Acceptor) *frame.Brep {
			f := v1Answer(a.challenge[:], id)
			f.Signature[5]++
			return f
		}, frame.CodeBadSignature},
		{"v1, stale challenge", AcceptorConfig{}, func(*Acceptor) *frame.Brep {
			return v1Answer(make([]byte, 32), id)
		}, frame.CodeNotAuthenticated},
		{"v1, signed by another key", AcceptorConfig{}, func(a *Acceptor) *frame.Brep {
			f := v1Answer(a.challenge[:], id)
			f.Sender = other.Public()
			return f
		}, frame.CodeBadSignature},

		{"relay, mesh off", AcceptorConfig{}, challengeBy(id.Public()), frame.CodeDenied},
		{"relay, not admitted", AcceptorConfig{AdmitRelay: deny}, challengeBy(id.Public()), frame.CodeDenied},
		{"our own challenge came back", AcceptorConfig{AdmitRelay: admitAll}, (*Acceptor).Challenge, frame.CodeDenied},
		{"our own challenge under another key", AcceptorConfig{AdmitRelay: admitAll}, func(a *Acceptor) *frame.Brep {
			return a.challenge.frame(id.Public())
		}, frame.CodeDenied},
		{"a challenge with our own key", AcceptorConfig{AdmitRelay: admitAll}, challengeBy(relay.Public()), frame.CodeDenied},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.cfg.Identity = relay
			a := newAcceptor(t, &c.cfg)
			before := *a
			reply, err := a.Receive(c.frame(a))
			requireCode(t, c.code, err)
			assert.Nil(t, reply)
			assert.Equal(t, before, *a)
			must(t, a, must(t, NewClient(&ClientConfig{Identity: id}), a.Challenge()))
		})
	}

	for name, key := range weakKeys(t) {
		t.Run("a challenge with a weak key: "+name, func(t *testing.T) {
			a := newAcceptor(t, &AcceptorConfig{Identity: relay, AdmitRelay: admitAll})
			_, err := a.Receive(challengeBy(key)(a))
			requireCode(t, frame.CodeDenied, err)
			assert.Nil(t, a.link)
		})
		// A signature that crypto/ed25519 accepts for some of these keys: R the
		// identity, S zero.
		for answer, f := range map[string]func(*Acceptor) *frame.Brep{
			"v1": func(a *Acceptor) *frame.Brep { return v1Answer(a.challenge[:], id) },
			"v2": func(a *Acceptor) *frame.Brep { return forge(id, right(a)) },
		} {
			t.Run(answer+" by a weak key: "+name, func(t *testing.T) {
				a := newAcceptor(t, &AcceptorConfig{Identity: relay})
				b := f(a)
				b.Sender, b.Signature = key, [64]byte{1}
				_, err := a.Receive(b)
				requireCode(t, frame.CodeBadSignature, err)
				requireNoPeer(t, a)
			})
		}
	}
}

// What a relay that dialled may not do once its challenge has been answered.
func TestAcceptorRefusesOfRelay(t *testing.T) {
	relay, dialling, other := testIdentity(t, 1), testIdentity(t, 2), testIdentity(t, 3)
	for _, c := range []struct {
		name  string
		frame func(*Acceptor) *frame.Brep
		code  frame.Code
	}{
		{"answers as a client", func(a *Acceptor) *frame.Brep {
			return forge(dialling, exchange{relay.Public(), a.challenge, [32]byte{}, dialling.Public(), RoleClient})
		}, frame.CodeNotAuthenticated},
		{"answers as an acceptor", func(a *Acceptor) *frame.Brep {
			return forge(dialling, exchange{relay.Public(), a.challenge, [32]byte{}, dialling.Public(), RoleAcceptor})
		}, frame.CodeNotAuthenticated},
		{"answers under another key", func(a *Acceptor) *frame.Brep {
			return forge(other, exchange{relay.Public(), a.challenge, [32]byte{}, other.Public(), RoleDialler})
		}, frame.CodeNotAuthenticated},
		{"answers in v1", func(a *Acceptor) *frame.Brep { return v1Answer(a.challenge[:], dialling) }, frame.CodeMalformed},
		{"sends a second challenge", func(*Acceptor) *frame.Brep {
			c := challenge{8}
			return c.frame(dialling.Public())
		}, frame.CodeMalformed},
		{"confirms before it answers", func(a *Acceptor) *frame.Brep {
			return a.link.confirm(dialling, 0)
		}, frame.CodeMalformed},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := newAcceptor(t, &AcceptorConfig{Identity: relay, AdmitRelay: admitAll})
			d := newDialler(t, &DiallerConfig{Identity: dialling})
			must(t, a, d.Challenge())
			reply, err := a.Receive(c.frame(a))
			requireCode(t, c.code, err)
			assert.Nil(t, reply)
			requireNoPeer(t, a)
			must(t, a, must(t, d, a.Challenge()))
		})
	}
}

func TestClientRefusesChallenge(t *testing.T) {
	relay, id := testIdentity(t, 1).Public(), testIdentity(t, 2)
	other := testIdentity(t, 3).Public()
	challengeBy := func(key crypto.PublicKey) *frame.Brep { return (&challenge{7}).frame(key) }
	signed := challengeBy(relay)
	signed.Signature[0] = 1
	short := challengeBy(relay)
	short.Payload = short.Payload[:31]

	var mismatch *KeyMismatchError
	for _, c := range []struct {
		name  string
		cfg   ClientConfig
		frame *frame.Brep
		code  frame.Code
		is    error
		as    any
	}{
		{"legacy relay", ClientConfig{}, challengeBy(crypto.PublicKey{}), frame.CodeDenied, ErrLegacyRelay, nil},
		{"legacy relay where v2 was seen", ClientConfig{Expect: &relay}, challengeBy(crypto.PublicKey{}),
			frame.CodeDenied, ErrLegacyRelay, nil},
		{"legacy relay where v2 was seen, whatever the options", ClientConfig{Expect: &relay, AllowLegacy: true},
			challengeBy(crypto.PublicKey{}), frame.CodeDenied, ErrLegacyRelay, nil},
		{"another key", ClientConfig{Expect: &relay, AllowLegacy: true}, challengeBy(other),
			frame.CodeDenied, nil, &mismatch},
		{"weak key", ClientConfig{AllowLegacy: true}, challengeBy(crypto.PublicKey{1}), frame.CodeDenied, nil, nil},
		{"signed", ClientConfig{}, signed, frame.CodeMalformed, nil, nil},
		{"short", ClientConfig{}, short, frame.CodeMalformed, nil, nil},
		{"a confirmation", ClientConfig{AllowLegacy: true},
			&frame.Brep{Type: frame.TypeHandshake, Payload: []byte{1}}, frame.CodeMalformed, nil, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.cfg.Identity = id
			client := NewClient(&c.cfg)
			before := *client
			reply, err := client.Receive(c.frame)
			requireCode(t, c.code, err)
			assert.Nil(t, reply, "nothing may be signed")
			assert.Equal(t, before, *client)
			if c.is != nil {
				assert.ErrorIs(t, err, c.is)
			}
			if c.as != nil {
				require.ErrorAs(t, err, c.as)
				assert.Equal(t, KeyMismatchError{Want: relay, Got: other}, *mismatch)
			}
			must(t, client, challengeBy(relay))
		})
	}
}

func TestClientRefusesConfirm(t *testing.T) {
	relay, id, other := testIdentity(t, 1), testIdentity(t, 2), testIdentity(t, 3)
	for _, c := range []struct {
		name  string
		frame func(x exchange) *frame.Brep
		code  frame.Code
	}{
		{"back to v1", func(exchange) *frame.Brep {
			return &frame.Brep{Type: frame.TypeHandshake, Sender: relay.Public(), Payload: []byte{1}}
		}, frame.CodeDenied},
		{"of another relay", func(x exchange) *frame.Brep {
			x.relay = other.Public()
			return x.confirm(other, 0)
		}, frame.CodeNotAuthenticated},
		{"signed by another relay", func(x exchange) *frame.Brep { return x.confirm(other, 0) }, frame.CodeBadSignature},
		{"for another nonce", func(x exchange) *frame.Brep {
			x.nonce[0]++
			return x.confirm(relay, 0)
		}, frame.CodeBadSignature},
		{"for another challenge", func(x exchange) *frame.Brep {
			x.challenge[0]++
			return x.confirm(relay, 0)
		}, frame.CodeBadSignature},
		{"for another client", func(x exchange) *frame.Brep {
			x.client = other.Public()
			return x.confirm(relay, 0)
		}, frame.CodeBadSignature},
		{"for another role", func(x exchange) *frame.Brep {
			x.role = RoleDialler
			return x.confirm(relay, 0)
		}, frame.CodeBadSignature},
		{"other features than signed", func(x exchange) *frame.Brep {
			f := x.confirm(relay, 0)
			f.Payload[4] = 1
			return f
		}, frame.CodeBadSignature},
		{"version 3", func(x exchange) *frame.Brep {
			f := x.confirm(relay, 0)
			f.Payload[0] = 3
			return f
		}, frame.CodeMalformed},
		{"the challenge again", func(x exchange) *frame.Brep { return x.challenge.frame(relay.Public()) }, frame.CodeMalformed},
		{"our answer came back", func(x exchange) *frame.Brep { return x.answer(id) }, frame.CodeMalformed},
	} {
		t.Run(c.name, func(t *testing.T) {
			client := NewClient(&ClientConfig{Identity: id, AllowLegacy: true})
			must(t, client, newAcceptor(t, &AcceptorConfig{Identity: relay}).Challenge())
			_, err := client.Receive(c.frame(*client.exchange))
			requireCode(t, c.code, err)
			_, ok := client.Relay()
			assert.False(t, ok)
			must(t, client, client.exchange.confirm(relay, 0))
		})
	}

	t.Run("v2 after a v1 answer", func(t *testing.T) {
		client := NewClient(&ClientConfig{Identity: id, AllowLegacy: true})
		must(t, client, (&challenge{7}).frame(crypto.PublicKey{}))
		_, err := client.Receive((&exchange{relay: relay.Public(), client: id.Public()}).confirm(relay, 0))
		requireCode(t, frame.CodeMalformed, err)
		_, ok := client.Relay()
		assert.False(t, ok)
	})
}

func TestDiallerRefuses(t *testing.T) {
	id, relay, other := testIdentity(t, 1), testIdentity(t, 2), testIdentity(t, 3)
	want := relay.Public()

	challenges := map[string]struct {
		frame func(*Dialler) *frame.Brep
		is    error
		as    any
	}{
		"legacy relay":       {func(*Dialler) *frame.Brep { return (&challenge{7}).frame(crypto.PublicKey{}) }, ErrLegacyRelay, nil},
		"ourselves":          {func(*Dialler) *frame.Brep { return (&challenge{7}).frame(id.Public()) }, ErrSelf, nil},
		"reflected":          {(*Dialler).Challenge, ErrSelf, nil},
		"reflected, renamed": {func(d *Dialler) *frame.Brep { return d.challenge.frame(want) }, nil, nil},
		"another key":        {func(*Dialler) *frame.Brep { return (&challenge{7}).frame(other.Public()) }, nil, new(*KeyMismatchError)},
	}
	for name, c := range challenges {
		t.Run(name, func(t *testing.T) {
			d := newDialler(t, &DiallerConfig{Identity: id, Expect: &want})
			before := *d
			reply, err := d.Receive(c.frame(d))
			requireCode(t, frame.CodeDenied, err)
			assert.Nil(t, reply, "nothing may be signed")
			assert.Equal(t, before, *d)
			if c.is != nil {
				assert.ErrorIs(t, err, c.is)
			}
			if c.as != nil {
				assert.ErrorAs(t, err, c.as)
			}
			must(t, d, (&challenge{7}).frame(want))
		})
	}
	for name, key := range weakKeys(t) {
		t.Run("weak key: "+name, func(t *testing.T) {
			d := newDialler(t, &DiallerConfig{Identity: id})
			_, err := d.Receive((&challenge{7}).frame(key))
			requireCode(t, frame.CodeDenied, err)
		})
	}

	for name, x := range map[string]exchange{
		"answer of a client":         {relay: id.Public(), client: want, role: RoleClient},
		"answer of a dialler":        {relay: id.Public(), client: want, role: RoleDialler},
		"answer to another relay":    {relay: other.Public(), client: want, role: RoleAcceptor},
		"answer of another relay":    {relay: id.Public(), client: other.Public(), role: RoleAcceptor},
		"answer to a challenge of 0": {relay: id.Public(), client: want, role: RoleAcceptor, nonce: [32]byte{1}},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDialler(t, &DiallerConfig{Identity: id})
			a := newAcceptor(t, &AcceptorConfig{Identity: relay, AdmitRelay: admitAll})
			must(t, d, a.Challenge())
			if x.nonce == [32]byte{} {
				x.challenge = d.challenge
			}
			by := relay
			if x.client != want {
				by = other
			}
			_, err := d.Receive(forge(by, x))
			requireCode(t, frame.CodeNotAuthenticated, err)
			must(t, d, must(t, a, d.Challenge()))
		})
	}
}
