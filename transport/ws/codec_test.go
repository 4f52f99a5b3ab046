package ws

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gorilla/websocket"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sotto-relay/sotto/internal/stream"
	"github.com/sotto-relay/sotto/transport"
)

// readerOf makes a reader of what b holds, in pieces of at most size bytes.
func readerOf(b []byte, size, limit int, masked bool) *reader {
	d := &reader{masked: masked, limit: limit, pools: new(stream.Pools)}
	d.B = make([]byte, 4096)
	d.control = func(opcode byte, payload []byte) error {
		if opcode == opClose {
			return io.EOF
		}
		return nil
	}
	d.fill = func() error {
		d.Room()
		n := copy(d.B[d.W:min(len(d.B), d.W+size)], b)
		if n == 0 && d.partial() {
			return io.ErrUnexpectedEOF
		} else if n == 0 {
			return io.EOF
		}
		d.W += n
		b = b[n:]
		return nil
	}
	return d
}

// A fickle outlet takes some of what it is given, or nothing.
type fickle struct {
	random *rand.Rand
	got    bytes.Buffer
}

func (o *fickle) Put(b []byte, wait bool) (int, error) {
	n := min(len(b), o.random.IntN(2*len(b)+1))
	switch o.random.IntN(4) {
	case 0:
		n = 0
	case 1:
		n = min(n, 3)
	}
	if n == 0 && wait {
		return 0, os.ErrDeadlineExceeded
	}
	o.got.Write(b[:n])
	return n, nil
}

func (*fickle) Flushed() error              { return nil }
func (*fickle) SetDeadline(time.Time) error { return nil }

// TestWriterResumes writes to outlets that take what they like, with control
// frames at random moments, and reads all of it back.
func TestWriterResumes(t *testing.T) {
	for seed := range uint64(60) {
		random := rand.New(rand.NewPCG(seed, 0))
		out, pools := &fickle{random: random}, new(stream.Pools)
		w := writer{masked: seed%2 == 0, secret: seed}
		var msgs [][]byte
		for range random.IntN(20) {
			msg := make([]byte, []int{random.IntN(10), random.IntN(1000), random.IntN(100_000)}[random.IntN(3)])
			for i := 0; i < len(msg); i += 1 + i/16 {
				msg[i] = byte(random.Uint32())
			}
			msgs = append(msgs, msg)
		}
		asked := 0
		for left := msgs; len(left) > 0 || w.midway(); {
			if random.IntN(3) == 0 {
				w.queue.addPong([]byte("pong"))
				asked++
			}
			if random.IntN(5) == 0 {
				w.queue.addPing()
				asked++
			}
			before := out.got.Len()
			n, err := stream.Send(out, pools, &w, uint8(transport.Binary), left[:min(len(left), 5)], random.IntN(2) == 0)
			if err != nil {
				require.Zero(t, n)
				require.Equal(t, before, out.got.Len(), "an error after progress")
			}
			left = left[n:]
		}

		d := readerOf(out.got.Bytes(), 5000, 1<<20, w.masked)
		controls := 0
		d.control = func(opcode byte, payload []byte) error {
			d.controls = 0 // there may be more than a peer is allowed
			controls++
			if opcode == opPong {
				assert.Equal(t, "pong", string(payload))
			} else {
				assert.EqualValues(t, opPing, opcode)
			}
			return nil
		}
		for i, want := range msgs {
			_, got, err := d.next()
			require.NoError(t, err, "seed %d message %d", seed, i)
			require.True(t, bytes.Equal(want, got), "seed %d message %d", seed, i)
		}
		_, _, err := d.next()
		require.Equal(t, io.EOF, err)
		assert.LessOrEqual(t, controls, asked)
		assert.Equal(t, asked > 0 && !w.queue.due.Load(), controls > 0)
	}
}

// TestMaskKeys expects the keys of a connection to differ, and those of two.
func TestMaskKeys(t *testing.T) {
	a, b := writer{masked: true, secret: 1}, writer{masked: true, secret: 2}
	seen := map[[4]byte]bool{}
	for i := range uint64(1000) {
		seen[a.key(i)] = true
		seen[b.key(i)] = true
	}
	assert.Len(t, seen, 2000)
}

func TestMask(t *testing.T) {
	key := [4]byte{1, 2, 3, 4}
	for n := range 100 {
		for pos := range 8 {
			got, want := make([]byte, n), make([]byte, n)
			for i := range want {
				got[i] = byte(i * 7)
				want[i] = byte(i*7) ^ key[(i+pos)%4]
			}
			mask(got, key, pos)
			require.Equal(t, want, got)
		}
	}
}

func TestClosePayload(t *testing.T) {
	long := strings.Repeat("é", 100)
	for _, test := range []struct {
		code   uint16
		reason string
		want   string
	}{
		{1000, "", closing(1000, "")},
		{1008, "why", closing(1008, "why")},
		{0, "x", ""}, {1005, "x", ""}, {1006, "x", ""}, {1015, "x", ""},
		{1000, long, closing(1000, long[:122])},
		{1000, "x" + long, closing(1000, "x"+long[:122])},
		{1000, "a\xffb", closing(1000, "a\uFFFDb")},
	} {
		assert.Equal(t, test.want, string(closePayload(test.code, test.reason)))
	}
}

// FuzzHead holds that a header that parses is encoded the same again.
func FuzzHead(f *testing.F) {
	f.Add([]byte("\x82\x00"))
	f.Add([]byte("\x81\xfe\x00\x7e1234"))
	f.Add([]byte("\x82\x7f\x00\x00\x00\x00\x00\x01\x00\x00"))
	f.Fuzz(func(t *testing.T, b []byte) {
		h, size, err := parseHead(b)
		if err != nil || size == 0 {
			require.True(t, err != nil || len(b) < maxHead)
			return
		}
		if h.length <= 1<<40 {
			first := b[0]
			again := appendHead(nil, h.opcode, int(h.length), h.masked, h.key)
			again[0] = again[0]&^bitFin | first&bitFin
			require.Equal(t, b[:size], again)
			require.Equal(t, size, headSize(int(h.length), h.masked))
		}
	})
}

// FuzzReader compares with gorilla, which is less strict: what is read here, it
// reads as well.
func FuzzReader(f *testing.F) {
	f.Add([]byte(masked(0x82, "binary")+masked(0x81, "text")), uint8(1))
	f.Add([]byte(masked(2, "a")+masked(0x89, "ping")+masked(0, "b")+masked(0x80, "c")), uint8(3))
	f.Add([]byte(masked(0x82, strings.Repeat("x", 5000))), uint8(255))
	f.Add([]byte(masked(0x88, closing(1000, "bye"))+masked(0x82, "x")), uint8(9))
	f.Add([]byte("\x82\xff\x7f\xff\xff\xff\xff\xff\xff\xff"), uint8(0))
	f.Fuzz(func(t *testing.T, b []byte, size uint8) {
		oracle := gorillaServer(t, b)
		d := readerOf(b, int(size)+1, 1<<20, true)
		for {
			k, got, err := d.next()
			if err != nil {
				return
			}
			kind, want, err := oracle.ReadMessage()
			require.NoError(t, err)
			require.Equal(t, kind == websocket.TextMessage, k == transport.Text)
			require.True(t, bytes.Equal(want, got))
		}
	})
}

// gorillaServer is gorilla's end of a connection on which b comes in.
func gorillaServer(t testing.TB, b []byte) *websocket.Conn {
	r, err := http.NewRequest(http.MethodGet, "http://a.example", nil)
	require.NoError(t, err)
	r.Header = http.Header{
		"Connection": {"Upgrade"}, "Upgrade": {"websocket"},
		"Sec-Websocket-Version": {"13"}, "Sec-Websocket-Key": {"dGhlIHNhbXBsZSBub25jZQ=="},
	}
	c, err := new(websocket.Upgrader).Upgrade(&canned{in: bytes.NewReader(b)}, r, nil)
	require.NoError(t, err)
	return c
}

// FuzzConn has a client say anything, in pieces. Nothing may be left of the
// connection in the end, which synctest checks.
func FuzzConn(f *testing.F) {
	f.Add([]byte(masked(0x82, "hello")), uint8(1))
	f.Add([]byte(masked(0x89, "ping")+masked(0x88, closing(1000, ""))), uint8(2))
	f.Add([]byte(masked(2, "hel")+masked(0x8a, "")+masked(0x80, "lo\xff")), uint8(100))
	f.Fuzz(func(t *testing.T, b []byte, size uint8) {
		synctest.Test(t, func(t *testing.T) {
			client, server := piped()
			server.SetReadLimit(1000)
			go io.Copy(io.Discard, client)
			go func() {
				for len(b) > 0 {
					n, err := client.Write(b[:min(len(b), int(size)+1)])
					if err != nil {
						return
					}
					b = b[n:]
				}
				client.Close()
			}()
			for {
				k, msg, err := server.Read()
				if err == nil {
					err = send(server, k, msg)
				}
				if err != nil && !errors.Is(err, transport.ErrTooLarge) {
					break
				}
			}
			server.Close(transport.CloseNormal, "")
			client.Close()
		})
	})
}

// A canned connection has its input ready, takes any output, and hands itself
// out to an upgrader.
type canned struct {
	http.ResponseWriter
	in io.Reader
}

type cannedConn struct {
	net.Conn
	in io.Reader
}

func (c *canned) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	nc := cannedConn{in: c.in}
	return nc, bufio.NewReadWriter(bufio.NewReader(nc), bufio.NewWriter(nc)), nil
}

func (c cannedConn) Read(b []byte) (int, error)       { return c.in.Read(b) }
func (c cannedConn) Write(b []byte) (int, error)      { return len(b), nil }
func (c cannedConn) SetDeadline(time.Time) error      { return nil }
func (c cannedConn) SetWriteDeadline(time.Time) error { return nil }
