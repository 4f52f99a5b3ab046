package pipe_test

import (
	"context"
	"io"
	"net"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/sotto-relay/sotto/transport"
	"github.com/sotto-relay/sotto/transport/pipe"
	"github.com/sotto-relay/sotto/transport/transporttest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestConn(t *testing.T) {
	for name, o := range map[string]pipe.Options{
		"default": {},
		"small":   {Messages: 5, Bytes: 5000},
	} {
		t.Run(name, func(t *testing.T) {
			transporttest.Run(t, transporttest.Traits{}, func(*testing.T) (a, b transport.Conn) { return o.New() })
		})
	}
}

// TestBubble has ends wait under a clock that stands until all of them do.
func TestBubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := pipe.Options{Messages: 1}.New()
		begin := time.Now()
		b.SetReadDeadline(begin.Add(time.Hour))
		_, _, err := b.Read()
		assert.ErrorIs(t, err, os.ErrDeadlineExceeded)
		assert.Equal(t, time.Hour, time.Since(begin))

		n, err := a.Write(transport.Binary, [][]byte{{1}, {2}})
		assert.Equal(t, 1, n)
		assert.NoError(t, err)
		a.SetWriteDeadline(time.Now().Add(time.Hour))
		_, err = a.Write(transport.Binary, [][]byte{{2}})
		assert.ErrorIs(t, err, os.ErrDeadlineExceeded)
		assert.Equal(t, 2*time.Hour, time.Since(begin))

		// A deadline that is moved on while it is waited for.
		b.SetReadDeadline(time.Now().Add(time.Minute))
		_, _, err = b.Read()
		require.NoError(t, err)
		time.AfterFunc(30*time.Second, func() { b.SetReadDeadline(begin.Add(3 * time.Hour)) })
		_, _, err = b.Read()
		assert.ErrorIs(t, err, os.ErrDeadlineExceeded)
		assert.Equal(t, 3*time.Hour, time.Since(begin))
	})
}

func TestBounds(t *testing.T) {
	for _, test := range []struct {
		name    string
		options pipe.Options
		sizes   []int
		want    int // how many are taken
	}{
		{"messages", pipe.Options{Messages: 3}, []int{1, 0, 1, 1, 1}, 3},
		{"bytes", pipe.Options{Bytes: 10}, []int{4, 6, 0, 1}, 3},
		{"longer than all", pipe.Options{Bytes: 10}, []int{1000, 0}, 1},
		{"longer than all, behind another", pipe.Options{Bytes: 10}, []int{0, 1000}, 1},
		{"more than the rest", pipe.Options{Bytes: 10}, []int{9, 2, 1}, 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			a, b := test.options.New()
			var msgs [][]byte
			for _, size := range test.sizes {
				msgs = append(msgs, make([]byte, size))
			}
			n, err := a.(transport.TryWriter).TryWrite(transport.Binary, msgs)
			require.NoError(t, err)
			assert.Equal(t, test.want, n)
			for len(msgs) > 0 {
				msgs = msgs[n:]
				for range n {
					_, _, err := b.Read()
					require.NoError(t, err)
				}
				n, err = a.Write(transport.Binary, msgs)
				require.NoError(t, err)
			}
		})
	}
}

func TestErrors(t *testing.T) {
	a, b := pipe.New()
	a.Close(0, "")
	_, _, err := b.Read()
	assert.Equal(t, io.EOF, err)
	_, _, err = a.Read()
	assert.Equal(t, net.ErrClosed, err)
	_, err = a.Write(transport.Binary, [][]byte{{}})
	assert.Equal(t, net.ErrClosed, err)
	_, err = b.Write(transport.Binary, [][]byte{{}})
	assert.Equal(t, io.ErrClosedPipe, err)
}

func TestNetwork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := pipe.Listen()
		var dial transport.Dialer = n.Dial
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := dial(ctx)
		assert.ErrorIs(t, err, context.DeadlineExceeded)

		dialled := make(chan transport.Conn, 1)
		go func() {
			c, err := dial(t.Context())
			assert.NoError(t, err)
			dialled <- c
		}()
		server, err := n.Accept()
		require.NoError(t, err)
		client := <-dialled
		_, err = client.Write(transport.Text, [][]byte{[]byte("hi")})
		require.NoError(t, err)
		k, b, err := server.Read()
		require.NoError(t, err)
		assert.Equal(t, transport.Text, k)
		assert.Equal(t, "hi", string(b))
		assert.Equal(t, "pipe", server.RemoteAddr().String())
		assert.Equal(t, "pipe", n.Addr().Network())

		go func() {
			time.Sleep(time.Second)
			assert.NoError(t, n.Close())
			assert.NoError(t, n.Close())
		}()
		_, err = n.Accept()
		assert.ErrorIs(t, err, net.ErrClosed)
		_, err = n.Accept()
		assert.ErrorIs(t, err, net.ErrClosed)
		_, err = dial(t.Context())
		assert.ErrorIs(t, err, net.ErrClosed)
		_, err = client.Write(transport.Text, [][]byte{[]byte("still here")})
		assert.NoError(t, err)
	})
}

func TestAllocs(t *testing.T) {
	a, b := pipe.New()
	msgs := [][]byte{make([]byte, 100), make([]byte, 2000), make([]byte, 5)}
	round := func() {
		if n, err := a.Write(transport.Binary, msgs); n != len(msgs) || err != nil {
			t.Error(n, err)
		}
		for range msgs {
			if _, _, err := b.Read(); err != nil {
				t.Error(err)
			}
		}
	}
	for range 10 {
		round()
	}
	assert.Zero(t, testing.AllocsPerRun(100, round))
}

func BenchmarkPipe(b *testing.B) {
	w, r := pipe.New()
	msgs := make([][]byte, 32)
	for i := range msgs {
		msgs[i] = make([]byte, 128)
	}
	b.ReportAllocs()
	for b.Loop() {
		w.Write(transport.Binary, msgs)
		for range msgs {
			r.Read()
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(msgs)), "ns/message")
}
