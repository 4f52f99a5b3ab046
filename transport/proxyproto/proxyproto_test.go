package proxyproto

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/sotto-relay/sotto/transport"
	"github.com/sotto-relay/sotto/transport/tcp"
	"github.com/sotto-relay/sotto/transport/ws"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	loopback = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	nobody   = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}
)

// v2 makes a header of version 2.
func v2(command, family byte, rest string) string {
	head := signature2 + string([]byte{0x20 | command, family})
	return string(binary.BigEndian.AppendUint16([]byte(head), uint16(len(rest)))) + rest
}

const (
	addr4 = "\xc0\x00\x02\x01" + "\xc0\x00\x02\x02" + "\x12\x34" + "\x01\xbb"
	addr6 = "\x20\x01\x0d\xb8\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x01" +
		"\x20\x01\x0d\xb8\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02" + "\x12\x34" + "\x01\xbb"
)

func listen(t testing.TB, o *Options) (l net.Listener, address string) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	l = Listen(l, o)
	t.Cleanup(func() { l.Close() })
	return l, l.Addr().String()
}

func dial(t testing.TB, address, say string) net.Conn {
	c, err := net.Dial("tcp", address)
	require.NoError(t, err)
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(10 * time.Second)) // a test that fails must not hang
	_, err = io.WriteString(c, say)
	require.NoError(t, err)
	return c
}

func TestTrusted(t *testing.T) {
	own := "its own"
	for _, test := range []struct {
		name, header string
		want         string // the client's address
		err          error
	}{
		{"v1", "PROXY TCP4 192.0.2.1 192.0.2.2 4660 443\r\n", "192.0.2.1:4660", nil},
		{"v1, IPv6", "PROXY TCP6 2001:db8::1 2001:db8::2 4660 443\r\n", "[2001:db8::1]:4660", nil},
		{"v1, unknown", "PROXY UNKNOWN\r\n", own, nil},
		{"v1, unknown with addresses", "PROXY UNKNOWN ffff:f:f:f:f:f:f:ffff ffff:f:f:f:f:f:f:ffff 65535 65535\r\n", own, nil},
		{"v2", v2(1, 0x11, addr4), "192.0.2.1:4660", nil},
		{"v2, IPv6", v2(1, 0x21, addr6), "[2001:db8::1]:4660", nil},
		{"v2, with more", v2(1, 0x11, addr4+"\x04\x01\x00"+strings.Repeat("x", 256)), "192.0.2.1:4660", nil},
		{"v2, local", v2(0, 0, ""), own, nil},
		{"v2, local with addresses", v2(0, 0x11, addr4), own, nil},

		{"none", "GET / HTTP/1.1\r\nHost: a\r\n", "", errNoHeader},
		{"TLS", "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03abcdefghij", "", errNoHeader},
		{"v1, no space", "PROXYTCP4 192.0.2.1 192.0.2.2 4660 443\r\n", "", errNoHeader},
		{"v1, short", "PROXY TCP4\r\nabcdefgh", "", errMalformed},
		{"v1, too long", "PROXY UNKNOWN " + strings.Repeat("x", 107) + "\r\n", "", errMalformed},
		{"v1, no CR", "PROXY TCP4 192.0.2.1 192.0.2.2 4660 443\n", "", errMalformed},
		{"v1, wrong family", "PROXY TCP4 2001:db8::1 2001:db8::2 4660 443\r\n", "", errMalformed},
		{"v1, no ports", "PROXY TCP4 192.0.2.1 192.0.2.2\r\n", "", errMalformed},
		{"v1, zone", "PROXY TCP6 fe80::1%eth0 fe80::2 1 2\r\n", "", errMalformed},
		{"v2, version 3", strings.Replace(v2(1, 0x11, addr4), "\x21\x11", "\x31\x11", 1), "", errMalformed},
		{"v2, command 2", v2(2, 0x11, addr4), "", errMalformed},
		{"v2, short", v2(1, 0x11, addr4[:11]), "", errMalformed},
		{"v2, datagrams", v2(1, 0x12, addr4), "", errMalformed},
		{"v2, Unix sockets", v2(1, 0x31, strings.Repeat("\x00", 216)), "", errMalformed},
		{"v2, unspecified", v2(1, 0, ""), "", errMalformed},
		{"v2, length 65535", signature2 + "\x21\x11\xff\xff", "", errMalformed},
	} {
		t.Run(test.name, func(t *testing.T) {
			refused := make(chan error, 1)
			l, address := listen(t, &Options{Trusted: loopback, Timeout: time.Hour, Refused: func(_ net.Addr, err error) { refused <- err }})
			if test.err != nil {
				go l.Accept()
				c := dial(t, address, test.header)
				assert.ErrorIs(t, <-refused, test.err)
				_, err := c.Read(make([]byte, 1))
				assert.Error(t, err)
				return
			}
			c := dial(t, address, test.header+"data")
			s, err := l.Accept()
			require.NoError(t, err)
			defer s.Close()
			if test.want == own {
				test.want = c.LocalAddr().String()
				assert.Equal(t, c.RemoteAddr().String(), s.LocalAddr().String())
			} else {
				assert.Contains(t, s.LocalAddr().String(), ":443")
			}
			assert.Equal(t, test.want, s.RemoteAddr().String())
			require.NoError(t, c.(*net.TCPConn).CloseWrite())
			b, err := io.ReadAll(s)
			require.NoError(t, err)
			assert.Equal(t, "data", string(b))
		})
	}
}

// TestSegments sends a header a byte at a time.
func TestSegments(t *testing.T) {
	for _, header := range []string{"PROXY TCP4 192.0.2.1 192.0.2.2 4660 443\r\n", v2(1, 0x11, addr4)} {
		l, address := listen(t, &Options{Trusted: loopback})
		c := dial(t, address, "")
		go func() {
			for i := range header {
				io.WriteString(c, header[i:i+1])
			}
		}()
		s, err := l.Accept()
		require.NoError(t, err)
		assert.Equal(t, "192.0.2.1:4660", s.RemoteAddr().String())
		s.Close()
	}
}

// TestUntrusted has peers that are no trusted proxies.
func TestUntrusted(t *testing.T) {
	for _, test := range []struct {
		say  string
		want string
		err  error
	}{
		{"hello", "hello", nil},
		{"", "", nil},
		{"P", "P", nil},
		{"PROX", "PROX", nil},
		{"PROXIES", "PROXIES", nil},
		{"\r\n\r\nhello", "\r\n\r\nhello", nil},
		{signature2[:11], signature2[:11], nil},
		{signature2[:11] + "\r more", signature2[:11] + "\r more", nil},
		{"PROXY TCP4 192.0.2.1 192.0.2.2 4660 443\r\n", "", errUntrusted},
		{"PROXY ", "", errUntrusted},
		{v2(1, 0x11, addr4), "", errUntrusted},
		{v2(0, 0, ""), "", errUntrusted},
	} {
		for _, size := range []int{1, 1000} {
			l, address := listen(t, &Options{Trusted: nobody})
			c := dial(t, address, "")
			s, err := l.Accept() // at once
			require.NoError(t, err)
			go func() {
				for i := 0; i < len(test.say); i += size {
					io.WriteString(c, test.say[i:min(i+size, len(test.say))])
				}
				c.(*net.TCPConn).CloseWrite()
			}()
			b, err := io.ReadAll(s)
			assert.Equal(t, test.want, string(b), "%q", test.say)
			assert.Equal(t, test.err, err, "%q", test.say)
			if test.err == nil && test.say != "" {
				assert.NotNil(t, s.(*direct).Inner())
			}
			assert.Equal(t, c.LocalAddr().String(), s.RemoteAddr().String())
			s.Close()
		}
	}
}

// TestHeldBack has a deadline pass while it is not known what comes.
func TestHeldBack(t *testing.T) {
	client, server := net.Pipe()
	defer client.Close()
	c := &direct{Conn: server}
	defer c.Close()
	go io.WriteString(client, "PRO")
	c.SetReadDeadline(time.Now().Add(10 * time.Millisecond))
	n, err := c.Read(make([]byte, 10))
	assert.Zero(t, n)
	assert.True(t, isTimeout(err))
	assert.Nil(t, c.Inner())
	c.SetReadDeadline(time.Time{})
	go io.WriteString(client, "TEST")
	b := make([]byte, 7)
	_, err = io.ReadFull(c, b)
	assert.NoError(t, err)
	assert.Equal(t, "PROTEST", string(b))
}

func TestRequired(t *testing.T) {
	refused := make(chan error, 1)
	l, address := listen(t, &Options{Trusted: nobody, Required: true, Refused: func(_ net.Addr, err error) { refused <- err }})
	go l.Accept()
	c := dial(t, address, "hello")
	assert.Equal(t, errDirect, <-refused)
	_, err := c.Read(make([]byte, 1))
	assert.Error(t, err)
}

// TestSilence has a proxy that sends no header, or half of one.
func TestSilence(t *testing.T) {
	for _, say := range []string{"", "PROXY TCP4 192.0.", v2(1, 0x11, addr4)[:20]} {
		l, address := listen(t, &Options{Trusted: loopback, Timeout: 20 * time.Millisecond})
		go l.Accept()
		_, err := dial(t, address, say).Read(make([]byte, 1))
		assert.True(t, err == io.EOF || !isTimeout(err), "%v", err)
	}
}

// plain frames are a length byte and as many bytes.
type plain struct{}

var errLong = errors.New("message too large")

func (plain) Next(b []byte, max int) (skip, n int, err error) {
	switch n = int(b[0]); {
	case n > max || n == 0:
		return 0, 0, errLong
	case n >= len(b):
		return 0, 0, nil
	}
	return 1, n, nil
}

func (plain) Head(dst []byte, n int) []byte { return append(dst, byte(n)) }

// TestMedia has tcp and ws behind a proxy, and without one.
func TestMedia(t *testing.T) {
	const header = "PROXY TCP4 192.0.2.1 192.0.2.2 4660 443\r\n"
	for name, trusted := range map[string][]netip.Prefix{"proxied": loopback, "direct": nobody} {
		t.Run(name, func(t *testing.T) {
			say := ""
			if name == "proxied" {
				say = header
			}
			check := func(c net.Conn, s transport.Conn) {
				defer s.Close(transport.CloseNormal, "")
				if name == "proxied" {
					assert.Equal(t, "192.0.2.1:4660", s.RemoteAddr().String())
				} else {
					assert.Equal(t, c.LocalAddr().String(), s.RemoteAddr().String())
				}
				_, b, err := s.Read()
				require.NoError(t, err)
				assert.Equal(t, "hi", string(b))
			}

			nl, address := listen(t, &Options{Trusted: trusted})
			l := tcp.NewListener(nl, plain{}, nil)
			c := dial(t, address, say+"\x02hi")
			s, err := l.Accept()
			require.NoError(t, err)
			check(c, s)
			l.Close()

			nl, address = listen(t, &Options{Trusted: trusted})
			accepted := make(chan transport.Conn, 1)
			server := &http.Server{Handler: ws.Handler(transport.HandlerFunc(func(c transport.Conn) { accepted <- c }), nil)}
			go server.Serve(nl)
			defer server.Close()
			c = dial(t, address, say+"GET / HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"+
				"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n")
			s = <-accepted
			_, err = io.WriteString(c, "\x82\x82\x00\x00\x00\x00hi")
			require.NoError(t, err)
			check(c, s)
		})
	}

	t.Run("untrusted", func(t *testing.T) {
		nl, address := listen(t, &Options{Trusted: nobody})
		l := tcp.NewListener(nl, plain{}, nil)
		dial(t, address, header)
		s, err := l.Accept()
		require.NoError(t, err)
		_, _, err = s.Read()
		assert.ErrorIs(t, err, errUntrusted)
	})
}

func FuzzHeader(f *testing.F) {
	for _, seed := range []string{"PROXY TCP4 192.0.2.1 192.0.2.2 4660 443\r\n", "PROXY UNKNOWN\r\n", v2(1, 0x11, addr4), v2(1, 0x21, addr6), v2(0, 0, "")} {
		f.Add([]byte(seed + "data"))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		client, server := net.Pipe()
		defer client.Close()
		defer server.Close()
		go func() {
			client.Write(b)
			client.Close()
		}()
		c, err := begin(server)
		if err != nil {
			return
		}
		require.NotEmpty(t, c.RemoteAddr().String())
		rest, _ := io.ReadAll(c)
		require.True(t, strings.HasSuffix(string(b), string(rest)))
	})
}
