package relay

import (
	"context"
	"fmt"
	"testing"

	"github.com/sotto-relay/sotto/internal/race"
	"github.com/sotto-relay/sotto/transport"
	"github.com/stretchr/testify/assert"
)

// board is plain with topics: a session has subscribed from the start, and what it
// receives goes to one topic.
type board struct {
	plain
	filters []string
	retain  Retain
}

type boardSession struct {
	p      *Port
	m      Message
	retain Retain
}

func (d board) NewSession(p *Port) (Session, error) {
	for _, f := range d.filters {
		if err := p.Subscribe(Address{Realm: 1, Name: f}, nil); err != nil {
			return nil, err
		}
	}
	s := &boardSession{p, Message{To: Address{Realm: 1, Name: d.to}}, d.retain}
	return s, p.Claim(Claim{Address: Address{Realm: 1, Name: d.name}})
}

func (s *boardSession) Receive(_ context.Context, _ transport.Kind, msg []byte) error {
	s.m.Data = msg
	_, err := s.p.PublishTopic(&s.m, s.retain)
	return err
}

func (s *boardSession) Close(error) {}

// boards connects n subscribers to s, half of whom have two filters that match,
// and returns the port of one publisher.
func boards(tb testing.TB, s *Server, n int, retain Retain) (publisher *Port, first *sink) {
	tb.Cleanup(func() { _ = s.Close() })
	for i := range n {
		_, c := sinkTo(tb, s, board{plain{name: fmt.Sprint("s", i)}, []string{"a/+/c", "a/#", "other"}[i%2:], RetainNo})
		if i == 0 {
			first = c
		}
	}
	publisher, _ = sinkTo(tb, s, board{plain{name: "publisher", to: "a/b/c"}, nil, retain})
	return publisher, first
}

func TestTopicsDoNotAllocate(t *testing.T) {
	for _, size := range []int{128, 4096} {
		for name, c := range map[string]struct {
			first, then Retain
			allocs      int // a publication
		}{
			"nothing retained": {RetainNo, RetainNo, 0},
			"another retained": {RetainValue, RetainNo, 0},
			"retained":         {RetainValue, RetainValue, 2}, // the value and its bytes
		} {
			t.Run(fmt.Sprint(name, "/", size), func(t *testing.T) {
				p, first := boards(t, &Server{Limits: MaxLimits()}, 100, c.first)
				msg := make([]byte, size)
				receive(p, msg, perBatch)
				assert.Equal(t, perBatch, first.taken)
				if race.Enabled {
					t.Skip("sync.Pool drops at random under the race detector")
				}
				p.session.(*boardSession).retain = c.then
				allocs := testing.AllocsPerRun(50, func() { receive(p, msg, perBatch) })
				assert.Equal(t, c.allocs, int(allocs)/perBatch)
			})
		}
	}
}

func BenchmarkTopics(b *testing.B) {
	for _, n := range []int{1, 100, 10_000} {
		for name, retain := range map[string]Retain{"": RetainNo, "/retained": RetainValue} {
			b.Run(fmt.Sprint(n, "/128B", name), func(b *testing.B) {
				p, c := boards(b, &Server{Limits: MaxLimits()}, n, retain)
				msg := make([]byte, 128)
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
