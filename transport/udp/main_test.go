package udp

import (
	"bytes"
	"net"
	"net/netip"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/sotto-relay/sotto/relay/relaytest"
	"github.com/sotto-relay/sotto/transport"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The dialect of these tests:
//
//	open TEXT          opens a session
//	@NAME TOKEN TEXT   belongs to one
//	?N                 is answered by N times as much, N being a digit, and by a
//	                   byte more if it ends with a +
func demux(b []byte) (open bool, name, token []byte) {
	rest, ok := bytes.CutPrefix(b, []byte("@"))
	if !ok {
		return bytes.HasPrefix(b, []byte("open")), nil, nil
	}
	name, rest, _ = bytes.Cut(rest, []byte(" "))
	token, _, _ = bytes.Cut(rest, []byte(" "))
	return false, name, token
}

func answer(b []byte) []byte {
	if len(b) < 2 || b[0] != '?' {
		return nil
	}
	a := bytes.Repeat(b, int(b[1]-'0')%10)
	if b[len(b)-1] == '+' {
		a = append(a, '!')
	}
	return a
}

func pair(name, token, text string) string { return "@" + name + " " + token + " " + text }

// Places on a packet network.
var (
	relayAt = netip.MustParseAddrPort("10.0.0.1:1000")
	aliceAt = netip.MustParseAddrPort("10.0.0.2:2000")
	bobAt   = netip.MustParseAddrPort("10.0.0.3:3000")
	eveAt   = netip.MustParseAddrPort("10.0.0.4:4000")
)

func port(a netip.AddrPort, p uint16) netip.AddrPort { return netip.AddrPortFrom(a.Addr(), p) }

// unmetered options have rates that do not matter.
func unmetered() Options {
	return Options{Demux: demux, SourceRate: 1e6, PaceRate: 1e6}
}

// A rig is a listener on a packet network, in a synctest bubble.
type rig struct {
	*testing.T
	net *relaytest.PacketNetwork
	l   *Listener
}

func newRig(t *testing.T, o Options) *rig {
	t.Helper()
	r := &rig{T: t, net: relaytest.NewPacketNetwork(t, 1)}
	r.l = NewListener([]net.PacketConn{r.at(relayAt)}, &o)
	t.Cleanup(func() {
		r.l.fail(net.ErrClosed)
		time.Sleep(time.Second) // the reader ends
	})
	return r
}

// at returns a client at a place.
func (r *rig) at(a netip.AddrPort) *relaytest.PacketConn {
	r.Helper()
	c, err := r.net.Listen(a)
	require.NoError(r, err)
	return c
}

// say sends a datagram to the relay, and gives it time.
func (r *rig) say(from netip.AddrPort, datagram string) {
	r.net.Send(from, relayAt, []byte(datagram))
	time.Sleep(time.Millisecond)
	synctest.Wait()
}

// open opens a session from a place.
func (r *rig) open(from netip.AddrPort) *conn {
	r.Helper()
	accepted := make(chan transport.Conn)
	go func() {
		c, err := r.l.Accept()
		assert.NoError(r, err)
		accepted <- c
	}()
	r.say(from, "open")
	c := (<-accepted).(*conn)
	require.Equal(r, "open", r.read(c))
	return c
}

// proven opens a session and proves it.
func (r *rig) proven(from netip.AddrPort, name string) (c *conn, token string) {
	r.Helper()
	c = r.open(from)
	token = c.Renew(name)
	r.say(from, pair(name, token, "proof"))
	r.read(c)
	require.True(r, c.Proven())
	return c, token
}

// read returns the next message of a session, or "" if there is none.
func (r *rig) read(c transport.Conn) string {
	r.Helper()
	require.NoError(r, c.SetReadDeadline(time.Now().Add(time.Millisecond)))
	_, b, err := c.Read()
	if err != nil {
		require.ErrorIs(r, err, os.ErrDeadlineExceeded)
	}
	require.NoError(r, c.SetReadDeadline(time.Time{}))
	return string(b)
}

// hear returns what a client has got and not read.
func (r *rig) hear(c *relaytest.PacketConn) (got []string) {
	r.Helper()
	require.NoError(r, c.SetReadDeadline(time.Now().Add(time.Millisecond)))
	buf := make([]byte, largest)
	for {
		n, err := c.Read(buf)
		if err != nil {
			require.ErrorIs(r, err, os.ErrDeadlineExceeded)
			return got
		}
		got = append(got, string(buf[:n]))
	}
}

// send writes messages to a session, which takes them all.
func send(t testing.TB, c transport.Conn, msgs ...string) {
	t.Helper()
	var bs [][]byte
	for _, m := range msgs {
		bs = append(bs, []byte(m))
	}
	for len(bs) > 0 {
		n, err := c.Write(transport.Binary, bs)
		require.NoError(t, err)
		bs = bs[n:]
	}
}

func mustParse(s string) netip.AddrPort { return netip.MustParseAddrPort(s) }
