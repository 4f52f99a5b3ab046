package blind

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sotto-relay/sotto/relay"
	"github.com/sotto-relay/sotto/relay/dialect/blind/audit"
	"github.com/sotto-relay/sotto/transport"
	"github.com/sotto-relay/sotto/transport/ws"
)

// loadEnv makes the test binary the load instead, so that what is measured is the
// relay's.
const loadEnv = "SOTTO_BLIND_LOAD"

// A load is what the second process is to do: frames of 1 KiB from one connection
// each to the subscribers of one of the keys, in turn.
type load struct {
	URL         string
	Connections int // that subscribe
	Keys        int
	Each        int // subscribers of a key
	Frames      int
}

const loadFrame = 1 << 10

// runLoad says "ready" when all are connected, goes on at a line of input, says
// "done" and stays until its input ends.
func runLoad(arg string) (exit int) {
	var l load
	err := json.Unmarshal([]byte(arg), &l)
	if err == nil {
		err = l.run(context.Background())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func (l load) run(ctx context.Context) error {
	const window = 16 // frames that not all have yet
	dial := ws.Dialer(l.URL, nil)
	conns := make([]transport.Conn, l.Connections+1)
	for i := range conns {
		var err error
		if conns[i], err = dial(ctx); err != nil {
			return err
		}
	}
	sender, rest := conns[l.Connections], conns[:l.Connections]
	due := make([]int, l.Connections) // frames, of each connection
	subscribed := make([][]string, l.Connections)
	for k := range l.Keys {
		for i := range l.Each {
			at := (k*l.Each + i) % l.Connections
			subscribed[at] = append(subscribed[at], fmt.Sprint("key", k))
			due[at] += l.Frames/l.Keys + max(0, min(1, l.Frames%l.Keys-k))
		}
	}
	for i, c := range rest {
		msgs := append(keysMessages("subscribe", subscribed[i]), rotateMessage(fmt.Sprint("a", i), "b")) // which is answered
		if err := write(c, msgs); err != nil {
			return err
		}
		if _, _, err := c.Read(); err != nil {
			return err
		}
	}
	var messages [][]byte
	for k := range l.Keys {
		text := fmt.Sprintf("key%d ", k)
		messages = append(messages, message(text+strings.Repeat("c", loadFrame+1-len(message(text)))))
	}
	fmt.Println("ready")
	_, _ = fmt.Scanln()

	var mu sync.Mutex
	moved := sync.NewCond(&mu)
	delivered, failed := 0, error(nil)
	var wg sync.WaitGroup
	for i, c := range rest {
		wg.Go(func() {
			for range due[i] {
				_, _, err := c.Read()
				mu.Lock()
				delivered++
				if err != nil {
					failed = err
				}
				if err != nil || delivered%l.Each == 0 {
					moved.Signal()
				}
				mu.Unlock()
				if err != nil {
					return
				}
			}
		})
	}
	for i := range l.Frames {
		mu.Lock()
		for failed == nil && delivered < (i-window)*l.Each {
			moved.Wait()
		}
		err := failed
		mu.Unlock()
		if err == nil {
			err = write(sender, messages[i%l.Keys:i%l.Keys+1])
		}
		if err != nil {
			return err
		}
	}
	wg.Wait()
	fmt.Println("done")
	_, _ = fmt.Scanln()
	return failed
}

// start begins the load.
func (l load) start(tb testing.TB) (say func(), hear func(string)) {
	arg, err := json.Marshal(l)
	require.NoError(tb, err)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), loadEnv+"="+string(arg))
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	require.NoError(tb, err)
	out, err := cmd.StdoutPipe()
	require.NoError(tb, err)
	require.NoError(tb, cmd.Start())
	tb.Cleanup(func() {
		_ = in.Close()
		require.NoError(tb, cmd.Wait())
	})
	return func() {
			_, err := fmt.Fprintln(in)
			require.NoError(tb, err)
		}, func(word string) {
			var got string
			_, err := fmt.Fscanln(out, &got)
			require.NoError(tb, err)
			require.Equal(tb, word, got)
		}
}

// serve serves a relay over WebSocket on loopback. A buffer of zero is the system's.
func serve(tb testing.TB, d Dialect, limits relay.Limits, buffer int) (s *relay.Server, url string) {
	s = &relay.Server{Limits: limits, Logger: slog.New(slog.DiscardHandler)}
	tl, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(tb, err)
	l := listener{tl, buffer}
	web := &http.Server{Handler: ws.Handler(s.Speak(d), nil), ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = web.Serve(l) }()
	tb.Cleanup(func() {
		_ = web.Close()
		_ = s.Close()
	})
	return s, "ws://" + l.Addr().String()
}

// A listener has connections with a small buffer for what is sent.
type listener struct {
	net.Listener
	buffer int
}

func (l listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err == nil && l.buffer > 0 {
		err = c.(*net.TCPConn).SetWriteBuffer(l.buffer)
	}
	return c, err
}

func cpu() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkFanOut brings b.N frames of 1 KiB over loopback WebSocket from one
// connection to all subscribers of one key, or of a thousand keys in turn. CPU time
// and allocations are the relay's, for each delivery.
func BenchmarkFanOut(b *testing.B) {
	for _, c := range []struct {
		name   string
		load   load
		logged bool
	}{
		{"1 key, 1000 subscribers", load{Connections: 1000, Keys: 1, Each: 1000}, false},
		{"1 key, 1000 subscribers, audit file", load{Connections: 1000, Keys: 1, Each: 1000}, true},
		{"1000 keys, 10 subscribers each", load{Connections: 1000, Keys: 1000, Each: 10}, false},
		{"1000 keys, 10 subscribers each, audit file", load{Connections: 1000, Keys: 1000, Each: 10}, true},
	} {
		b.Run(c.name, func(b *testing.B) {
			var d Dialect
			if c.logged {
				f, err := audit.OpenFile(filepath.Join(b.TempDir(), "audit.log"))
				require.NoError(b, err)
				d.Audit = &audit.Log{Sinks: []audit.Sink{f}, Logger: slog.New(slog.DiscardHandler)}
				defer d.Audit.Close()
			}
			l := c.load
			limits := relay.MaxLimits()
			limits.Aliases = 2 * l.Connections
			_, l.URL = serve(b, d, limits, 0)
			l.Frames = b.N
			say, hear := l.start(b)
			hear("ready")
			var before, after runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&before)
			used := cpu()
			b.ResetTimer()
			say()
			hear("done")
			b.StopTimer()
			used = cpu() - used
			runtime.ReadMemStats(&after)
			deliveries := float64(b.N * l.Each)
			b.ReportMetric(float64(used.Nanoseconds())/deliveries/1000, "cpu-µs/delivery")
			b.ReportMetric(float64(after.Mallocs-before.Mallocs)/deliveries, "allocs/delivery")
			b.ReportMetric(deliveries/b.Elapsed().Seconds(), "deliveries/s")
		})
	}
}
