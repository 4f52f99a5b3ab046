package relay

import (
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sotto-relay/sotto/inbox"
	"github.com/sotto-relay/sotto/transport"
	"github.com/sotto-relay/sotto/transport/pipe"
)

func TestConfirm(t *testing.T) {
	for name, store := range map[string]func() inbox.Store{"without an inbox": func() inbox.Store { return nil }, "with an inbox": memory} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, &Server{Inbox: store()}, words{})
				alice, bob := b.as("alice"), b.dial(0)
				n := 0
				if b.Inbox != nil {
					for n < 5 {
						alice.say("send bob %d", n)
						alice.expect("stored")
						n++
					}
				}
				bob.say("at bob")
				for i := range n {
					bob.expect(fmt.Sprint("alice ", i))
				}
				bob.expect(fmt.Sprintf("at bob %d", n))
				synctest.Wait() // what has been written is deleted
				bob.say("at bob")
				bob.expect("at bob 0")
				synctest.Wait()
				alice.say("send bob live")
				bob.expect("alice live")
				synctest.Wait()
				b.balance()
			})
		})
	}
}

// What comes while the backlog is written stands behind the confirmation.
func TestConfirmAmidst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, &Server{Inbox: memory(), Limits: Limits{FlushBytes: 100}}, words{})
		alice, bob := b.as("alice"), b.dial(1)
		for i := range 50 {
			alice.say("send bob %d", i)
			alice.expect("stored")
		}
		time.Sleep(time.Second)
		bob.say("at bob")
		synctest.Wait()
		time.Sleep(time.Second)
		for i := range 10 {
			alice.say("send bob late%d", i)
			alice.expect("stored")
		}
		for i := range 50 {
			bob.expect(fmt.Sprint("alice ", i))
		}
		bob.expect("at bob 50")
		for i := range 10 {
			bob.expect(fmt.Sprint("alice late", i))
		}
		synctest.Wait()
		assert.Zero(t, b.balance().Held)
	})
}

func TestMove(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, &Server{Inbox: memory()}, words{})
		alice, p := b.as("alice"), b.dial(1)
		p.say("at one")
		p.expect("at one 0")
		synctest.Wait()
		p.say("join room")
		p.say("play chess")
		p.expect("waiting chess")
		alice.say("send two early")
		alice.expect("stored")
		for i := range 10 { // more than is on the way to a peer that reads nothing
			alice.say("send one %d", i)
			synctest.Wait()
		}
		p.say("at two")
		synctest.Wait()
		// What was on the way at that moment still comes.
		i := 0
		got := p.hear()
		for ; got == fmt.Sprint("alice ", i); got = p.hear() {
			i++
		}
		assert.Equal(t, "alice early", got)
		p.expect("at two 1")
		assert.Less(t, i, 10)

		alice.say("join room")
		alice.say("pub room hello")
		p.expect("#room alice hello")
		p.say("pub room hi")
		alice.expect("#room two hi")
		alice.say("play chess")
		alice.expect("waiting chess") // two waits no more
		alice.say("send one last")
		alice.expect("stored")
		other := b.dial(0)
		other.say("at one")
		for ; i < 10; i++ {
			other.expect(fmt.Sprint("alice ", i))
		}
		other.expect("alice last")
		assert.Contains(t, other.hear(), "at one ")
		synctest.Wait()
		assert.Zero(t, b.balance().Held)
	})
}

// TestMoveBraked: a session that may not take an address over, since too many have just
// done so, keeps the one that it has.
func TestMoveBraked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limits := Limits{TakeoverBurst: 2, TakeoverInterval: 10 * time.Second}
		b := newBench(t, &Server{Inbox: memory(), Limits: limits}, words{})
		alice := b.as("alice")
		b.as("bob")
		b.as("bob")
		bob := b.as("bob")
		alice.say("at bob")
		alice.expect("no sessions keep replacing one another")
		synctest.Wait()
		bob.say("send alice still")
		alice.expect("bob still")
		time.Sleep(10 * time.Second) // for one takeover
		alice.say("at bob")
		alice.expect("at bob 0")
		synctest.Wait()
		carol := b.as("carol")
		carol.say("send bob hello")
		alice.expect("carol hello")
		carol.say("claim bob")
		said, _ := carol.rest()
		assert.Equal(t, []string{"bye overloaded"}, said)
	})
}

// A refused move leaves a session where it was.
func TestMoveRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, &Server{Inbox: memory()}, words{inUse: Reject})
		alice, bob := b.as("alice"), b.as("bob")
		alice.say("at bob")
		alice.expect("no address in use")
		synctest.Wait()
		bob.say("send alice still")
		alice.expect("bob still")
		alice.say("send bob there")
		bob.expect("alice there")
	})
}

// Sessions move between addresses at random while others send to those: each
// message arrives once, and those of one sender to one address in order.
func TestMovesLoseNothing(t *testing.T) {
	for range 20 {
		seed := rand.Uint64()
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rnd := rand.New(rand.NewPCG(seed, 0))
				b := newBench(t, &Server{Inbox: memory()}, words{settled: func(Receipt) {}})
				sender, mover := b.as("sender"), b.dial(1+rnd.IntN(8))
				go func() { // what is stored is told
					for {
						if _, _, err := sender.Read(); err != nil {
							return
						}
					}
				}()
				const places, messages = 3, 400
				got := make(chan string, 2*messages)
				go func() {
					for {
						_, msg, err := mover.Read()
						if err != nil {
							return
						}
						if strings.HasPrefix(string(msg), "sender ") {
							got <- string(msg)
						}
					}
				}()
				for i := range messages {
					sender.say("send %d %d:%d", rnd.IntN(places), 0, i)
					if rnd.IntN(10) == 0 {
						mover.say("at %d", rnd.IntN(places))
					}
					if rnd.IntN(20) == 0 {
						time.Sleep(time.Duration(rnd.IntN(3)) * time.Millisecond)
					}
				}
				for place := range places {
					mover.say("at %d", place)
					time.Sleep(10 * time.Second)
					synctest.Wait()
				}
				close(got)
				seen := make(map[string]bool)
				for m := range got {
					require.False(t, seen[m], "%s came twice", m)
					seen[m] = true
				}
				assert.Equal(t, messages, len(seen))
				assert.Zero(t, b.balance().Held)
			})
		})
	}
}

func TestUnproven(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, &Server{Inbox: memory()}, words{})
		alice, bob, carol := b.as("alice"), b.dial(0), b.dial(0)
		alice.say("send bob early")
		alice.expect("stored")

		bob.say("unproven bob")
		carol.say("unproven carol")
		synctest.Wait()
		// The confirmations came at once, and were more than no credit allows.
		assert.EqualValues(t, 2, b.Stats().Ignored["words: reply to an unproven peer"])

		bob.say("credit 1000")
		carol.say("credit 12")
		synctest.Wait()
		alice.say("send bob behind") // its backlog, though there is credit
		alice.expect("stored")
		alice.say("send carol 12345") // 11 bytes
		carol.expect("alice 12345")
		alice.say("send carol 6") // over the credit
		alice.expect("stored")
		alice.say("once carol 7")
		alice.expect("no not-here")
		for _, p := range []peer{alice, bob, carol} {
			p.say("join room")
		}
		synctest.Wait()
		alice.say("pub room hello") // 17 bytes
		bob.expect("#room alice hello")
		carol.say("credit 1000")
		alice.say("send carol 8") // not before the 6
		alice.expect("stored")
		bob.say("prove")
		bob.expect("alice early", "alice behind")
		carol.say("prove")
		carol.expect("alice 6", "alice 8")
		synctest.Wait()
		assert.Zero(t, b.balance().Held)
	})
}

func TestUnprovenCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, &Server{Inbox: memory()}, words{})
		alice, bob := b.as("alice"), b.dial(0)
		for i := range 3 {
			alice.say("send bob %d", i)
			alice.expect("stored")
		}
		bob.say("credit 1000")
		bob.say("unproven bob")
		bob.say("credit 1000")
		bob.silent()
		bob.say("prove")
		bob.expect("alice 0", "alice 1", "alice 2")
	})
}

func TestRooms(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, &Server{}, words{limits: DialectLimits{Groups: 2, GroupMembers: 2}})
		alice, bob, carol := b.as("alice"), b.as("bob"), b.as("carol")
		alice.say("room a")
		alice.expect("room 1")
		bob.say("room a")
		bob.expect("room 2")
		alice.say("room a")
		alice.expect("room 2")
		carol.say("room a")
		carol.expect("no relay: group is full")
		bob.say("leave a")
		synctest.Wait()
		carol.say("room a")
		carol.expect("room 2")
		carol.say("room b")
		carol.expect("room 1")
		carol.say("room c")
		carol.expect("no relay: too many groups")
		require.NoError(t, carol.Close(0, ""))
		synctest.Wait()
		alice.say("room b")
		alice.expect("room 1") // it was gone
		alice.say("room a")
		alice.expect("room 2"[:5] + "1")
	})
}

// Publications that nobody may miss: who is too slow is closed, with all that
// came before what it misses.
func TestWhole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		each := 0
		b := newBench(t, &Server{}, words{
			limits: DialectLimits{OutboxMessages: 4},
			each:   func(s Session) { each++; assert.NotEmpty(t, s.(*wordsSession).name) },
		})
		alice, slow, bob := b.as("alice"), b.dial(1), b.as("bob")
		slow.say("claim slow")
		slow.expect("welcome")
		for _, p := range []peer{alice, slow, bob} {
			p.say("join g")
		}
		synctest.Wait()
		const n = 20
		for i := range n {
			alice.say("whole g %d", i)
			bob.expect(fmt.Sprint("alice ", i))
		}
		got, code := slow.rest()
		assert.Equal(t, uint16(transport.CloseTryLater), code)
		assert.Equal(t, "bye overloaded", got[len(got)-1])
		got = got[:len(got)-1]
		assert.Less(t, len(got), n)
		for i, m := range got {
			assert.Equal(t, fmt.Sprint("alice ", i), m)
		}
		synctest.Wait()
		b.balance()
		assert.Equal(t, n+len(got), each)
	})
}

func TestMatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, &Server{}, words{limits: DialectLimits{Matches: 2}, inUse: Share})
		alice, twin, bob, carol := b.as("alice"), b.as("alice"), b.as("bob"), b.as("carol")
		alice.say("play pong")
		alice.expect("waiting pong")
		alice.say("play pong")
		alice.expect("waiting pong")
		twin.say("play pong")
		twin.expect("waiting pong") // not with itself
		bob.say("play chess")
		bob.expect("waiting chess")
		bob.say("play go")
		bob.expect("waiting go")
		bob.say("play pong") // whoever finds somebody need not wait
		bob.expect("pong with alice")
		alice.expect("pong with bob")
		carol.say("play pong")
		carol.expect("pong with alice")
		twin.expect("pong with carol")
		bob.say("play draughts")
		bob.expect("no quota")
		bob.say("unplay go")
		bob.say("unplay go")
		bob.say("play draughts")
		bob.expect("waiting draughts")

		// Who goes leaves the queues.
		require.NoError(t, bob.Close(0, ""))
		synctest.Wait()
		carol.say("play chess")
		carol.expect("waiting chess")
		alice.say("play chess")
		alice.expect("chess with carol")
		carol.expect("chess with alice")
		b.games.mu.Lock()
		defer b.games.mu.Unlock()
		assert.Empty(t, b.games.queues)
	})
}

// The rate goes on where the session before was, for its address and source.
func TestLevel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, &Server{}, words{limits: DialectLimits{MessageRate: 1, MessageBurst: 10}})
		alice := b.as("alice")
		for range 7 {
			alice.say("x")
			alice.expect("what?")
		}
		require.NoError(t, alice.Close(0, ""))
		synctest.Wait()
		assert.Len(t, b.levels.of, 1)

		time.Sleep(2 * time.Second)
		bob := b.as("bob")
		for range 9 {
			bob.say("x")
			bob.expect("what?")
		}
		bob.say("x")
		_, code := bob.rest()
		assert.Equal(t, uint16(transport.ClosePolicy), code)

		alice = b.as("alice")
		for range 4 { // 10 - 8 + 2
			alice.say("x")
			alice.expect("what?")
		}
		alice.say("x")
		_, code = alice.rest()
		assert.Equal(t, uint16(transport.ClosePolicy), code)
		time.Sleep(time.Minute)
		carol := b.as("carol")
		require.NoError(t, carol.Close(0, ""))
		synctest.Wait()
		assert.Len(t, b.levels.of, 1, "swept, but for carol's")
	})
}

func TestDeliver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, &Server{Inbox: memory()}, words{limits: DialectLimits{InboxMessages: 2}})
		to, from := Address{Realm: 1, Name: "bob"}, Address{Realm: 1, Name: "me"}
		deliver := func(text string) Outcome {
			o, err := b.Deliver(t.Context(), b.d, &Message{To: to, From: from, Data: []byte(text)})
			require.NoError(t, err)
			return o
		}
		stored, cancel := b.Watch(to)
		assert.Equal(t, Outcome{Status: Stored}, deliver("1"))
		<-stored
		assert.Equal(t, Outcome{Status: Stored}, deliver("2"))
		assert.Equal(t, Outcome{Code: CodeInboxFull}, deliver("3"))
		<-stored
		select {
		case <-stored:
			t.Error("a refused message was told of")
		default:
		}
		n, err := b.Remove(t.Context(), to, 1, 7)
		require.NoError(t, err)
		assert.Equal(t, 1, n)
		assert.EqualValues(t, 1, b.balance().Delivered)
		bob := b.as("bob")
		bob.expect("2")
		synctest.Wait()
		assert.Equal(t, Outcome{Status: Delivered}, deliver("4"))
		bob.expect("4")
		cancel()
		cancel()
		require.NoError(t, bob.Close(0, ""))
		synctest.Wait()
		assert.Nil(t, b.router.find(to), "nobody holds the seat")
		assert.Zero(t, b.balance().Held)
		require.NoError(t, b.Close())
		_, err = b.Deliver(t.Context(), b.d, &Message{To: to, From: from})
		assert.ErrorIs(t, err, ErrServerClosed)
	})
}

// Somebody who has not shown that he gets what is sent to him keeps nobody out.
func TestUnprovenIsNotInUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, &Server{Inbox: memory()}, words{inUse: Reject})
		alice, ghost, bob, other := b.as("alice"), b.dial(0), b.dial(0), b.dial(0)
		ghost.say("unproven bob")
		synctest.Wait()
		bob.say("at bob")
		bob.expect("at bob 0")
		synctest.Wait()
		other.say("at bob")
		other.expect("no address in use")
		alice.say("send bob hello")
		bob.expect("alice hello")
	})
}

// A datagram says where it comes from, and may lie.
type datagramConn struct{ transport.Conn }

func (datagramConn) RemoteAddr() net.Addr { return &net.UDPAddr{IP: net.IPv4(192, 0, 2, 1)} }
func (datagramConn) Value(key any) any {
	if key == transport.DatagramKey {
		return true
	}
	return nil
}

type streamConn struct{ transport.Conn }

func (streamConn) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1)} }

// Sessions in datagrams do not take the places of connections.
func TestDatagramsHaveTheirOwnGate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, &Server{}, words{limits: DialectLimits{SourceConnections: 2, ConnectRate: 4}})
		turned := func() uint64 { return b.Stats().Turned["overloaded"] }
		open := func(wrap func(transport.Conn) transport.Conn) {
			_, server := pipe.New()
			b.Speak(b.d).HandleConn(wrap(server))
		}
		for range 50 {
			open(func(c transport.Conn) transport.Conn { return datagramConn{c} })
		}
		require.EqualValues(t, 48, turned())
		open(func(c transport.Conn) transport.Conn { return streamConn{c} })
		open(func(c transport.Conn) transport.Conn { return streamConn{c} })
		require.EqualValues(t, 48, turned())
		open(func(c transport.Conn) transport.Conn { return streamConn{c} })
		require.EqualValues(t, 49, turned())
	})
}
