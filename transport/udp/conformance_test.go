package udp

import (
	"net"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sotto-relay/sotto/relay/relaytest"
	"github.com/sotto-relay/sotto/transport"
	"github.com/sotto-relay/sotto/transport/transporttest"
)

// TestConn runs the conformance suite on both ends of sessions, where whatever
// comes without a pair is for the session at its source.
func TestConn(t *testing.T) {
	traits := transporttest.Traits{NoKinds: true, NoCodes: true, NoEmpty: true, Datagrams: true}
	transporttest.Run(t, traits, func(t *testing.T) (a, b transport.Conn) {
		n := relaytest.NewPacketNetwork(t, 1)
		pc, err := n.Listen(relayAt)
		require.NoError(t, err)
		o := unmetered()
		o.QueueBytes = 1 << 20
		o.Demux = func(b []byte) (open bool, name, token []byte) {
			open, name, token = demux(b)
			return open || token == nil, name, token
		}
		l := NewListener([]net.PacketConn{pc}, &o)
		t.Cleanup(func() { l.Close() })
		a, err = Dialer(relayAt.String(), &DialOptions{Dial: n.DialFrom(aliceAt)})(t.Context())
		require.NoError(t, err)
		b, _ = login(t, l, a, "alice")
		return a, b
	})
}
