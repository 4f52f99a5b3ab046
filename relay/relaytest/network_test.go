package relaytest_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sotto-relay/sotto/relay"
	"github.com/sotto-relay/sotto/relay/client"
	"github.com/sotto-relay/sotto/relay/relaytest"
	"github.com/sotto-relay/sotto/transport"
	"github.com/sotto-relay/sotto/transport/pipe"
	"github.com/sotto-relay/sotto/transport/transporttest"
	"github.com/sotto-relay/sotto/transport/ws"
)

// A network without faults is not to be noticed.
func TestNetworkIsAConn(t *testing.T) {
	transporttest.Run(t, transporttest.Traits{}, func(t *testing.T) (a, b transport.Conn) {
		a, b = pipe.New()
		return relaytest.NewNetwork(t, 1).Conn(a), b
	})
}

// duplex returns the two ends of a stream through a network.
func duplex(t *testing.T, n *relaytest.Network) (near, far net.Conn) {
	a, b := net.Pipe()
	near = n.Stream(a)
	t.Cleanup(func() { near.Close(); b.Close() })
	return near, b
}

// messages returns the two ends of a message connection through a network.
func messages(t *testing.T, n *relaytest.Network) (near, far transport.Conn) {
	a, b := pipe.New()
	near = n.Conn(a)
	t.Cleanup(func() { near.Close(0, ""); b.Close(0, "") })
	return near, b
}

func write(t *testing.T, c transport.Conn, msgs ...string) {
	t.Helper()
	for _, m := range msgs {
		n, err := c.Write(transport.Binary, [][]byte{[]byte(m)})
		require.NoError(t, err)
		require.Equal(t, 1, n)
	}
}

// within reads one message that comes in time, or reports what it got instead.
func within(c transport.Conn, d time.Duration) (string, error) {
	_ = c.SetReadDeadline(time.Now().Add(d))
	_, msg, err := c.Read()
	return string(msg), err
}

func TestDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := relaytest.NewNetwork(t, 1)
		near, far := messages(t, n)
		n.Set(relaytest.Faults{Delay: time.Second, Jitter: time.Second}, relaytest.Faults{})
		start := time.Now()
		for i := range 50 {
			write(t, near, strconv.Itoa(i))
		}
		for i := range 50 {
			got, err := within(far, time.Hour)
			require.NoError(t, err)
			assert.Equal(t, strconv.Itoa(i), got)
			// Everything was sent at once, and so arrives within the delay and jitter,
			// plus the delay of what found the way full.
			assert.GreaterOrEqual(t, time.Since(start), time.Second)
		}
		assert.Less(t, time.Since(start), 10*time.Second)
		start = time.Now()
		write(t, far, "back")
		_, err := within(near, time.Hour)
		require.NoError(t, err)
		assert.Zero(t, time.Since(start), "the other direction has no delay")
	})
}

func TestStall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := relaytest.NewNetwork(t, 1)
		near, far := messages(t, n)
		n.Set(relaytest.Faults{Stall: true}, relaytest.Faults{})
		write(t, near, "one", "two")
		_, err := within(far, time.Hour)
		require.ErrorIs(t, err, os.ErrDeadlineExceeded)
		n.Set(relaytest.Faults{}, relaytest.Faults{})
		for _, want := range []string{"one", "two"} {
			got, err := within(far, time.Hour)
			require.NoError(t, err)
			assert.Equal(t, want, got)
		}

		// Whoever goes on sending is held up in the end.
		n.Set(relaytest.Faults{Stall: true}, relaytest.Faults{})
		_ = near.SetWriteDeadline(time.Now().Add(time.Minute))
		for i := 0; ; i++ {
			require.Less(t, i, 10_000)
			if _, err = near.Write(transport.Binary, [][]byte{make([]byte, 1000)}); err != nil {
				break
			}
		}
		assert.ErrorIs(t, err, os.ErrDeadlineExceeded)
	})
}

func TestBlackHole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := relaytest.NewNetwork(t, 1)
		near, far := messages(t, n)
		n.Set(relaytest.Faults{BlackHole: true}, relaytest.Faults{})
		for range 1000 {
			write(t, near, "lost")
		}
		near.Close(transport.CloseNormal, "")
		_, err := within(far, time.Hour)
		require.ErrorIs(t, err, os.ErrDeadlineExceeded, "not even the end arrives")
	})
}

func TestCut(t *testing.T) {
	for name, cut := range map[string]func(*relaytest.Network, transport.Conn){
		"now": func(n *relaytest.Network, _ transport.Conn) { n.Cut() },
		"by chance": func(n *relaytest.Network, near transport.Conn) {
			n.Set(relaytest.Faults{Cut: 1}, relaytest.Faults{})
			_, _ = near.Write(transport.Binary, [][]byte{{1}})
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := relaytest.NewNetwork(t, 1)
				near, far := messages(t, n)
				cut(n, near)
				for _, c := range []transport.Conn{near, far} {
					_, err := within(c, time.Hour)
					assert.ErrorIs(t, err, io.EOF)
				}
			})
		})
	}
}

func TestCorrupt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := relaytest.NewNetwork(t, 1)
		near, far := messages(t, n)
		n.Set(relaytest.Faults{Corrupt: 0.5}, relaytest.Faults{})
		const sent = "a message of some length"
		changed := 0
		for range 100 {
			write(t, near, sent)
			got, err := within(far, time.Hour)
			require.NoError(t, err)
			bits := 0
			for i := range got {
				for d := got[i] ^ sent[i]; d != 0; d &= d - 1 {
					bits++
				}
			}
			require.LessOrEqual(t, bits, 1)
			changed += bits
		}
		assert.InDelta(t, 50, changed, 25)
	})
}

// One seed is one fate.
func TestSeed(t *testing.T) {
	fate := func(seed uint64) (got string) {
		synctest.Test(t, func(t *testing.T) {
			n := relaytest.NewNetwork(t, seed)
			near, far := messages(t, n)
			n.Set(relaytest.Faults{Delay: time.Second, Jitter: time.Minute, Corrupt: 0.3, Cut: 0.05}, relaytest.Faults{})
			start := time.Now()
			for i := range 100 {
				if _, err := near.Write(transport.Binary, [][]byte{fmt.Appendf(nil, "message %d", i)}); err != nil {
					break
				}
				msg, err := within(far, time.Hour)
				got += fmt.Sprintf("%q %v %v\n", msg, err, time.Since(start))
				if err != nil {
					break
				}
			}
			got += fmt.Sprint(n.Random(20, time.Minute))
		})
		return got
	}
	assert.Equal(t, fate(7), fate(7))
	assert.NotEqual(t, fate(7), fate(8))
}

func TestPlay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := relaytest.NewNetwork(t, 1)
		near, far := messages(t, n)
		go n.Play(t.Context(), []relaytest.Step{
			{For: time.Minute, Out: relaytest.Faults{Stall: true}},
			{For: time.Minute},
			{For: time.Minute, Cut: true},
		})
		synctest.Wait()
		start := time.Now()
		write(t, near, "hello")
		_, err := within(far, time.Hour)
		require.NoError(t, err)
		assert.Equal(t, time.Minute, time.Since(start))
		_, err = within(far, time.Hour)
		require.ErrorIs(t, err, io.EOF)
		assert.Equal(t, 2*time.Minute, time.Since(start))
	})
	synctest.Test(t, func(t *testing.T) {
		n := relaytest.NewNetwork(t, 1)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		start := time.Now()
		n.Play(ctx, n.Random(1000, time.Hour))
		assert.Equal(t, time.Minute, time.Since(start))
	})
}

func TestStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := relaytest.NewNetwork(t, 1)
		near, far := duplex(t, n)
		n.Set(relaytest.Faults{Segment: 1, Delay: time.Second}, relaytest.Faults{Segment: 3})
		sent := make([]byte, 1000)
		_, _ = rand.NewChaCha8([32]byte{}).Read(sent)
		start := time.Now()
		go func() { _, _ = near.Write(sent) }()
		got := make([]byte, 0, len(sent))
		for buf := make([]byte, 100); len(got) < len(sent); {
			m, err := far.Read(buf)
			require.NoError(t, err)
			require.Equal(t, 1, m)
			got = append(got, buf[0])
		}
		assert.True(t, bytes.Equal(sent, got))
		assert.Equal(t, time.Second, time.Since(start))

		go func() { _, _ = far.Write(sent[:4]); far.Close() }()
		got, err := io.ReadAll(near)
		require.NoError(t, err)
		assert.Equal(t, sent[:4], got, "what was sent before the end arrives before it")
	})
}

// served serves a relay over WebSockets on a Listener, with n between.
func served(t *testing.T, n *relaytest.Network, h transport.Handler) (*relaytest.Listener, transport.Dialer) {
	l := relaytest.NewListener()
	srv := &http.Server{Handler: ws.Handler(h, nil), ReadHeaderTimeout: 10 * time.Second}
	done := make(chan error, 1)
	go func() { done <- srv.Serve(n.Listen(l)) }()
	t.Cleanup(func() {
		_ = srv.Close()
		<-done
	})
	return l, ws.Dialer("ws://relay.test/", &ws.DialOptions{Dial: n.Dial(l.Dial)})
}

// A whole session of a client works with one byte a segment in both directions,
// below a WebSocket, and so does one through every other fault (FR-16).
func TestWebSocketInBubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := relaytest.NewNetwork(t, 1)
		f := relaytest.Faults{Segment: 1, Delay: 10 * time.Millisecond}
		n.Set(f, f)
		pair := relaytest.NewPair(t, nil)
		_, dial := served(t, n, pair.Server.Speak(pair.Dialect))
		key := pair.Dialect.Identity.Public()
		carol, err := client.New(t.Context(), &client.Config{Identity: identity("carol"), Dial: dial, Relay: &key})
		require.NoError(t, err)
		defer carol.Close()
		receipt, err := carol.Send(t.Context(), pair.Bob.Key(), client.Text("slice by slice"))
		require.NoError(t, err)
		assert.Equal(t, client.Handed, receipt.Status)
		for letter, err := range pair.Bob.Messages(t.Context()) {
			require.NoError(t, err)
			assert.Equal(t, "slice by slice", letter.Text())
			break
		}
	})
}

func TestListener(t *testing.T) {
	l := relaytest.NewListener()
	from := netip.MustParseAddr("192.0.2.7")
	go func() {
		c, err := l.DialFrom(t.Context(), from)
		if assert.NoError(t, err) {
			c.Close()
		}
	}()
	c, err := l.Accept()
	require.NoError(t, err)
	assert.Equal(t, netip.PrefixFrom(from, 32), relay.Source(c.RemoteAddr()))
	c.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = l.Dial(ctx, "tcp", "anywhere")
	require.ErrorIs(t, err, context.Canceled)
	require.NoError(t, l.Close())
	require.NoError(t, l.Close())
	_, err = l.Accept()
	require.ErrorIs(t, err, net.ErrClosed)
	_, err = l.Dial(t.Context(), "tcp", "anywhere")
	require.ErrorIs(t, err, net.ErrClosed)
}

// Messages that a client keeps until their receipt survive whatever a network
// does, and are seen once.
func TestPairThroughChaos(t *testing.T) {
	for seed := uint64(1); seed <= 5; seed++ {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { pairThroughChaos(t, seed) })
		})
	}
}

func pairThroughChaos(t *testing.T, seed uint64) {
	n := relaytest.NewNetwork(t, seed)
	pair := relaytest.NewPair(t, &relaytest.PairOptions{Network: n})
	const many = 50
	seen := make(map[string]int)
	go func() {
		_ = pair.Bob.Handle(t.Context(), func(_ context.Context, l *client.Letter) error {
			seen[l.Text()]++
			if len(seen) == many {
				return io.EOF
			}
			return nil
		})
	}()
	script := n.Random(100, 2*time.Second)
	go n.Play(t.Context(), script)
	for i := range many {
		// What the relay has handed over to a connection that breaks is lost, since
		// recipients do not acknowledge yet (package client, "Delivery").
		_, err := pair.Alice.Send(t.Context(), pair.Bob.Key(), client.Text(fmt.Sprint(i)))
		require.NoError(t, err)
		time.Sleep(2 * time.Second)
	}
	time.Sleep(time.Hour)
	synctest.Wait()
	assert.Greater(t, len(seen), many/5)
	for text, times := range seen {
		assert.Equal(t, 1, times, "of %s", text)
	}
}
