package relaytest

import (
	"cmp"
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/sotto-relay/sotto/relay"
	"github.com/sotto-relay/sotto/transport"
)

// many is more than any outbox, pipe and flush of the suite holds.
const many = 200

// live: messages between sessions that are there arrive once and in order.
func (s *suite) live() {
	alice, bob := s.as("alice"), s.as("bob")
	carol := s.as("carol")
	s.settle()
	alice.say("bob", 0, many)
	carol.say("bob", 0, many)
	bob.say("alice", 0, many)
	alice.say("alice", 0, 1)
	s.settle()
	s.want(bob.texts(), "alice", 0, many)
	s.want(bob.texts(), "carol", 0, many)
	s.want(alice.texts(), "bob", 0, many)
	s.want(alice.texts(), "alice", 0, 1)
	s.want(carol.texts(), "alice", 0, 0)
}

// absent: what is for somebody who is away comes when he does, before what is
// sent later.
func (s *suite) absent() {
	alice := s.as("alice")
	alice.say("bob", 0, many)
	s.settle()
	if st := s.server.Stats(); st.Held != many {
		s.Errorf("%d messages are held, want %d", st.Held, many)
	}
	bob := s.as("bob")
	alice.say("bob", many, 2*many)
	s.settle()
	s.want(bob.texts(), "alice", 0, 2*many)
	if st := s.server.Stats(); st.Held != 0 {
		s.Errorf("%d messages are held in the end", st.Held)
	}
}

// absentWithoutInbox: there is nowhere to keep a message, so it is refused, and
// the sender stays connected.
func (s *suite) absentWithoutInbox() {
	alice := s.as("alice")
	alice.say("bob", 0, 10)
	s.settle()
	if st := s.server.Stats(); st.Refused != 10 || st.Held != 0 {
		s.Errorf("refused %d, held %d; want 10 and 0", st.Refused, st.Held)
	}
	bob := s.as("bob")
	alice.say("bob", 10, 20)
	s.settle()
	s.want(bob.texts(), "alice", 10, 20)
}

// frozen: somebody who does not read holds up nobody, and loses nothing.
func (s *suite) frozen() {
	alice, carol, frozen := s.as("alice"), s.as("carol"), s.login("bob")
	for i := range many {
		alice.say("bob", i, i+1)
		carol.say("bob", i, i+1)
		alice.say("carol", i, i+1)
	}
	s.settle()
	s.want(carol.texts(), "alice", 0, many)
	s.balance()
	frozen.listen()
	s.settle()
	alice.say("bob", many, 2*many)
	s.settle()
	s.want(frozen.texts(), "alice", 0, 2*many)
	s.want(frozen.texts(), "carol", 0, many)
	if st := s.server.Stats(); st.Dropped != 0 || st.Held != 0 {
		s.Errorf("dropped %v, held %d; want none", st.DroppedBy, st.Held)
	}
}

// overflow: with nowhere to put what does not fit, it is refused, and what was
// not is neither lost nor out of order.
func (s *suite) overflow() {
	alice, frozen := s.as("alice"), s.login("bob")
	alice.say("bob", 0, many)
	s.settle()
	st := s.server.Stats()
	if st.Refused == 0 || st.Accepted+st.Refused != many {
		s.Errorf("accepted %d, refused %d of %d", st.Accepted, st.Refused, many)
	}
	frozen.listen()
	s.settle()
	got := frozen.texts()
	if len(got) != int(st.Accepted) || !slices.IsSortedFunc(got, byNumber) || len(slices.Compact(got)) != len(got) {
		s.Errorf("%d were accepted, and these arrived: %q", st.Accepted, frozen.texts())
	}
}

func byNumber(a, b string) int {
	return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b))
}

// cut: a connection that takes nothing for the write timeout is ended, and the
// next one of the address gets what that one did not.
func (s *suite) cut() {
	alice, frozen := s.as("alice"), s.login("bob")
	alice.say("bob", 0, many)
	time.Sleep(40 * time.Second)
	s.settle()
	frozen.listen()
	s.settle()
	select {
	case <-frozen.ended:
	default:
		s.Error("a connection that took nothing for 40 s is still there")
	}
	again := s.as("bob")
	s.settle()
	s.want(slices.Concat(frozen.texts(), again.texts()), "alice", 0, many)
}

// takeover: the newest login has the address; nothing is lost, repeated or out of
// order when it changes hands.
func (s *suite) takeover() {
	alice, first := s.as("alice"), s.as("bob")
	for i := range many / 2 {
		alice.say("bob", i, i+1)
	}
	var saying sync.WaitGroup
	saying.Go(func() { alice.say("bob", many/2, many) })
	second := s.as("bob")
	saying.Wait()
	s.settle()
	select {
	case <-first.ended:
	default:
		s.Error("the older session of the address is still there")
	}
	frozen := s.login("bob") // replaced before it has read anything
	alice.say("bob", many, 2*many)
	last := s.as("bob")
	alice.say("bob", 2*many, 3*many)
	s.settle()
	frozen.listen()
	s.settle()
	s.want(slices.Concat(first.texts(), second.texts(), frozen.texts(), last.texts()), "alice", 0, 3*many)
}

// misfit: what a session cannot take waits for one that can, and holds nothing
// up.
func (s *suite) misfit() {
	if s.c.Narrow == nil {
		s.Skip("every message fits every session")
	}
	alice := s.as("alice")
	wide := func(text string) {
		s.Helper()
		if err := alice.put(s.c.Narrow.Message("alice", "bob", text)); err != nil {
			s.Fatal(err)
		}
	}
	wide("wide 0") // waits before he comes
	s.settle()
	narrow := s.loginAs("bob", s.c.Narrow.Login, nil).listen()
	s.settle()
	wide("wide 1")
	alice.say("bob", 0, 10)
	s.settle()
	s.want(narrow.texts(), "wide", 0, 0)
	s.want(narrow.texts(), "alice", 0, 10)
	if st := s.server.Stats(); st.Held != 2 {
		s.Errorf("%d messages are held, want 2", st.Held)
	}
	able := s.as("bob")
	s.settle()
	s.want(able.texts(), "wide", 0, 2)
	s.want(able.texts(), "alice", 0, 0)
}

// shutdown: what is queued is written to those who read.
func (s *suite) shutdown() {
	alice, bob := s.as("alice"), s.login("bob")
	s.settle()
	alice.say("bob", 0, many)
	s.settle()
	bob.listen()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := s.server.Shutdown(ctx); err != nil {
		s.Errorf("Shutdown: %v", err)
	}
	<-bob.ended
	<-alice.ended
	if s.c.Ack == nil { // else the rest may wait for acknowledgements, in the inbox
		s.want(bob.texts(), "alice", 0, many)
	}
	s.restart(bob)
}

// shutdownOfFrozen: what nobody read is stored, in order.
func (s *suite) shutdownOfFrozen() {
	alice, bob := s.as("alice"), s.login("bob")
	alice.say("bob", 0, many)
	s.settle()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	_ = s.server.Shutdown(ctx)
	bob.listen()
	<-bob.ended
	s.restart(bob)
}

// restart starts another server on the inbox of the first, and checks that bob
// gets there what he did not get before.
func (s *suite) restart(bob *line) {
	s.balance()
	held := s.server.Stats().Held
	s.server = &relay.Server{Inbox: s.server.Inbox, Limits: s.server.Limits, Logger: s.server.Logger}
	again := s.as("bob")
	s.settle()
	if st := s.server.Stats(); int64(st.Found) != held {
		s.Errorf("found %d messages where %d were held", st.Found, held)
	}
	s.want(slices.Concat(bob.texts(), again.texts()), "alice", 0, many)
}

// randomBytes: whatever a peer sends, before and after its login, harms only its
// own connection.
func (s *suite) randomBytes() {
	seed := s.c.Seed
	if seed == 0 {
		seed = rand.Uint64()
	}
	s.Logf("DialectConfig.Seed: %#x", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	alice, bob := s.as("alice"), s.as("bob")
	for range 300 {
		eve := &line{s: s, name: "eve", conn: s.dial()}
		if r.IntN(2) == 0 {
			if err := s.c.Login(eve.conn, eve.name); err != nil {
				s.Fatalf("Login as eve: %v", err)
			}
		}
		for range 1 + r.IntN(5) {
			if eve.put(s.noise(r)) != nil {
				break // she has been thrown out
			}
		}
		_ = eve.conn.Close(transport.CloseNormal, "")
	}
	s.settle()
	alice.say("bob", 0, many)
	bob.say("alice", 0, many)
	s.settle()
	s.want(bob.texts(), "alice", 0, many)
	s.want(alice.texts(), "bob", 0, many)
}

// noise returns random bytes, or a message that is almost right.
func (s *suite) noise(r *rand.Rand) (transport.Kind, []byte) {
	k := transport.Kind(r.IntN(2))
	if r.IntN(2) == 0 {
		msg := make([]byte, r.IntN(1000))
		for i := range msg {
			msg[i] = byte(r.Uint32())
		}
		return k, msg
	}
	if right, msg := s.c.Message("eve", "nobody", "noise"); len(msg) > 0 {
		switch r.IntN(3) {
		case 0:
			msg = msg[:r.IntN(len(msg))]
		case 1:
			msg = append(msg, byte(r.Uint32()))
		case 2:
			msg[r.IntN(len(msg))] ^= 1 << r.IntN(8)
		}
		return right, msg
	}
	return k, nil
}
