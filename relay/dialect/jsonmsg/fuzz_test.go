package jsonmsg

import (
	"encoding/json"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sotto-relay/sotto/inbox"
	"github.com/sotto-relay/sotto/relay"
	"github.com/sotto-relay/sotto/transport"
	"github.com/sotto-relay/sotto/transport/pipe"
)

// noting is a Dialect that passes its sessions on.
type noting struct {
	Dialect
	sessions chan *session
}

func (d noting) NewSession(p *relay.Port) (relay.Session, error) {
	s, err := d.Dialect.NewSession(p)
	if err == nil {
		d.sessions <- s.(*session)
	}
	return s, err
}

// A lane is a connection whose session is called by the test.
type lane struct {
	*session
	peer
}

// newLane returns the lane of a peer that has said this and heard the answers.
func newLane(t testing.TB, srv *relay.Server, say ...string) *lane {
	d := noting{sessions: make(chan *session, 1)}
	near, far := pipe.Options{Messages: 4096}.New()
	srv.Speak(d).HandleConn(far)
	l := &lane{<-d.sessions, peer{Conn: near, t: t}}
	t.Cleanup(func() { _ = near.Close(0, "") })
	for _, msg := range say {
		l.say(msg)
		l.hear()
	}
	return l
}

func newServer(t testing.TB) *relay.Server {
	srv := &relay.Server{
		Inbox: inbox.NewMemory(nil), Limits: relay.MaxLimits(), Logger: slog.New(slog.DiscardHandler),
	}
	t.Cleanup(func() { _ = srv.Close() })
	return srv
}

// FuzzReceive: whatever is sent, registered or not: no panic, no end, and every
// answer is one JSON object of the words of spec json.md; what is delivered is
// what was sent.
func FuzzReceive(f *testing.F) {
	for _, s := range []string{
		`{"t":"register","addr":"alice"}`, `{"t":"register","pubkey":"` + key1 + `","prove":true}`, `{"t":"proof","proof":""}`,
		`{"t":"send","to":"fuzz","pub":"p","nonce":"n","ct":"c\u00e9","id":"m1"}`, `{"t":"ack","to":"fuzz","id":"m1"}`,
		`{"t":"find_match","game":"pong"}`, `{"t":"cancel_match","game":"pong"}`, `{"t":"join_room","room":"r"}`,
		`{"t":"leave_room","room":"r"}`, `{"t":"room_send","room":"r","ct":"x"}`, `{"t":"subscribe","topic":"a/+"}`,
		`{"t":"unsubscribe","topic":"a/+"}`, `{"t":"publish","topic":"a/b","ct":"x","retain":true}`, `{"t":"capabilities"}`,
		`{"t":"error","id":"x"}`, `{"t":"subscribe","topic":"a/#"}`, `{`, `[]`, ``,
	} {
		f.Add([]byte(s), true)
		f.Add([]byte(s), false)
	}
	const register = `{"t":"register","addr":"fuzz"}`
	strangers, server := newServer(f), newServer(f)
	server.Inbox = nil // so that what is delivered has just been sent
	fuzzed := newLane(f, server, register, `{"t":"join_room","room":"r"}`, `{"t":"subscribe","topic":"#"}`)
	f.Fuzz(func(t *testing.T, msg []byte, registered bool) {
		if len(msg) > 64<<10 {
			return
		}
		l := fuzzed
		receive := func(msg string) { require.NoError(t, l.Receive(t.Context(), transport.Text, []byte(msg))) }
		if !registered {
			l = newLane(t, strangers)
			receive = l.say // its session is only ready for this when the server reads
		} else if l.own.addr != "fuzz" {
			receive(register)
		}
		receive(string(msg))
		receive(`{"t":"","id":"the end"}`)
		valid := json.Valid(msg) && strings.HasPrefix(strings.TrimSpace(string(msg)), "{")
		for {
			require.NoError(t, l.SetReadDeadline(time.Now().Add(10*time.Second)))
			_, answer, err := l.Read()
			require.NoError(t, err)
			var m map[string]any
			require.NoError(t, json.Unmarshal(answer, &m), "%s", answer)
			require.IsType(t, "", m["t"])
			late := m["t"] == "registered" || m["retained"] == true // of a message before, perhaps
			if !valid && !late {
				require.Equal(t, "error", m["t"], "%s", answer)
			}
			if m["t"] == "deliver" {
				var sent map[string]any
				require.NoError(t, json.Unmarshal(msg, &sent))
				for _, name := range []string{"pub", "nonce", "ct", "id"} {
					require.Equal(t, sent[name], m[name])
				}
			}
			if m["id"] == "the end" {
				return
			}
		}
	})
}
