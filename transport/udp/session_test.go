package udp

import (
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sotto-relay/sotto/transport"
)

func TestOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, unmetered())
		alice := r.open(aliceAt)
		other := r.open(port(aliceAt, 2001))
		r.say(aliceAt, "open again")
		assert.Equal(t, "open again", r.read(alice))
		assert.Empty(t, r.read(other))
		assert.Equal(t, aliceAt.String(), alice.RemoteAddr().String())
		assert.Equal(t, relayAt.String(), r.l.Addr().String())

		d, ok := alice.Value(transport.DatagramKey).(transport.Datagram)
		require.True(t, ok)
		assert.False(t, d.Proven())
		assert.Nil(t, alice.Value("something else"))

		require.NoError(t, alice.Close(transport.CloseNormal, ""))
		again := r.open(aliceAt)
		assert.NotSame(t, alice, again)
		assert.Regexp(t, "^[0-9a-f]{32}$", alice.Renew("a"), "of a session that has ended")
		assert.Empty(t, r.l.byToken)
	})
}

// TestWrongPairs: without a right pair there is neither a message nor an answer.
func TestWrongPairs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := unmetered()
		o.Answer = func([]byte) []byte { return []byte("an answer") }
		r := newRig(t, o)
		alice, token := r.proven(aliceAt, "alice")
		_, bobs := r.proven(bobAt, "bob")
		gone, expired := r.proven(port(bobAt, 3001), "gone")
		gone.Close(0, "")
		renewed := alice.Renew("alice")
		r.say(aliceAt, pair("alice", renewed, ""))
		require.NotEmpty(t, r.read(alice))
		eve, victim := r.at(eveAt), r.at(aliceAt)

		wrong := []string{
			pair("bob", renewed, ""), pair("alice", bobs, ""), pair("alice", token, ""),
			pair("gone", expired, ""), pair("", renewed, ""), pair("alicE", renewed, ""), pair("alice ", renewed, ""),
			pair("alice", renewed[:31], ""), pair("alice", renewed+"0", ""), pair("alice", strings.ToUpper(renewed), ""),
			pair("alice", strings.Repeat("0", 32), ""), pair("alice", "x", ""), pair("alice", strings.Repeat("x", 10_000), ""),
		}
		for bit := range 8 * len(renewed) {
			b := []byte(renewed)
			b[bit/8] ^= 1 << (bit % 8)
			if b[bit/8] != ' ' {
				wrong = append(wrong, pair("alice", string(b), ""))
			}
		}
		before := r.l.Stats().WrongPair
		for _, datagram := range wrong {
			r.say(eveAt, datagram)
			r.say(aliceAt, datagram)
		}
		assert.Equal(t, before+int64(2*len(wrong)), r.l.Stats().WrongPair)
		assert.Empty(t, r.read(alice))
		assert.Empty(t, r.hear(eve))
		assert.Empty(t, r.hear(victim))
		assert.Equal(t, aliceAt.String(), alice.RemoteAddr().String())
	})
}

// TestRenewal: the old token holds until the new one has been used.
func TestRenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, unmetered())
		alice, first := r.proven(aliceAt, "alice")
		use := func(name, token string) bool {
			r.say(aliceAt, pair(name, token, "x"))
			return r.read(alice) != ""
		}
		second := alice.Renew("alice")
		third := alice.Renew("carol")
		assert.NotEqual(t, first, second)
		assert.True(t, use("alice", first))
		assert.True(t, use("alice", second))
		assert.False(t, use("alice", first))
		assert.False(t, use("alice", third))
		assert.True(t, use("carol", third))
		assert.False(t, use("alice", second))
		assert.Len(t, r.l.byToken, 1)

		var tokens []string
		for range 20 {
			tokens = append(tokens, alice.Renew("carol"))
		}
		assert.Len(t, r.l.byToken, mostTokens)
		assert.True(t, use("carol", third), "the last that was used")
		assert.False(t, use("carol", tokens[4]))
		assert.True(t, use("carol", tokens[5]))
		assert.True(t, use("carol", tokens[19]))
		assert.False(t, use("carol", tokens[18]))
		alice.Close(0, "")
		assert.Empty(t, r.l.byToken)
	})
}

// TestMove goes from place to place with tokens that were issued on the way.
func TestMove(t *testing.T) {
	const away = 9 // the place of one who forges: see below
	places := map[int]string{1: "10.1.0.1:1", 2: "10.1.0.1:2", 3: "10.1.0.2:3", 4: "10.1.0.2:4", away: "10.9.0.9:9"}
	type step struct {
		at     int
		token  int // the first is 0
		proven bool
		renew  bool // another token is issued then
	}
	for name, steps := range map[string][]step{
		"the token comes back":            {{1, 0, true, false}},
		"it comes from another port":      {{2, 0, false, true}, {2, 1, true, false}},
		"from another port, and back":     {{2, 0, false, false}, {1, 0, true, false}},
		"port changes":                    {{1, 0, true, false}, {2, 0, true, false}, {1, 0, true, false}},
		"IP changes":                      {{1, 0, true, false}, {3, 0, false, true}, {3, 1, true, false}},
		"before it was proven":            {{3, 0, false, true}, {3, 1, true, false}},
		"the old token proves nothing":    {{1, 0, true, true}, {3, 0, false, false}, {3, 1, false, false}},
		"and back without proof":          {{1, 0, true, false}, {3, 0, false, false}, {1, 0, false, true}, {1, 1, true, false}},
		"port changes while unproven":     {{1, 0, true, false}, {3, 0, false, true}, {4, 1, false, true}, {4, 2, true, false}},
		"a token for where it was before": {{1, 0, true, false}, {3, 0, false, true}, {1, 0, false, false}, {3, 1, false, false}},
		"forged":                          {{1, 0, true, false}, {away, 0, false, true}, {1, 0, false, true}, {1, 2, true, false}, {away, 2, false, true}},
		"proven stays so on another port": {{1, 0, true, false}, {3, 0, false, true}, {3, 1, true, false}, {4, 1, true, false}, {3, 1, true, false}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, unmetered())
				at := func(i int) string { return places[i] }
				c := r.open(mustParse(at(1)))
				tokens := []string{c.Renew("alice")}
				for i, s := range steps {
					r.say(mustParse(at(s.at)), pair("alice", tokens[s.token], "x"))
					require.NotEmpty(t, r.read(c), i)
					assert.Equal(t, s.proven, c.Proven(), "step %d", i)
					assert.Equal(t, at(s.at), c.RemoteAddr().String())
					if s.renew {
						tokens = append(tokens, c.Renew("alice"))
					}
					there := r.at(mustParse(at(s.at)))
					send(t, c, "hi")
					assert.Equal(t, []string{"hi"}, r.hear(there), "step %d", i)
					there.Close()
				}
			})
		})
	}
}

// TestMoveToAnothersPlace: a session that comes to where one is already is not
// taken for that.
func TestMoveToAnothersPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, unmetered())
		alice, _ := r.proven(aliceAt, "alice")
		eve, token := r.proven(eveAt, "eve")
		r.say(aliceAt, pair("eve", token, "forged"))
		assert.NotEmpty(t, r.read(eve))
		assert.False(t, eve.Proven())
		r.say(aliceAt, "open again")
		assert.Equal(t, "open again", r.read(alice))
		eve.Close(0, "")
		r.say(aliceAt, "open once more")
		assert.Equal(t, "open once more", r.read(alice))
	})
}

// TestForgedOpen: whoever forges a datagram that opens a session neither moves one
// nor proves one.
func TestForgedOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, unmetered())
		c := r.open(aliceAt)
		first := c.Renew("alice")
		r.say(aliceAt, "open, forged")
		second := c.Renew("eve")
		assert.False(t, c.Proven())
		r.say(aliceAt, pair("alice", first, "x"))
		assert.True(t, c.Proven())
		r.say(aliceAt, "open, forged")
		c.Renew("eve")
		assert.True(t, c.Proven())
		r.say(aliceAt, pair("alice", first, "x"))
		r.say(aliceAt, pair("eve", second, "x"))
		got := 0
		for r.read(c) != "" {
			got++
		}
		assert.Equal(t, 5, got)
	})
}

// TestCredit: an unproven source is sent three times what came from there, the
// message with the first token aside.
func TestCredit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, unmetered())
		victim := r.at(aliceAt)
		c := r.open(aliceAt) // 4 bytes
		send(t, c, "123456789012", "3", "")
		assert.Equal(t, []string{"123456789012", ""}, r.hear(victim), "three times as much, and not a byte more")
		assert.EqualValues(t, 1, r.l.Stats().Unproven)

		token := c.Renew("alice")
		greeting := strings.Repeat("x", 200)
		send(t, c, greeting, "4")
		assert.Equal(t, []string{greeting}, r.hear(victim), "the first token")
		c.Renew("alice")
		send(t, c, "5")
		assert.Empty(t, r.hear(victim), "there is one first token")

		r.say(aliceAt, "open") // forged, perhaps
		send(t, c, "123456789012", "6")
		assert.Equal(t, []string{"123456789012"}, r.hear(victim))

		r.say(aliceAt, pair("alice", token, ""))
		big := strings.Repeat("y", 10_000)
		send(t, c, big, big)
		assert.Len(t, r.hear(victim), 2, "proven")

		// Somebody who has a token has the session be somewhere else.
		second := r.at(bobAt)
		attack := pair("alice", token, "")
		r.say(bobAt, attack)
		c.Renew("alice")
		limit := 3 * len(attack)
		send(t, c, strings.Repeat("z", limit+1), strings.Repeat("z", limit), "z")
		assert.Equal(t, []string{strings.Repeat("z", limit)}, r.hear(second))
		// And at another port of that address.
		third := r.at(port(bobAt, 3001))
		r.say(port(bobAt, 3001), attack)
		send(t, c, strings.Repeat("z", limit), "z")
		assert.Len(t, r.hear(third), 1)
	})
}

// TestFlood writes to an unproven session as much as it takes, while somebody
// sends in its name.
func TestFlood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Options{Demux: demux})
		victim := r.at(aliceAt)
		c := r.open(aliceAt)
		c.Renew("alice")
		in, out := 4, 0
		for i := range 200 {
			text := "open" + strings.Repeat("x", i%30)
			r.say(aliceAt, text)
			in += len(text)
			send(t, c, strings.Repeat("y", 100), "abc")
		}
		for i, m := range r.hear(victim) {
			if i > 0 { // the message with the token
				out += len(m)
			}
		}
		assert.LessOrEqual(t, out, 3*in)
		assert.Greater(t, out, in)
	})
}

func TestAnswer(t *testing.T) {
	for _, test := range []struct{ say, want string }{
		{"?1", "?1"}, {"?3abc", strings.Repeat("?3abc", 3)}, {"?4abc", ""}, {"?3+", ""}, {"?2+", "?2+?2+!"}, {"?0", ""}, {"nonsense", ""},
	} {
		synctest.Test(t, func(t *testing.T) {
			o := unmetered()
			o.Answer = answer
			r := newRig(t, o)
			eve := r.at(eveAt)
			go r.l.Accept()
			r.say(eveAt, test.say)
			assert.Equal(t, test.want, strings.Join(r.hear(eve), "|"))
			st := r.l.Stats()
			assert.EqualValues(t, 1, st.Sent+st.Unanswered)
		})
	}
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, unmetered())
		eve := r.at(eveAt)
		go r.l.Accept()
		r.say(eveAt, "?1")
		assert.Empty(t, r.hear(eve), "there is no Answer")
	})
}

// TestSizes has datagrams of every size, with a read limit of 1,000 bytes and with
// none.
func TestSizes(t *testing.T) {
	const small = 1000
	for _, limit := range []int{small, 1 << 20} {
		for _, size := range []int{0, 1, 500, small, small + 1, 4 * small, 4*small + 1, maxDatagram, maxDatagram + 1, 65_507} {
			t.Run(fmt.Sprint(limit, size), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					r := newRig(t, unmetered())
					c, token := r.proven(aliceAt, "alice")
					c.SetReadLimit(limit)
					head := pair("alice", token, "")
					fill := func(head string) string { return (head + strings.Repeat("x", 1<<16))[:size] }
					before := r.l.Stats()
					if size >= len(head) {
						r.say(aliceAt, fill(head))
						r.say(aliceAt, fill(head)) // also behind another
						kind, b, err := c.Read()
						switch {
						case size > 4*limit:
							assert.Equal(t, transport.ErrTooLarge, err)
							send(t, c, "an answer")
							_, _, err = c.Read()
							assert.Equal(t, &transport.CloseError{Code: transport.CloseTooLarge, Reason: "message too large"}, err)
							_, err = c.Write(transport.Binary, [][]byte{{1}})
							assert.Equal(t, net.ErrClosed, err)
							return
						case size > limit || size > maxDatagram:
							assert.Equal(t, transport.ErrTooLarge, err)
						default:
							assert.NoError(t, err)
							assert.Equal(t, fill(head), string(b))
							assert.Equal(t, transport.Binary, kind)
						}
						_, _, again := c.Read()
						assert.Equal(t, err, again)
						r.say(aliceAt, pair("alice", token, "next"))
						assert.Equal(t, pair("alice", token, "next"), r.read(c))
					}
					before = r.l.Stats()
					r.say(eveAt, fill("nonsense"))
					r.say(port(aliceAt, 2001), fill("open"))
					after := r.l.Stats()
					assert.Empty(t, r.read(c))
					switch {
					case size == 0:
						assert.EqualValues(t, 2, after.Empty-before.Empty)
					case size < 4:
						assert.EqualValues(t, 2, after.Unanswered-before.Unanswered)
					case size > maxDatagram:
						assert.EqualValues(t, 1, after.TooLarge-before.TooLarge)
						assert.EqualValues(t, 1, after.Unanswered-before.Unanswered)
					default:
						opened, err := r.l.Accept()
						require.NoError(t, err)
						assert.Equal(t, port(aliceAt, 2001).String(), opened.RemoteAddr().String())
					}
				})
			})
		}
	}
}

// TestIdle: a session from which nothing comes ends, and nothing is sent to where
// it was.
func TestIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, unmetered())
		c, token := r.proven(aliceAt, "alice")
		here := r.at(aliceAt)
		time.Sleep(4 * time.Minute)
		r.say(aliceAt, pair("alice", token, ""))
		require.NotEmpty(t, r.read(c))
		last := time.Now()
		time.Sleep(4 * time.Minute)
		send(t, c, "what is sent does not count")
		require.NoError(t, c.SetReadDeadline(time.Time{}))
		_, _, err := c.Read()
		assert.Equal(t, io.EOF, err)
		assert.Equal(t, 5*time.Minute, time.Since(last).Round(time.Second))
		require.Len(t, r.hear(here), 1)

		_, err = c.Write(transport.Binary, [][]byte{[]byte("late")})
		assert.Equal(t, net.ErrClosed, err)
		r.say(aliceAt, pair("alice", token, ""))
		assert.Empty(t, r.hear(here))
		assert.EqualValues(t, 1, r.l.Stats().WrongPair)
		assert.Empty(t, r.l.conns)
		assert.Empty(t, r.l.bySource)
		assert.NotSame(t, c, r.open(aliceAt))
	})
}
