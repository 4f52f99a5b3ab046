package jsonmsg

import (
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/sotto-relay/sotto/inbox"
	"github.com/sotto-relay/sotto/relay"
	"github.com/sotto-relay/sotto/transport"
	"github.com/sotto-relay/sotto/transport/pipe"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func readVectors(t testing.TB, name string, into any) {
	t.Helper()
	data, err := os.ReadFile("testdata/" + name)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(data, into))
}

// A rig is a relay that speaks json, with its peers by name.
type rig struct {
	t      testing.TB
	server *relay.Server
	Dialect
	dial  func() transport.Conn
	hurry bool // real time
	peers map[string]*peer
	conns []transport.Conn
}

// newRig returns a rig that is closed with the test. set may be nil.
func newRig(t testing.TB, set func(*rig)) *rig {
	r := &rig{
		t:      t,
		server: &relay.Server{Inbox: inbox.NewMemory(nil), Logger: slog.New(slog.DiscardHandler)},
		peers:  make(map[string]*peer),
	}
	r.dial = func() transport.Conn {
		near, far := pipe.Options{Messages: 16}.New()
		r.server.Speak(r.Dialect).HandleConn(far)
		return near
	}
	if set != nil {
		set(r)
	}
	t.Cleanup(func() {
		for _, c := range r.conns {
			_ = c.Close(0, "")
		}
		_ = r.server.Close()
	})
	return r
}

// bubble runs f with a rig in a synctest bubble.
func bubble(t *testing.T, set func(*rig), f func(t *testing.T, r *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(t, newRig(t, set)) })
}

// A peer is the far end of a connection.
type peer struct {
	transport.Conn
	t   testing.TB
	end error // that reading ended with
}

// peer returns a peer, connected when it is first asked for.
func (r *rig) peer(name string) *peer {
	p := r.peers[name]
	if p == nil {
		p = &peer{Conn: r.dial(), t: r.t}
		r.peers[name] = p
		r.conns = append(r.conns, p.Conn)
	}
	return p
}

// as returns a peer that is registered under its name.
func (r *rig) as(name string) *peer {
	r.t.Helper()
	p := r.peer(name)
	p.say(`{"t":"register","addr":"` + name + `"}`)
	require.Equal(r.t, `{"t":"registered","addr":"`+name+`","queued":0}`, p.hear())
	return p
}

func (p *peer) say(msg string) { p.put(transport.Text, msg) }

func (p *peer) put(k transport.Kind, msg string) {
	p.t.Helper()
	require.NoError(p.t, p.SetWriteDeadline(time.Now().Add(10*time.Second)))
	for msgs := [][]byte{[]byte(msg)}; len(msgs) > 0; {
		n, err := p.Write(k, msgs)
		require.NoError(p.t, err, "writing %.200s", msg)
		msgs = msgs[n:]
	}
}

// next returns the next message, or false when nothing comes in time or the
// connection has ended.
func (p *peer) next(within time.Duration) (string, bool) {
	p.t.Helper()
	_ = p.SetReadDeadline(time.Now().Add(within))
	_, msg, err := p.Read()
	if err != nil {
		p.end = err
		return "", false
	}
	return string(msg), true
}

func (p *peer) hear() string {
	p.t.Helper()
	msg, ok := p.next(10 * time.Second)
	require.True(p.t, ok, "nothing to hear: %v", p.end)
	return msg
}

// silent makes sure that nothing comes.
func (p *peer) silent(for_ time.Duration) {
	p.t.Helper()
	msg, ok := p.next(for_)
	require.False(p.t, ok, "heard %s", msg)
	require.ErrorIs(p.t, p.end, os.ErrDeadlineExceeded)
}

// closed makes sure that the connection ends, with nothing said before, and
// returns the close code: 0 for none.
func (p *peer) closed() uint16 {
	p.t.Helper()
	msg, ok := p.next(10 * time.Second)
	require.False(p.t, ok, "heard %s", msg)
	var ce *transport.CloseError
	if errors.As(p.end, &ce) {
		return ce.Code
	}
	require.ErrorIs(p.t, p.end, io.EOF)
	return 0
}

// play runs a script, a line at a time:
//
//	alice registers          under that name, with nothing waiting
//	alice > MESSAGE          says it; >> without a pause for the rate
//	alice binary MESSAGE     says it in a binary message
//	alice < MESSAGE          hears exactly that next
//	alice silent             hears nothing
//	alice closes             the connection
//	alice closed CODE        by the relay
//	wait DURATION
//
// A peer connects when it is first named; # begins a comment, and in a line
// <x*9> stands for nine x. In the end nobody hears anything more and every copy is
// accounted for.
func (r *rig) play(script string) {
	r.t.Helper()
	for line := range strings.Lines(script) {
		line = times.ReplaceAllStringFunc(strings.TrimSpace(line), repeat)
		name, rest, _ := strings.Cut(line, " ")
		what, arg, _ := strings.Cut(rest, " ")
		if r.t.Failed() {
			return
		}
		if name == "" || name == "#" {
			continue
		}
		if name == "wait" {
			d, err := time.ParseDuration(what)
			require.NoError(r.t, err)
			time.Sleep(d)
			continue
		}
		p := r.peer(name)
		switch what {
		case "registers":
			r.as(name)
		case ">":
			if !r.hurry {
				time.Sleep(60 * time.Millisecond)
			}
			p.say(arg)
		case ">>":
			p.say(arg)
		case "binary":
			p.put(transport.Binary, arg)
		case "<":
			require.Equal(r.t, arg, p.hear(), "line: %.300s", line)
		case "silent":
			p.silent(r.moment())
		case "closes":
			_ = p.Close(transport.CloseNormal, "")
			delete(r.peers, name)
			time.Sleep(10 * time.Millisecond)
		case "closed":
			code, err := strconv.Atoi(arg)
			require.NoError(r.t, err)
			require.Equal(r.t, uint16(code), p.closed(), "line: %s", line)
			delete(r.peers, name)
		default:
			r.t.Fatalf("no such line: %s", line)
		}
	}
	for name, p := range r.peers {
		msg, ok := p.next(r.moment())
		require.False(r.t, ok, "%s also heard %s", name, msg)
		require.ErrorIs(r.t, p.end, os.ErrDeadlineExceeded, name)
	}
	r.balance()
}

// moment is long enough for everything to happen that is to happen now.
func (r *rig) moment() time.Duration {
	if r.hurry {
		return 50 * time.Millisecond
	}
	return 5 * time.Second
}

var times = regexp.MustCompile(`<([^<>]+)\*(\d+)>`)

func repeat(m string) string {
	part := times.FindStringSubmatch(m)
	n, _ := strconv.Atoi(part[2])
	return strings.Repeat(part[1], n)
}

// balance checks that every copy is accounted for.
func (r *rig) balance() relay.Stats {
	r.t.Helper()
	st := r.server.Stats()
	require.Equal(r.t, int64(st.Accepted+st.Found), int64(st.Delivered+st.Expired+st.Dropped)+st.Held, "%+v", st)
	return st
}

// A scene is a script with a name, and what is special about its relay.
type scene struct {
	name   string
	set    func(*rig)
	script string
}

func playAll(t *testing.T, scenes []scene) {
	for _, s := range scenes {
		t.Run(s.name, func(t *testing.T) {
			bubble(t, s.set, func(_ *testing.T, r *rig) { r.play(s.script) })
		})
	}
}

func times20(line string) string { return strings.Repeat(line+"\n", 20) }

// dialFrom returns a dial of connections from an IP address.
func (r *rig) dialFrom(ip string) func() transport.Conn {
	return func() transport.Conn {
		near, far := pipe.Options{Messages: 16}.New()
		r.server.Speak(r.Dialect).HandleConn(&remote{far, net.ParseIP(ip)})
		return near
	}
}

// A remote is a pipe with a remote address.
type remote struct {
	transport.Conn
	ip net.IP
}

func (c *remote) RemoteAddr() net.Addr { return &net.TCPAddr{IP: c.ip, Port: 1} }
