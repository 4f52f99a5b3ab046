package bench

import (
	"context"
	"encoding/binary"
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
	"github.com/sotto-relay/sotto/transport"
	"github.com/sotto-relay/sotto/transport/tcp"
	"github.com/sotto-relay/sotto/transport/ws"
)

// loadEnv makes the test binary the load instead.
const loadEnv = "SOTTO_BENCH_LOAD"

// A load is what the second process is to do.
type load struct {
	Medium   string // "ws" or "tcp"
	Address  string // HOST:PORT
	Pairs    int
	Fan      int // recipients of one sender, instead of pairs
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

func (l load) dial(ctx context.Context) (transport.Conn, error) {
	if l.Medium == "tcp" {
		return tcp.Dialer(l.Address, brep.Framing{}, nil)(ctx)
	}
	return ws.Dialer("ws://"+l.Address, nil)(ctx)
}

func (l load) run(ctx context.Context) error {
	if l.Fan > 0 {
		return l.runFan(ctx)
	}
	type pair struct {
		from, to *brep.Client
		message  *frame.Brep
	}
	connect := func() (*brep.Client, crypto.PublicKey, error) {
		id, err := crypto.GenerateIdentity()
		if err != nil {
			return nil, crypto.PublicKey{}, err
		}
		conn, err := l.dial(ctx)
		if err != nil {
			return nil, crypto.PublicKey{}, err
		}
		c, err := brep.Connect(ctx, conn, &brep.ClientOptions{Identity: id})
		return c, id.Public(), err
	}
	var idle []*brep.Client // so that none is collected, and closed
	for range l.Idle {
		e, _, err := connect()
		if err != nil {
			return err
		}
		idle = append(idle, e)
	}
	defer runtime.KeepAlive(idle)
	var pairs []pair
	for range l.Pairs {
		from, fromKey, err := connect()
		if err != nil {
			return err
		}
		to, toKey, err := connect()
		if err != nil {
			return err
		}
		pairs = append(pairs, pair{from, to, &frame.Brep{
			Type: frame.TypeData, ID: [16]byte{1}, Sender: fromKey,
			Payload: append(toKey[:], make([]byte, l.Size)...),
		}})
	}
	fmt.Println("ready")
	_, _ = fmt.Scanln()

	const window = 64 // messages under way in a pair
	errs := make(chan error, 2*len(pairs))
	var wg sync.WaitGroup
	for _, p := range pairs {
		tokens := make(chan struct{}, window)
		wg.Go(func() {
			for i := range l.Messages {
				tokens <- struct{}{}
				binary.BigEndian.PutUint64(p.message.ID[:], uint64(i)+1)
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

// serve brings connections of a medium on loopback to h and returns the address.
func serve(tb testing.TB, medium string, h transport.Handler) (address string) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(tb, err)
	if medium == "ws" {
		web := &http.Server{Handler: ws.Handler(h, nil), ReadHeaderTimeout: 10 * time.Second}
		go func() { _ = web.Serve(l) }()
		tb.Cleanup(func() { _ = web.Close() })
		return l.Addr().String()
	}
	tl := tcp.NewListener(l, brep.Framing{}, nil)
	go func() {
		for {
			c, err := tl.Accept()
			if err != nil {
				return
			}
			h.HandleConn(c)
		}
	}()
	tb.Cleanup(func() { _ = tl.Close() })
	return l.Addr().String()
}

// newRelay returns a handler of a relay without rates.
func newRelay(tb testing.TB) transport.Handler {
	id, err := crypto.GenerateIdentity()
	require.NoError(tb, err)
	s := &relay.Server{Limits: relay.MaxLimits(), Logger: slog.New(slog.DiscardHandler)}
	tb.Cleanup(func() { _ = s.Close() })
	return s.Speak(brep.Dialect{Identity: id})
}

func cpu() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkPairs sends b.N messages over 16 pairs of extended sessions. CPU time
// and allocations are the server's. "floor" is the least that a router over the
// same medium can do (see floor).
func BenchmarkPairs(b *testing.B) {
	for _, medium := range []string{"ws", "tcp"} {
		for _, size := range []int{128, 4096} {
			for _, what := range []string{"relay", "floor"} {
				b.Run(fmt.Sprintf("%s/%dB/%s", medium, size, what), func(b *testing.B) {
					var h transport.Handler = newFloor(b)
					if what == "relay" {
						h = newRelay(b)
					}
					const pairs = 16
					l := load{
						Medium: medium, Address: serve(b, medium, h),
						Pairs: pairs, Messages: b.N/pairs + 1, Size: size,
					}
					before, after := l.measure(b)
					b.ReportMetric(float64((after-before).Nanoseconds())/float64(b.N), "cpu-ns/op")
					b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "msgs/s")
				})
			}
		}
	}
}

// measure runs the load for b. It returns the CPU times before and after.
func (l load) measure(b *testing.B) (before, after time.Duration) {
	say, hear := l.start(b)
	hear("ready")
	b.ReportAllocs()
	before = cpu()
	b.ResetTimer()
	say()
	hear("done")
	b.StopTimer()
	return before, cpu()
}

// BenchmarkIdle reports what an idle connection costs the relay, after its
// handshake, and how many logins a second there were. Run it with -benchtime
// 10000x or so.
func BenchmarkIdle(b *testing.B) {
	for _, medium := range []string{"ws", "tcp"} {
		b.Run(medium, func(b *testing.B) {
			address := serve(b, medium, newRelay(b))
			before := rss(b)
			_, hear := load{Medium: medium, Address: address, Idle: b.N}.start(b)
			hear("ready")
			b.StopTimer()
			b.ReportMetric(float64(rss(b)-before)/float64(b.N), "B/conn")
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "logins/s")
		})
	}
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
