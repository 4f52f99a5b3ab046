package udp

import (
	"fmt"
	"net"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sotto-relay/sotto/transport"
)

// benchSockets are the ways to read and to write: as the platform can, and one at
// a time.
func benchSockets(b *testing.B, run func(b *testing.B, wrap func(net.PacketConn) net.PacketConn)) {
	b.Run("batched", func(b *testing.B) { run(b, nil) })
	b.Run("plain", func(b *testing.B) { run(b, func(pc net.PacketConn) net.PacketConn { return bound{pc} }) })
}

// BenchmarkIn has a session read what comes in over loopback, 128 bytes each, sent
// in bursts by the same process.
func BenchmarkIn(b *testing.B) {
	benchSockets(b, func(b *testing.B, wrap func(net.PacketConn) net.PacketConn) {
		l := serve(b, "127.0.0.1:0", 1, unmetered(), wrap)
		sender := dial(b, l, "127.0.0.1")
		c, token := login(b, l, sender, "alice")
		c.SetReadDeadline(time.Time{})
		const burst = 64
		from := newSocket(sender.(*client).nc.(*net.UDPConn))
		body := pair("alice", token, strings.Repeat("x", 128))[:128]
		msgs := make([][]byte, burst)
		for i := range msgs {
			msgs[i] = []byte(body)
		}
		b.ReportAllocs()
		for b.Loop() {
			if n, err := from.write(msgs, nil); n != burst || err != nil {
				b.Fatal(n, err)
			}
			for range burst {
				c.Read()
			}
		}
		perDatagram(b, burst)
	})
}

// BenchmarkOut writes 128 bytes to a session over loopback, in batches and one by
// one. Most of it is what the system does to deliver them to a socket.
func BenchmarkOut(b *testing.B) {
	for _, batch := range []int{1, 32} {
		b.Run(fmt.Sprint(batch), func(b *testing.B) {
			benchSockets(b, func(b *testing.B, wrap func(net.PacketConn) net.PacketConn) {
				l := serve(b, "127.0.0.1:0", 1, Options{Demux: demux, PaceRate: 1e9}, wrap)
				c, _ := login(b, l, dial(b, l, "127.0.0.1"), "alice")
				msgs := make([][]byte, batch)
				for i := range msgs {
					msgs[i] = make([]byte, 128)
				}
				b.ReportAllocs()
				for b.Loop() {
					if n, err := c.TryWrite(transport.Binary, msgs); n == 0 || err != nil {
						b.Fatal(n, err)
					}
				}
				perDatagram(b, batch)
			})
		})
	}
}

// BenchmarkReceive is what a datagram costs behind the socket, by whose it is.
func BenchmarkReceive(b *testing.B) {
	for _, name := range []string{"session", "stranger", "limited"} {
		b.Run(name, func(b *testing.B) {
			o := Options{Demux: demux, SourceRate: 1e9}
			if name == "limited" {
				o.SourceRate = 1
			}
			l := NewListener(nil, &o)
			defer l.fail(net.ErrClosed)
			s := new(tape)
			l.receive(s, aliceAt, []byte("open"), 0)
			c := <-l.backlog
			token := c.Renew("alice")
			if name == "stranger" {
				token = strings.Repeat("0", tokenSize)
			}
			datagram := []byte(pair("alice", token, strings.Repeat("x", 128))[:128])
			c.Read()
			b.ReportAllocs()
			for b.Loop() {
				l.receive(s, aliceAt, datagram, 0)
				if name == "session" {
					c.Read()
				}
			}
		})
	}
}

// BenchmarkParallel has several sockets' readers bring datagrams to sessions of
// theirs.
func BenchmarkParallel(b *testing.B) {
	l := NewListener(nil, &Options{Demux: demux, SourceRate: 1e9})
	defer l.fail(net.ErrClosed)
	s := new(tape)
	var p uint16
	tokens := make(chan func(), 64)
	for range cap(tokens) {
		p++
		from := port(aliceAt, p)
		l.receive(s, from, []byte("open"), 0)
		c := <-l.backlog
		datagram := []byte(pair("alice", c.Renew("alice"), strings.Repeat("x", 128))[:128])
		c.Read()
		tokens <- func() {
			l.receive(s, from, datagram, 0)
			c.Read()
		}
	}
	b.RunParallel(func(pb *testing.PB) {
		f := <-tokens
		for pb.Next() {
			f()
		}
	})
}

// BenchmarkSessions is the memory of an idle session.
func BenchmarkSessions(b *testing.B) {
	const sessions = 10_000
	for b.Loop() {
		l := NewListener(nil, &Options{Demux: demux, SourceRate: 1e9, Backlog: sessions})
		s := new(tape)
		before := heap()
		for i := range sessions {
			l.receive(s, port(aliceAt, uint16(i)), []byte("open"), 0)
			c := <-l.backlog
			c.Renew("alice")
			_, _, err := c.Read()
			require.NoError(b, err)
			c.SetReadDeadline(time.Unix(1, 0))
			c.Read()
			c.recycle()
		}
		b.ReportMetric(float64(int64(heap()-before))/sessions, "B/session")
		l.fail(net.ErrClosed)
	}
}

func perDatagram(b *testing.B, n int) {
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/datagram")
}

func heap() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC() // pools are emptied by the second
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
