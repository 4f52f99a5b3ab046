package jsonmsg

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sotto-relay/sotto/crypto"
	"github.com/sotto-relay/sotto/relay"
	"github.com/sotto-relay/sotto/transport"
	"github.com/sotto-relay/sotto/transport/pipe"
)

// A fake is a medium of datagrams that does as the test says: what transport/udp
// would check of from_addr and token is right here.
type fake struct {
	transport.Conn // the relay's end

	mu     sync.Mutex
	proven bool
	names  []string // of the tokens, which are numbered from 1
}

func (f *fake) Value(key any) any {
	if key == transport.DatagramKey {
		return f
	}
	return nil
}

func (f *fake) Renew(name string) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.names = append(f.names, name)
	return token(len(f.names))
}

func (f *fake) Proven() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.proven
}

func (f *fake) prove(is bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.proven = is
}

func token(n int) string { return fmt.Sprintf("%032x", n) }

// device returns a peer that speaks in datagrams.
func (r *rig) device(name string) (*peer, *fake) {
	near, far := pipe.Options{Messages: 1000}.New()
	f := &fake{Conn: far}
	r.server.Speak(r.Dialect).HandleConn(f)
	p := &peer{Conn: near, t: r.t}
	r.peers[name] = p
	r.conns = append(r.conns, near)
	return p, f
}

// with returns a message of a registered device.
func with(from string, n int, rest string) string {
	return fmt.Sprintf(`{"from_addr":%q,"token":"%s",%s}`, from, token(n), rest)
}

// in returns a message of a registered device that does nothing.
func in(from string, n int) string { return with(from, n, `"t":"leave_room","room":"r"`) }

// quietly returns a message of a registered device that is not answered.
func quietly(from string, n int) string { return with(from, n, `"t":"ack","to":"nobody","id":"x"`) }

const left = `{"t":"left_room","room":"r"}`

func registeredWith(addr string, n, queued int) string {
	return fmt.Sprintf(`{"t":"registered","addr":%q,"token":"%s","queued":%d}`, addr, token(n), queued)
}

// TestDatagramRegister: nothing but a little is sent before the token has come
// back, then the backlog is (case UD-01).
func TestDatagramRegister(t *testing.T) {
	bubble(t, nil, func(t *testing.T, r *rig) {
		alice := r.as("alice")
		for i := range 3 {
			alice.say(fmt.Sprintf(`{"t":"send","to":"dev","id":"m%d"}`, i))
			require.Contains(t, alice.hear(), `"queued"`)
		}
		dev, f := r.device("dev")
		dev.say(`{"t":"register","addr":"dev"}`)
		require.Equal(t, registeredWith("dev", 1, 3), dev.hear())
		dev.silent(time.Second)

		// The backlog is in front of what is live.
		alice.say(`{"t":"send","to":"dev","id":"m3"}`)
		require.Equal(t, `{"t":"queued","to":"dev","id":"m3"}`, alice.hear())
		require.Equal(t, 4, r.balanceOf("dev"))

		f.prove(true)
		dev.say(quietly("dev", 1))
		for i := range 4 {
			require.Equal(t, fmt.Sprintf(`{"t":"deliver","from":"alice","id":"m%d"}`, i), dev.hear())
		}
		dev.silent(time.Second) // until it is known that nothing waits
		alice.say(`{"t":"send","to":"dev","id":"m4"}`)
		require.Equal(t, `{"t":"deliver","from":"alice","id":"m4"}`, dev.hear())
		dev.say(with("dev", 1, `"t":"send","to":"alice"`))
		require.Equal(t, `{"t":"deliver","from":"dev"}`, alice.hear())
		require.Zero(t, r.balanceOf("dev"))
		r.play(``)
	})
}

// balanceOf returns how many messages wait for an address.
func (r *rig) balanceOf(addr string) int {
	r.balance()
	n, _, err := r.server.Inbox.Count(r.t.Context(), address(addr))
	require.NoError(r.t, err)
	return n
}

// TestDatagramCredit: without a backlog, what is live comes within three times the
// bytes that came in; the rest is queued.
func TestDatagramCredit(t *testing.T) {
	bubble(t, nil, func(t *testing.T, r *rig) {
		alice := r.as("alice")
		dev, f := r.device("dev")
		register := `{"t":"register","addr":"dev","x":"` + strings.Repeat("x", 100) + `"}`
		dev.say(register)
		require.Equal(t, registeredWith("dev", 1, 0), dev.hear())
		dev.silent(time.Second) // until it is known that nothing waits
		credit := 3 * len(register)
		deliver := `{"t":"deliver","from":"alice","ct":"` + strings.Repeat("c", 100) + `"}`
		for credit >= len(deliver) {
			credit -= len(deliver)
			alice.say(`{"t":"send","to":"dev","ct":"` + strings.Repeat("c", 100) + `"}`)
			require.Equal(t, deliver, dev.hear())
		}
		for range 2 { // also a short one, which would fit: it must not pass the other
			alice.say(`{"t":"send","to":"dev","ct":"` + strings.Repeat("c", 100) + `"}`)
			require.Equal(t, `{"t":"queued","to":"dev"}`, alice.hear())
			alice.say(`{"t":"send","to":"dev"}`)
			require.Equal(t, `{"t":"queued","to":"dev"}`, alice.hear())
		}
		dev.silent(time.Second)
		f.prove(true)
		dev.say(quietly("dev", 1))
		for range 2 {
			require.Equal(t, deliver, dev.hear())
			require.Equal(t, `{"t":"deliver","from":"alice"}`, dev.hear())
		}
		r.play(``)
	})
}

// TestDatagramAmplification: whatever an unproven source sends, it is sent no more
// than three times that, the first registered aside (case UD-04).
func TestDatagramAmplification(t *testing.T) {
	bubble(t, func(r *rig) { r.server.Limits = relay.MaxLimits() }, func(t *testing.T, r *rig) {
		seed := rand.Uint64()
		random := rand.New(rand.NewPCG(seed, 0))
		alice := r.as("alice")
		r.as("taken")
		for range 50 {
			dev, _ := r.device("dev")
			in, out, first := 0, 0, -1
			for range 20 {
				msg := []string{
					`{"t":"register","addr":"dev"}`, `{"t":"register","addr":"taken"}`, `{"t":"register","addr":"d"}`,
					fmt.Sprintf(`{"t":"register","addr":"d%d"}`, random.IntN(5)), `{"t":"register"}`,
					`{"t":"x"}`, `{"t":"send","to":"a"}`, `{"t":"capabilities"}`, `{"t":"register","id":"` + strings.Repeat("i", 300) + `"}`,
				}[random.IntN(9)]
				dev.say(msg)
				in += len(msg)
				alice.say(`{"t":"send","to":"dev","ct":"x"}`)
				for {
					answer, ok := dev.next(time.Millisecond)
					if !ok {
						break
					}
					if first < 0 && strings.HasPrefix(answer, `{"t":"registered"`) {
						first = len(answer)
						continue
					}
					out += len(answer)
				}
				require.LessOrEqual(t, out, 3*in, "seed %d", seed)
				for ok := true; ok; _, ok = alice.next(time.Millisecond) {
				}
			}
			_ = dev.Close(0, "")
			time.Sleep(time.Second)
		}
	})
}

// TestDatagramTakeover: a registration of an address that is in use takes effect
// when its token has come back; until then the old session goes on (case UD-02).
func TestDatagramTakeover(t *testing.T) {
	for name, set := range map[string]func(*rig){"takeover": nil, "share": inUse(relay.Share)} {
		t.Run(name, func(t *testing.T) {
			bubble(t, set, func(t *testing.T, r *rig) {
				alice, bob := r.as("alice"), r.as("bob")
				dev, f := r.device("dev")
				dev.say(`{"t":"register","addr":"bob"}`)
				require.Equal(t, registeredWith("bob", 1, 0), dev.hear())
				alice.say(`{"t":"send","to":"bob","ct":"1"}`)
				require.Equal(t, `{"t":"deliver","from":"alice","ct":"1"}`, bob.hear())
				dev.silent(time.Second)

				f.prove(true)
				dev.say(in("bob", 1))
				require.Equal(t, left, dev.hear())
				dev.silent(time.Second) // until it is known that nothing waits
				alice.say(`{"t":"send","to":"bob","ct":"2"}`)
				require.Equal(t, `{"t":"deliver","from":"alice","ct":"2"}`, dev.hear())
				if set == nil {
					require.Equal(t, `{"t":"error","msg":"address taken over by a new connection"}`, bob.hear())
					require.EqualValues(t, 1008, bob.closed())
					delete(r.peers, "bob")
				} else {
					require.Equal(t, `{"t":"deliver","from":"alice","ct":"2"}`, bob.hear())
				}
				r.play(``)
			})
		})
	}
	t.Run("reject", func(t *testing.T) {
		bubble(t, inUse(relay.Reject), func(t *testing.T, r *rig) {
			r.as("bob")
			dev, f := r.device("dev")
			dev.say(`{"t":"register","addr":"bob","id":"m"}`)
			require.Equal(t, `{"t":"error","msg":"address in use","id":"m"}`, dev.hear())
			f.prove(true)
			dev.say(in("bob", 1))
			require.Equal(t, `{"t":"error","msg":"not registered"}`, dev.hear())
			r.play(``)
		})
	})
}

// TestDatagramAgain: the same address again is answered with a new token; another
// one takes effect with a datagram that has its token.
func TestDatagramAgain(t *testing.T) {
	bubble(t, nil, func(t *testing.T, r *rig) {
		alice := r.as("alice")
		dev, f := r.device("dev")
		dev.say(`{"t":"register","addr":"dev"}`)
		require.Equal(t, registeredWith("dev", 1, 0), dev.hear())
		dev.say(`{"t":"register","addr":"dev"}`)
		require.Equal(t, registeredWith("dev", 2, 0), dev.hear())
		f.prove(true)
		dev.say(in("dev", 2))
		require.Equal(t, left, dev.hear())
		dev.silent(time.Second) // until it is known that nothing waits
		dev.say(`{"t":"register","addr":"dev"}`)
		require.Equal(t, registeredWith("dev", 3, 0), dev.hear())

		// Anybody can have sent this one.
		alice.say(`{"t":"send","to":"new","ct":"0"}`)
		require.Equal(t, `{"t":"queued","to":"new"}`, alice.hear())
		dev.say(`{"t":"register","addr":"new"}`)
		require.Equal(t, registeredWith("new", 4, 1), dev.hear())
		dev.say(with("dev", 3, `"t":"send","to":"alice","ct":"1"`))
		require.Equal(t, `{"t":"deliver","from":"dev","ct":"1"}`, alice.hear())
		alice.say(`{"t":"send","to":"dev","ct":"2"}`)
		require.Equal(t, `{"t":"deliver","from":"alice","ct":"2"}`, dev.hear())

		dev.say(with("new", 4, `"t":"send","to":"alice","ct":"3"`))
		require.Equal(t, `{"t":"deliver","from":"new","ct":"3"}`, alice.hear())
		require.Equal(t, `{"t":"deliver","from":"alice","ct":"0"}`, dev.hear())
		alice.say(`{"t":"send","to":"dev","ct":"4"}`)
		require.Equal(t, `{"t":"queued","to":"dev"}`, alice.hear())
		assert.Equal(t, []string{"dev", "dev", "dev", "new"}, f.names)
		r.play(``)
	})
}

// TestDatagramOfAnother: a token says for which address a datagram speaks. One of a
// registration that another has replaced, as anybody can who forges the source, is
// not taken for one of the address that the session has.
func TestDatagramOfAnother(t *testing.T) {
	bubble(t, nil, func(t *testing.T, r *rig) {
		alice := r.as("alice")
		dev, f := r.device("dev")
		dev.say(`{"t":"register","addr":"dev"}`)
		require.Equal(t, registeredWith("dev", 1, 0), dev.hear())
		f.prove(true)
		dev.say(in("dev", 1))
		require.Equal(t, left, dev.hear())
		for n, addr := range []string{"new", "forged"} {
			dev.say(`{"t":"register","addr":"` + addr + `"}`)
			require.Equal(t, registeredWith(addr, n+2, 0), dev.hear())
		}
		for _, proven := range []bool{true, false} {
			f.prove(proven)
			dev.say(with("new", 2, `"t":"send","to":"alice","ct":"1"`))
			if !proven { // it has moved, and is told the token of the address that it has
				require.Equal(t, registeredWith("dev", 4, 0), dev.hear())
			}
			alice.silent(time.Second)
			dev.silent(time.Second)
		}
		f.prove(true)
		dev.say(with("forged", 3, `"t":"send","to":"alice","ct":"2"`))
		require.Equal(t, `{"t":"deliver","from":"forged","ct":"2"}`, alice.hear())
		r.play(``)
	})
}

// TestDatagramRefused: a registration that is refused, as anybody can send it who forges
// the source, changes nothing for one that waits for its token.
func TestDatagramRefused(t *testing.T) {
	private := func(r *rig) {
		r.server.Policy.Claim = func(_ context.Context, c relay.ClaimInfo) (relay.Grant, error) {
			if c.Address.Name == "private" {
				return relay.Grant{}, &relay.Refusal{Code: relay.CodeDenied, Reason: "not for you"}
			}
			return relay.Grant{}, nil
		}
	}
	bubble(t, private, func(t *testing.T, r *rig) {
		alice, bob := r.as("alice"), r.as("bob")
		dev, f := r.device("dev")
		dev.say(`{"t":"register","addr":"bob"}`)
		require.Equal(t, registeredWith("bob", 1, 0), dev.hear())
		dev.say(`{"t":"register","addr":"private"}`)
		require.Equal(t, `{"t":"error","msg":"not for you"}`, dev.hear())
		f.prove(true)
		dev.say(with("bob", 1, `"t":"send","to":"alice","ct":"1"`))
		require.Equal(t, `{"t":"deliver","from":"bob","ct":"1"}`, alice.hear())
		require.Equal(t, `{"t":"error","msg":"address taken over by a new connection"}`, bob.hear())
	})
}

// TestDatagramBindsItsOwn: a registration that took the address at once binds the name
// with its token, also when another one, which may be forged, came in between.
func TestDatagramBindsItsOwn(t *testing.T) {
	bubble(t, nil, func(t *testing.T, r *rig) {
		dev, f := r.device("dev")
		dev.say(`{"t":"register","addr":"dev","pubkey":"` + key1 + `"}`)
		require.Equal(t, registeredWith("dev", 1, 0), dev.hear())
		dev.say(`{"t":"register","addr":"forged","pubkey":"` + key2 + `"}`)
		require.Equal(t, registeredWith("forged", 2, 0), dev.hear())
		f.prove(true)
		for range 2 {
			dev.say(in("dev", 1))
			require.Equal(t, left, dev.hear())
		}
		eve := r.peer("eve")
		eve.say(`{"t":"register","addr":"dev","pubkey":"` + key2 + `"}`)
		require.Equal(t, `{"t":"error","msg":"alias bound to a different key"}`, eve.hear())
		// The other one, if it is not forged after all, has the address but binds nothing.
		dev.say(in("forged", 2))
		require.Equal(t, left, dev.hear())
		eve.say(`{"t":"register","addr":"forged","pubkey":"` + key1 + `"}`)
		require.Equal(t, `{"t":"registered","addr":"forged","queued":0}`, eve.hear())
	})
}

// TestDatagramMoves: at another IP the session starts unproven, and every datagram
// from there is answered with a new token until that has come back (case UD-07).
func TestDatagramMoves(t *testing.T) {
	bubble(t, nil, func(t *testing.T, r *rig) {
		alice := r.as("alice")
		dev, f := r.device("dev")
		dev.say(`{"t":"register","addr":"dev"}`)
		require.Equal(t, registeredWith("dev", 1, 0), dev.hear())
		f.prove(true)
		dev.say(in("dev", 1))
		require.Equal(t, left, dev.hear())

		f.prove(false)
		for n := 2; n < 4; n++ {
			dev.say(with("dev", 1, `"t":"send","to":"alice","ct":"1"`))
			require.Equal(t, registeredWith("dev", n, 0), dev.hear())
			require.Equal(t, `{"t":"deliver","from":"dev","ct":"1"}`, alice.hear())
		}
		for i := range 3 {
			alice.say(fmt.Sprintf(`{"t":"send","to":"dev","ct":"%d%s"}`, i, strings.Repeat("x", 1000)))
			require.Equal(t, `{"t":"queued","to":"dev"}`, alice.hear())
		}
		dev.silent(time.Second)
		f.prove(true)
		dev.say(quietly("dev", 3))
		for i := range 3 {
			require.Equal(t, fmt.Sprintf(`{"t":"deliver","from":"alice","ct":"%d%s"}`, i, strings.Repeat("x", 1000)), dev.hear())
		}
		r.play(``)
	})
}

// TestDatagramAlias: a name is bound when the token has come back. Who loses it
// until then loses the address.
func TestDatagramAlias(t *testing.T) {
	bubble(t, nil, func(t *testing.T, r *rig) {
		register := func(addr, key string) string {
			return `{"t":"register","addr":"` + addr + `","pubkey":"` + key + `"}`
		}
		dev, f := r.device("dev")
		dev.say(register("dev", key1))
		require.Equal(t, registeredWith("dev", 1, 0), dev.hear())
		f.prove(true)
		dev.say(in("dev", 1))
		require.Equal(t, left, dev.hear())
		eve, _ := r.device("eve")
		eve.say(register("dev", key2))
		require.Equal(t, `{"t":"error","msg":"alias bound to a different key"}`, eve.hear())

		// Nobody binds a name in somebody else's, who has sent no token.
		eve.say(register("alice", key2))
		require.Equal(t, registeredWith("alice", 1, 0), eve.hear())
		alice := r.peer("alice")
		alice.say(register("alice", key1))
		require.Equal(t, `{"t":"registered","addr":"alice","queued":0}`, alice.hear())
		require.Equal(t, `{"t":"error","msg":"address taken over by a new connection"}`, eve.hear())
		_ = eve.closed()

		// Nor does he keep it when it was bound meanwhile.
		key, err := crypto.ParseX25519Key(key1)
		require.NoError(t, err)
		bound := page{used: time.Now(), key: key}
		for name, msg := range map[string]string{
			"carol": register("carol", key2), "dave": `{"t":"register","addr":"dave"}`,
		} {
			mallory, f := r.device("mallory")
			mallory.say(msg)
			require.Equal(t, registeredWith(name, 1, 0), mallory.hear())
			require.NoError(t, r.server.State.Put(t.Context(), "json-alias", name, bound.encode()))
			f.prove(true)
			mallory.say(with(name, 1, `"t":"send","to":"alice","ct":"1"`)) // nor says anything in it
			require.Equal(t, `{"t":"error","msg":"alias bound to a different key"}`, mallory.hear())
			require.EqualValues(t, 1008, mallory.closed())
			delete(r.peers, "mallory")
		}
		delete(r.peers, "eve")
		r.play(``)
	})
}

// TestDatagramForged: a register with another key, which anybody can send in the
// name of a source, binds no name to that key, whichever came first.
func TestDatagramForged(t *testing.T) {
	mine := `{"t":"register","addr":"dev","pubkey":"` + key1 + `"}`
	forged := `{"t":"register","addr":"dev","pubkey":"` + key2 + `"}`
	for name, c := range map[string]struct {
		says  []string
		taken bool // by another session, when they come
		bound string
	}{
		"none":                            {[]string{mine, mine}, false, key1},
		"first":                           {[]string{forged, mine}, false, ""},
		"last":                            {[]string{mine, forged}, false, ""},
		"without a key":                   {[]string{mine, `{"t":"register","addr":"dev"}`}, false, ""},
		"none, in use":                    {[]string{mine, mine}, true, key1},
		"first, in use":                   {[]string{forged, mine}, true, ""},
		"last, in use":                    {[]string{mine, forged}, true, ""},
		"thrice, in use":                  {[]string{mine, forged, mine}, true, ""},
		"with another name between them":  {[]string{forged, `{"t":"register","addr":"x"}`, mine}, false, ""},
		"none, but another name":          {[]string{mine, `{"t":"register","addr":"x"}`, mine}, false, key1},
		"last and again, in use":          {[]string{mine, forged, forged}, true, ""},
		"last, and another name, in use":  {[]string{mine, `{"t":"register","addr":"x"}`, forged}, true, ""},
		"first, and another name, in use": {[]string{forged, `{"t":"register","addr":"x"}`, mine}, true, ""},
		"again afterwards":                {[]string{mine, "", forged}, false, key1},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, nil, func(t *testing.T, r *rig) {
				if c.taken {
					r.as("dev")
				}
				dev, f := r.device("device")
				n := 0
				for _, msg := range c.says {
					if msg == "" {
						f.prove(true)
						dev.say(in("dev", n))
						require.Equal(t, left, dev.hear())
						continue
					}
					dev.say(msg)
					if answer := dev.hear(); answer != `{"t":"error","msg":"alias bound to a different key"}` {
						n++
						require.Contains(t, []string{registeredWith("dev", n, 0), registeredWith("x", n, 0)}, answer)
					}
				}
				f.prove(true)
				dev.say(in("dev", n))
				require.Equal(t, left, dev.hear())
				b, ok, err := r.server.State.Get(t.Context(), "json-alias", "dev")
				require.NoError(t, err)
				require.Equal(t, c.bound != "", ok)
				if ok {
					require.Equal(t, c.bound, crypto.X25519Key(decodePage(b).key).String())
				}
			})
		})
	}
}

// TestDatagramTooLarge: an oversized datagram is answered, and the session stays:
// its peer would not learn that it is over.
func TestDatagramTooLarge(t *testing.T) {
	bubble(t, nil, func(t *testing.T, r *rig) {
		dev, f := r.device("dev")
		dev.say(`{"t":"register","addr":"dev"}`)
		require.Equal(t, registeredWith("dev", 1, 0), dev.hear())
		f.prove(true)
		dev.say(with("dev", 1, `"t":"send","to":"x","ct":"`+strings.Repeat("c", 70_000)+`"`))
		require.Equal(t, `{"t":"error","msg":"message too large"}`, dev.hear())
		dev.say(in("dev", 1))
		require.Equal(t, left, dev.hear())
	})
}

// TestDatagramUnfit: what is too long for a datagram waits for another medium, and
// later ones pass it (case UD-10).
func TestDatagramUnfit(t *testing.T) {
	bubble(t, nil, func(t *testing.T, r *rig) {
		alice := r.as("alice")
		dev, f := r.device("dev")
		dev.say(`{"t":"register","addr":"dev"}`)
		require.Equal(t, registeredWith("dev", 1, 0), dev.hear())
		f.prove(true)
		dev.say(in("dev", 1))
		require.Equal(t, left, dev.hear())

		const head = len(`{"t":"deliver","from":"alice","ct":""}`)
		fits := strings.Repeat("c", 16_384-head)
		alice.say(`{"t":"send","to":"dev","ct":"` + fits + `"}`)
		require.Equal(t, `{"t":"deliver","from":"alice","ct":"`+fits+`"}`, dev.hear())
		alice.say(`{"t":"send","to":"dev","ct":"` + fits + `c"}`)
		require.Equal(t, `{"t":"queued","to":"dev"}`, alice.hear())
		alice.say(`{"t":"send","to":"dev","ct":"later"}`)
		require.Equal(t, `{"t":"deliver","from":"alice","ct":"later"}`, dev.hear())
		dev.silent(time.Second)

		whole := r.peer("whole")
		whole.say(`{"t":"register","addr":"dev"}`)
		require.Equal(t, `{"t":"deliver","from":"alice","ct":"`+fits+`c"}`, whole.hear())
		require.Equal(t, `{"t":"registered","addr":"dev","queued":1}`, whole.hear())
	})
}

// TestDatagramWithoutProofs: there are none in datagrams: a wish for one is
// ignored, and what needs one is refused.
func TestDatagramWithoutProofs(t *testing.T) {
	bubble(t, withProofs, func(t *testing.T, r *rig) {
		key, pub := holder(t, 1)
		register := `{"t":"register","addr":"dev","pubkey":"` + pub + `","prove":true}`
		dev, f := r.device("dev")
		dev.say(register)
		require.Equal(t, registeredWith("dev", 1, 0), dev.hear())
		f.prove(true)
		dev.say(with("dev", 1, `"t":"proof","proof":"x"`))
		require.Equal(t, `{"t":"error","msg":"proof failed"}`, dev.hear())
		dev.say(with("dev", 1, `"t":"capabilities"`))
		msg := dev.hear()
		require.Contains(t, msg, `"features"`)
		require.NotContains(t, msg, `"proof"`)

		p := r.peer("p")
		p.say(register)
		p.say(proofOf(p.open(key).plain[52:]))
		require.Equal(t, `{"t":"registered","addr":"dev","queued":0}`, p.hear())
		again, _ := r.device("again")
		again.say(register)
		require.Equal(t, `{"t":"error","msg":"proof failed"}`, again.hear())
	})
}
