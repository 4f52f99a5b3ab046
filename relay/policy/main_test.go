package policy_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/sotto-relay/sotto/relay"
	"github.com/sotto-relay/sotto/transport"
	"github.com/sotto-relay/sotto/transport/pipe"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// words is a dialect of text messages:
//
//	claim NAME [TOKEN]              answered "welcome"
//	auth TOKEN                      renews; answered "renewed"
//	send NAME TEXT                  the recipient gets TEXT
//	join GROUP | pub GROUP TEXT     the members get TEXT
//
// What is refused is answered "no CODE: SENTENCE", the end of a connection
// announced by "bye CODE: SENTENCE".
type words struct{}

func (words) Name() string                                    { return "words" }
func (words) Limits() relay.DialectLimits                     { return relay.DialectLimits{ReadyTimeout: time.Hour} }
func (words) NewSession(p *relay.Port) (relay.Session, error) { return &session{p}, nil }

func (words) Render(buf []byte, _ uint8, m *relay.Message) (transport.Kind, []byte, error) {
	return transport.Text, append(buf, m.Data...), nil
}

type session struct{ *relay.Port }

func (s *session) Receive(_ context.Context, _ transport.Kind, msg []byte) error {
	verb, rest, _ := strings.Cut(string(msg), " ")
	name, text, _ := strings.Cut(rest, " ")
	m := &relay.Message{To: address(name), Data: []byte(text)}
	var err error
	switch verb {
	case "claim":
		return s.Claim(relay.Claim{Address: m.To, Token: text, Greeting: []byte("welcome"), Kind: transport.Text})
	case "auth":
		if err = s.Renew(name); err == nil {
			s.reply("renewed")
		}
	case "send":
		if o := s.Send(m); o.Status == relay.Refused {
			err = &relay.Refusal{Code: o.Code}
		}
	case "join":
		err = s.Join(m.To, nil)
	case "pub":
		_, err = s.Publish(m, relay.PublishOptions{Echo: true})
	}
	if err != nil {
		s.reply("no " + line(err))
	}
	return nil
}

func (s *session) reply(text string) { s.Reply(transport.Text, []byte(text)) }
func (s *session) Close(err error)   { s.reply("bye " + line(err)) }

// line returns all that a peer may learn of a refusal.
func line(err error) string {
	r := relay.AsRefusal(err)
	return r.Code.String() + ": " + r.Sentence()
}

func address(name string) relay.Address { return relay.Address{Realm: relay.RealmBrep, Name: name} }

// A wire is the server's end of a connection, from a place and with a token.
type wire struct {
	transport.Conn
	from  net.Addr
	token string
}

func (w *wire) RemoteAddr() net.Addr { return w.from }

func (w *wire) Value(key any) any {
	if key == transport.TokenKey && w.token != "" {
		return w.token
	}
	return nil
}

// A rig is a server that speaks words under a policy.
type rig struct {
	*relay.Server
	t       *testing.T
	claimed atomic.Int32 // sessions that got an address
}

// bubble runs f with a rig in a synctest bubble.
func bubble(t *testing.T, p relay.Policy, f func(t *testing.T, r *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := &rig{t: t}
		r.Server = &relay.Server{
			Policy: p,
			Logger: slog.New(slog.DiscardHandler),
			Trace:  &relay.Trace{Claimed: func(relay.ConnInfo, relay.Address) { r.claimed.Add(1) }},
		}
		defer r.Server.Close()
		f(t, r)
	})
}

// dial connects from 192.0.2.1 with a token; empty: none.
func (r *rig) dial(token string) peer {
	client, server := pipe.New()
	from := &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 1024}
	r.Speak(words{}).HandleConn(&wire{server, from, token})
	return peer{client, r.t}
}

// login connects as name.
func (r *rig) login(name string) peer {
	r.t.Helper()
	p := r.dial("")
	p.say("claim " + name)
	p.expect("welcome")
	return p
}

type peer struct {
	transport.Conn
	t *testing.T
}

func (p peer) say(text string) {
	p.t.Helper()
	_, err := p.Write(transport.Text, [][]byte{[]byte(text)})
	require.NoError(p.t, err)
}

func (p peer) expect(want string) {
	p.t.Helper()
	_, msg, err := p.Read()
	require.NoError(p.t, err)
	require.Equal(p.t, want, string(msg))
}

// expectEnd reads the announcement of the end, if there is one to be, and the
// close code.
func (p peer) expectEnd(bye string, code uint16) {
	p.t.Helper()
	require.NoError(p.t, p.SetReadDeadline(time.Now().Add(time.Hour)))
	if bye != "" {
		p.expect("bye " + bye)
	}
	_, msg, err := p.Read()
	var ce *transport.CloseError
	if !errors.As(err, &ce) {
		require.ErrorIs(p.t, err, io.EOF, "got %q", msg)
		require.Zero(p.t, code)
		return
	}
	require.Equal(p.t, code, ce.Code)
}
