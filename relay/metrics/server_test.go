package metrics_test

import (
	"context"
	"encoding/binary"
	"log/slog"
	"testing"
	"testing/synctest"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sotto-relay/sotto/inbox"
	"github.com/sotto-relay/sotto/relay"
	"github.com/sotto-relay/sotto/relay/metrics"
	"github.com/sotto-relay/sotto/transport"
)

// echoes is a dialect whose clients are whom they say: each message is its
// sender's name and that of its recipient, 4 bytes each. What is longer or
// shorter is ignored.
type echoes struct{}

func (echoes) Name() string { return "echoes" }
func (echoes) Limits() relay.DialectLimits {
	return relay.DialectLimits{SourceConnections: -1, ConnectRate: -1}
}
func (echoes) NewSession(p *relay.Port) (relay.Session, error) { return &session{p}, nil }

func (echoes) Render(buf []byte, _ uint8, m *relay.Message) (transport.Kind, []byte, error) {
	return transport.Binary, append(buf, m.Data...), nil
}

type session struct{ *relay.Port }

func (s *session) Receive(_ context.Context, _ transport.Kind, msg []byte) error {
	if len(msg) != 8 {
		s.Ignored("wrong length")
		return nil
	}
	name := func(b []byte) relay.Address { return relay.Address{Realm: 1, Name: string(b)} }
	if s.Address() == (relay.Address{}) {
		if err := s.Claim(relay.Claim{Address: name(msg[:4])}); err != nil {
			return err
		}
	}
	s.Send(&relay.Message{To: name(msg[4:]), Data: msg})
	return nil
}

func (s *session) Close(error) {}

// TestIdentities: 1,000 peers that write to 100 others each, all with names of
// their own, make no series.
func TestIdentities(t *testing.T) {
	const peers, others = 1000, 100
	synctest.Test(t, func(t *testing.T) {
		srv := &relay.Server{Inbox: inbox.NewMemory(nil), Limits: relay.MaxLimits(), Logger: slog.New(slog.DiscardHandler)}
		defer srv.Close()
		c := metrics.New(srv)
		talk := func(peer uint32) {
			conn := srv.Dial(echoes{})
			defer conn.Close(transport.CloseNormal, "")
			msgs := [][]byte{{0}}
			for i := range uint32(others) {
				msg := binary.BigEndian.AppendUint32(nil, peer)
				msgs = append(msgs, binary.BigEndian.AppendUint32(msg, 1<<31+peer*others+i))
			}
			n, err := conn.Write(transport.Binary, msgs)
			require.NoError(t, err)
			require.Len(t, msgs, n)
			synctest.Wait()
		}
		talk(0)
		before := testutil.CollectAndCount(c)
		for i := range uint32(peers - 1) {
			talk(1 + i)
		}
		assert.Equal(t, before, testutil.CollectAndCount(c))
		st := srv.Stats()
		assert.EqualValues(t, peers*others, st.Held)
		assert.EqualValues(t, peers, st.Ignored["echoes: wrong length"])
	})
}
