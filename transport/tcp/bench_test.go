//go:build unix

package tcp

import (
	"fmt"
	"io"
	"net"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sotto-relay/sotto/internal/race"
	"github.com/sotto-relay/sotto/transport"
)

func batch(n, size int) [][]byte {
	msgs := make([][]byte, n)
	for i := range msgs {
		msgs[i] = make([]byte, size)
	}
	return msgs
}

// draining returns the server's end of a connection whose client reads and
// forgets.
func draining(t testing.TB) *conn {
	c, s := wire(t, prefixed{}, nil)
	c.SetDeadline(time.Time{})
	go io.Copy(io.Discard, c)
	return s
}

func TestAllocs(t *testing.T) {
	if race.Enabled {
		t.Skip("a sync.Pool forgets on purpose under the race detector")
	}
	s := draining(t)
	for _, size := range []int{128, 4096} {
		msgs := batch(32, size)
		assert.Zero(t, testing.AllocsPerRun(200, func() {
			if err := send(s, msgs...); err != nil {
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

	c, s := wire(t, prefixed{}, nil)
	say := strings.Repeat(message(strings.Repeat("x", 100))+message(strings.Repeat("x", 5000)), 500)
	go io.WriteString(c, say)
	assert.Zero(t, testing.AllocsPerRun(900, func() {
		if _, _, err := s.Read(); err != nil {
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

func BenchmarkWrite(b *testing.B) {
	for _, size := range []int{128, 4096} {
		b.Run(fmt.Sprintf("size=%d", size), func(b *testing.B) {
			s, msgs := draining(b), batch(32, size)
			b.ReportAllocs()
			before := cpu()
			for b.Loop() {
				require.NoError(b, send(s, msgs...))
			}
			b.ReportMetric(float64(cpu()-before)/float64(b.N*len(msgs)), "cpu-ns/message")
		})
	}
}

func BenchmarkEcho(b *testing.B) {
	for _, size := range []int{128, 4096} {
		b.Run(fmt.Sprintf("size=%d", size), func(b *testing.B) {
			c, s := connect(b, false, nil, prefixed{})
			done := make(chan struct{})
			go func() {
				defer close(done)
				for {
					_, msg, err := s.Read()
					if err != nil || send(s, msg) != nil {
						return
					}
				}
			}()
			msg := make([]byte, size)
			b.ReportAllocs()
			for b.Loop() {
				require.NoError(b, send(c, msg))
				_, _, err := c.Read()
				require.NoError(b, err)
			}
			c.Close(0, "")
			<-done
		})
	}
}

func BenchmarkRead(b *testing.B) {
	for _, size := range []int{128, 4096, 1 << 20} {
		b.Run(fmt.Sprintf("size=%d", size), func(b *testing.B) {
			c, s := wire(b, prefixed{}, nil)
			c.SetDeadline(time.Time{})
			say := strings.Repeat(message(strings.Repeat("x", size)), 1<<20/size)
			go func() {
				for {
					if _, err := io.WriteString(c, say); err != nil {
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
		})
	}
}

// BenchmarkIdle reports what a connection costs that is being read and has
// nothing to say, without its client's half (which is a bare socket here, about
// 600 B).
func BenchmarkIdle(b *testing.B) {
	const conns = 5000
	use := func() uint64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapInuse + m.StackInuse
	}
	for b.Loop() {
		l, address := listen(b, nil, brep{}, nil)
		before := use()
		clients, servers := make([]net.Conn, conns), make([]transport.Conn, conns)
		for i := range clients {
			c, err := net.Dial("tcp", address)
			require.NoError(b, err)
			s, err := l.Accept()
			require.NoError(b, err)
			go s.Read()
			clients[i], servers[i] = c, s
		}
		b.ReportMetric(float64(use()-before)/conns, "B/conn")
		for i := range clients {
			clients[i].Close()
			servers[i].Close(0, "")
		}
		l.Close()
	}
}
