package tcp

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sotto-relay/sotto/frame"
	"github.com/sotto-relay/sotto/internal/stream"
	"github.com/sotto-relay/sotto/transport"
	"github.com/sotto-relay/sotto/transport/transporttest"
)

func TestConn(t *testing.T) {
	for name, test := range map[string]struct {
		secure bool
		wrap   func(net.Listener) net.Listener
	}{
		"tcp":       {},
		"tls":       {secure: true},
		"segmented": {wrap: transporttest.Segmented},
	} {
		t.Run(name, func(t *testing.T) {
			traits := transporttest.Traits{NoKinds: true, NoCodes: true, NoEmpty: true}
			transporttest.Run(t, traits, func(t *testing.T) (a, b transport.Conn) {
				return connect(t, test.secure, test.wrap, prefixed{})
			})
		})
	}
}

// TestOneByteSegments sends a session of brep frames a byte at a time.
func TestOneByteSegments(t *testing.T) {
	c, s := wire(t, brep{}, nil)
	var say []byte
	for i := range 10 {
		f := frame.Brep{Type: frame.TypeData, Payload: make([]byte, i*20)}
		say = f.Append(say)
	}
	go func() {
		for i := range say {
			if _, err := c.Write(say[i : i+1]); err != nil {
				return
			}
		}
	}()
	for i := range 10 {
		_, b, err := s.Read()
		require.NoError(t, err)
		f, err := frame.DecodeBrep(b)
		require.NoError(t, err)
		assert.Len(t, f.Payload, i*20)
	}
}

func message(s string) string {
	return string(binary.BigEndian.AppendUint32(nil, uint32(len(s)))) + s
}

// TestWire has a hand-made client say things to a connection with a limit of
// 1,000 bytes.
func TestWire(t *testing.T) {
	const limit = 1000
	x := func(n int) string { return strings.Repeat("x", n) }
	tooLarge := &transport.CloseError{Code: transport.CloseTooLarge, Reason: "message too large"}
	for _, test := range []struct {
		name    string
		framing transport.Framing
		say     string
		want    []string // "" for ErrTooLarge
		end     error
	}{
		{"messages", prefixed{}, message("a") + message("b"), []string{"a", "b"}, io.EOF},
		{"nothing", prefixed{}, "", nil, io.EOF},
		{"FIN within a length", prefixed{}, message("a")[:3], nil, io.ErrUnexpectedEOF},
		{"FIN within a message", prefixed{}, message("abc")[:6], nil, io.ErrUnexpectedEOF},
		{"FIN within a message that is too large", prefixed{}, message(x(limit + 1))[:500], nil, io.ErrUnexpectedEOF},
		{"limit", prefixed{}, message(x(limit)), []string{x(limit)}, io.EOF},
		{"over the limit", prefixed{}, message(x(limit+1)) + message("a"), []string{"", "a"}, io.EOF},
		{"over the limit twice", prefixed{}, message(x(limit+1)) + message(x(4*limit)) + message("a"), []string{"", "", "a"}, io.EOF},
		{"four times the limit and one", prefixed{}, message(x(4*limit + 1)), []string{""}, tooLarge},
		{"length 0", prefixed{}, message("a") + message("") + message("b"), []string{"a", "<empty>", "b"}, io.EOF},
		{"length 2^32-1", prefixed{}, "\xff\xff\xff\xff" + x(2000), []string{""}, tooLarge},
		{"length 2^31", prefixed{}, "\x80\x00\x00\x00", []string{""}, tooLarge},
		{"GET", prefixed{}, "GET / HTTP/1.1\r\nHost: a\r\n\r\n", []string{""}, tooLarge},

		{"brep: GET", brep{}, "G", nil, frame.ErrMalformed},
		{"brep: ClientHello", brep{}, "\x16\x03\x01", nil, frame.ErrMalformed},
		{"brep: version", brep{}, "\x58\x02", nil, frame.ErrVersion},
		{"brep: length 2^32-1", brep{}, "\x58\x01\x02\x00\xff\xff\xff\xff", []string{""}, tooLarge},
		{"brep: length 2^31", brep{}, "\x58\x01\x02\x00\x80\x00\x00\x00", []string{""}, tooLarge},
		{"brep: within a header", brep{}, "\x58\x01\x02\x00\x00", nil, io.ErrUnexpectedEOF},
		{"brep: over the limit", brep{}, "\x58\x01\x02\x00\x00\x00\x04\x00" + x(112+1024) + "\x58\x01\x02\x00\x00\x00\x00\x00" + x(112),
			[]string{"", "\x58\x01\x02\x00\x00\x00\x00\x00" + x(112)}, io.EOF},
		{"skipped", lines{}, "\n\n\na\n\nb\n\n", []string{"a", "b"}, io.EOF},
	} {
		t.Run(test.name, func(t *testing.T) {
			c, s := wire(t, test.framing, &Options{ConnOptions: ConnOptions{Limit: limit}})
			go func() {
				io.WriteString(c, test.say)
				c.(*net.TCPConn).CloseWrite()
			}()
			for _, want := range test.want {
				k, b, err := s.Read()
				if want == "" {
					require.Equal(t, transport.ErrTooLarge, err)
					require.NoError(t, send(s, []byte("too large")), "Write after it")
					continue
				}
				require.NoError(t, err)
				assert.Equal(t, transport.Binary, k)
				assert.Equal(t, strings.Trim(want, "<empty>"), string(b))
			}
			for range 2 {
				_, _, err := s.Read()
				if said, ok := errors.AsType[*transport.CloseError](test.end); ok {
					assert.Equal(t, said, err)
				} else {
					assert.ErrorIs(t, err, test.end)
				}
			}
			_, err := s.Write(transport.Binary, [][]byte{{1}})
			assert.ErrorIs(t, err, net.ErrClosed)
			io.Copy(io.Discard, c) // ends
		})
	}
}

// lines end with a line feed. Empty ones are skipped.
type lines struct{}

func (lines) Next(b []byte, max int) (skip, n int, err error) {
	for skip < len(b) && b[skip] == '\n' {
		skip++
	}
	if i := strings.IndexByte(string(b[skip:]), '\n'); i > 0 {
		return skip, i, nil
	}
	return skip, 0, nil
}

func (lines) Head(dst []byte, _ int) []byte { return dst }

// TestNoMemoryForLengths counts the bytes that a length costs whose message
// does not come.
func TestNoMemoryForLengths(t *testing.T) {
	c, s := wire(t, prefixed{}, &Options{ConnOptions: ConnOptions{Limit: 1 << 30}})
	_, err := io.WriteString(c, "\x3f\xff\xff\xffabc")
	require.NoError(t, err)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	s.SetReadDeadline(time.Now().Add(10 * time.Millisecond))
	_, _, err = s.Read()
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)
	runtime.ReadMemStats(&after)
	assert.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(64<<10))
}

// TestIdleHoldsNothing looks for buffers after a large message, once Read has
// waited.
func TestIdleHoldsNothing(t *testing.T) {
	for _, secure := range []bool{false, true} {
		client, server := connect(t, secure, nil, prefixed{})
		go send(client, make([]byte, 1<<20))
		_, msg, err := server.Read()
		require.NoError(t, err)
		require.Len(t, msg, 1<<20)
		server.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
		_, _, err = server.Read()
		require.ErrorIs(t, err, os.ErrDeadlineExceeded)
		if secure {
			assert.Len(t, server.in.B, 4<<10)
		} else {
			assert.Nil(t, server.in.B)
		}
	}
}

// piped returns a server's connection and its client, over a net.Pipe.
func piped(f transport.Framing) (client net.Conn, server *conn) {
	a, b := net.Pipe()
	o := ConnOptions{}.withDefaults()
	return a, newConn(b, f, &o, new(stream.Pools))
}

// TestMessageTimeout has messages that begin and do not end, a byte in 5 s.
func TestMessageTimeout(t *testing.T) {
	for name, test := range map[string]struct {
		framing transport.Framing
		say     string
		first   int // bytes at once
	}{
		"prefix then silence":       {prefixed{}, message("hello")[:4], 4},
		"length":                    {prefixed{}, message("hello"), 1},
		"message":                   {prefixed{}, message("hello"), 5},
		"message, too large":        {prefixed{}, "\x00\x80\x00\x00" + "xyz", 5},
		"second":                    {prefixed{}, message("x") + message("hello"), 7},
		"brep header":               {brep{}, "\x58\x01\x02\x00\x00\x00", 1},
		"long, with all but a byte": {prefixed{}, message(strings.Repeat("x", 60_000))[:60_003], 60_003},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client, server := piped(test.framing)
				go io.Copy(io.Discard, client)
				time.Sleep(time.Hour) // nothing limits that
				begin := time.Now()
				go func() {
					io.WriteString(client, test.say[:test.first])
					for i := range len(test.say) - test.first {
						time.Sleep(5 * time.Second)
						if _, err := io.WriteString(client, test.say[test.first+i:][:1]); err != nil {
							return
						}
					}
				}()
				_, _, err := server.Read()
				if name == "second" {
					require.NoError(t, err)
					_, _, err = server.Read()
				}
				assert.Equal(t, &transport.CloseError{Code: transport.ClosePolicy, Reason: "message takes too long"}, err)
				assert.Equal(t, 10*time.Second, time.Since(begin))
				client.Close()
				time.Sleep(time.Minute)
			})
		})
	}
}

// TestMessageTimeoutIsPerMessage has messages that take 4 to 8 s each, cut so
// that there is never a moment without one.
func TestMessageTimeoutIsPerMessage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, server := piped(prefixed{})
		server.SetReadLimit(10)
		one := message("12345678")
		large := message("123456789012")
		say := strings.Repeat(one, 5) + large + large + one
		go func() {
			size := len(one)
			io.WriteString(client, say[:1])
			for i := 1; i < len(say); i += size {
				time.Sleep(4 * time.Second)
				io.WriteString(client, say[i:min(i+size, len(say))])
			}
		}()
		for i := range 8 {
			_, b, err := server.Read()
			if i == 5 || i == 6 {
				require.Equal(t, transport.ErrTooLarge, err)
				continue
			}
			require.NoError(t, err)
			require.Equal(t, "12345678", string(b))
		}
		server.Close(0, "")
		client.Close()
	})
}

// TestReadDeadlineWithin has the user's deadline pass within a message, at every
// place, and reading go on.
func TestReadDeadlineWithin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		say := message("abc") + message(strings.Repeat("x", 30)) + message("e")
		for cut := range say {
			client, server := piped(prefixed{})
			server.SetReadLimit(20)
			go func() {
				io.WriteString(client, say[:cut])
				time.Sleep(3 * time.Second)
				io.WriteString(client, say[cut:])
			}()
			var got []string
			for deadlines := 0; len(got) < 3; {
				server.SetReadDeadline(time.Now().Add(time.Second))
				_, b, err := server.Read()
				switch {
				case errors.Is(err, os.ErrDeadlineExceeded):
					deadlines++
					require.Less(t, deadlines, 4)
				case err == transport.ErrTooLarge:
					got = append(got, "too large")
				default:
					require.NoError(t, err)
					got = append(got, string(b))
				}
			}
			assert.Equal(t, []string{"abc", "too large", "e"}, got)
			server.Close(0, "")
			client.Close()
			time.Sleep(2 * time.Second)
		}
	})
}

// TestZeroWindow writes to a peer that reads nothing.
func TestZeroWindow(t *testing.T) {
	for _, secure := range []bool{false, true} {
		_, s := connect(t, secure, nil, prefixed{})
		msg, begin := make([]byte, 1<<20), time.Now()
		s.SetWriteDeadline(begin.Add(50 * time.Millisecond))
		for sent, err := 0, error(nil); err == nil; sent++ {
			require.Less(t, sent, 100)
			err = send(s, msg)
			if err != nil {
				assert.ErrorIs(t, err, os.ErrDeadlineExceeded)
			}
		}
		assert.Less(t, time.Since(begin), time.Second)
	}
}
