package jsonmsg_test

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sotto-relay/sotto/relay/dialect/jsonmsg"
	"github.com/sotto-relay/sotto/relay/relaytest"
	"github.com/sotto-relay/sotto/transport"
	"github.com/sotto-relay/sotto/transport/udp"
)

var (
	relayAt  = netip.MustParseAddrPort("192.0.2.1:7700")
	deviceAt = netip.MustParseAddrPort("198.51.100.7:0")
)

// A field is an office that is reached by datagrams, beside pipes.
type field struct {
	*office
	packets *relaytest.PacketNetwork

	mu   sync.Mutex
	last *relaytest.PacketConn // of the device that dialled last
}

func inField(t *testing.T, f func(t *testing.T, o *field)) {
	t.Helper()
	inOffice(t, nil, func(t *testing.T, o *office) {
		fd := &field{office: o, packets: relaytest.NewPacketNetwork(t, 0)}
		fd.listen()
		f(t, fd)
	})
}

func (f *field) listen() {
	socket, err := f.packets.Listen(relayAt)
	require.NoError(f.t, err)
	l := udp.NewListener([]net.PacketConn{socket}, &udp.Options{Demux: jsonmsg.Demux, Answer: jsonmsg.Answer(f.server.Load)})
	go func() { _ = f.server.Serve(l, f.dialect) }()
	synctest.Wait()
}

// device is the way of somebody at an IP address.
func (f *field) device(ctx context.Context) (transport.Conn, error) {
	return udp.Dialer(relayAt.String(), &udp.DialOptions{
		Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
			c, err := f.packets.DialFrom(deviceAt)(ctx, network, address)
			if err == nil {
				f.mu.Lock()
				defer f.mu.Unlock()
				f.last = c.(*relaytest.PacketConn)
			}
			return c, err
		},
	})(ctx)
}

// TestClientDatagrams: registration, backlog, live messages and questions.
func TestClientDatagrams(t *testing.T) {
	inField(t, func(t *testing.T, f *field) {
		ctx := context.Background()
		key := newKey(t)
		pins := new(jsonmsg.MemoryPins)
		require.NoError(t, pins.Remember("dev", key.Public()))
		ann := f.person(&jsonmsg.ClientOptions{Address: "ann", Pins: pins})
		for i := range 60 { // more than a source is sent in a second
			require.NoError(t, ann.Send(ctx, "dev", "", fmt.Append(nil, i)))
		}
		synctest.Wait()

		dev := connect(t, f.device, &jsonmsg.ClientOptions{Address: "dev", Key: key})
		assert.Equal(t, 60, want[*jsonmsg.Registered](dev).Queued)
		want[*jsonmsg.PeerKey](dev)
		for i := range 60 {
			assert.Equal(t, fmt.Sprint(i), string(want[*jsonmsg.Message](dev).Data))
		}
		require.NoError(t, dev.Send(ctx, "ann", "d1", []byte("hi")))
		require.NoError(t, ann.Ack(ctx, want[*jsonmsg.Message](ann)))
		assert.Equal(t, "d1", want[*jsonmsg.Ack](dev).ID)
		n, err := dev.Join(ctx, "hall")
		require.NoError(t, err)
		assert.Equal(t, 1, n)
		caps, err := dev.Capabilities(ctx)
		require.NoError(t, err)
		assert.Equal(t, 16_384, caps.Limits.DatagramBytes, "the whole of it")
		_, err = dev.Join(ctx, "\x01")
		assert.ErrorIs(t, err, jsonmsg.ErrInvalidRoom)
		assert.ErrorIs(t, dev.Send(ctx, "ann", "", make([]byte, 13_000)), transport.ErrTooLarge)
		require.NoError(t, dev.Send(ctx, "ann", "", make([]byte, 11_500)))
		want[*jsonmsg.Message](ann)
		dev.silent()
	})
}

// TestClientKeepsSession: a session of datagrams lasts for as long as the client,
// which says little.
func TestClientKeepsSession(t *testing.T) {
	inField(t, func(t *testing.T, f *field) {
		ctx := context.Background()
		dev := connect(t, f.device, named("dev"))
		want[*jsonmsg.Registered](dev)
		ann := f.person(named("ann"))
		require.NoError(t, ann.Announce(ctx, "dev"))
		want[*jsonmsg.PeerKey](ann)
		want[*jsonmsg.PeerKey](dev)
		time.Sleep(30 * time.Minute)
		require.NoError(t, ann.Send(ctx, "dev", "", []byte("still there?")))
		want[*jsonmsg.Message](dev)
		ann.silent()
	})
}

// TestClientMoves: a device that comes from another port and from another IP address
// keeps its session; the relay's new token comes back at once.
func TestClientMoves(t *testing.T) {
	inField(t, func(t *testing.T, f *field) {
		ctx := context.Background()
		dev := connect(t, f.device, named("dev"))
		want[*jsonmsg.Registered](dev)
		ann := f.person(named("ann"))
		for i, to := range []string{"198.51.100.7:9", "203.0.113.5:10", "203.0.113.6:11"} {
			require.NoError(t, f.last.Rebind(netip.MustParseAddrPort(to)))
			require.NoError(t, dev.Send(ctx, "ann", "", fmt.Append(nil, i)))
			if i == 0 {
				want[*jsonmsg.PeerKey](ann)
				want[*jsonmsg.PeerKey](dev)
			}
			require.Equal(t, fmt.Sprint(i), string(want[*jsonmsg.Message](ann).Data))
			synctest.Wait()
			// What exceeds three times what came from there arrives, since it is proven.
			require.NoError(t, ann.Send(ctx, "dev", "", make([]byte, 8000)))
			want[*jsonmsg.Message](dev)
			ann.silent()
		}
	})
}

// TestClientLossyNetwork: what is asked of the relay is answered in the end, whatever
// the network does, and what arrives twice comes once.
func TestClientLossyNetwork(t *testing.T) {
	inField(t, func(t *testing.T, f *field) {
		f.packets.Set(relaytest.PacketFaults{Loss: 0.3, Duplicate: 0.3, Delay: 10 * time.Millisecond, Jitter: 300 * time.Millisecond})
		ctx := context.Background()
		dev := connect(t, f.device, &jsonmsg.ClientOptions{Address: "dev", Reconnect: true})
		ann := connect(t, f.device, &jsonmsg.ClientOptions{Address: "ann", Reconnect: true})
		begin := time.Now()
		for i := range 20 {
			_, err := dev.Join(ctx, fmt.Sprint("room", i))
			require.NoError(t, err)
			require.NoError(t, dev.Subscribe(ctx, fmt.Sprint("topic", i)))
		}
		_, err := dev.Capabilities(ctx)
		require.NoError(t, err)
		assert.Less(t, time.Since(begin), 15*time.Minute)
		for i := range 50 {
			require.NoError(t, ann.Send(ctx, "dev", "", fmt.Append(nil, i)))
		}
		time.Sleep(10 * time.Second)
		got := make(map[string]int)
		for e := dev.next(time.Second); e != nil; e = dev.next(time.Second) {
			switch e := e.(type) {
			case *jsonmsg.Message:
				got[string(e.Data)]++
			case *jsonmsg.Unreadable:
				t.Fatalf("%+v", e)
			}
		}
		assert.Greater(t, len(got), 8)
		for data, n := range got {
			assert.Equal(t, 1, n, "%s", data)
		}
	})
}

// TestClientRelayGone: a relay that has forgotten a session does not answer, and is
// asked for a new one.
func TestClientRelayGone(t *testing.T) {
	for _, reconnect := range []bool{false, true} {
		t.Run(fmt.Sprint("reconnect ", reconnect), func(t *testing.T) {
			inField(t, func(t *testing.T, f *field) {
				ctx := context.Background()
				dev := connect(t, f.device, &jsonmsg.ClientOptions{Address: "dev", Reconnect: reconnect})
				want[*jsonmsg.Registered](dev)
				_, err := dev.Join(ctx, "hall")
				require.NoError(t, err)
				f.packets.Set(relaytest.PacketFaults{Loss: 1})
				begin := time.Now()
				if !reconnect {
					assert.ErrorContains(t, dev.ended(), "does not answer")
					assert.Less(t, time.Since(begin), time.Minute)
					return
				}
				assert.ErrorContains(t, want[*jsonmsg.Disconnected](dev).Err, "does not answer")
				time.Sleep(10 * time.Minute)
				f.packets.Set(relaytest.PacketFaults{})
				want[*jsonmsg.Registered](dev)
				synctest.Wait()
				ann := f.person(named("ann"))
				n, err := ann.Join(ctx, "hall")
				require.NoError(t, err)
				assert.Equal(t, 2, n)
			})
		})
	}
}

// TestClientNewestToken: every datagram but the registration brings the address and
// the newest token, the first one at once.
func TestClientNewestToken(t *testing.T) {
	inOffice(t, nil, func(t *testing.T, o *office) {
		packets := relaytest.NewPacketNetwork(t, 0)
		socket, err := packets.Listen(relayAt)
		require.NoError(t, err)
		var from net.Addr
		hear := func() string {
			t.Helper()
			b := make([]byte, 1000)
			_ = socket.SetReadDeadline(time.Now().Add(time.Hour))
			n, addr, err := socket.ReadFrom(b)
			require.NoError(t, err)
			from = addr
			return string(b[:n])
		}
		say := func(msg string) {
			t.Helper()
			_, err := socket.WriteTo([]byte(msg), from)
			require.NoError(t, err)
		}
		fields := func(token string) string { return `,"from_addr":"dev","token":"` + token + `"}` }

		begin := time.Now()
		go func() {
			for range 3 {
				assert.Equal(t, `{"t":"register","addr":"dev"}`, hear())
			}
			assert.Equal(t, 3*time.Second, time.Since(begin), "after 1 s and 2 s")
			say(`{"t":"error","msg":"x","id":"old"}`)
			say(`{"t":"registered","addr":"dev","queued":0}`) // of no session of datagrams
			say(`{"t":"registered","addr":"dev","token":"t1","queued":0}`)
		}()
		p := connect(t, udp.Dialer(relayAt.String(), &udp.DialOptions{Dial: packets.DialFrom(deviceAt)}), named("dev"))
		assert.Equal(t, "old", want[*jsonmsg.RelayError](p).ID, "not about the registration")
		want[*jsonmsg.Registered](p)
		begin = time.Now()
		sign := hear()
		assert.Zero(t, time.Since(begin), "at once")
		assert.True(t, strings.HasPrefix(sign, `{"t":"unsubscribe","topic":"`) && strings.HasSuffix(sign, fields("t1")), sign)
		answer := strings.Replace(strings.TrimSuffix(sign, fields("t1")), "unsubscribe", "unsubscribed", 1) + "}"
		say(answer)
		say(`{"t":"registered","addr":"dev","token":"t2","queued":0}`)
		assert.Equal(t, strings.Replace(sign, "t1", "t2", 1), hear())
		say(answer)
		require.NoError(t, p.SendRoom(context.Background(), "r", ""))
		assert.Equal(t, `{"t":"room_send","room":"r","ct":""`+fields("t2"), hear())
		begin = time.Now()
		assert.Equal(t, strings.Replace(sign, "t1", "t2", 1), hear())
		assert.InDelta(t, 25, time.Since(begin).Seconds(), 1.1)
		say(answer)
		p.silent()
	})
}
