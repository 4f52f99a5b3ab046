//go:build unix

package ws

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sotto-relay/sotto/internal/race"
	"github.com/sotto-relay/sotto/transport"
)

// draining returns the server's end of a connection whose client reads and
// forgets.
func draining(t testing.TB) *conn {
	accepted := make(chan transport.Conn, 1)
	c := dialWire(t, serve(t, false, nil, Handler(transport.HandlerFunc(func(c transport.Conn) { accepted <- c }), nil)))
	c.SetDeadline(time.Time{})
	go io.Copy(io.Discard, c)
	s := <-accepted
	t.Cleanup(func() { s.Close(transport.CloseNormal, "") })
	return s.(*conn)
}

func batch(n, size int) [][]byte {
	msgs := make([][]byte, n)
	for i := range msgs {
		msgs[i] = make([]byte, size)
	}
	return msgs
}

func TestAllocs(t *testing.T) {
	if race.Enabled {
		t.Skip("a sync.Pool forgets on purpose under the race detector")
	}
	s := draining(t)
	for _, size := range []int{128, 4096} {
		msgs := batch(32, size)
		assert.Zero(t, testing.AllocsPerRun(200, func() {
			if err := send(s, transport.Binary, msgs...); err != nil {
				t.Error(err)
			}
		}), "Write")
		assert.Zero(t, testing.AllocsPerRun(200, func() {
			for left := msgs; len(left) > 0; {
				n, err := s.TryWrite(transport.Binary, left)
				if err != nil {
					t.Error(err)
					return
				}
				left = left[n:]
			}
		}), "TryWrite")
	}

	say := []byte(strings.Repeat(masked(0x81, "a message"), 500) + strings.Repeat(masked(0x82, strings.Repeat("x", 5000)), 500))
	d := readerOf(say, 3000, 1<<20, true)
	assert.Zero(t, testing.AllocsPerRun(900, func() {
		if _, _, err := d.next(); err != nil {
			t.Error(err)
		}
	}), "Read")
}

// cpu is the time that this process has had from its processors, the client's
// share included.
func cpu() time.Duration {
	var use syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &use); err != nil {
		panic(err)
	}
	return time.Duration(use.Utime.Nano() + use.Stime.Nano())
}

// BenchmarkWrite compares with WriteMessage of gorilla/websocket.
func BenchmarkWrite(b *testing.B) {
	for _, size := range []int{128, 4096} {
		msgs := batch(32, size)
		report := func(b *testing.B, before time.Duration) {
			b.ReportMetric(float64(cpu()-before)/float64(b.N*len(msgs)), "cpu-ns/message")
		}
		b.Run(fmt.Sprintf("size=%d/by=sotto", size), func(b *testing.B) {
			s := draining(b)
			b.ReportAllocs()
			before := cpu()
			for b.Loop() {
				require.NoError(b, send(s, transport.Binary, msgs...))
			}
			report(b, before)
		})
		b.Run(fmt.Sprintf("size=%d/by=gorilla", size), func(b *testing.B) {
			accepted := make(chan *websocket.Conn, 1)
			c := dialWire(b, serve(b, false, nil, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				g, err := new(websocket.Upgrader).Upgrade(w, r, nil)
				if err != nil {
					b.Error(err)
				}
				accepted <- g
			})))
			c.SetDeadline(time.Time{})
			go io.Copy(io.Discard, c)
			g := <-accepted
			defer g.Close()
			b.ReportAllocs()
			before := cpu()
			for b.Loop() {
				for _, msg := range msgs {
					require.NoError(b, g.WriteMessage(websocket.BinaryMessage, msg))
				}
			}
			report(b, before)
		})
	}
}

func BenchmarkEcho(b *testing.B) {
	for _, size := range []int{128, 4096} {
		b.Run(fmt.Sprintf("size=%d", size), func(b *testing.B) {
			c, s := connect(b, false, nil, nil, nil)
			done := make(chan struct{})
			go func() {
				defer close(done)
				for {
					k, msg, err := s.Read()
					if err != nil || send(s, k, msg) != nil {
						return
					}
				}
			}()
			msg := make([]byte, size)
			b.ReportAllocs()
			for b.Loop() {
				require.NoError(b, send(c, transport.Binary, msg))
				_, _, err := c.Read()
				require.NoError(b, err)
			}
			c.Close(transport.CloseNormal, "")
			<-done
		})
	}
}

func BenchmarkRead(b *testing.B) {
	for _, size := range []int{128, 4096} {
		b.Run(fmt.Sprintf("size=%d", size), func(b *testing.B) {
			say := strings.Repeat(masked(0x82, strings.Repeat("x", size)), 1<<20/size)
			var nc net.Conn
			c, s := connect(b, false, nil, nil, &DialOptions{Dial: func(ctx context.Context, network, address string) (_ net.Conn, err error) {
				nc, err = new(net.Dialer).DialContext(ctx, network, address)
				return nc, err
			}})
			go func() {
				for {
					if _, err := io.WriteString(nc, say); err != nil {
						return
					}
				}
			}()
			b.ReportAllocs()
			b.SetBytes(int64(size))
			for b.Loop() {
				if _, _, err := s.Read(); err != nil {
					b.Fatal(err)
				}
			}
			c.Close(transport.CloseNormal, "")
		})
	}
}

// BenchmarkIdle reports what a connection costs that is being read and has
// nothing to say, without its client's half (which is a bare socket here, about
// 600 B).
func BenchmarkIdle(b *testing.B) {
	const conns = 5000
	for b.Loop() {
		accepted := make(chan transport.Conn, conns)
		url := serve(b, false, nil, Handler(transport.HandlerFunc(func(c transport.Conn) {
			accepted <- c
			c.Read()
		}), nil))
		use := func() uint64 {
			runtime.GC()
			runtime.GC()
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			return m.HeapInuse + m.StackInuse
		}
		before := use()
		clients := make([]net.Conn, conns)
		for i := range clients {
			c, err := net.Dial("tcp", strings.TrimPrefix(url, "ws://"))
			require.NoError(b, err)
			_, err = io.WriteString(c, request+"\r\n")
			require.NoError(b, err)
			clients[i] = c
		}
		servers := make([]transport.Conn, conns)
		for i := range servers {
			servers[i] = <-accepted
		}
		b.ReportMetric(float64(use()-before)/conns, "B/conn")
		for i := range clients {
			clients[i].Close()
			servers[i].Close(transport.CloseNormal, "")
		}
	}
}
