package jsonmsg

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sotto-relay/sotto/inbox"
	"github.com/sotto-relay/sotto/relay"
)

// Keys of testdata/self_certifying.json, and their addresses.
const (
	key1, addr1 = "k+wTqpaBBGdhE6EGMjvLVmtn84x6oJ2g7IxnAPQsWCw=", "6QZ7IRWQWNJIUIXR"
	key2        = "f3y4h4Y+IGDuRXcFLoHc55d0Xe9qL94qy54cbTioqlQ="
)

func withoutInbox(r *rig) { r.server.Inbox = nil }

func ttl(d time.Duration) func(*rig) { return func(r *rig) { r.AliasTTL = d } }

func inUse(u relay.InUse) func(*rig) { return func(r *rig) { r.InUse = u } }

// TestRegister: spec json.md, "register" (cases HS-11 to HS-15).
func TestRegister(t *testing.T) {
	playAll(t, []scene{
		{"an address", nil, `
			alice > {"t":"register","addr":"alice"}
			alice < {"t":"registered","addr":"alice","queued":0}`},
		{"the backlog comes before registered, in order, what arrives later after it", nil, `
			alice registers
			carol registers
			alice > {"t":"send","to":"bob","ct":"1"}
			alice < {"t":"queued","to":"bob"}
			carol > {"t":"ack","to":"bob","id":"2"}
			alice > {"t":"send","to":"bob","ct":"3","id":"m3"}
			alice < {"t":"queued","to":"bob","id":"m3"}
			bob >> {"t":"register","addr":"bob"}
			bob < {"t":"deliver","from":"alice","ct":"1"}
			bob < {"t":"ack","id":"2","from":"carol"}
			bob < {"t":"deliver","from":"alice","ct":"3","id":"m3"}
			bob < {"t":"registered","addr":"bob","queued":3}
			alice > {"t":"send","to":"bob","ct":"4"}
			bob < {"t":"deliver","from":"alice","ct":"4"}`},
		{"without an inbox nothing is stored", withoutInbox, `
			alice registers
			alice > {"t":"send","to":"bob","ct":"1","id":"m1"}
			alice < {"t":"error","msg":"storage full","id":"m1"}
			bob registers`},
		{"a refused registration leaves the connection open", nil, `
			alice > {"t":"register"}
			alice < {"t":"error","msg":"addr or pubkey required"}
			alice > {"t":"register","addr":null,"pubkey":null}
			alice < {"t":"error","msg":"addr or pubkey required"}
			alice > {"t":"register","addr":5}
			alice < {"t":"error","msg":"invalid field: addr"}
			alice > {"t":"register","addr":"alice","pubkey":[]}
			alice < {"t":"error","msg":"invalid field: pubkey"}
			alice > {"t":"register","addr":"alice","prove":1}
			alice < {"t":"error","msg":"invalid field: prove"}
			alice > {"t":"register","addr":"alice","auth":{}}
			alice < {"t":"error","msg":"invalid field: auth"}
			alice > {"t":"register","addr":""}
			alice < {"t":"error","msg":"invalid addr"}
			alice > {"t":"register","addr":"a\u0000b"}
			alice < {"t":"error","msg":"invalid addr"}
			alice > {"t":"register","addr":"a\nb"}
			alice < {"t":"error","msg":"invalid addr"}
			alice > {"t":"register","addr":"a\u007fb"}
			alice < {"t":"error","msg":"invalid addr"}
			alice > {"t":"register","addr":"a\u0085b"}
			alice < {"t":"error","msg":"invalid addr"}
			alice > {"t":"register","addr":"<a*129>"}
			alice < {"t":"error","msg":"invalid addr"}
			alice > {"t":"register","addr":"<é*65>"}
			alice < {"t":"error","msg":"invalid addr"}
			alice > {"t":"register","addr":"` + addr1 + `"}
			alice < {"t":"error","msg":"address needs its public key"}
			alice > {"t":"register","addr":"` + addr1 + `","pubkey":"` + key2 + `"}
			alice < {"t":"error","msg":"address needs its public key"}
			alice registers`},
		{"addresses are 1 to 128 bytes, compared as bytes", nil, `
			long > {"t":"register","addr":"<a*128>"}
			long < {"t":"registered","addr":"<a*128>","queued":0}
			wide > {"t":"register","addr":"<é*64>"}
			wide < {"t":"registered","addr":"<é*64>","queued":0}
			one > {"t":"register","addr":"é"}
			one < {"t":"registered","addr":"é","queued":0}
			two > {"t":"register","addr":"e\u0301"}
			two < {"t":"registered","addr":"` + "e\u0301" + `","queued":0}
			three > {"t":"register","addr":"é "}
			three < {"t":"registered","addr":"é ","queued":0}
			four > {"t":"register","addr":"\"\\"}
			four < {"t":"registered","addr":"\"\\","queued":0}
			four > {"t":"send","to":"e\u0301","ct":""}
			two < {"t":"deliver","from":"\"\\","ct":""}`},
		{"invalid pubkey", nil, `
			alice > {"t":"register","pubkey":""}
			alice < {"t":"error","msg":"invalid pubkey"}
			alice > {"t":"register","pubkey":"` + strings.TrimSuffix(key1, "=") + `"}
			alice < {"t":"error","msg":"invalid pubkey"}
			alice > {"t":"register","pubkey":"k-wTqpaBBGdhE6EGMjvLVmtn84x6oJ2g7IxnAPQsWCw="}
			alice < {"t":"error","msg":"invalid pubkey"}
			alice > {"t":"register","pubkey":"k+wTqpaBBGdhE6EGMjvL\nVmtn84x6oJ2g7IxnAPQsWCw="}
			alice < {"t":"error","msg":"invalid pubkey"}
			alice > {"t":"register","pubkey":"k+wTqpaBBGdhE6EGMjvLVmtn84x6oJ2g7IxnAPQsWCx="}
			alice < {"t":"error","msg":"invalid pubkey"}
			alice > {"t":"register","pubkey":"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=="}
			alice < {"t":"error","msg":"invalid pubkey"}
			alice > {"t":"register","pubkey":"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"}
			alice < {"t":"error","msg":"invalid pubkey"}
			alice > {"t":"register","pubkey":"93ec13aa96810467611 3a106323bcb566b67f38c7aa09da0ec8c6700f42c582c"}
			alice < {"t":"error","msg":"invalid pubkey"}`},
		{"an alias is bound to its first key", nil, `
			alice > {"t":"register","addr":"alice","pubkey":"` + key1 + `"}
			alice < {"t":"registered","addr":"alice","queued":0}
			eve > {"t":"register","addr":"alice","pubkey":"` + key2 + `"}
			eve < {"t":"error","msg":"alias bound to a different key"}
			eve > {"t":"register","addr":"alice"}
			eve < {"t":"error","msg":"alias bound to a different key"}
			eve > {"t":"register","addr":"Alice","pubkey":"` + key2 + `"}
			eve < {"t":"registered","addr":"Alice","queued":0}
			again > {"t":"register","addr":"alice","pubkey":"` + key1 + `"}
			again < {"t":"registered","addr":"alice","queued":0}
			alice < {"t":"error","msg":"address taken over by a new connection"}
			alice closed 1008
			again closes
			# also while nobody has it
			eve > {"t":"register","addr":"alice","pubkey":"` + key2 + `"}
			eve < {"t":"error","msg":"alias bound to a different key"}
			# other names of the same key are free
			more > {"t":"register","addr":"alice2","pubkey":"` + key1 + `"}
			more < {"t":"registered","addr":"alice2","queued":0}`},
		{"also to one that is all zeros", nil, `
			alice > {"t":"register","addr":"alice","pubkey":"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="}
			alice < {"t":"registered","addr":"alice","queued":0}
			eve > {"t":"register","addr":"alice"}
			eve < {"t":"error","msg":"alias bound to a different key"}`},
		{"an alias is forgotten when unused for so long, not before", ttl(time.Hour), `
			alice > {"t":"register","addr":"alice","pubkey":"` + key1 + `"}
			alice < {"t":"registered","addr":"alice","queued":0}
			alice closes
			wait 59m
			eve > {"t":"register","addr":"alice","pubkey":"` + key2 + `"}
			eve < {"t":"error","msg":"alias bound to a different key"}
			eve closes
			wait 2m
			eve > {"t":"register","addr":"alice","pubkey":"` + key2 + `"}
			eve < {"t":"registered","addr":"alice","queued":0}`},
		{"a session that lasts keeps its alias, and that time more", ttl(time.Hour), `
			alice > {"t":"register","addr":"alice","pubkey":"` + key1 + `"}
			alice < {"t":"registered","addr":"alice","queued":0}
			wait 2h
			eve > {"t":"register","addr":"alice","pubkey":"` + key2 + `"}
			eve < {"t":"error","msg":"alias bound to a different key"}
			eve closes
			alice closes
			wait 59m
			eve > {"t":"register","addr":"alice"}
			eve < {"t":"error","msg":"alias bound to a different key"}`},
		{"so does one that moves on", ttl(time.Hour), `
			alice > {"t":"register","addr":"alice","pubkey":"` + key1 + `"}
			alice < {"t":"registered","addr":"alice","queued":0}
			wait 2h
			alice > {"t":"register","addr":"new"}
			alice < {"t":"registered","addr":"new","queued":0}
			wait 59m
			eve > {"t":"register","addr":"alice"}
			eve < {"t":"error","msg":"alias bound to a different key"}`},
		{"the newcomer takes over", nil, `
			alice registers
			bob registers
			bob > {"t":"send","to":"alice","ct":"1"}
			alice < {"t":"deliver","from":"bob","ct":"1"}
			again > {"t":"register","addr":"alice"}
			again < {"t":"registered","addr":"alice","queued":0}
			alice < {"t":"error","msg":"address taken over by a new connection"}
			alice closed 1008
			bob > {"t":"send","to":"alice","ct":"2"}
			again < {"t":"deliver","from":"bob","ct":"2"}`},
		{"also when it had connected before", nil, `
			early > {"t":"capabilities","t":""}
			early < {"t":"error","msg":"invalid JSON"}
			alice registers
			early > {"t":"register","addr":"alice"}
			early < {"t":"registered","addr":"alice","queued":0}
			alice < {"t":"error","msg":"address taken over by a new connection"}
			alice closed 1008`},
		{"address in use, by policy", inUse(relay.Reject), `
			alice registers
			eve > {"t":"register","addr":"alice"}
			eve < {"t":"error","msg":"address in use"}
			alice closes
			eve > {"t":"register","addr":"alice"}
			eve < {"t":"registered","addr":"alice","queued":0}`},
		{"shared, by policy: every connection gets a copy, rooms and match count connections", inUse(relay.Share), `
			one > {"t":"register","addr":"alice"}
			one < {"t":"registered","addr":"alice","queued":0}
			two > {"t":"register","addr":"alice"}
			two < {"t":"registered","addr":"alice","queued":0}
			bob registers
			bob > {"t":"send","to":"alice","ct":"1"}
			one < {"t":"deliver","from":"bob","ct":"1"}
			two < {"t":"deliver","from":"bob","ct":"1"}
			one > {"t":"join_room","room":"r"}
			one < {"t":"joined_room","room":"r","members":1}
			two > {"t":"join_room","room":"r"}
			two < {"t":"joined_room","room":"r","members":2}
			one > {"t":"room_send","room":"r","ct":"x"}
			two < {"t":"room_deliver","room":"r","from":"alice","ct":"x"}
			# two connections of one address are not matched with each other
			one > {"t":"find_match","game":"g"}
			one < {"t":"waiting","game":"g"}
			two > {"t":"find_match","game":"g"}
			two < {"t":"waiting","game":"g"}
			bob > {"t":"find_match","game":"g"}
			bob < {"t":"matched","game":"g","peer":"alice"}
			one < {"t":"matched","game":"g","peer":"bob"}`},
		{"the same address again", nil, `
			alice registers
			alice registers
			alice > {"t":"send","to":"alice","ct":"1"}
			alice < {"t":"deliver","from":"alice","ct":"1"}`},
		{"another address moves the connection: queues are left, rooms and subscriptions kept", nil, `
			alice registers
			bob registers
			alice > {"t":"join_room","room":"r"}
			alice < {"t":"joined_room","room":"r","members":1}
			bob > {"t":"join_room","room":"r"}
			bob < {"t":"joined_room","room":"r","members":2}
			alice > {"t":"find_match","game":"g"}
			alice < {"t":"waiting","game":"g"}
			bob > {"t":"send","to":"new","ct":"1"}
			bob < {"t":"queued","to":"new"}
			alice > {"t":"register","addr":"new"}
			alice < {"t":"deliver","from":"bob","ct":"1"}
			alice < {"t":"registered","addr":"new","queued":1}
			bob > {"t":"find_match","game":"g"}
			bob < {"t":"waiting","game":"g"}
			bob > {"t":"send","to":"alice","ct":"2"}
			bob < {"t":"queued","to":"alice"}
			bob > {"t":"send","to":"new","ct":"3"}
			alice < {"t":"deliver","from":"bob","ct":"3"}
			alice > {"t":"room_send","room":"r","ct":"4"}
			bob < {"t":"room_deliver","room":"r","from":"new","ct":"4"}
			bob > {"t":"room_send","room":"r","ct":"5"}
			alice < {"t":"room_deliver","room":"r","from":"bob","ct":"5"}`},
		{"a refused move changes nothing", nil, `
			alice registers
			bob > {"t":"register","addr":"bob","pubkey":"` + key1 + `"}
			bob < {"t":"registered","addr":"bob","queued":0}
			alice > {"t":"register","addr":"bob"}
			alice < {"t":"error","msg":"alias bound to a different key"}
			bob > {"t":"send","to":"alice","ct":"1"}
			alice < {"t":"deliver","from":"bob","ct":"1"}`},
	})
}

// TestSelfCertifying: a key without an address has the one that follows from it.
func TestSelfCertifying(t *testing.T) {
	var file struct {
		Cases []struct {
			Key     string `json:"pubkey_base64"`
			Address string
		}
	}
	readVectors(t, "self_certifying.json", &file)
	require.NotEmpty(t, file.Cases)
	bubble(t, nil, func(t *testing.T, r *rig) {
		for _, c := range file.Cases {
			registered := `{"t":"registered","addr":"` + c.Address + `","queued":0}`
			p := r.peer(c.Address)
			p.say(`{"t":"register","pubkey":"` + c.Key + `"}`)
			require.Equal(t, registered, p.hear())
			p.say(`{"t":"register","addr":"` + c.Address + `","pubkey":"` + c.Key + `"}`)
			require.Equal(t, registered, p.hear())
		}
	})
}

// TestAliasBounds: so many of a source, and in all; then "storage full" (case
// HS-15). What is out of date makes room.
func TestAliasBounds(t *testing.T) {
	few := func(r *rig) {
		r.Aliases, r.AliasesPerSource, r.AliasTTL = 5, 3, time.Hour
		r.dial = r.dialFrom("192.0.2.1")
	}
	bubble(t, few, func(t *testing.T, r *rig) {
		r.play(`
			a > {"t":"register","addr":"a1","pubkey":"` + key1 + `"}
			a < {"t":"registered","addr":"a1","queued":0}
			a > {"t":"register","addr":"a2","pubkey":"` + key1 + `"}
			a < {"t":"registered","addr":"a2","queued":0}
			a > {"t":"register","addr":"a3","pubkey":"` + key1 + `"}
			a < {"t":"registered","addr":"a3","queued":0}
			a > {"t":"register","addr":"a4","pubkey":"` + key1 + `"}
			a < {"t":"error","msg":"storage full"}
			a > {"t":"register","addr":"a2","pubkey":"` + key1 + `"}
			a < {"t":"registered","addr":"a2","queued":0}
			a > {"t":"register","addr":"plain"}
			a < {"t":"registered","addr":"plain","queued":0}`)
		r.dial = r.dialFrom("192.0.2.2")
		r.play(`
			b > {"t":"register","addr":"b1","pubkey":"` + key1 + `"}
			b < {"t":"registered","addr":"b1","queued":0}
			b > {"t":"register","addr":"b2","pubkey":"` + key1 + `"}
			b < {"t":"registered","addr":"b2","queued":0}
			b > {"t":"register","addr":"b3","pubkey":"` + key1 + `"}
			b < {"t":"error","msg":"storage full"}
			b > {"t":"register","pubkey":"` + key1 + `"}
			b < {"t":"registered","addr":"` + addr1 + `","queued":0}
			wait 50m
			b > {"t":"register","addr":"b2","pubkey":"` + key1 + `"}
			b < {"t":"registered","addr":"b2","queued":0}
			b > {"t":"register","addr":"b3","pubkey":"` + key1 + `"}
			b < {"t":"error","msg":"storage full"}
			wait 11m
			b > {"t":"register","addr":"b3","pubkey":"` + key1 + `"}
			b < {"t":"registered","addr":"b3","queued":0}
			b > {"t":"register","addr":"a1","pubkey":"` + key2 + `"}
			b < {"t":"registered","addr":"a1","queued":0}
			b > {"t":"register","addr":"b4","pubkey":"` + key1 + `"}
			b < {"t":"error","msg":"storage full"}
			b > {"t":"register","addr":"b2","pubkey":"` + key2 + `"}
			b < {"t":"error","msg":"alias bound to a different key"}`)
	})
}

// TestAliasesOutliveTheServer: they are in the state store (case HS-11), and are
// counted there.
func TestAliasesOutliveTheServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		state := inbox.NewMemoryState(nil)
		set := func(r *rig) {
			r.server.State = state
			r.AliasesPerSource = 2
			r.dial = r.dialFrom("2001:db8::1")
		}
		r := newRig(t, set)
		r.play(`
			a > {"t":"register","addr":"a1","pubkey":"` + key1 + `"}
			a < {"t":"registered","addr":"a1","queued":0}`)
		require.NoError(t, r.server.Close())
		newRig(t, set).play(`
			a > {"t":"register","addr":"a1","pubkey":"` + key2 + `"}
			a < {"t":"error","msg":"alias bound to a different key"}
			a > {"t":"register","addr":"a2","pubkey":"` + key2 + `"}
			a < {"t":"registered","addr":"a2","queued":0}
			a > {"t":"register","addr":"a3","pubkey":"` + key2 + `"}
			a < {"t":"error","msg":"storage full"}
			a > {"t":"register","addr":"a1","pubkey":"` + key1 + `"}
			a < {"t":"registered","addr":"a1","queued":0}`)
	})
}

// TestRefusedClaim: what the policy refuses binds no alias, and its token is asked
// for in the registration.
func TestRefusedClaim(t *testing.T) {
	guarded := func(r *rig) {
		r.server.Policy.Claim = func(_ context.Context, c relay.ClaimInfo) (relay.Grant, error) {
			if c.Token != "sesame" {
				return relay.Grant{}, &relay.Refusal{Code: relay.CodeDenied, Reason: "not for you"}
			}
			return relay.Grant{}, nil
		}
	}
	bubble(t, guarded, func(t *testing.T, r *rig) {
		r.play(`
			eve > {"t":"register","addr":"alice","pubkey":"` + key2 + `"}
			eve < {"t":"error","msg":"not for you"}
			eve > {"t":"register","addr":"alice","pubkey":"` + key2 + `","auth":"guess"}
			eve < {"t":"error","msg":"not for you"}
			alice > {"t":"register","addr":"alice","pubkey":"` + key1 + `","auth":"sesame"}
			alice < {"t":"registered","addr":"alice","queued":0}
			eve > {"t":"register","addr":"alice","pubkey":"` + key2 + `","auth":"sesame"}
			eve < {"t":"error","msg":"alias bound to a different key"}`)
	})
}

// TestStateFails: without an answer from the store nobody gets a name, and what is
// in the errors of a store is told to nobody.
func TestStateFails(t *testing.T) {
	closed := func(r *rig) {
		state := inbox.NewMemoryState(nil)
		require.NoError(t, state.Close())
		r.server.State = state
	}
	bubble(t, closed, func(t *testing.T, r *rig) {
		r.play(`
			alice > {"t":"register","addr":"alice"}
			alice < {"t":"error","msg":"relay overloaded, retry later"}
			alice > {"t":"register","pubkey":"` + key1 + `"}
			alice < {"t":"error","msg":"relay overloaded, retry later"}`)
	})
	full := func(r *rig) { r.server.State = inbox.NewMemoryState(&inbox.MemoryOptions{MaxBytes: 1}) }
	bubble(t, full, func(t *testing.T, r *rig) {
		r.play(`
			alice > {"t":"register","addr":"alice","pubkey":"` + key1 + `"}
			alice < {"t":"error","msg":"storage full"}
			alice registers`)
	})
}

// TestOverloaded: no new registrations (case DO-17), in the exact words.
func TestOverloadedWords(t *testing.T) {
	overloaded := func(r *rig) {
		r.server.Policy.Claim = func(context.Context, relay.ClaimInfo) (relay.Grant, error) {
			return relay.Grant{}, &relay.Refusal{Code: relay.CodeOverloaded, Reason: "at capacity"}
		}
	}
	bubble(t, overloaded, func(t *testing.T, r *rig) {
		r.play(`
			alice > {"t":"register","addr":"alice"}
			alice < {"t":"error","msg":"relay overloaded, retry later"}`)
	})
}

// TestDefaults: the numbers of spec json.md.
// TestNameBytes: how long names may be can be set, shorter or longer.
func TestNameBytes(t *testing.T) {
	playAll(t, []scene{
		{"shorter", func(r *rig) { r.NameBytes = 5 }, `
			alice > {"t":"register","addr":"alice6"}
			alice < {"t":"error","msg":"invalid addr"}
			alice > {"t":"register","addr":"alice"}
			alice < {"t":"registered","addr":"alice","queued":0}
			alice > {"t":"join_room","room":"sixsix"}
			alice < {"t":"error","msg":"invalid room"}
			alice > {"t":"find_match","game":"sixsix"}
			alice < {"t":"error","msg":"invalid game"}
			alice > {"t":"send","to":"sixsix","ct":""}
			alice < {"t":"error","msg":"invalid addr"}`},
		{"longer", func(r *rig) { r.NameBytes = 200 }, `
			alice > {"t":"register","addr":"<a*200>"}
			alice < {"t":"registered","addr":"<a*200>","queued":0}
			alice > {"t":"join_room","room":"<r*201>"}
			alice < {"t":"error","msg":"invalid room"}`},
	})
}

func TestDefaults(t *testing.T) {
	assert.Equal(t, relay.DialectLimits{
		MessageBytes: 65_536, UnreadyBytes: 65_536, ReadyTimeout: 60 * time.Second,
		MessageRate: 20, MessageBurst: 20, SourceConnections: 20, ConnectRate: 30,
		Groups: 50, GroupMembers: 10_000, Subscriptions: 100, Matches: 10,
		InboxMessages: 500, InboxTTL: 24 * time.Hour, DropOldest: true,
	}, Dialect{}.Limits())
	d := Dialect{}.withDefaults()
	assert.Equal(t, []any{1_000_000, 1_000, 90 * 24 * time.Hour, 16_384, 128},
		[]any{d.Aliases, d.AliasesPerSource, d.AliasTTL, d.DatagramBytes, d.NameBytes})
}

// TestTextOfEveryCode: no code is without words.
func TestTextOfEveryCode(t *testing.T) {
	for c := relay.CodeMalformed; c <= relay.CodeInternal; c++ {
		assert.NotEmpty(t, textOf(&relay.Refusal{Code: c}))
	}
	assert.Equal(t, "internal", textOf(context.Canceled), "of other errors nothing is told")
	assert.Equal(t, "invalid field: ct", textOf(fieldError("ct")))
}
