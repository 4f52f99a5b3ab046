package ws

import (
	"bufio"
	"context"
	"crypto/sha1"
	"encoding/base64"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sotto-relay/sotto/transport"
)

var closeAtOnce = transport.HandlerFunc(func(c transport.Conn) { c.Close(transport.CloseNormal, "") })

// TestUpgrade sends requests as they stand. A line that is prefixed with "-"
// removes that header from the usual request.
func TestUpgrade(t *testing.T) {
	origins := []string{"https://App.example", "http://dev.example:8080", "https://[::1]:444"}
	protocols := []string{"brep.2", "brep.1"}
	for _, test := range []struct {
		name  string
		lines []string
		want  int
		proto string
	}{
		{"plain", nil, 101, ""},
		{"Upgrade in capitals", []string{"-Upgrade", "UPGRADE: WebSocket"}, 101, ""},
		{"Connection list", []string{"-Connection", "Connection: keep-alive, Upgrade"}, 101, ""},
		{"Connection without", []string{"-Connection", "Connection: keep-alive"}, 400, ""},
		{"no Upgrade", []string{"-Upgrade"}, 400, ""},
		{"no key", []string{"-Sec-WebSocket-Key"}, 400, ""},
		{"short key", []string{"-Sec-WebSocket-Key", "Sec-WebSocket-Key: AAAA"}, 400, ""},
		{"old version", []string{"-Sec-WebSocket-Version", "Sec-WebSocket-Version: 8"}, 400, ""},
		{"no version", []string{"-Sec-WebSocket-Version"}, 400, ""},
		{"POST", []string{"-GET", "Content-Length: 0"}, 405, ""},

		{"origin", []string{"Origin: https://app.example"}, 101, ""},
		{"origin with its default port", []string{"Origin: https://app.EXAMPLE:443"}, 101, ""},
		{"origin with a port", []string{"Origin: http://dev.example:8080"}, 101, ""},
		{"origin of IPv6", []string{"Origin: https://[::1]:444"}, 101, ""},
		{"other scheme", []string{"Origin: http://app.example"}, 403, ""},
		{"other port", []string{"Origin: https://app.example:444"}, 403, ""},
		{"no port", []string{"Origin: http://dev.example"}, 403, ""},
		{"suffix", []string{"Origin: https://app.example.evil.example"}, 403, ""},
		{"prefix", []string{"Origin: https://evilapp.example"}, 403, ""},
		{"user", []string{"Origin: https://app.example@evil.example"}, 403, ""},
		{"user and the right host", []string{"Origin: https://evil@app.example"}, 403, ""},
		{"path", []string{"Origin: https://app.example/"}, 403, ""},
		{"null", []string{"Origin: null"}, 403, ""},
		{"empty", []string{"Origin: "}, 403, ""},
		{"garbage", []string{"Origin: https://%zz"}, 403, ""},
		{"two", []string{"Origin: https://app.example", "Origin: https://app.example"}, 400, ""},
		{"forwarded host", []string{"Origin: https://evil.example", "X-Forwarded-Host: evil.example"}, 403, ""},

		{"one protocol", []string{"Sec-WebSocket-Protocol: brep.1"}, 101, "brep.1"},
		{"server's order", []string{"Sec-WebSocket-Protocol: x, brep.1 ,brep.2"}, 101, "brep.2"},
		{"unknown protocol", []string{"Sec-WebSocket-Protocol: x"}, 101, ""},
		{"protocol in capitals", []string{"Sec-WebSocket-Protocol: BREP.1"}, 101, ""},

		{"compression", []string{"Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits"}, 101, ""},
		{"long header", []string{"X: " + strings.Repeat("x", 1<<20+5000)}, 431, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			url := serve(t, false, nil, Handler(closeAtOnce, &Options{Origins: origins, Subprotocols: protocols}))
			head := request
			for _, line := range test.lines {
				name, remove := strings.CutPrefix(line, "-")
				switch {
				case name == "GET":
					head = strings.Replace(head, "GET", "POST", 1)
				case remove:
					begin := strings.Index(head, name+":")
					head = head[:begin] + head[begin+strings.Index(head[begin:], "\n")+1:]
				default:
					head += line + "\r\n"
				}
			}
			c, resp := tryWire(t, url, head+"\r\n")
			assert.Equal(t, test.want, resp.StatusCode)
			assert.Equal(t, test.proto, resp.Header.Get("Sec-WebSocket-Protocol"))
			assert.Empty(t, resp.Header.Get("Sec-WebSocket-Extensions"))
			if strings.Contains(test.name, "version") {
				assert.Equal(t, "13", resp.Header.Get("Sec-WebSocket-Version"))
			}
			c.Close()
		})
	}
}

func TestUpgradeOverHTTP2(t *testing.T) {
	w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodConnect, "/", nil)
	r.ProtoMajor, r.ProtoMinor = 2, 0
	Handler(closeAtOnce, nil).ServeHTTP(w, r)
	assert.Equal(t, http.StatusHTTPVersionNotSupported, w.Code)
}

// TestMiddleware mounts the handler below a ResponseWriter that is wrapped.
func TestMiddleware(t *testing.T) {
	h := Handler(closeAtOnce, nil)
	url := serve(t, false, nil, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.ServeHTTP(wrapped{w}, r)
	}))
	first, _, err := dialWire(t, url).frame()
	require.NoError(t, err)
	assert.EqualValues(t, 0x88, first)
}

type wrapped struct{ http.ResponseWriter }

func (w wrapped) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// TestEarlyData sends frames before the upgrade was answered.
func TestEarlyData(t *testing.T) {
	url := serve(t, false, nil, Handler(transport.HandlerFunc(func(c transport.Conn) {
		t.Error("accepted")
		c.Close(transport.CloseNormal, "")
	}), nil))
	c, err := net.Dial("tcp", strings.TrimPrefix(url, "ws://"))
	require.NoError(t, err)
	defer c.Close()
	_, err = io.WriteString(c, request+"\r\n"+masked(0x82, "early"))
	require.NoError(t, err)
	b, _ := io.ReadAll(c)
	assert.Empty(t, b)
}

// TestDialToken: the token of the context is presented, and only there.
func TestDialToken(t *testing.T) {
	accepted := make(chan transport.Conn, 1)
	url := serve(t, false, nil, Handler(transport.HandlerFunc(func(c transport.Conn) { accepted <- c }), nil))
	header := http.Header{"Authorization": {"Basic x"}, "Other": {"y"}}
	for _, o := range []struct {
		header http.Header
		token  string
		want   string
	}{{nil, "", ""}, {nil, "t", "Bearer t"}, {header, "t", "Bearer t"}, {header, "", "Basic x"}} {
		c, err := Dialer(url, &DialOptions{Header: o.header})(transport.WithToken(t.Context(), o.token))
		require.NoError(t, err)
		defer c.Close(transport.CloseNormal, "")
		server := <-accepted
		defer server.Close(transport.CloseNormal, "")
		h := server.Value(RequestKey).(*http.Request).Header
		assert.Equal(t, o.want, h.Get("Authorization"))
		assert.Equal(t, o.header.Get("Other"), h.Get("Other"))
	}
	assert.Equal(t, http.Header{"Authorization": {"Basic x"}, "Other": {"y"}}, header)
	assert.Empty(t, transport.TokenOf(t.Context()))
}

func TestValues(t *testing.T) {
	client, server := connect(t, true, nil, &Options{Subprotocols: []string{"a"}},
		&DialOptions{Subprotocols: []string{"b", "a"}, Header: http.Header{"Authorization": {"Bearer x"}}})
	assert.Equal(t, "Bearer x", server.Value(RequestKey).(*http.Request).Header.Get("Authorization"))
	assert.Nil(t, client.Value(RequestKey))
	for _, c := range []*conn{client, server} {
		assert.NotNil(t, c.Value(TLSKey))
		assert.Equal(t, "a", c.Value(SubprotocolKey))
		assert.Nil(t, c.Value("something else"))
		assert.Equal(t, "tcp", c.RemoteAddr().Network())
	}
	_, server = connect(t, false, nil, nil, nil)
	assert.Nil(t, server.Value(TLSKey))
	assert.Nil(t, server.Value(SubprotocolKey))
}

// TestDial has servers answer in ways of their own.
func TestDial(t *testing.T) {
	const upgrade = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: %s\r\n"
	for _, test := range []struct {
		name, answer, want string
	}{
		{"redirect", "HTTP/1.1 302 Found\r\nLocation: ws://other.example/\r\nContent-Length: 0\r\n\r\n", "status 302"},
		{"no upgrade", "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", "status 200"},
		{"wrong key", strings.Replace(upgrade, "%s", "AAAA", 1) + "\r\n", "status 101"},
		{"extension", upgrade + "Sec-WebSocket-Extensions: permessage-deflate; server_no_context_takeover; client_no_context_takeover\r\n\r\n", "extension"},
		{"other extension", upgrade + "Sec-WebSocket-Extensions: x\r\n\r\n", "extension"},
		{"subprotocol", upgrade + "Sec-WebSocket-Protocol: x\r\n\r\n", "subprotocol"},
		{"endless header", upgrade + "X: " + strings.Repeat("x", maxAnswer), "too long"},
		{"not HTTP", "SSH-2.0-x\r\n", "malformed"},
		{"nothing", "", "EOF"},
	} {
		t.Run(test.name, func(t *testing.T) {
			dial := answering(test.answer)
			c, err := Dialer("ws://user-free.example/?token=secret", &DialOptions{Dial: dial})(t.Context())
			require.Nil(t, c)
			require.ErrorContains(t, err, test.want)
			assert.NotContains(t, err.Error(), "secret")
		})
	}
	for _, url := range []string{"http://a.example", "ws://u:secret@a.example", "ws://a.example/%zz?secret", "wss://", ""} {
		_, err := Dialer(url, &DialOptions{Dial: answering("")})(t.Context())
		require.Error(t, err, url)
		assert.NotContains(t, err.Error(), "secret")
	}
}

// answering returns a Dial that leads to a server that says answer, with the
// right key for "%s", and closes.
func answering(answer string) func(context.Context, string, string) (net.Conn, error) {
	return func(context.Context, string, string) (net.Conn, error) {
		client, server := net.Pipe()
		go func() {
			defer server.Close()
			r, err := http.ReadRequest(bufio.NewReader(server))
			if err != nil {
				return
			}
			io.WriteString(server, strings.Replace(answer, "%s", acceptKey(r), 1))
		}()
		return client, nil
	}
}

// acceptKey answers a request's key (RFC 6455, section 1.3).
func acceptKey(r *http.Request) string {
	sum := sha1.Sum([]byte(r.Header.Get("Sec-WebSocket-Key") + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"))
	return base64.StdEncoding.EncodeToString(sum[:])
}

// TestDialContext ends the context of a handshake that hangs.
func TestDialContext(t *testing.T) {
	for _, scheme := range []string{"ws", "wss"} {
		client, server := net.Pipe()
		go io.Copy(io.Discard, server)
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Millisecond, cancel)
		_, err := Dialer(scheme+"://a.example", &DialOptions{
			Dial: func(context.Context, string, string) (net.Conn, error) { return client, nil },
		})(ctx)
		assert.ErrorIs(t, err, context.Canceled)
		_, err = client.Read(nil)
		assert.True(t, errors.Is(err, io.ErrClosedPipe), "left open")
		server.Close()
	}
}

// TestFirstFrames has the server's first frames come with its answer.
func TestFirstFrames(t *testing.T) {
	c, err := Dialer("ws://a.example", &DialOptions{
		Dial: answering("HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: %s\r\n\r\n\x82\x02hi\x82\x02ho"),
	})(t.Context())
	require.NoError(t, err)
	for _, want := range []string{"hi", "ho"} {
		_, b, err := c.Read()
		require.NoError(t, err)
		assert.Equal(t, want, string(b))
	}
	_, _, err = c.Read()
	assert.Equal(t, io.EOF, err)
}
