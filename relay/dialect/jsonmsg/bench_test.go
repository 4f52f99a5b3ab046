package jsonmsg

import (
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sotto-relay/sotto/frame"
	"github.com/sotto-relay/sotto/internal/race"
	"github.com/sotto-relay/sotto/relay"
	"github.com/sotto-relay/sotto/transport"
	"github.com/sotto-relay/sotto/transport/tcp"
)

// A hot verb, as a sender says it, with what its receivers have said before.
type hot struct {
	name  string
	ready []string
	say   string
}

func hots(ct string) []hot {
	return []hot{
		{"send", nil, `{"t":"send","to":"bob","pub":"` + key1 + `","nonce":"/ITIsaskB+yE0WUlKJjG5qY9UZgbK85a","ct":"` + ct + `","id":"m1"}`},
		{"ack", nil, `{"t":"ack","to":"bob","id":"m1"}`},
		{"room_send", []string{`{"t":"join_room","room":"r"}`}, `{"t":"room_send","room":"r","ct":"` + ct + `"}`},
		{"publish", []string{`{"t":"subscribe","topic":"home/+/temp"}`}, `{"t":"publish","topic":"home/kitchen/temp","ct":"` + ct + `"}`},
		{"escaped", nil, `{"t":"send","to":"b\u006fb","ct":"\/","id":"\u006d"}`},
	}
}

// pair returns the lanes of a sender and of a receiver that are ready for h.
func (h hot) pair(t testing.TB) (alice, bob *lane) {
	srv := newServer(t)
	alice = newLane(t, srv, append([]string{`{"t":"register","addr":"alice"}`}, h.ready...)...)
	bob = newLane(t, srv, append([]string{`{"t":"register","addr":"bob"}`}, h.ready...)...)
	for range 3 { // once he has caught up with his inbox, messages go live
		alice.say(`{"t":"send","to":"bob"}`)
		require.Equal(t, `{"t":"deliver","from":"alice"}`, bob.hear())
	}
	if h.name == "publish" {
		alice.say(`{"t":"unsubscribe","topic":"home/+/temp"}`)
		alice.hear()
	}
	return alice, bob
}

// TestAllocations: none from the bytes of the sender to those of the recipient.
func TestAllocations(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector allocates")
	}
	for _, h := range hots(strings.Repeat("QUJD", 32)) {
		t.Run(h.name, func(t *testing.T) {
			alice, bob := h.pair(t)
			msg := []byte(h.say)
			run := func() {
				if err := alice.Receive(t.Context(), transport.Text, msg); err != nil {
					t.Fatal(err)
				}
				if _, _, err := bob.Read(); err != nil {
					t.Fatal(err)
				}
			}
			for range 100 {
				run()
			}
			if n := testing.AllocsPerRun(1000, run); n >= 1 {
				t.Errorf("%v allocations a message, want none", n)
			}
		})
	}
}

// BenchmarkRelay is Receive, route, render and write, over pipes.
func BenchmarkRelay(b *testing.B) {
	for _, size := range []int{128, 4 << 10} {
		for _, h := range hots(strings.Repeat("x", size)) {
			b.Run(fmt.Sprint(h.name, "/", size), func(b *testing.B) {
				alice, bob := h.pair(b)
				msg := []byte(h.say)
				b.SetBytes(int64(len(msg)))
				b.ReportAllocs()
				for b.Loop() {
					if err := alice.Receive(b.Context(), transport.Text, msg); err != nil {
						b.Fatal(err)
					}
					if _, _, err := bob.Read(); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

// A far is a client's end of a TCP connection.
type far struct{ net.Conn }

func (c far) say(t testing.TB, msg string) {
	_, err := c.Write(append(frame.AppendJSONHead(nil, len(msg)), msg...))
	require.NoError(t, err)
}

func (c far) hear(t testing.TB) string {
	var head [frame.JSONHeadSize]byte
	_, err := io.ReadFull(c, head[:])
	require.NoError(t, err)
	n := int(head[2])<<8 | int(head[3])
	msg := make([]byte, n)
	_, err = io.ReadFull(c, msg)
	require.NoError(t, err)
	return string(msg)
}

// serveTCP serves on loopback and returns a dial of clients that have said this
// and heard the answers.
func serveTCP(t testing.TB, srv *relay.Server) func(say ...string) far {
	nl, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	l := tcp.NewListener(nl, Framing{}, nil)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = srv.Serve(l, Dialect{})
	}()
	t.Cleanup(func() { _ = srv.Close(); <-done })
	return func(say ...string) far {
		c, err := net.Dial("tcp", nl.Addr().String())
		require.NoError(t, err)
		t.Cleanup(func() { _ = c.Close() })
		for _, msg := range say {
			far{c}.say(t, msg)
			far{c}.hear(t)
		}
		return far{c}
	}
}

// BenchmarkFanOut is one publication to 1,000 subscribers, over loopback TCP.
func BenchmarkFanOut(b *testing.B) {
	const receivers = 1000
	ready := map[string]string{"topic": `{"t":"subscribe","topic":"a/+"}`, "room": `{"t":"join_room","room":"r"}`}
	say := map[string]string{
		"topic": `{"t":"publish","topic":"a/b","ct":"` + strings.Repeat("x", 128) + `"}`,
		"room":  `{"t":"room_send","room":"r","ct":"` + strings.Repeat("x", 128) + `"}`,
	}
	for what := range ready {
		b.Run(what, func(b *testing.B) {
			dial := serveTCP(b, newServer(b))
			alice := dial(`{"t":"register","addr":"alice"}`, `{"t":"join_room","room":"r"}`)
			var all []far
			for i := range receivers {
				all = append(all, dial(fmt.Sprintf(`{"t":"register","addr":"r%d"}`, i), ready[what]))
			}
			const burst = 16
			b.ReportAllocs()
			for b.Loop() {
				var wg sync.WaitGroup
				const readers = 4
				for k := range readers {
					wg.Go(func() {
						buf := make([]byte, 64<<10)
						for i := k; i < len(all); i += readers {
							_, _ = io.ReadAtLeast(all[i], buf, burst*(frame.JSONHeadSize+len(say[what])+10))
						}
					})
				}
				for range burst {
					alice.say(b, say[what])
				}
				wg.Wait()
			}
			b.ReportMetric(float64(b.N*burst*receivers)/b.Elapsed().Seconds(), "deliveries/s")
		})
	}
}
