package relay

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sotto-relay/sotto/inbox"
	"github.com/sotto-relay/sotto/transport"
	"github.com/sotto-relay/sotto/transport/pipe"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// words is a dialect of text messages for tests:
//
//	claim NAME | weak NAME          answered "welcome"
//	send NAME TEXT                  the recipient gets "NAME-OF-SENDER TEXT"
//	once NAME TEXT                  likewise, never stored
//	renew TOKEN                     (claim NAME TOKEN and at NAME TOKEN present one first)
//	join GROUP | leave GROUP | pub GROUP TEXT | echo GROUP TEXT
//	room GROUP                      join, answered "room N" by the number of members
//	whole GROUP TEXT                a publication that nobody may miss
//	at NAME | unproven NAME         claims, and is answered "at NAME N" behind the backlog of N
//	credit N | prove
//	play GAME | unplay GAME         answered "waiting GAME", "GAME with NAME"
//	arrive FROM NAME TEXT | keep …  from another relay; answered with the status
//	quit                            the server ends the connection
//	form N                          sets the form; form 9 fits no message that starts with '!'
//
// What is refused is answered "no CODE", what was stored "stored".
type words struct {
	limits  DialectLimits
	settled func(Receipt)
	inUse   InUse
	each    func(Session)
	tellMe  bool // what became of messages
	acks    bool // messages have their text as id, and are acknowledged: ack NAME TEXT
}

func (w words) Name() string          { return "words" }
func (w words) Limits() DialectLimits { return w.limits }

func (w words) NewSession(p *Port) (Session, error) {
	return &wordsSession{w: w, p: p}, nil
}

func (w words) Render(buf []byte, form uint8, m *Message) (transport.Kind, []byte, error) {
	if form == 9 && strings.Contains(string(m.Data), "!") {
		return 0, nil, ErrUnfit
	}
	return transport.Text, append(buf, m.Data...), nil
}

type wordsSession struct {
	w       words
	p       *Port
	name    string
	receive func(msg []byte) error
}

func (s *wordsSession) Receive(_ context.Context, _ transport.Kind, msg []byte) error {
	if s.receive != nil {
		return s.receive(msg)
	}
	verb, rest, _ := strings.Cut(string(msg), " ")
	to, text, _ := strings.Cut(rest, " ")
	m := &Message{To: Address{Realm: 1, Name: to}, Data: []byte(s.name + " " + text)}
	switch verb {
	case "form":
		s.p.SetForm(rest[0] - '0')
	case "claim", "weak":
		s.name = to
		return s.p.Claim(Claim{Address: m.To, Greeting: []byte("welcome"), Kind: transport.Text, Weak: verb == "weak", InUse: s.w.inUse, Token: text, Acks: s.w.acks})
	case "ack":
		s.p.Acknowledge(m.To, wordsID(text), []byte("proof"))
	case "send", "once":
		if s.w.acks {
			m.ID = wordsID(text)
		}
		m.Ephemeral = verb == "once"
		switch o := s.p.Send(m); o.Status {
		case Refused:
			s.reply("no " + o.Code.String())
		case Stored:
			s.reply("stored")
		}
	case "arrive", "keep": // from a name
		m.To.Name, text, _ = strings.Cut(text, " ")
		m.From, m.Data, m.ID = Address{Realm: 1, Name: to}, []byte(to+" "+text), wordsID(text)
		send := s.p.Arrive
		if verb == "keep" {
			send = s.p.Keep
		}
		s.reply([]string{"no", "delivered", "stored", "pending"}[send(m).Status])
	case "join":
		if err := s.p.Join(m.To, nil); err != nil {
			s.reply("no " + AsRefusal(err).Code.String())
		}
	case "room":
		if err := s.p.Join(m.To, func(n int) { s.reply(fmt.Sprint("room ", n)) }); err != nil {
			s.reply(fmt.Sprint("no ", errors.Unwrap(err)))
		}
	case "leave":
		s.p.Leave(m.To)
	case "whole":
		_, _ = s.p.Publish(m, PublishOptions{Whole: true, Each: s.w.each})
	case "at", "unproven":
		s.name = to
		err := s.p.Claim(Claim{Address: m.To, InUse: s.w.inUse, Token: text, Unproven: verb == "unproven", Confirm: func(n int) {
			s.reply(fmt.Sprintf("at %s %d", to, n))
		}})
		if err != nil {
			s.name = s.p.Address().Name
			s.reply("no " + AsRefusal(err).Sentence())
		}
	case "credit":
		n, _ := strconv.Atoi(to)
		s.p.Credit(n)
	case "prove":
		s.p.Prove()
	case "play":
		if err := s.p.Match(m.To); err != nil {
			s.reply("no " + AsRefusal(err).Code.String())
		}
	case "unplay":
		s.p.CancelMatch(m.To)
	case "pub", "echo":
		m.Data = append([]byte("#"+to+" "), m.Data...)
		if _, err := s.p.Publish(m, PublishOptions{Echo: verb == "echo"}); err != nil {
			s.reply("no " + AsRefusal(err).Code.String())
		}
	case "renew":
		if err := s.p.Renew(to); err != nil {
			s.reply("no " + AsRefusal(err).Code.String())
		}
	case "after":
		s.p.After(time.Second, func() { s.reply("later") })
	case "quit":
		return &Refusal{Code: CodeDenied, Reason: "you asked"}
	case "panic":
		return errors.New("secret detail")
	default:
		s.reply("what?")
	}
	return nil
}

func (s *wordsSession) Notify(n Notice) {
	switch n.Kind {
	case NoticeWaiting:
		s.reply("waiting " + n.Name.Name)
	case NoticeMatched:
		s.reply(n.Name.Name + " with " + n.Peer.Name)
	case NoticeAcknowledged, NoticeStored, NoticeExpired, NoticeDropped:
		if s.w.tellMe {
			s.reply(fmt.Sprintf("%s: %s %s", n.Peer.Name, bytes.TrimRight(n.ID[:], "\x00"), []string{"acknowledged", "stored", "expired", "dropped"}[n.Kind-NoticeAcknowledged]))
		}
	}
}

func (s *wordsSession) Answers(msg []byte) bool { return bytes.HasPrefix(msg, []byte("ack ")) }

func wordsID(text string) (id ID) {
	copy(id[:], text)
	return id
}

func (s *wordsSession) reply(text string) { s.p.Reply(transport.Text, []byte(text)) }
func (s *wordsSession) Settled(r Receipt) {
	if s.w.settled != nil {
		s.w.settled(r)
		return
	}
	s.reply("settled " + r.Outcome.Code.String())
}

func (s *wordsSession) Close(err error) { s.reply("bye " + AsRefusal(err).Code.String()) }

// A peer is the far end of a connection in a test.
type peer struct {
	t testing.TB
	transport.Conn
}

func (p peer) say(format string, a ...any) {
	p.t.Helper()
	msgs := [][]byte{fmt.Appendf(nil, format, a...)}
	require.NoError(p.t, p.SetWriteDeadline(time.Now().Add(time.Hour)))
	for len(msgs) > 0 {
		n, err := p.Write(transport.Text, msgs)
		require.NoError(p.t, err)
		msgs = msgs[n:]
	}
}

func (p peer) hear() string {
	p.t.Helper()
	require.NoError(p.t, p.SetReadDeadline(time.Now().Add(time.Hour)))
	_, msg, err := p.Read()
	require.NoError(p.t, err)
	return string(msg)
}

// expect reads messages that have to be these, in order.
func (p peer) expect(want ...string) {
	p.t.Helper()
	for _, w := range want {
		require.Equal(p.t, w, p.hear())
	}
}

// silent makes sure that nothing comes within a minute.
func (p peer) silent() {
	p.t.Helper()
	require.NoError(p.t, p.SetReadDeadline(time.Now().Add(time.Minute)))
	_, msg, err := p.Read()
	require.Error(p.t, err, "got %q", msg)
	require.NoError(p.t, p.SetReadDeadline(time.Time{}))
}

// rest reads until the connection ends, and returns what came and the close code.
func (p peer) rest() (msgs []string, code uint16) {
	p.t.Helper()
	require.NoError(p.t, p.SetReadDeadline(time.Now().Add(time.Hour)))
	for {
		_, msg, err := p.Read()
		var ce *transport.CloseError
		switch {
		case err == nil:
			msgs = append(msgs, string(msg))
			continue
		case errors.As(err, &ce):
			code = ce.Code
		default:
			require.ErrorIs(p.t, err, io.EOF)
		}
		return msgs, code
	}
}

// A bench is a server with its dialect in a test.
type bench struct {
	*Server
	t testing.TB
	d Dialect
}

func newBench(t testing.TB, s *Server, d Dialect) *bench {
	s.Logger = slog.New(slog.DiscardHandler)
	t.Cleanup(func() { _ = s.Close() })
	return &bench{s, t, d}
}

// dial connects, with room for so many messages on the way to the peer.
func (b *bench) dial(room int) peer {
	client, server := pipe.Options{Messages: room}.New()
	b.Speak(b.d).HandleConn(server)
	return peer{b.t, client}
}

// as connects under a name.
func (b *bench) as(name string) peer {
	b.t.Helper()
	p := b.dial(0)
	p.say("claim %s", name)
	p.expect("welcome")
	return p
}

// balance checks that every copy is accounted for.
func (b *bench) balance() Stats {
	b.t.Helper()
	st := b.Stats()
	require.Equal(b.t, int64(st.Accepted+st.Found), int64(st.Delivered+st.Expired+st.Dropped)+st.Held, "%+v", st)
	return st
}

func memory() inbox.Store { return inbox.NewMemory(nil) }
