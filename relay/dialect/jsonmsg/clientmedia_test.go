package jsonmsg_test

import (
	"context"
	"log/slog"
	"net"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sotto-relay/sotto/inbox"
	"github.com/sotto-relay/sotto/relay"
	"github.com/sotto-relay/sotto/relay/dialect/jsonmsg"
	"github.com/sotto-relay/sotto/transport"
	"github.com/sotto-relay/sotto/transport/tcp"
	"github.com/sotto-relay/sotto/transport/udp"
	"github.com/sotto-relay/sotto/transport/ws"
)

// TestClientMedia: an exchange over sockets of each medium, the other side being on
// another one.
func TestClientMedia(t *testing.T) {
	srv := &relay.Server{
		Inbox: inbox.NewMemory(nil), Limits: relay.MaxLimits(), Logger: slog.New(slog.DiscardHandler),
	}
	t.Cleanup(func() { _ = srv.Close() })
	dialect := jsonmsg.Dialect{Identity: newIdentity(t)}

	web := httptest.NewServer(ws.Handler(srv.Speak(dialect), nil))
	t.Cleanup(web.Close)
	stream, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	socket, err := net.ListenPacket("udp", "127.0.0.1:0")
	require.NoError(t, err)
	for _, l := range []transport.Listener{
		tcp.NewListener(stream, jsonmsg.Framing{}, nil),
		udp.NewListener([]net.PacketConn{socket}, &udp.Options{
			Demux: jsonmsg.Demux, Answer: jsonmsg.Answer(srv.Load), SourceRate: 1e6, // all is from one
		}),
	} {
		go func() { _ = srv.Serve(l, dialect) }() // until Close
	}
	media := map[string]transport.Dialer{
		"ws":  ws.Dialer(strings.Replace(web.URL, "http", "ws", 1), nil),
		"tcp": tcp.Dialer(stream.Addr().String(), jsonmsg.Framing{}, nil),
		"udp": udp.Dialer(socket.LocalAddr().String(), nil),
	}
	for name, dial := range media {
		for other, dialOther := range media {
			t.Run(name+" to "+other, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				defer cancel()
				ann := connect(t, dial, &jsonmsg.ClientOptions{Key: newKey(t), Prove: true})
				assert.Equal(t, name != "udp", want[*jsonmsg.Registered](ann).Proven)
				bob := connect(t, dialOther, named("bob "+name+other))
				want[*jsonmsg.Registered](bob)
				_, err := bob.Capabilities(ctx) // by when he has shown where he is
				require.NoError(t, err)
				require.NoError(t, ann.Send(ctx, bob.Address(), "m1", []byte("hello")))
				want[*jsonmsg.PeerKey](bob)
				m := want[*jsonmsg.Message](bob)
				assert.Equal(t, "hello", string(m.Data))
				require.NoError(t, bob.Ack(ctx, m))
				want[*jsonmsg.PeerKey](ann)
				assert.Equal(t, "m1", want[*jsonmsg.Ack](ann).ID)
				require.NoError(t, ann.Close())
				require.NoError(t, bob.Close())
			})
		}
	}
}
