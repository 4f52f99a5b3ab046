package bench

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sotto-relay/sotto/frame"
	"github.com/sotto-relay/sotto/relay"
	"github.com/sotto-relay/sotto/relay/dialect/brep"
	"github.com/sotto-relay/sotto/transport"
)

// party is a dialect for fan-out: everybody is in one group, and what one sends
// goes to all others.
type party struct{}

var everybody = relay.Address{Realm: 255, Name: "everybody"}

func (party) Name() string                { return "party" }
func (party) Limits() relay.DialectLimits { return relay.DialectLimits{} }
func (party) Framing() transport.Framing  { return brep.Framing{} }

func (party) Render(buf []byte, _ uint8, m *relay.Message) (transport.Kind, []byte, error) {
	return transport.Binary, append(buf, m.Data...), nil
}

func (party) NewSession(p *relay.Port) (relay.Session, error) {
	p.Ready()
	return &partySession{port: p, msg: relay.Message{To: everybody}}, p.Join(everybody, nil)
}

type partySession struct {
	port *relay.Port
	msg  relay.Message
}

func (s *partySession) Receive(_ context.Context, _ transport.Kind, msg []byte) error {
	s.msg.Data = msg
	_, err := s.port.Publish(&s.msg, relay.PublishOptions{})
	return err
}

func (s *partySession) Close(error) {}

// runFan is the load of BenchmarkFanOut: one sends, all others count.
func (l load) runFan(ctx context.Context) error {
	const window = 16 // messages that not all have yet
	var conns []transport.Conn
	for range l.Fan + 1 {
		c, err := l.dial(ctx)
		if err != nil {
			return err
		}
		conns = append(conns, c)
	}
	sender, rest := conns[0], conns[1:]
	message := [][]byte{(&frame.Brep{Type: frame.TypeData, Payload: make([]byte, l.Size)}).Append(nil)}
	fmt.Println("ready")
	_, _ = fmt.Scanln()

	var mu sync.Mutex
	moved := sync.NewCond(&mu)
	delivered, failed := 0, error(nil)
	var wg sync.WaitGroup
	for _, c := range rest {
		wg.Go(func() {
			for range l.Messages {
				_, _, err := c.Read()
				mu.Lock()
				delivered++
				if err != nil {
					failed = err
				}
				if err != nil || delivered%l.Fan == 0 {
					moved.Signal()
				}
				mu.Unlock()
				if err != nil {
					return
				}
			}
		})
	}
	for i := range l.Messages {
		mu.Lock()
		for failed == nil && delivered < (i-window)*l.Fan {
			moved.Wait()
		}
		err := failed
		mu.Unlock()
		for msgs := message; err == nil && len(msgs) > 0; {
			var n int
			n, err = sender.Write(transport.Binary, msgs)
			msgs = msgs[n:]
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

// BenchmarkFanOut brings each of b.N messages from one connection to 500 others.
// CPU time and allocations are the server's, for each delivery.
func BenchmarkFanOut(b *testing.B) {
	const fan = 500
	for _, medium := range []string{"ws", "tcp"} {
		for _, size := range []int{128, 4096} {
			b.Run(fmt.Sprintf("%s/%dB/%d", medium, size, fan), func(b *testing.B) {
				s := &relay.Server{Limits: relay.MaxLimits(), Logger: slog.New(slog.DiscardHandler)}
				b.Cleanup(func() { require.NoError(b, s.Close()) })
				l := load{
					Medium: medium, Address: serve(b, medium, s.Speak(party{})),
					Fan: fan, Messages: b.N, Size: size,
				}
				before, after := l.measure(b)
				deliveries := float64(b.N) * fan
				b.ReportMetric(float64((after-before).Nanoseconds())/deliveries, "cpu-ns/delivery")
				b.ReportMetric(deliveries/b.Elapsed().Seconds(), "deliveries/s")
			})
		}
	}
}
