package udp

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sotto-relay/sotto/internal/race"
	"github.com/sotto-relay/sotto/transport"
)

// bound hides that something is a net.UDPConn.
type bound struct{ net.PacketConn }

// serve returns a listener at an address, of n sockets. wrap may be nil.
func serve(t testing.TB, address string, n int, o Options, wrap func(net.PacketConn) net.PacketConn) *Listener {
	t.Helper()
	sockets, err := Listen(t.Context(), address, n)
	if errors.Is(err, syscall.EADDRNOTAVAIL) || errors.Is(err, syscall.EAFNOSUPPORT) {
		t.Skip("no IPv6 here")
	}
	require.NoError(t, err)
	for i := range sockets {
		if wrap != nil {
			sockets[i] = wrap(sockets[i])
		}
	}
	l := NewListener(sockets, &o)
	t.Cleanup(func() { l.fail(net.ErrClosed) })
	return l
}

// dial returns a client of the listener's on this host.
func dial(t testing.TB, l *Listener, host string) transport.Conn {
	t.Helper()
	address := net.JoinHostPort(host, fmt.Sprint(l.Addr().(*net.UDPAddr).Port))
	c, err := Dialer(address, nil)(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { c.Close(0, "") })
	require.NoError(t, c.SetReadDeadline(time.Now().Add(10*time.Second))) // a test that fails must not hang
	return c
}

// login opens a session and proves it.
func login(t testing.TB, l *Listener, client transport.Conn, name string) (c *conn, token string) {
	t.Helper()
	send(t, client, "open")
	accepted, err := l.Accept()
	require.NoError(t, err)
	c = accepted.(*conn)
	require.NoError(t, c.SetReadDeadline(time.Now().Add(10*time.Second)))
	want(t, c, "open")
	token = c.Renew(name)
	send(t, c, token)
	want(t, client, token)
	send(t, client, pair(name, token, "proof"))
	want(t, c, pair(name, token, "proof"))
	require.True(t, c.Proven())
	return c, token
}

func want(t testing.TB, c transport.Conn, text string) {
	t.Helper()
	kind, b, err := c.Read()
	require.NoError(t, err)
	require.Equal(t, transport.Binary, kind)
	require.Equal(t, text, string(b))
}

// TestSockets has sessions over loopback, in every way that there is to read and to
// write.
func TestSockets(t *testing.T) {
	for _, test := range []struct {
		name, listen, from string
		plain              bool
	}{
		{"IPv4", "127.0.0.1:0", "127.0.0.1", false},
		{"IPv6", "[::1]:0", "::1", false},
		{"both, from IPv4", ":0", "127.0.0.1", false},
		{"both, from IPv6", ":0", "::1", false},
		{"plain, IPv4", "127.0.0.1:0", "127.0.0.1", true},
		{"plain, both, from IPv4", ":0", "127.0.0.1", true},
		{"plain, both, from IPv6", ":0", "::1", true},
	} {
		t.Run(test.name, func(t *testing.T) {
			var wrap func(net.PacketConn) net.PacketConn
			if test.plain {
				wrap = func(pc net.PacketConn) net.PacketConn { return bound{pc} }
			}
			o := unmetered()
			o.Answer, o.QueueBytes = answer, 1<<20
			l := serve(t, test.listen, 1, o, wrap)
			client := dial(t, l, test.from)
			c, token := login(t, l, client, "alice")
			assert.Equal(t, test.from, c.source.Addr().String())

			send(t, client, "?2")
			want(t, client, "?2?2")

			// More at once than a call takes, of all sizes.
			var down, up []string
			for i := range 3 * batchSize {
				body := fmt.Sprint(i) + strings.Repeat("x", i*i)
				down, up = append(down, body), append(up, pair("alice", token, body))
			}
			send(t, c, down...)
			for _, body := range down {
				want(t, client, body)
			}
			send(t, client, up...)
			for _, body := range up {
				want(t, c, body)
			}

			// What is no datagram.
			send(t, c, "before", strings.Repeat("x", 70_000), "after")
			want(t, client, "before")
			want(t, client, "after")
			assert.EqualValues(t, 1, l.Stats().Unsent)

			// From another port.
			other := dial(t, l, test.from)
			send(t, other, pair("alice", token, "moved"))
			want(t, c, pair("alice", token, "moved"))
			assert.True(t, c.Proven())
			send(t, c, "there")
			want(t, other, "there")
		})
	}
}

// TestLargest sends what is as long as a datagram can be.
func TestLargest(t *testing.T) {
	o := unmetered()
	o.MaxDatagram = largest
	l := serve(t, "127.0.0.1:0", 1, o, nil)
	client := dial(t, l, "127.0.0.1")
	client.SetReadLimit(largest)
	c, token := login(t, l, client, "alice")
	body := pair("alice", token, "")
	body += strings.Repeat("x", 65_507-len(body))
	send(t, client, body)
	want(t, c, body)
	send(t, c, body)
	want(t, client, body)
}

// TestListen: several sockets share an address among themselves, and with nobody
// else.
func TestListen(t *testing.T) {
	const n = 3
	sockets, err := Listen(t.Context(), "127.0.0.1:0", n)
	require.NoError(t, err)
	if shareable {
		require.Len(t, sockets, n)
	}
	address := sockets[0].LocalAddr().String()
	for _, s := range sockets {
		assert.Equal(t, address, s.LocalAddr().String())
	}
	for _, n := range []int{1, 3} {
		again, err := Listen(t.Context(), address, n)
		assert.ErrorIs(t, err, syscall.EADDRINUSE)
		assert.Empty(t, again)
	}
	l := NewListener(sockets, &Options{Demux: demux, SourceRate: 1e6})
	assert.Equal(t, address, l.Addr().String())
	used := make(map[socket]int)
	for i := range 30 {
		c, token := login(t, l, dial(t, l, "127.0.0.1"), fmt.Sprint("client", i))
		used[c.sock]++
		assert.Len(t, token, 32)
		c.Close(0, "")
	}
	if shareable {
		assert.Greater(t, len(used), 1, "what comes in is shared")
	}
	require.NoError(t, l.Close())
	again, err := Listen(t.Context(), address, n)
	require.NoError(t, err, "closed")
	for _, s := range again {
		s.Close()
	}
	for _, bad := range []string{"nonsense", "127.0.0.1:99999", "192.0.2.1:0"} {
		_, err := Listen(t.Context(), bad, n)
		assert.Error(t, err)
	}
}

func TestDialer(t *testing.T) {
	l := serve(t, "127.0.0.1:0", 1, unmetered(), nil)
	client := dial(t, l, "127.0.0.1")
	c, _ := login(t, l, client, "alice")
	assert.Equal(t, l.Addr().String(), client.RemoteAddr().String())
	assert.Nil(t, client.Value(transport.DatagramKey))

	client.SetReadLimit(10)
	send(t, c, strings.Repeat("x", 11), strings.Repeat("x", 40), "", strings.Repeat("x", 10))
	for range 2 {
		_, _, err := client.Read()
		assert.Equal(t, transport.ErrTooLarge, err)
	}
	want(t, client, strings.Repeat("x", 10))
	client.SetReadDeadline(time.Now().Add(-time.Second))
	_, _, err := client.Read()
	assert.ErrorIs(t, err, os.ErrDeadlineExceeded)
	client.SetWriteDeadline(time.Now().Add(-time.Second))
	n, err := client.Write(transport.Binary, [][]byte{{1}})
	assert.ErrorIs(t, err, os.ErrDeadlineExceeded)
	assert.Zero(t, n)
	client.SetReadDeadline(time.Time{})
	client.SetWriteDeadline(time.Time{})
	n, err = client.Write(transport.Binary, [][]byte{{1}, make([]byte, 70_000), {2}})
	assert.Equal(t, 1, n)
	assert.NoError(t, err)
	_, err = client.Write(transport.Binary, [][]byte{make([]byte, 70_000), {2}})
	assert.ErrorIs(t, err, syscall.EMSGSIZE)

	send(t, c, strings.Repeat("x", 41))
	tooLarge := &transport.CloseError{Code: transport.CloseTooLarge, Reason: "message too large"}
	_, _, err = client.Read()
	assert.Equal(t, transport.ErrTooLarge, err)
	send(t, client, "an answer")
	for range 2 {
		_, _, err = client.Read()
		assert.Equal(t, tooLarge, err)
	}
	client.Close(transport.CloseNormal, "")
	_, err = client.Write(transport.Binary, [][]byte{{1}})
	assert.Equal(t, tooLarge, err)

	waits := dial(t, l, "127.0.0.1")
	time.AfterFunc(10*time.Millisecond, func() { waits.Close(0, "") })
	_, _, err = waits.Read()
	assert.Equal(t, &transport.CloseError{}, err)

	for _, bad := range []string{"nonsense", "127.0.0.1:99999"} {
		_, err := Dialer(bad, nil)(t.Context())
		assert.ErrorContains(t, err, "udp: connecting to "+bad)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = Dialer("127.0.0.1:1", &DialOptions{Limit: 7})(ctx)
	assert.Error(t, err)
}

// TestNobodyListens: a client learns that nothing is at the address any more.
func TestNobodyListens(t *testing.T) {
	l := serve(t, "127.0.0.1:0", 1, unmetered(), nil)
	client := dial(t, l, "127.0.0.1")
	c, _ := login(t, l, client, "alice")
	c.Close(0, "")
	require.NoError(t, l.Close())
	send(t, client, "anybody?")
	_, _, err := client.Read()
	assert.ErrorIs(t, err, syscall.ECONNREFUSED)
}

// TestCloseUnderFlood closes a listener and its sessions while everybody sends as
// much as he can.
func TestCloseUnderFlood(t *testing.T) {
	l := serve(t, "127.0.0.1:0", 3, Options{Demux: demux, Answer: answer, SourceRate: 1e6}, nil)
	var flood, sessions sync.WaitGroup
	over := make(chan struct{})
	says := [][]byte{[]byte("open"), []byte(pair("alice", strings.Repeat("0", 32), "")), []byte("?3"), []byte("x")}
	for range 2 {
		pc, err := net.Dial("udp", l.Addr().String())
		require.NoError(t, err)
		flood.Go(func() {
			defer pc.Close()
			for i := 0; ; i++ {
				select {
				case <-over:
					return
				default:
					pc.Write(says[i%len(says)])
				}
			}
		})
	}
	for range 20 {
		client := dial(t, l, "127.0.0.1")
		flood.Go(func() {
			for err := error(nil); err == nil; _, _, err = client.Read() {
			}
		})
		flood.Go(func() {
			<-over
			client.Close(0, "")
		})
		send(t, client, "open")
	}
	accepting := make(chan []transport.Conn)
	var accepted atomic.Int32
	go func() {
		var conns []transport.Conn
		for {
			c, err := l.Accept()
			if err != nil {
				assert.Equal(t, net.ErrClosed, err)
				accepting <- conns
				return
			}
			conns = append(conns, c)
			accepted.Add(1)
			sessions.Go(func() {
				for err := error(nil); err == nil; _, err = c.Write(transport.Binary, [][]byte{[]byte("x")}) {
				}
			})
			sessions.Go(func() {
				for err := error(nil); err == nil; _, _, err = c.Read() {
				}
			})
		}
	}()
	require.Eventually(t, func() bool {
		st := l.Stats()
		return accepted.Load() > 10 && min(st.WrongPair, st.Sent, st.Unanswered) > 1000
	}, 10*time.Second, time.Millisecond)

	begin := time.Now()
	require.NoError(t, l.Close())
	for _, c := range <-accepting {
		sessions.Go(func() { c.Close(0, "") })
	}
	sessions.Wait()
	assert.Less(t, time.Since(begin), 5*time.Second)
	again, err := Listen(t.Context(), l.Addr().String(), 1)
	if assert.NoError(t, err, "the sockets are closed") {
		again[0].Close()
	}
	close(over)
	flood.Wait()
}

// TestAllocs: a datagram costs no allocation, either way.
func TestAllocs(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector allocates")
	}
	l := serve(t, "127.0.0.1:0", 1, unmetered(), nil)
	client := dial(t, l, "127.0.0.1")
	c, token := login(t, l, client, "alice")
	s, from := l.sockets[0], c.source
	datagram := []byte(pair("alice", token, "hello"))
	stranger := []byte(pair("alice", strings.Repeat("0", 32), "hello"))
	now := l.now()
	for name, f := range map[string]func(){
		"in": func() {
			l.receive(s, from, datagram, now)
			if _, _, err := c.Read(); err != nil {
				t.Error(err)
			}
		},
		"stranger": func() { l.receive(s, eveAt, stranger, now) },
	} {
		for range 10 {
			f()
		}
		assert.Zero(t, testing.AllocsPerRun(100, f), name)
	}
	// From socket to socket.
	up, down := [][]byte{datagram, datagram, datagram}, [][]byte{[]byte("a"), []byte("b")}
	round := func() {
		client.Write(transport.Binary, up)
		for range up {
			if _, _, err := c.Read(); err != nil {
				t.Error(err)
			}
		}
		c.Write(transport.Binary, down)
		for range down {
			if _, _, err := client.Read(); err != nil {
				t.Error(err)
			}
		}
	}
	for range 10 {
		round()
	}
	assert.Zero(t, testing.AllocsPerRun(100, round))
}
