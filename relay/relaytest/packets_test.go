package relaytest_test

import (
	"encoding/binary"
	"net"
	"net/netip"
	"os"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sotto-relay/sotto/relay/relaytest"
)

var (
	atA = netip.MustParseAddrPort("10.0.0.1:1")
	atB = netip.MustParseAddrPort("10.0.0.2:2")
	atC = netip.MustParseAddrPort("[2001:db8::3]:3")
)

func packetConn(t *testing.T, n *relaytest.PacketNetwork, at netip.AddrPort) *relaytest.PacketConn {
	t.Helper()
	c, err := n.Listen(at)
	require.NoError(t, err)
	return c
}

// drain returns the numbers that have arrived, in order, once nothing is under
// way any more.
func drain(t *testing.T, c *relaytest.PacketConn) (got []uint32) {
	t.Helper()
	require.NoError(t, c.SetReadDeadline(time.Now().Add(time.Minute)))
	b := make([]byte, 100)
	for {
		n, _, err := c.ReadFrom(b)
		if err != nil {
			require.ErrorIs(t, err, os.ErrDeadlineExceeded)
			return got
		}
		require.Equal(t, 4, n)
		got = append(got, binary.BigEndian.Uint32(b))
	}
}

// sendNumbers sends so many numbers through a network with faults and returns
// what arrives.
func sendNumbers(t *testing.T, seed uint64, f relaytest.PacketFaults, count int) (got []uint32) {
	synctest.Test(t, func(t *testing.T) {
		n := relaytest.NewPacketNetwork(t, seed)
		n.Set(f)
		a, b := packetConn(t, n, atA), packetConn(t, n, atB)
		for i := range count {
			_, err := a.WriteTo(binary.BigEndian.AppendUint32(nil, uint32(i)), b.LocalAddr())
			require.NoError(t, err)
			time.Sleep(time.Millisecond)
		}
		got = drain(t, b)
	})
	return got
}

func TestPacketFaults(t *testing.T) {
	const count = 500
	sorted := func(got []uint32) bool { return slices.IsSorted(got) }
	distinct := func(got []uint32) int { return len(slices.Compact(slices.Sorted(slices.Values(got)))) }
	for name, test := range map[string]struct {
		faults             relaytest.PacketFaults
		atLeast, atMost    int // arrive
		distinct, reorders bool
	}{
		"none":      {relaytest.PacketFaults{}, count, count, true, false},
		"delay":     {relaytest.PacketFaults{Delay: time.Second}, count, count, true, false},
		"loss":      {relaytest.PacketFaults{Loss: 0.2}, 350, 450, true, false},
		"duplicate": {relaytest.PacketFaults{Duplicate: 0.2}, 550, 650, false, false},
		"jitter":    {relaytest.PacketFaults{Jitter: 5 * time.Millisecond}, count, count, true, true},
		"all":       {relaytest.PacketFaults{0.5, 0.5, time.Second, time.Second}, 300, 450, false, true},
		"nothing":   {relaytest.PacketFaults{Loss: 1}, 0, 0, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			got := sendNumbers(t, 1, test.faults, count)
			assert.GreaterOrEqual(t, len(got), test.atLeast)
			assert.LessOrEqual(t, len(got), test.atMost)
			assert.Equal(t, test.distinct, distinct(got) == len(got), "distinct")
			assert.Equal(t, test.reorders, !sorted(got), "reordered")
			assert.Equal(t, got, sendNumbers(t, 1, test.faults, count), "again, with the same seed")
			if test.faults.Loss > 0 && test.faults.Loss < 1 {
				assert.NotEqual(t, got, sendNumbers(t, 2, test.faults, count), "with another")
			}
		})
	}
}

func TestPacketConn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := relaytest.NewPacketNetwork(t, 1)
		server := packetConn(t, n, atA)
		dialled, err := n.DialFrom(netip.AddrPortFrom(atB.Addr(), 0))(t.Context(), "udp", atA.String())
		require.NoError(t, err)
		client := dialled.(*relaytest.PacketConn)
		buf := make([]byte, 5)
		read := func(c net.PacketConn) (string, string) {
			n, from, err := c.ReadFrom(buf)
			require.NoError(t, err)
			return string(buf[:n]), from.String()
		}

		hello := []byte("hello, cut off")
		_, err = client.Write(hello)
		require.NoError(t, err)
		clear(hello) // nothing is retained
		body, from := read(server)
		assert.Equal(t, "hello", body)
		assert.Equal(t, client.LocalAddr().String(), from)
		assert.Equal(t, atA.String(), client.RemoteAddr().String())
		assert.Nil(t, server.RemoteAddr())

		// Nobody but the peer reaches one that has a peer.
		n.Send(atB, client.LocalAddr().(*net.UDPAddr).AddrPort(), []byte("no"))
		n.Send(atA, client.LocalAddr().(*net.UDPAddr).AddrPort(), []byte("yes"))
		k, err := client.Read(buf)
		require.NoError(t, err)
		assert.Equal(t, "yes", string(buf[:k]))

		// Forged.
		n.Send(atC, atA, []byte("boo"))
		body, from = read(server)
		assert.Equal(t, "boo", body)
		assert.Equal(t, atC.String(), from)

		// A NAT forgets.
		old := client.LocalAddr()
		require.NoError(t, client.Rebind(atB))
		_, err = server.WriteTo([]byte("lost"), old)
		require.NoError(t, err)
		_, err = server.WriteTo([]byte("found"), client.LocalAddr())
		require.NoError(t, err)
		k, err = client.Read(buf)
		require.NoError(t, err)
		assert.Equal(t, "found", string(buf[:k]))
		assert.Error(t, server.Rebind(atB), "in use")
		packetConn(t, n, old.(*net.UDPAddr).AddrPort()) // free again

		// What waits is bounded.
		for range 5000 {
			n.Send(atB, atA, []byte("x"))
		}
		require.NoError(t, server.SetReadDeadline(time.Now().Add(time.Second)))
		waited := 0
		for ; err == nil; waited++ {
			_, _, err = server.ReadFrom(buf)
		}
		assert.ErrorIs(t, err, os.ErrDeadlineExceeded)
		assert.Equal(t, 1024, waited-1)

		// Close ends what waits, and frees the address.
		require.NoError(t, server.SetReadDeadline(time.Time{}))
		time.AfterFunc(time.Second, func() { server.Close() })
		_, _, err = server.ReadFrom(buf)
		assert.ErrorIs(t, err, net.ErrClosed)
		_, err = server.WriteTo([]byte("x"), client.LocalAddr())
		assert.ErrorIs(t, err, net.ErrClosed)
		assert.ErrorIs(t, server.Rebind(atC), net.ErrClosed)
		packetConn(t, n, atA)
		_, err = n.Listen(netip.AddrPort{})
		assert.Error(t, err)
	})
}

// TestPacketNetworkEnds: what a test has left open ends with it.
func TestPacketNetworkEnds(t *testing.T) {
	var c *relaytest.PacketConn
	t.Run("", func(t *testing.T) { c = packetConn(t, relaytest.NewPacketNetwork(t, 0), atA) })
	_, _, err := c.ReadFrom(make([]byte, 10))
	assert.ErrorIs(t, err, net.ErrClosed)
}
