package udp

import (
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sotto-relay/sotto/transport"
)

// A tape is a socket that keeps what is written to it.
type tape struct{ sent []letter }

type letter struct {
	to   netip.AddrPort
	body string
}

func (t *tape) read([]packet) (int, error) { return 0, net.ErrClosed }
func (t *tape) Close() error               { return nil }
func (t *tape) LocalAddr() net.Addr        { return net.UDPAddrFromAddrPort(relayAt) }
func (t *tape) write(msgs [][]byte, to net.Addr) (int, error) {
	for _, m := range msgs {
		t.sent = append(t.sent, letter{to.(*net.UDPAddr).AddrPort(), string(m)})
	}
	return len(msgs), nil
}

// A session is what a conn should be, told from its history.
type session struct {
	conn   *conn
	over   bool
	at     netip.AddrPort
	events []event

	// At this source: bytes in and out, and whether the message with the first
	// token is still to come.
	in, out  int
	greeting bool
}

// An event is that a token was issued or used, at a source.
type event struct {
	used        bool
	name, token string
	at          netip.AddrPort
}

// holds says whether a pair is right: it has been issued, and nothing newer has
// been used since.
func (s *session) holds(name, token string) bool {
	i := slices.Index(s.events, event{false, name, token, s.issuedAt(token)})
	if s.over || i < 0 {
		return false
	}
	for j, newer := range s.events {
		if j > i && newer.used && s.issued(newer.token) > i {
			return false
		}
	}
	return true
}

func (s *session) issued(token string) int {
	return slices.IndexFunc(s.events, func(e event) bool { return !e.used && e.token == token })
}

func (s *session) issuedAt(token string) netip.AddrPort {
	if i := s.issued(token); i >= 0 {
		return s.events[i].at
	}
	return netip.AddrPort{}
}

// proven looks for a token that was issued and used at one source, after the last
// move to another IP address.
func (s *session) proven() bool {
	moved := -1
	for i, e := range s.events {
		if i > 0 && e.at.Addr() != s.events[i-1].at.Addr() {
			moved = i
		}
	}
	for _, e := range s.events[moved+1:] {
		if i := s.issued(e.token); e.used && i > moved && s.events[i].at == e.at {
			return true
		}
	}
	return false
}

// arrive notes a datagram that was for the session.
func (s *session) arrive(from netip.AddrPort, size int) {
	if from != s.at {
		s.at, s.in, s.out, s.greeting = from, 0, 0, false
	}
	s.in += size
}

// A world is a listener and what should have become of it.
type world struct {
	*testing.T
	l        *Listener
	tape     *tape
	sessions []*session
	random   func(n int) int
	tokens   []event // all that were ever issued
}

var places = []netip.AddrPort{aliceAt, port(aliceAt, 2001), bobAt, port(bobAt, 3001), eveAt}

// step does something to the listener, and says what.
func (w *world) step() string {
	from := places[w.random(len(places))]
	switch w.random(8) {
	case 0:
		text := "open" + strings.Repeat("x", w.random(50))
		w.receive(from, text, w.opened(from))
		return fmt.Sprintf("%v opens", from)
	case 1, 2, 3:
		if len(w.tokens) == 0 {
			return ""
		}
		t := w.tokens[w.random(len(w.tokens))]
		name := []string{t.name, t.name, t.name, "alice", "bob"}[w.random(5)]
		value := []byte(t.token)
		if w.random(8) == 0 {
			value[w.random(len(value))] ^= 1
		}
		var want *session
		for _, s := range w.sessions {
			if s.holds(name, string(value)) {
				want = s
				s.events = append(s.events, event{true, name, string(value), from})
			}
		}
		w.receive(from, pair(name, string(value), ""), want)
		return fmt.Sprintf("%v uses %q %.4s", from, name, value)
	case 4:
		b := make([]byte, w.random(100))
		for i := range b {
			b[i] = "@? 1345\x00"[w.random(8)]
		}
		w.receive(from, string(b), nil)
		return fmt.Sprintf("%v says %q", from, b)
	}
	if len(w.sessions) == 0 {
		return ""
	}
	s := w.sessions[w.random(len(w.sessions))]
	switch w.random(8) {
	case 0:
		s.over = true
		s.conn.Close(0, "")
		return "close"
	case 1, 2:
		if len(s.events) > 10 { // so that no token goes because there are too many
			return ""
		}
		name := []string{"alice", "bob"}[w.random(2)]
		if s.issued("") < 0 && !slices.ContainsFunc(s.events, func(e event) bool { return !e.used }) {
			s.greeting = true
		}
		t := event{false, name, s.conn.Renew(name), s.at}
		require.Len(w, t.token, 32)
		s.events, w.tokens = append(s.events, t), append(w.tokens, t)
		return fmt.Sprintf("%v is to be %q %.4s", s.at, name, t.token)
	}
	return w.write(s, w.random(200))
}

func (w *world) write(s *session, size int) string {
	body := strings.Repeat("y", size)
	before := len(w.tape.sent)
	n, err := s.conn.TryWrite(transport.Binary, [][]byte{[]byte(body)})
	switch {
	case s.over:
		require.ErrorIs(w, err, net.ErrClosed)
		require.Len(w, w.tape.sent, before)
	case s.proven() || s.greeting || s.out+size <= 3*s.in:
		require.Equal(w, 1, n)
		require.Equal(w, []letter{{s.at, body}}, w.tape.sent[before:])
		if !s.greeting {
			s.out += size
		}
		s.greeting = false
	default:
		require.Equal(w, 1, n)
		require.Len(w, w.tape.sent, before, "%d bytes, after %d for %d", size, s.out, s.in)
	}
	return fmt.Sprintf("%v is sent %d", s.at, size)
}

// opened returns the session that an opening datagram is for, made if need be.
func (w *world) opened(from netip.AddrPort) *session {
	c := w.l.bySource[from]
	for _, s := range w.sessions {
		if s.conn == c {
			require.False(w, s.over)
			require.Equal(w, from, s.at)
			return s
		}
	}
	require.Nil(w, c)
	s := &session{at: from}
	w.sessions = append(w.sessions, s)
	return s
}

// receive has a datagram come, and be for a session; nil: for none.
func (w *world) receive(from netip.AddrPort, datagram string, want *session) {
	if want != nil {
		want.arrive(from, len(datagram))
	}
	before := len(w.tape.sent)
	w.l.receive(w.tape, from, []byte(datagram), w.l.now())
	if want != nil && want.conn == nil {
		want.conn = (<-w.l.backlog)
	}
	for _, s := range w.sessions {
		if s.conn.in != nil {
			require.Same(w, want, s)
			_, b, err := s.conn.Read()
			require.NoError(w, err)
			require.Equal(w, datagram, string(b))
			want = nil
		}
	}
	require.Nil(w, want, "it did not arrive")
	for _, a := range w.tape.sent[before:] {
		require.Equal(w, "?", datagram[:1], "answered")
		require.Equal(w, from, a.to)
		require.LessOrEqual(w, len(a.body), 3*len(datagram))
	}
}

// check compares the state of the listener with what it should be.
func (w *world) check() {
	held, live := 0, 0
	for _, s := range w.sessions {
		if s.over {
			continue
		}
		live++
		require.Equal(w, s.proven(), s.conn.Proven())
		require.Equal(w, s.at, s.conn.source)
		require.Equal(w, s.at.String(), s.conn.RemoteAddr().String())
		for _, t := range w.tokens {
			if s.holds(t.name, t.token) {
				held++
			}
		}
	}
	require.Len(w, w.l.byToken, held)
	require.Len(w, w.l.conns, live)
	for at, c := range w.l.bySource {
		require.Equal(w, at, c.source)
		require.Contains(w, w.l.conns, c)
	}
}

// run does so many things to a new listener, and compares it with the model.
func run(t *testing.T, steps int, random func(n int) int) {
	o := unmetered()
	o.Answer = answer
	l := NewListener(nil, &o)
	defer l.fail(net.ErrClosed)
	w := &world{T: t, l: l, tape: new(tape), random: random}
	var did []string
	defer func() {
		if t.Failed() {
			t.Logf("after %s", strings.Join(did, "; "))
		}
	}()
	for range steps {
		did = append(did, w.step())
		w.check()
	}
}

func TestModel(t *testing.T) {
	begun := time.Now()
	for seed := uint64(0); time.Since(begun) < 500*time.Millisecond; seed++ {
		ok := t.Run(fmt.Sprint(seed), func(t *testing.T) { run(t, 100, rand.New(rand.NewPCG(seed, 0)).IntN) })
		if !ok {
			break
		}
	}
}

// FuzzListener has the fuzzer say what happens.
func FuzzListener(f *testing.F) {
	f.Add([]byte{0, 0, 1, 0, 5, 0, 1, 0, 2, 1, 0, 0, 7})
	for seed := range byte(8) {
		b := make([]byte, 180)
		r := rand.New(rand.NewPCG(uint64(seed), 1))
		for i := range b {
			b[i] = byte(r.Uint32())
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		run(t, min(len(b)/3, 60), func(n int) int {
			if len(b) == 0 {
				return 0
			}
			v := int(b[0]) % n
			b = b[1:]
			return v
		})
	})
}

// FuzzReceive has strangers send anything from anywhere.
func FuzzReceive(f *testing.F) {
	f.Add([]byte("open"), []byte{10, 0, 0, 1}, uint16(1))
	f.Add([]byte("@a 0123456789abcdef0123456789abcdef x"), make([]byte, 16), uint16(0))
	f.Add([]byte("?"), []byte("\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\xff\xff\x7f\x00\x00\x01"), uint16(65535))
	f.Add([]byte{}, []byte{}, uint16(1))
	f.Fuzz(func(t *testing.T, datagram, ip []byte, p uint16) {
		o := unmetered()
		o.Answer = answer
		l := NewListener(nil, &o)
		defer l.fail(net.ErrClosed)
		s := new(tape)
		l.receive(s, aliceAt, []byte("open"), 0)
		alice := <-l.backlog
		token := alice.Renew("a")
		a, _ := netip.AddrFromSlice(ip)
		from := netip.AddrPortFrom(a.Unmap(), p)
		l.receive(s, from, datagram, 0)
		for _, letter := range s.sent {
			assert.LessOrEqual(t, len(letter.body), 3*len(datagram))
		}
		if from != aliceAt {
			assert.Equal(t, aliceAt, alice.source)
		}
		assert.False(t, alice.Proven())
		l.receive(s, aliceAt, []byte(pair("a", token, "")), 0)
		assert.True(t, alice.Proven())
		st := l.Stats()
		opened := int64(len(l.backlog))
		assert.Equal(t, int64(1), opened+st.Sent+st.Unanswered+st.WrongPair+st.TooLarge+st.Empty+int64(len(alice.in.sizes)-2))
	})
}
