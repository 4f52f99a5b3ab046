package blind

import (
	"context"
	"flag"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sotto-relay/sotto/relay"
	"github.com/sotto-relay/sotto/transport"
	"github.com/sotto-relay/sotto/transport/ws"
)

var full = flag.Bool("full", false, "run the tests that measure in their full size")

// TestSlowAmongMany: one that does not read is closed with 1013 and leaves the
// others' latency over loopback WebSocket as it was: with -full, within 10 % at the
// 99th percentile of 1,000 subscribers, on a machine that does nothing else. Without
// it, only a relay that waits for the slow one fails.
func TestSlowAmongMany(t *testing.T) {
	subscribers, rounds, interval := 20, 1, 2*time.Millisecond
	if *full {
		subscribers, rounds, interval = 1000, 5, 50*time.Millisecond
	}
	limits := relay.MaxLimits()
	limits.Aliases = 2 * subscribers
	limits.Dialects = map[string]relay.DialectLimits{"blind": {OutboxBytes: 64 << 10}}
	c := &crowd{t: t, interval: interval}
	c.server, c.url = serve(t, Dialect{}, limits, 16<<10)
	for range subscribers {
		c.subscribe()
	}
	c.sender = c.connect(nil)
	var without, with []time.Duration
	for i := range rounds { // to and fro, so that both see the same of the machine
		without = append(without, c.latencies(false)...)
		with = append(with, c.latencies(true)...)
		require.EqualValues(t, i+1, c.server.Stats().Ended["overloaded"])
	}
	assert.EqualValues(t, subscribers+1, c.server.Stats().Sessions)
	a, b := p99(without), p99(with)
	t.Logf("p99 of %d subscribers: %v; with a slow one among them: %v", subscribers, a, b)
	if *full {
		assert.Less(t, float64(b), 1.1*float64(a))
	} else {
		assert.Less(t, b, 10*a+time.Second)
	}
}

func p99(d []time.Duration) time.Duration {
	slices.Sort(d)
	return d[len(d)*99/100]
}

// A crowd is a relay with subscribers who note when frames come.
type crowd struct {
	t        *testing.T
	server   *relay.Server
	url      string
	interval time.Duration // between frames
	sender   transport.Conn
	readers  []chan<- *window
}

// A window is a time in which frames are sent: not more than 8 that some who read
// have not got yet, or these would be closed as well where the machine is slow.
type window struct {
	sent [64]time.Time    // before they are
	left [64]atomic.Int32 // subscribers who have not got it
	open chan struct{}    // frames that not all have got
	late chan []time.Duration
}

func (c *crowd) connect(o *ws.DialOptions) transport.Conn {
	conn, err := ws.Dialer(c.url, o)(c.t.Context())
	require.NoError(c.t, err)
	c.t.Cleanup(func() { _ = conn.Close(transport.CloseNormal, "") })
	msgs := append(keysMessages("subscribe", []string{"x"}), rotateMessage("unused", "key")) // which is answered
	require.NoError(c.t, write(conn, msgs))
	_, _, err = conn.Read()
	require.NoError(c.t, err)
	return conn
}

// subscribe adds a subscriber, who reads all frames of one window after another.
func (c *crowd) subscribe() {
	conn, windows := c.connect(nil), make(chan *window, 1)
	c.readers = append(c.readers, windows)
	var reading sync.WaitGroup
	reading.Go(func() {
		for w := range windows {
			var late []time.Duration
			for i := range w.sent {
				if _, _, err := conn.Read(); err == nil {
					late = append(late, time.Since(w.sent[i])) // which was set before it came
				}
				if w.left[i].Add(-1) == 0 {
					<-w.open
				}
			}
			w.late <- late
		}
	})
	c.t.Cleanup(func() {
		close(windows)
		reading.Wait()
	})
}

// latencies sends the frames of a window, perhaps to one who does not read as well.
func (c *crowd) latencies(slow bool) (all []time.Duration) {
	var frozen transport.Conn
	before := c.server.Stats().Ended["overloaded"]
	if slow {
		frozen = c.connect(&ws.DialOptions{Dial: dialSmall})
	}
	w := &window{open: make(chan struct{}, 8), late: make(chan []time.Duration, len(c.readers))}
	for i := range w.left {
		w.left[i].Store(int32(len(c.readers)))
	}
	for _, r := range c.readers {
		r <- w
	}
	msg := [][]byte{message("x " + strings.Repeat("c", 4000))}
	tick := time.NewTicker(c.interval)
	defer tick.Stop()
	for i := range w.sent {
		<-tick.C
		w.open <- struct{}{}
		w.sent[i] = time.Now()
		require.NoError(c.t, write(c.sender, msg))
	}
	for range c.readers {
		late := <-w.late
		require.Len(c.t, late, len(w.sent), "a subscriber was closed who did read")
		all = append(all, late...)
	}
	if slow {
		require.Eventually(c.t, func() bool { return c.server.Stats().Ended["overloaded"] > before }, 10*time.Second, time.Millisecond)
		for err := error(nil); err == nil; { // it may find half a frame instead of the close code
			_, _, err = frozen.Read()
		}
	}
	return all
}

// dialSmall dials with a small buffer for what is received.
func dialSmall(ctx context.Context, network, address string) (net.Conn, error) {
	c, err := new(net.Dialer).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	if err := c.(*net.TCPConn).SetReadBuffer(4 << 10); err != nil {
		return nil, fmt.Errorf("read buffer: %w", err)
	}
	return c, nil
}
