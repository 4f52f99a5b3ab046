package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/sotto-relay/sotto/crypto"
	"github.com/sotto-relay/sotto/frame"
	"github.com/sotto-relay/sotto/relay"
	"github.com/sotto-relay/sotto/relay/dialect/brep"
	"github.com/sotto-relay/sotto/transport/ws"
)

// loadEnv makes the test binary the load instead.
const loadEnv = "SOTTO_BENCH_LOAD"

// A load is what the second process is to do.
type load struct {
	URL      string
	Pairs    int
	Messages int // of each pair
	Size     int // of the payload, beside the recipient's key
	Idle     int // connections that log in and stay
}

func TestMain(m *testing.M) {
	if arg := os.Getenv(loadEnv); arg != "" {
		var l load
		err := json.Unmarshal([]byte(arg), &l)
		if err == nil {
			err = l.run(context.Background())
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	goleak.VerifyTestMain(m)
}

// start begins the load in a process of its own. It says "ready" when all are
// connected, goes on at a line of input, says "done" and stays until its input
// ends.
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

func (l load) run(ctx context.Context) error {
	type pair struct {
		from, to *brep.Client
		message  *frame.Brep
		ready    chan struct{}
	}
	connect := func() (*brep.Client, *crypto.Identity, error) {
		id, err := crypto.GenerateIdentity()
		if err != nil {
			return nil, nil, err
		}
		conn, err := ws.Dialer(l.URL, nil)(ctx)
		if err != nil {
			return nil, nil, err
		}
		c, err := brep.Connect(ctx, conn, &brep.ClientOptions{Identity: id})
		return c, id, err
	}
	for range l.Idle {
		if _, _, err := connect(); err != nil {
			return err
		}
	}
	var pairs []pair
	for range l.Pairs {
		from, fromID, err := connect()
		if err != nil {
			return err
		}
		to, toID, err := connect()
		if err != nil {
			return err
		}
		key := toID.Public()
		pairs = append(pairs, pair{from, to, &frame.Brep{
			Type: frame.TypeData, ID: [16]byte{1}, Sender: fromID.Public(),
			Payload: append(key[:], make([]byte, l.Size)...),
		}, make(chan struct{})})
	}
	fmt.Println("ready")
	_, _ = fmt.Scanln()

	const window = 64 // messages under way in a pair
	errs := make(chan error, 2*len(pairs))
	var wg sync.WaitGroup
	for _, p := range pairs {
		tokens := make(chan struct{}, window)
		wg.Go(func() {
			for range l.Messages {
				tokens <- struct{}{}
				if err := p.from.Send(ctx, p.message); err != nil {
					errs <- err
					return
				}
			}
		})
		wg.Go(func() {
			for range l.Messages {
				if _, err := p.to.Receive(); err != nil {
					errs <- err
					return
				}
				<-tokens
			}
		})
	}
	wg.Wait()
	select {
	case err := <-errs:
		return err
	default:
	}
	fmt.Println("done")
	_, _ = fmt.Scanln()
	return nil
}

// serve starts a relay on a loopback WebSocket.
func serve(tb testing.TB) (s *relay.Server, url string) {
	id, err := crypto.GenerateIdentity()
	require.NoError(tb, err)
	s = &relay.Server{Limits: relay.MaxLimits(), Logger: slog.New(slog.DiscardHandler)}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(tb, err)
	web := &http.Server{Handler: ws.Handler(s.Speak(brep.Dialect{Identity: id}), nil), ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = web.Serve(l) }()
	tb.Cleanup(func() {
		_ = web.Close()
		_ = s.Close()
	})
	return s, "ws://" + l.Addr().String()
}

func cpu() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkPairs sends b.N messages over 16 pairs of extended sessions. CPU time
// and allocations are the relay's.
func BenchmarkPairs(b *testing.B) {
	for _, size := range []int{128, 4096} {
		b.Run(fmt.Sprintf("ws/%dB", size), func(b *testing.B) {
			_, url := serve(b)
			const pairs = 16
			say, hear := load{URL: url, Pairs: pairs, Messages: b.N/pairs + 1, Size: size}.start(b)
			hear("ready")
			b.ReportAllocs()
			before := cpu()
			b.ResetTimer()
			say()
			hear("done")
			b.StopTimer()
			b.ReportMetric(float64((cpu()-before).Nanoseconds())/float64(b.N), "cpu-ns/op")
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "msgs/s")
		})
	}
}

// BenchmarkIdle reports what an idle connection costs the relay, after its
// handshake. Run it with -benchtime 5000x or so.
func BenchmarkIdle(b *testing.B) {
	_, url := serve(b)
	before := rss(b)
	_, hear := load{URL: url, Idle: b.N}.start(b)
	hear("ready")
	b.StopTimer()
	b.ReportMetric(float64(rss(b)-before)/float64(b.N), "B/conn")
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "connects/s")
}

// rss returns the memory of this process, in bytes, after a collection.
func rss(tb testing.TB) int {
	for range 3 {
		runtime.GC()
	}
	debug.FreeOSMemory()
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		tb.Skip("no /proc here")
	}
	_, line, _ := strings.Cut(string(status), "VmRSS:")
	kb, err := strconv.Atoi(strings.Fields(line)[0])
	require.NoError(tb, err)
	return kb << 10
}
