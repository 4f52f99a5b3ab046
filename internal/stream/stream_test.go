package stream

import (
	"bytes"
	"net"
	"testing"

	"github.com/stretchr/testify/assert"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The rest of this package is tested by the media that use it, each with the
// conformance suite.

type around struct {
	net.Conn
	ready bool
}

func (a around) Inner() net.Conn {
	if !a.ready {
		return nil
	}
	return a.Conn
}

func TestBare(t *testing.T) {
	bottom := &net.TCPConn{}
	opaque := struct{ net.Conn }{bottom}
	for _, test := range []struct{ conn, want net.Conn }{
		{bottom, bottom},
		{opaque, opaque},
		{around{bottom, true}, bottom},
		{around{around{bottom, true}, true}, bottom},
		{around{bottom, false}, around{bottom, false}},
		{around{around{bottom, false}, true}, around{bottom, false}},
		{around{opaque, true}, opaque},
	} {
		assert.Equal(t, test.want, Bare(test.conn))
	}
}

// TestBuffer fills a buffer and consumes some of it now and then.
func TestBuffer(t *testing.T) {
	p := new(Pools)
	b := Buffer{B: p.readBuffer()}
	var want []byte
	put := func(n int) {
		for range n {
			b.Room()
			b.Grow(p)
			c := byte(len(want) * 7)
			b.B[b.W] = c
			b.W++
			want = append(want, c)
		}
	}
	take := func(n int) {
		assert.True(t, bytes.Equal(want[:n], b.B[b.R:b.R+n]))
		b.R += n
		want = want[n:]
	}
	for i := range 20 {
		put(5000 * i)
		take(3000 * i)
		assert.Equal(t, len(want), b.W-b.R)
		assert.LessOrEqual(t, len(b.B), 4*max(len(want)+3000*i, readSize))
	}
	take(len(want))
	b.Units = 5
	b.release(p)
	assert.Equal(t, Buffer{Units: 5}, b)
}
