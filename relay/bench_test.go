package relay

import (
	"context"
	"fmt"
	"io"
	"net"
	"testing"
	"time"

	"github.com/sotto-relay/sotto/internal/race"
	"github.com/sotto-relay/sotto/transport"
	"github.com/sotto-relay/sotto/transport/pipe"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A sink is a Conn that takes everything at once and says nothing.
type sink struct {
	closed chan struct{}
	taken  int
}

func (s *sink) Read() (transport.Kind, []byte, error) {
	<-s.closed
	return 0, nil, io.EOF
}

func (s *sink) Write(_ transport.Kind, msgs [][]byte) (int, error) {
	s.taken += len(msgs)
	return len(msgs), nil
}

func (s *sink) TryWrite(k transport.Kind, msgs [][]byte) (int, error) { return s.Write(k, msgs) }
func (s *sink) SetReadDeadline(time.Time) error                       { return nil }
func (s *sink) SetWriteDeadline(time.Time) error                      { return nil }
func (s *sink) SetReadLimit(int)                                      {}
func (s *sink) SetDry(func())                                         {}
func (s *sink) RemoteAddr() net.Addr                                  { return pipe.Addr{} }
func (s *sink) Value(any) any                                         { return nil }
func (s *sink) Close(uint16, string) error {
	select {
	case <-s.closed:
	default:
		close(s.closed)
	}
	return nil
}

// plain is the cheapest dialect: a session is an address and a member of "all"
// from the start, and what it receives goes to one address, or to "all".
type plain struct{ name, to string }

func (plain) Name() string          { return "plain" }
func (plain) Limits() DialectLimits { return DialectLimits{} }
func (plain) Render(buf []byte, _ uint8, m *Message) (transport.Kind, []byte, error) {
	return transport.Binary, append(buf, m.Data...), nil
}

func (d plain) NewSession(p *Port) (Session, error) {
	_ = p.Join(Address{Realm: 1, Name: "all"}, nil)
	return &plainSession{p, Message{To: Address{Realm: 1, Name: d.to}}}, p.Claim(Claim{Address: Address{Realm: 1, Name: d.name}})
}

type plainSession struct {
	p *Port
	m Message
}

func (s *plainSession) Receive(_ context.Context, _ transport.Kind, msg []byte) error {
	s.m.Data = msg
	if s.m.To.Name == "all" {
		_, err := s.p.Publish(&s.m, PublishOptions{})
		return err
	}
	s.p.Send(&s.m)
	return nil
}

func (s *plainSession) Close(error) {}

// sinks connects n recipients to s and returns the port of one sender.
func sinks(tb testing.TB, s *Server, n int, to string) (sender *Port, first *sink) {
	tb.Cleanup(func() { _ = s.Close() })
	for i := range n {
		_, c := sinkTo(tb, s, plain{name: fmt.Sprint("r", i)})
		if i == 0 {
			first = c
		}
	}
	sender, _ = sinkTo(tb, s, plain{name: "sender", to: to})
	return sender, first
}

// sinkTo connects a sink to s.
func sinkTo(tb testing.TB, s *Server, d Dialect) (*Port, *sink) {
	c := &sink{closed: make(chan struct{})}
	p, err := s.open(c, s.speaker(d))
	require.NoError(tb, err)
	require.NoError(tb, p.begin())
	go func() { p.finish(p.readMessages()) }()
	return p, c
}

// batch is how many messages come in together in the benchmarks.
const perBatch = 32

func receive(p *Port, msg []byte, n int) {
	p.batching, p.now = true, time.Now()
	p.openBatch()
	for range n {
		_ = p.session.Receive(p.ctx, transport.Binary, msg)
	}
	p.endBatch()
}

func TestNoAllocations(t *testing.T) {
	for _, to := range []string{"r0", "all"} {
		for _, size := range []int{128, 4096} {
			t.Run(fmt.Sprint(to, "/", size), func(t *testing.T) {
				p, _ := sinks(t, &Server{Limits: MaxLimits()}, 100, to)
				msg := make([]byte, size)
				if race.Enabled {
					receive(p, msg, perBatch)
					t.Skip("sync.Pool drops at random under the race detector")
				}
				allocs := testing.AllocsPerRun(200, func() { receive(p, msg, perBatch) })
				assert.Zero(t, int(allocs))
			})
		}
	}
}

func BenchmarkRoute(b *testing.B) {
	for _, size := range []int{128, 4096} {
		b.Run(fmt.Sprint(size, "B"), func(b *testing.B) {
			p, c := sinks(b, &Server{Limits: MaxLimits()}, 1, "r0")
			msg := make([]byte, size)
			b.SetBytes(int64(size))
			b.ReportAllocs()
			for i := 0; i < b.N; i += perBatch {
				receive(p, msg, perBatch)
			}
			b.StopTimer()
			if c.taken < b.N {
				b.Fatalf("%d of %d delivered", c.taken, b.N)
			}
		})
	}
}

func BenchmarkFanOut(b *testing.B) {
	for _, n := range []int{1, 100, 10_000} {
		for _, size := range []int{128, 4096} {
			b.Run(fmt.Sprint(n, "/", size, "B"), func(b *testing.B) {
				p, c := sinks(b, &Server{Limits: MaxLimits()}, n, "all")
				msg := make([]byte, size)
				b.ReportAllocs()
				b.ResetTimer()
				for i := 0; i < b.N; i += perBatch {
					receive(p, msg, min(perBatch, b.N-i))
				}
				b.StopTimer()
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/delivery")
				if c.taken < b.N {
					b.Fatalf("%d of %d delivered", c.taken, b.N)
				}
			})
		}
	}
}
