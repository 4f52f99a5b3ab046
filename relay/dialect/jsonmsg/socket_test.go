package jsonmsg

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sotto-relay/sotto/frame"
	"github.com/sotto-relay/sotto/transport"
	"github.com/sotto-relay/sotto/transport/tcp"
	"github.com/sotto-relay/sotto/transport/udp"
	"github.com/sotto-relay/sotto/transport/ws"
)

// serve returns a rig whose peers come over sockets.
func serve(t *testing.T, medium string) *rig {
	r := newRig(t, func(r *rig) { r.hurry = true })
	var dial transport.Dialer
	switch medium {
	case "tcp":
		nl, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		go func() { _ = r.server.Serve(tcp.NewListener(nl, Framing{}, nil), r.Dialect) }()
		dial = tcp.Dialer(nl.Addr().String(), Framing{}, nil)
	case "ws":
		srv := httptest.NewServer(ws.Handler(r.server.Speak(r.Dialect), nil))
		t.Cleanup(srv.Close)
		dial = ws.Dialer("ws"+strings.TrimPrefix(srv.URL, "http"), nil)
	case "udp":
		sockets, err := udp.Listen(t.Context(), "127.0.0.1:0", 1)
		require.NoError(t, err)
		l := udp.NewListener(sockets, &udp.Options{Demux: Demux, Answer: Answer(r.server.Load)})
		go func() { _ = r.server.Serve(l, r.Dialect) }()
		plain := udp.Dialer(l.Addr().String(), nil)
		dial = func(ctx context.Context) (transport.Conn, error) {
			c, err := plain(ctx)
			return &paired{Conn: c}, err
		}
	}
	r.dial = func() transport.Conn {
		c, err := dial(t.Context())
		require.NoError(t, err)
		return c
	}
	return r
}

// A paired is a client in datagrams: it puts from_addr and token into what is
// sent, and takes the token out of what comes.
type paired struct {
	transport.Conn
	head string
}

func (c *paired) Write(k transport.Kind, msgs [][]byte) (int, error) {
	msg := string(msgs[0])
	if rest, is := strings.CutPrefix(msg, "{"); is && !strings.HasPrefix(msg, `{"t":"register"`) {
		msg = c.head + rest
	}
	return c.Conn.Write(k, [][]byte{[]byte(msg)})
}

func (c *paired) Read() (transport.Kind, []byte, error) {
	k, msg, err := c.Conn.Read()
	if err != nil || !bytes.HasPrefix(msg, []byte(`{"t":"registered"`)) {
		return k, msg, err
	}
	var m struct{ Addr, Token string }
	if err := json.Unmarshal(msg, &m); err != nil {
		return 0, nil, err
	}
	c.head = `{"from_addr":"` + m.Addr + `","token":"` + m.Token + `",`
	return k, bytes.Replace(msg, []byte(`"token":"`+m.Token+`",`), nil, 1), nil
}

// TestSockets: the main sentences of spec json.md over real sockets.
func TestSockets(t *testing.T) {
	for _, medium := range []string{"tcp", "ws", "udp"} {
		t.Run(medium, func(t *testing.T) {
			r := serve(t, medium)
			r.play(`
				alice > {"t":"register","addr":"alice"}
				alice < {"t":"registered","addr":"alice","queued":0}
				alice > {"t":"send","to":"bob","ct":"1","id":"m1"}
				alice < {"t":"queued","to":"bob","id":"m1"}`)
			bob := r.peer("bob")
			bob.say(`{"t":"register","addr":"bob"}`)
			first, second := `{"t":"deliver","from":"alice","ct":"1","id":"m1"}`, `{"t":"registered","addr":"bob","queued":1}`
			if medium == "udp" { // the backlog follows the first datagram with the token
				require.Equal(t, second, bob.hear())
				bob.say(`{"t":"leave_room","room":"r"}`)
				require.ElementsMatch(t, []string{first, left}, []string{bob.hear(), bob.hear()})
			} else {
				require.Equal(t, []string{first, second}, []string{bob.hear(), bob.hear()})
			}
			r.play(`
				bob > {"t":"ack","to":"alice","id":"m1"}
				alice < {"t":"ack","id":"m1","from":"bob"}
				alice > {"t":"send","to":"bob","ct":"2"}
				bob < {"t":"deliver","from":"alice","ct":"2"}
				alice > {"t":"find_match","game":"pong"}
				alice < {"t":"waiting","game":"pong"}
				bob > {"t":"find_match","game":"pong"}
				bob < {"t":"matched","game":"pong","peer":"alice"}
				alice < {"t":"matched","game":"pong","peer":"bob"}
				alice > {"t":"join_room","room":"r"}
				alice < {"t":"joined_room","room":"r","members":1}
				bob > {"t":"join_room","room":"r"}
				bob < {"t":"joined_room","room":"r","members":2}
				bob > {"t":"room_send","room":"r","ct":"3"}
				alice < {"t":"room_deliver","room":"r","from":"bob","ct":"3"}
				alice > {"t":"publish","topic":"a/b","ct":"4","retain":true}
				wait 50ms
				bob > {"t":"subscribe","topic":"a/+"}
				bob < {"t":"subscribed","topic":"a/+"}
				bob < {"t":"message","topic":"a/b","from":"alice","ct":"4","retained":true}
				alice > {"t":"publish","topic":"a/b","ct":"5"}
				bob < {"t":"message","topic":"a/b","from":"alice","ct":"5","retained":false}
				bob > {"t":"send"}
				bob < {"t":"error","msg":"invalid field: to"}`)
		})
	}
}

// TestStream: the framing over TCP (cases FR-14, FR-16, FR-18).
func TestStream(t *testing.T) {
	const tooLarge = "\x00\x00\x00\x27" + `{"t":"error","msg":"message too large"}`
	const invalid = "\x00\x00\x00\x22" + `{"t":"error","msg":"invalid JSON"}`
	register := func(addr string) string {
		msg := `{"t":"register","addr":"` + addr + `"}`
		return string(frame.AppendJSONHead(nil, len(msg))) + msg
	}
	const registered = "\x00\x00\x00\x2a" + `{"t":"registered","addr":"a","queued":0}`
	for name, c := range map[string]struct {
		say, hear string
		slow      bool
		ends      bool
	}{
		"length 0":             {say: "\x00\x00\x00\x00" + register("aaa"), hear: invalid + strings.ReplaceAll(registered, `"a"`, `"aaa"`)},
		"length 0 twice":       {say: "\x00\x00\x00\x00\x00\x00\x00\x00", hear: invalid + invalid},
		"length 2^32-1":        {say: "\xff\xff\xff\xff", hear: tooLarge, ends: true},
		"one over four times":  {say: "\x00\x04\x00\x01", hear: tooLarge, ends: true},
		"one over, as a whole": {say: "\x00\x01\x00\x01" + strings.Repeat("x", 65537), hear: tooLarge, ends: true},
		"GET":                  {say: "GET / HTTP/1.1\r\n\r\n", hear: tooLarge, ends: true},
		"ClientHello":          {say: "\x16\x03\x01\x00\xf0\x01", hear: tooLarge, ends: true},
		"one byte at a time":   {say: register("aaa"), hear: strings.ReplaceAll(registered, `"a"`, `"aaa"`), slow: true},
	} {
		t.Run(name, func(t *testing.T) {
			dial := serveTCP(t, newServer(t))
			p := dial()
			if c.slow {
				for i := range len(c.say) {
					_, err := p.Write([]byte(c.say[i : i+1]))
					require.NoError(t, err)
					time.Sleep(time.Millisecond)
				}
			} else {
				_, err := p.Write([]byte(c.say))
				require.NoError(t, err)
			}
			require.NoError(t, p.SetReadDeadline(time.Now().Add(5*time.Second)))
			got := make([]byte, len(c.hear))
			_, err := io.ReadFull(p, got)
			require.NoError(t, err)
			require.Equal(t, c.hear, string(got))
			if c.ends {
				rest, err := io.ReadAll(p)
				assert.NoError(t, err)
				assert.Empty(t, rest)
			}
		})
	}
}

// TestWebSocket: what is only so there: kinds, UTF-8, close codes.
func TestWebSocket(t *testing.T) {
	r := newRig(t, nil)
	srv := httptest.NewServer(ws.Handler(r.server.Speak(r.Dialect), nil))
	t.Cleanup(srv.Close)
	dial := func() *websocket.Conn {
		c, _, err := websocket.DefaultDialer.DialContext(t.Context(), "ws"+strings.TrimPrefix(srv.URL, "http"), nil)
		require.NoError(t, err)
		t.Cleanup(func() { _ = c.Close() })
		require.NoError(t, c.SetReadDeadline(time.Now().Add(5*time.Second)))
		return c
	}
	hear := func(c *websocket.Conn) string {
		k, msg, err := c.ReadMessage()
		require.NoError(t, err)
		require.Equal(t, websocket.TextMessage, k)
		return string(msg)
	}
	closed := func(c *websocket.Conn) int {
		_, msg, err := c.ReadMessage()
		var ce *websocket.CloseError
		require.ErrorAs(t, err, &ce, "%s", msg)
		return ce.Code
	}
	register := []byte(`{"t":"register","addr":"alice"}`)

	c := dial()
	require.NoError(t, c.WriteMessage(websocket.BinaryMessage, register))
	require.Equal(t, `{"t":"error","msg":"binary message"}`, hear(c))
	require.NoError(t, c.WriteMessage(websocket.TextMessage, nil))
	require.Equal(t, `{"t":"error","msg":"invalid JSON"}`, hear(c))
	require.NoError(t, c.WriteMessage(websocket.TextMessage, register))
	require.Equal(t, `{"t":"registered","addr":"alice","queued":0}`, hear(c))
	require.NoError(t, c.WriteMessage(websocket.TextMessage, make([]byte, 65_537)))
	require.Equal(t, `{"t":"error","msg":"message too large"}`, hear(c))
	require.Equal(t, websocket.CloseMessageTooBig, closed(c))

	c = dial()
	require.NoError(t, c.WriteMessage(websocket.TextMessage, []byte("{\"t\":\"\xff\"}")))
	require.Equal(t, websocket.CloseInvalidFramePayloadData, closed(c))
}

// TestDatagramSockets: capabilities without a session, and what is not answered at
// all.
func TestDatagramSockets(t *testing.T) {
	r := serve(t, "udp")
	p := r.peer("nobody")
	p.Conn.(*paired).head = "{"
	for _, msg := range []string{
		`{"t":"send","to":"x"}`, `{"t":"send","to":"x","from_addr":"a","token":"` + token(1) + `"}`, `{"t":"register","addr":"a"`, `x`,
	} {
		p.say(msg)
	}
	p.silent(50 * time.Millisecond)
	p.say(`{"t":"capabilities"}`)
	require.Equal(t, `{"t":"capabilities","load_tier":"`+r.server.Load().String()+`"}`, p.hear())
	p.say(`{"t":"register","addr":"nobody"}`)
	require.Equal(t, `{"t":"registered","addr":"nobody","queued":0}`, p.hear())
	p.say(`{"t":"capabilities"}`)
	require.Contains(t, p.hear(), `"features"`)
}
