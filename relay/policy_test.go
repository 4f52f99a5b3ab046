package relay

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sotto-relay/sotto/transport"
	"github.com/sotto-relay/sotto/transport/pipe"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestPolicy(t *testing.T) {
	denied := &Refusal{Code: CodeDenied, Reason: "no"}
	slow := func(ctx context.Context) error { time.Sleep(time.Hour); return nil } // pays no attention to ctx
	for name, c := range map[string]struct {
		policy Policy
		say    []string
		hear   []string
		close  uint16 // 0: the session goes on
	}{
		"connect": {
			policy: Policy{Connect: func(context.Context, ConnInfo) error { return denied }},
			close:  transport.ClosePolicy,
		},
		"connect, detail": {
			policy: Policy{Connect: func(context.Context, ConnInfo) error { return errors.New("secret") }},
			close:  transport.CloseInternal,
		},
		"connect, panic": {
			policy: Policy{Connect: func(context.Context, ConnInfo) error { panic("oh") }},
			close:  transport.CloseInternal,
		},
		"connect, slow": {
			policy: Policy{Connect: func(ctx context.Context, _ ConnInfo) error { return slow(ctx) }},
			close:  transport.CloseTryLater,
		},
		"claim": {
			policy: Policy{Claim: func(_ context.Context, i ClaimInfo) (Grant, error) {
				if i.Address.Name == "alice" && i.Token == "good" {
					return Grant{}, nil
				}
				return Grant{}, denied
			}},
			say: []string{"claim alice bad"}, hear: []string{"bye denied"}, close: transport.ClosePolicy,
		},
		"claim, token": {
			policy: Policy{Claim: func(_ context.Context, i ClaimInfo) (Grant, error) {
				if i.Token == "good" {
					return Grant{}, nil
				}
				return Grant{}, denied
			}},
			say: []string{"claim alice good", "renew bad", "renew good", "x"}, hear: []string{"welcome", "no denied", "what?"},
		},
		"claim, slow": {
			policy: Policy{Claim: func(ctx context.Context, _ ClaimInfo) (Grant, error) { return Grant{}, slow(ctx) }},
			say:    []string{"claim alice"}, hear: []string{"bye overloaded"}, close: transport.CloseTryLater,
		},
		"send": {
			policy: Policy{Send: func(_ context.Context, i SendInfo) error {
				if i.To.Name == "eve" || i.From.Name != "alice" || i.Size == 0 {
					return denied
				}
				return nil
			}},
			say: []string{"claim alice", "send eve x", "send alice x"}, hear: []string{"welcome", "no denied", "alice x"},
		},
		"send, close": {
			policy: Policy{Send: func(context.Context, SendInfo) error {
				return &Refusal{Code: CodeDenied, Close: transport.ClosePolicy}
			}},
			say: []string{"claim alice", "send alice x"}, hear: []string{"welcome", "no denied", "bye denied"}, close: transport.ClosePolicy,
		},
		"send, panic": {
			policy: Policy{Send: func(context.Context, SendInfo) error { panic("oh") }},
			say:    []string{"claim alice", "send alice x"}, hear: []string{"welcome", "no internal", "bye internal"}, close: transport.CloseInternal,
		},
		"join and publish": {
			policy: Policy{
				Join: func(_ context.Context, i JoinInfo) error {
					if i.Group.Name == "secret" {
						return denied
					}
					return nil
				},
				Publish: func(_ context.Context, i SendInfo) error {
					if i.To.Name == "quiet" {
						return denied
					}
					return nil
				},
			},
			say:  []string{"claim alice", "join secret", "join quiet", "echo quiet x", "join loud", "echo loud x"},
			hear: []string{"welcome", "no denied", "no denied", "#loud alice x"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, &Server{Policy: c.policy}, words{})
				p := b.dial(0)
				for _, s := range c.say {
					_, _ = p.Write(transport.Text, [][]byte{[]byte(s)})
				}
				p.expect(c.hear...)
				if c.close != 0 {
					said, code := p.rest()
					assert.Empty(t, said)
					assert.Equal(t, c.close, code)
					synctest.Wait()
					assert.Zero(t, b.Stats().Sessions)
				} else {
					p.say("z")
					p.expect("what?")
				}
				time.Sleep(2 * time.Hour) // for the slow ones to end
			})
		})
	}
}

// A hook that answers after the connection has gone makes no session.
func TestLatePolicy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		answer := make(chan struct{})
		b := newBench(t, &Server{Policy: Policy{Claim: func(context.Context, ClaimInfo) (Grant, error) {
			<-answer
			return Grant{}, nil
		}}}, words{})
		p := b.dial(0)
		p.say("claim alice")
		synctest.Wait()
		_ = p.Close(1000, "")
		b.Kick(Match{Conn: 1}, &Refusal{Code: CodeDenied})
		synctest.Wait()
		close(answer)
		synctest.Wait()
		assert.False(t, b.online(Address{Realm: 1, Name: "alice"}))
		assert.Zero(t, leftSeats(b.Server))
	})
}

func TestGrantExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, &Server{Policy: Policy{Claim: func(_ context.Context, i ClaimInfo) (Grant, error) {
			d, err := time.ParseDuration(i.Token)
			return Grant{Expires: time.Now().Add(d)}, err
		}}}, words{})
		p := b.dial(0)
		start := time.Now()
		p.say("claim alice 10s")
		p.expect("welcome")
		time.Sleep(9 * time.Second)
		p.say("renew 20s")
		said, code := p.rest()
		assert.Equal(t, 29*time.Second, time.Since(start))
		assert.Equal(t, []string{"bye not-authenticated"}, said)
		assert.Equal(t, uint16(transport.ClosePolicy), code)
	})
}

// TestRefusedClaimChangesNoGrant: a session that asks for another address in vain, with
// another token, keeps what it was granted for its own, and no longer than that.
func TestRefusedClaimChangesNoGrant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, &Server{Policy: Policy{Claim: func(_ context.Context, i ClaimInfo) (Grant, error) {
			if i.Token == "forever" {
				return Grant{}, nil
			}
			d, err := time.ParseDuration(i.Token)
			return Grant{Expires: time.Now().Add(d)}, err
		}}}, words{inUse: Reject})
		bob := b.dial(0)
		bob.say("at bob forever")
		bob.expect("at bob 0")
		start, alice := time.Now(), b.dial(0)
		alice.say("at alice 10s")
		alice.expect("at alice 0")
		alice.say("at bob forever")
		alice.expect("no address in use")
		alice.say("at carol nonsense")
		alice.expect("no internal")
		time.Sleep(5 * time.Second)
		alice.say("at carol") // with the token that it has
		alice.expect("at carol 0")
		alice.say("at bob forever")
		alice.expect("no address in use")
		said, _ := alice.rest()
		assert.Equal(t, []string{"bye not-authenticated"}, said)
		assert.Equal(t, 15*time.Second, time.Since(start))
	})
}

func TestKick(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, &Server{Inbox: memory()}, words{})
		alice, bob := b.as("alice"), b.as("bob")
		frozen := b.dial(1)
		frozen.say("claim carol")
		frozen.expect("welcome")
		for i := range 10 {
			alice.say("send carol %d", i)
		}
		synctest.Wait()
		start := time.Now()
		assert.Zero(t, b.Kick(Match{}, &Refusal{Code: CodeDenied}))
		assert.Zero(t, b.Kick(Match{Address: Address{Realm: 1, Name: "dave"}}, &Refusal{Code: CodeDenied}))
		assert.Equal(t, 1, b.Kick(Match{Address: Address{Realm: 1, Name: "carol"}}, &Refusal{Code: CodeDenied}))
		assert.LessOrEqual(t, time.Since(start), 100*time.Millisecond)
		assert.Equal(t, 2, b.Stats().Sessions)
		said, code := frozen.rest()
		assert.Equal(t, []string{"alice 0"}, said)
		assert.Equal(t, uint16(transport.ClosePolicy), code)

		var id uint64
		for s := range b.Sessions() {
			if s.Address.Name == "bob" {
				id = s.ID
			}
		}
		assert.Equal(t, 1, b.Kick(Match{Conn: id}, &Refusal{Code: CodeDenied}))
		said, _ = bob.rest()
		assert.Equal(t, []string{"bye denied"}, said)
		b.as("carol").expect("alice 1")
		b.balance()
	})
}

func TestInUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, &Server{Inbox: memory()}, words{inUse: Reject})
		first := b.as("alice")
		second := b.dial(0)
		second.say("claim alice")
		said, code := second.rest()
		assert.Equal(t, []string{"bye denied"}, said)
		assert.Equal(t, uint16(transport.ClosePolicy), code)
		synctest.Wait() // until it has caught up with its inbox
		first.say("send alice x")
		first.expect("alice x")
	})
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, &Server{Inbox: memory()}, words{inUse: Share})
		bob := b.as("bob")
		bob.say("send alice stored")
		bob.expect("stored")
		first, second, third := b.as("alice"), b.as("alice"), b.as("alice")
		first.expect("alice stored"[:0] + "bob stored")
		bob.say("send alice x")
		for _, p := range []peer{first, second, third} {
			p.expect("bob x")
		}
		first.say("quit")
		_, _ = first.rest()
		synctest.Wait()
		bob.say("send alice y")
		second.expect("bob y")
		third.expect("bob y")
		third.say("quit")
		_, _ = third.rest()
		synctest.Wait()
		bob.say("send alice z")
		second.expect("bob z")
		second.say("quit")
		_, _ = second.rest()
		synctest.Wait()
		bob.say("send alice later")
		bob.expect("stored")
		b.as("alice").expect("bob later")
		synctest.Wait()
		assert.Zero(t, b.balance().Held)
	})
}

// Two devices that keep replacing each other are slowed down.
func TestBrake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, &Server{Limits: Limits{TakeoverBurst: 3, TakeoverInterval: 10 * time.Second}}, words{})
		b.as("alice")
		for range 3 {
			b.as("alice")
		}
		p := b.dial(0)
		p.say("claim alice")
		said, code := p.rest()
		assert.Equal(t, []string{"bye overloaded"}, said)
		assert.Equal(t, uint16(transport.CloseTryLater), code)
		time.Sleep(10 * time.Second)
		b.as("alice")
	})
}

func TestTrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var got []string
		note := func(s string) {
			mu.Lock()
			defer mu.Unlock()
			got = append(got, s)
		}
		b := newBench(t, &Server{
			Limits: Limits{Dialects: map[string]DialectLimits{"words": {ConnectRate: 1}}},
			Trace: &Trace{
				Opened:  func(i ConnInfo) { note("opened " + itoa(int(i.ID))) },
				Claimed: func(i ConnInfo, a Address) { note("claimed " + itoa(int(i.ID)) + " " + a.Name) },
				Closed:  func(i ConnInfo, r *Refusal) { note("closed " + itoa(int(i.ID)) + " " + r.Code.String()) },
				Turned: func(i ConnInfo, r *Refusal) {
					note("turned " + itoa(int(i.ID)) + " " + r.Code.String())
					panic("contained")
				},
			},
		}, words{})
		p := b.as("alice")
		_, code := b.dial(0).rest()
		assert.Equal(t, uint16(transport.CloseTryLater), code)
		p.say("quit")
		_, _ = p.rest()
		synctest.Wait()
		require.Equal(t, []string{"opened 1", "claimed 1 alice", "turned 2 overloaded", "closed 1 denied"}, got)
		assert.Equal(t, uint64(1), b.Stats().Turned["overloaded"])
		assert.Equal(t, uint64(1), b.Stats().Ended["denied"])
	})
}

// A login that was held up does not take over from that of a newer connection.
func TestStaleLogin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, &Server{}, words{})
		stale := b.dial(0)
		synctest.Wait()
		fresh := b.as("alice")
		stale.say("claim alice")
		said, _ := stale.rest()
		assert.Equal(t, []string{"bye replaced"}, said)
		fresh.say("send alice x")
		fresh.expect("alice x")
	})
}

// What an embedder gives by mistake ends no process.
func TestNilRefusals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var none *Refusal
		b := newBench(t, &Server{Policy: Policy{Send: func(context.Context, SendInfo) error { return none }}}, words{})
		alice := b.as("alice")
		alice.say("send alice x")
		alice.expect("no internal")
		assert.Equal(t, 1, b.Kick(Match{Conn: 1}, nil))
		said, code := alice.rest()
		assert.Equal(t, []string{"bye denied"}, said)
		assert.Equal(t, uint16(transport.ClosePolicy), code)
	})
}

// A session sends from its beginning and from timers too, and has one address.
func TestSendAtAnyTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Hour)
		b := newBench(t, &Server{Inbox: memory()}, eager{})
		time.Sleep(time.Hour)
		p := b.dial(0)
		p.expect("stored", "internal: relay: the session has an address already", "stored")
		time.Sleep(30 * time.Minute)
		b.d = words{}
		b.as("bob").expect("early", "late")
	})
}

// eager is a dialect whose sessions send by themselves, to be kept for an hour.
type eager struct{ words }

func (eager) NewSession(p *Port) (Session, error) {
	s := &wordsSession{p: p}
	send := func(text string) {
		o := p.Send(&Message{To: Address{Realm: 1, Name: "bob"}, Data: []byte(text), TTL: time.Hour})
		s.reply(map[Status]string{Stored: "stored"}[o.Status])
	}
	send("early")
	p.After(time.Second, func() { send("late") })
	_ = p.Claim(Claim{Address: Address{Realm: 1, Name: "one"}, Acks: true})
	s.reply(p.Claim(Claim{Address: Address{Realm: 1, Name: "two"}}).Error())
	return s, nil
}

func TestTurnedAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, &Server{Limits: Limits{Unready: 1}}, words{})
		b.dial(0)
		_, server := pipe.New()
		var r *Refusal
		require.ErrorAs(t, b.ServeConn(t.Context(), server, words{}), &r)
		assert.Equal(t, CodeOverloaded, r.Code)
		require.NoError(t, b.Close())
		_, server = pipe.New()
		require.ErrorIs(t, b.ServeConn(t.Context(), server, words{}), ErrServerClosed)
	})
}
