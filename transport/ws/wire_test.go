package ws

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sotto-relay/sotto/transport"
)

// A wire is a client that is not ours.
type wire struct {
	net.Conn
	r *bufio.Reader
}

const request = "GET /chat?x=1 HTTP/1.1\r\nHost: relay.example\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n" +
	"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n"

// dialWire shakes hands with the example key of RFC 6455, section 1.3.
func dialWire(t testing.TB, url string) wire {
	w, resp := tryWire(t, url, request+"\r\n")
	require.Equal(t, http.StatusSwitchingProtocols, resp.StatusCode)
	require.Equal(t, "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=", resp.Header.Get("Sec-WebSocket-Accept"))
	return w
}

func tryWire(t testing.TB, url, request string) (wire, *http.Response) {
	c, err := net.Dial("tcp", strings.TrimPrefix(url, "ws://"))
	require.NoError(t, err)
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(5 * time.Second)) // a test that fails must not hang
	_, err = io.WriteString(c, request)
	require.NoError(t, err)
	w := wire{c, bufio.NewReader(c)}
	resp, err := http.ReadResponse(w.r, nil)
	require.NoError(t, err)
	return w, resp
}

// frame reads a frame of a server: its first byte and its payload.
func (w wire) frame() (first byte, payload []byte, err error) {
	var h [10]byte
	if _, err = io.ReadFull(w.r, h[:2]); err != nil {
		return 0, nil, err
	}
	n := uint64(h[1])
	switch n {
	case 126:
		_, err = io.ReadFull(w.r, h[2:4])
		n = uint64(binary.BigEndian.Uint16(h[2:]))
	case 127:
		_, err = io.ReadFull(w.r, h[2:10])
		n = binary.BigEndian.Uint64(h[2:])
	}
	if err == nil && n > 1<<24 {
		err = errors.New("masked or enormous frame")
	}
	if err != nil {
		return 0, nil, err
	}
	payload = make([]byte, n)
	_, err = io.ReadFull(w.r, payload)
	return h[0], payload, err
}

// masked makes a frame of a client from its first byte and its payload.
func masked(first byte, payload string) string {
	key := [4]byte{1, 2, 3, 4}
	b := []byte{first}
	switch {
	case len(payload) > 0xffff:
		b = binary.BigEndian.AppendUint64(append(b, 0xff), uint64(len(payload)))
	case len(payload) > 125:
		b = binary.BigEndian.AppendUint16(append(b, 0xfe), uint16(len(payload)))
	default:
		b = append(b, 0x80|byte(len(payload)))
	}
	b = append(b, key[:]...)
	for i := range len(payload) {
		b = append(b, payload[i]^key[i%4])
	}
	return string(b)
}

func closing(code uint16, reason string) string {
	return string(binary.BigEndian.AppendUint16(nil, code)) + reason
}

// echo sends back what it reads, and then what Read ended with.
func echo(ended chan<- error) transport.Handler {
	return transport.HandlerFunc(func(c transport.Conn) {
		for {
			k, b, err := c.Read()
			switch {
			case errors.Is(err, transport.ErrTooLarge):
				k, b = transport.Text, []byte("too large")
			case err != nil:
				ended <- err
				return
			}
			if err := send(c, k, b); err != nil {
				ended <- err
				return
			}
		}
	})
}

func send(c transport.Conn, k transport.Kind, msgs ...[]byte) error {
	for len(msgs) > 0 {
		n, err := c.Write(k, msgs)
		if err != nil {
			return err
		}
		msgs = msgs[n:]
	}
	return nil
}

// TestWire has a hand-made client say things, and looks at what comes back.
func TestWire(t *testing.T) {
	const limit = 1000
	fragments := func(n int, payload string) string {
		return masked(2, payload) + strings.Repeat(masked(0, payload), n-2) + masked(0x80, payload)
	}
	tests := []struct {
		name string
		say  string
		hear []string // whole frames: the first byte and the payload, then:
		code uint16   // of the close frame
	}{
		{"binary and text", masked(0x82, "a\x00") + masked(0x81, "é"), []string{"\x82a\x00", "\x81é"}, 0},
		{"empty messages", masked(0x82, "") + masked(0x81, ""), []string{"\x82", "\x81"}, 0},
		{"lengths", masked(0x82, strings.Repeat("x", 126)), []string{"\x82" + strings.Repeat("x", 126)}, 0},
		{"fragments", masked(1, "a") + masked(0, "") + masked(0x80, "b"), []string{"\x81ab"}, 0},
		{"ping", masked(0x89, "hi"), []string{"\x8ahi"}, 0},
		{"ping between fragments", masked(2, "a") + masked(0x89, "p") + masked(0x80, "b"), []string{"\x8ap", "\x82ab"}, 0},
		{"pong that nobody asked for", masked(0x8a, "x") + masked(0x82, "y"), []string{"\x82y"}, 0},
		{"longest control frame", masked(0x89, strings.Repeat("p", 125)), []string{"\x8a" + strings.Repeat("p", 125)}, 0},

		{"unmasked", "\x82\x01a", nil, 1002},
		{"unmasked ping", "\x89\x00", nil, 1002},
		{"RSV1", masked(0xc2, "a"), nil, 1002},
		{"RSV2", masked(0xa2, "a"), nil, 1002},
		{"RSV3", masked(0x92, "a"), nil, 1002},
		{"opcode 3", masked(0x83, "a"), nil, 1002},
		{"opcode 11", masked(0x8b, "a"), nil, 1002},
		{"opcode 15", masked(0x8f, "a"), nil, 1002},
		{"fragmented ping", masked(0x09, "a"), nil, 1002},
		{"fragmented close", masked(0x08, closing(1000, "")), nil, 1002},
		{"long ping", masked(0x89, strings.Repeat("p", 126)), nil, 1002},
		{"long close", masked(0x88, closing(1000, strings.Repeat("p", 124))), nil, 1002},
		{"continuation of nothing", masked(0x80, "a"), nil, 1002},
		{"continuation after the end", masked(2, "a") + masked(0x80, "b") + masked(0x80, "c"), []string{"\x82ab"}, 1002},
		{"message within a message", masked(2, "a") + masked(0x82, "b"), nil, 1002},

		{"16-bit length for 125", "\x82\xfe\x00\x7d", nil, 1002},
		{"64-bit length for 125", "\x82\xff\x00\x00\x00\x00\x00\x00\x00\x7d", nil, 1002},
		{"64-bit length for 65535", "\x82\xff\x00\x00\x00\x00\x00\x00\xff\xff", nil, 1002},
		{"length 2^63", "\x82\xff\x80\x00\x00\x00\x00\x00\x00\x00", nil, 1002},
		{"length 2^63-1", "\x82\xff\x7f\xff\xff\xff\xff\xff\xff\xff\x00\x00\x00\x00", []string{"\x81too large"}, 1009},
		{"length 2^62", "\x82\xff\x40\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00", []string{"\x81too large"}, 1009},
		{"2^63-1 as a continuation", masked(2, "aa") + "\x80\xff\x7f\xff\xff\xff\xff\xff\xff\xff\x00\x00\x00\x00", []string{"\x81too large"}, 1009},

		{"limit", masked(0x82, strings.Repeat("x", limit)), []string{"\x82" + strings.Repeat("x", limit)}, 0},
		{"over the limit", masked(0x82, strings.Repeat("x", limit+1)) + masked(0x82, "y"), []string{"\x81too large", "\x82y"}, 0},
		{"over the limit in fragments", fragments(4, strings.Repeat("x", limit)) + masked(0x82, "y"), []string{"\x81too large", "\x82y"}, 0},
		{"text over the limit is not UTF-8", masked(0x81, strings.Repeat("\xff", limit+1)), []string{"\x81too large"}, 0},
		{"four times the limit and one", masked(0x82, strings.Repeat("x", 4*limit+1)), []string{"\x81too large"}, 1009},
		{"that in fragments", fragments(5, strings.Repeat("x", limit)), []string{"\x81too large"}, 1009},

		{"not UTF-8", masked(0x81, "a\xff"), nil, 1007},
		{"UTF-8 cut off", masked(0x81, "\xe2\x82"), nil, 1007},
		{"surrogate", masked(0x81, "\xed\xa0\x80"), nil, 1007},
		{"character over fragments", masked(1, "\xe2") + masked(0, "\x82") + masked(0x80, "\xac"), []string{"\x81€"}, 0},
		{"not UTF-8 over fragments", masked(1, "\xe2\x82") + masked(0x80, "a"), nil, 1007},

		{"most fragments", fragments(maxFragments, ""), []string{"\x82"}, 0},
		{"100,000 fragments", masked(2, "") + strings.Repeat(masked(0, ""), 100_000), nil, 1008},
		{"one more fragment", fragments(maxFragments+1, ""), nil, 1008},
		{"pong flood", strings.Repeat(masked(0x8a, ""), 10_000), nil, 1008},
		{"control frames within a message", masked(2, "a") + strings.Repeat(masked(0x8a, "x"), maxControls+1), nil, 1008},

		{"close", masked(0x88, closing(1000, "bye")), nil, 1000},
		{"close without a code", masked(0x88, ""), nil, 1005},
		{"close with a private code", masked(0x88, closing(4999, "")), nil, 4999},
		{"close then data", masked(0x88, closing(1001, "")) + strings.Repeat(masked(0x82, strings.Repeat("x", 1000)), 100), nil, 1001},
		{"close frame of one byte", masked(0x88, "a"), nil, 1002},
		{"close with 999", masked(0x88, closing(999, "")), nil, 1002},
		{"close with 1005", masked(0x88, closing(1005, "")), nil, 1002},
		{"close with 1006", masked(0x88, closing(1006, "")), nil, 1002},
		{"close with 1015", masked(0x88, closing(1015, "")), nil, 1002},
		{"close with 5000", masked(0x88, closing(5000, "")), nil, 1002},
		{"close reason not UTF-8", masked(0x88, closing(1000, "\xff")), nil, 1007},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			ended := make(chan error, 1)
			c := dialWire(t, serve(t, false, nil, Handler(echo(ended), &Options{ConnOptions: ConnOptions{Limit: limit}})))
			_, err := io.WriteString(c, test.say)
			require.NoError(t, err)
			for _, want := range test.hear {
				first, payload, err := c.frame()
				require.NoError(t, err)
				require.Equal(t, want, string(append([]byte{first}, payload...)))
			}
			if test.code == 0 {
				require.NoError(t, c.Conn.(*net.TCPConn).CloseWrite())
				assert.Equal(t, io.EOF, <-ended)
				return
			}
			first, payload, err := c.frame()
			require.NoError(t, err)
			assert.EqualValues(t, 0x88, first)
			code := uint16(1005)
			if len(payload) > 0 {
				code = binary.BigEndian.Uint16(payload)
			}
			assert.Equal(t, test.code, code, "%s", payload[min(2, len(payload)):])
			c.Conn.(*net.TCPConn).CloseWrite()
			rest, _ := io.ReadAll(c.r)
			assert.Empty(t, rest, "frames after the close frame")
			said, ok := errors.AsType[*transport.CloseError](<-ended)
			require.True(t, ok)
			assert.Equal(t, test.code, said.Code)
		})
	}
}

// TestEnd has the network end in ways of its own.
func TestEnd(t *testing.T) {
	for name, test := range map[string]struct {
		say  string
		end  func(*net.TCPConn)
		want error
	}{
		"FIN":                     {"", func(c *net.TCPConn) { c.Close() }, io.EOF},
		"FIN within a header":     {"\x82", func(c *net.TCPConn) { c.Close() }, io.ErrUnexpectedEOF},
		"FIN within a frame":      {masked(0x82, "abc")[:7], func(c *net.TCPConn) { c.Close() }, io.ErrUnexpectedEOF},
		"FIN between fragments":   {masked(2, "abc"), func(c *net.TCPConn) { c.Close() }, io.ErrUnexpectedEOF},
		"FIN within a long frame": {masked(0x82, strings.Repeat("x", 100_000))[:50_000], func(c *net.TCPConn) { c.CloseWrite() }, io.ErrUnexpectedEOF},
		"reset":                   {"", func(c *net.TCPConn) { c.SetLinger(0); c.Close() }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			ended := make(chan error, 1)
			c := dialWire(t, serve(t, false, nil, Handler(echo(ended), nil)))
			_, err := io.WriteString(c, test.say)
			require.NoError(t, err)
			test.end(c.Conn.(*net.TCPConn))
			if err := <-ended; test.want != nil {
				assert.Equal(t, test.want, err)
			} else {
				assert.Error(t, err)
			}
		})
	}
}

// TestPongs answers pings while the peer does not read, between messages that
// are half out.
func TestPongs(t *testing.T) {
	accepted := make(chan transport.Conn, 1)
	c := dialWire(t, serve(t, false, nil, Handler(transport.HandlerFunc(func(c transport.Conn) { accepted <- c }), nil)))
	s := <-accepted
	read := make(chan error, 1)
	go func() {
		_, _, err := s.Read()
		read <- err
	}()

	body := bytes.Repeat([]byte("0123456789"), 30_000)
	sent := 0
	for full := 0; full < 3; full++ {
		n, err := s.(transport.TryWriter).TryWrite(transport.Binary, [][]byte{body})
		require.NoError(t, err)
		if sent += n; n > 0 {
			full = 0
		}
	}
	for i := range 50 {
		_, err := io.WriteString(c, masked(0x89, string([]byte{byte(i)})))
		require.NoError(t, err)
	}
	written := make(chan error, 1)
	go func() {
		for range 100 {
			if err := send(s, transport.Binary, body); err != nil {
				written <- err
				return
			}
		}
		written <- s.Close(transport.CloseGoingAway, "")
	}()
	messages, pongs, last := 0, 0, byte(0)
	for last != 0x88 {
		first, payload, err := c.frame()
		require.NoError(t, err)
		switch last = first; first {
		case 0x82:
			messages++
			require.True(t, bytes.Equal(body, payload))
		case 0x8a:
			pongs++
		}
	}
	c.Close()
	assert.NoError(t, <-written)
	assert.Error(t, <-read)
	assert.Equal(t, sent+100, messages)
	assert.Positive(t, pongs)
	assert.LessOrEqual(t, pongs, 50)
}

// TestCloseMidway closes while a message is half out: there is no place for a
// close frame then.
func TestCloseMidway(t *testing.T) {
	accepted := make(chan transport.Conn, 1)
	c := dialWire(t, serve(t, false, nil, Handler(transport.HandlerFunc(func(c transport.Conn) { accepted <- c }), nil)))
	s := <-accepted
	body := bytes.Repeat([]byte{'x'}, 64<<20)
	n, err := s.(transport.TryWriter).TryWrite(transport.Binary, [][]byte{body})
	require.NoError(t, err)
	require.Zero(t, n)
	require.NoError(t, s.Close(transport.CloseGoingAway, ""))
	got, err := io.ReadAll(c.r)
	require.NoError(t, err)
	require.Greater(t, len(got), 10)
	assert.Empty(t, bytes.Trim(got[10:], "x"))
}
