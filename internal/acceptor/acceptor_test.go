package acceptor

import (
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A fake listener accepts what it is given: a net.Conn or an error.
type fake struct {
	next   chan any
	closed chan struct{}
	close  sync.Once
}

func (l *fake) Accept() (net.Conn, error) {
	select {
	case v := <-l.next:
		if err, ok := v.(error); ok {
			return nil, err
		}
		return v.(net.Conn), nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *fake) Close() error   { l.close.Do(func() { close(l.closed) }); return nil }
func (l *fake) Addr() net.Addr { return &net.TCPAddr{} }

// greeted waits for a byte.
func greeted(nc net.Conn) (net.Conn, error) {
	_, err := io.ReadFull(nc, make([]byte, 1))
	return nc, err
}

func newFake(limit int) (*fake, *Listener, chan error) {
	f := &fake{next: make(chan any), closed: make(chan struct{})}
	refused := make(chan error, 100)
	return f, New(f, Config{
		Begin:   greeted,
		Timeout: 10 * time.Second,
		Max:     limit,
		Refused: func(_ net.Addr, err error) { refused <- err },
	}), refused
}

// dial has l accept a new connection.
func (l *fake) dial() net.Conn {
	a, b := net.Pipe()
	l.next <- b
	return a
}

func closed(c net.Conn) bool {
	c.SetReadDeadline(time.Now().Add(time.Millisecond))
	_, err := c.Read(make([]byte, 1))
	return err == io.EOF
}

func TestSilentHoldUpNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, l, refused := newFake(10)
		begin := time.Now()
		go func() {
			silent := f.dial()
			defer silent.Close()
			io.WriteString(f.dial(), "x")
			time.Sleep(9 * time.Second)
			assert.False(t, closed(silent))
			time.Sleep(2 * time.Second)
			assert.True(t, closed(silent))
		}()
		nc, err := l.Accept()
		require.NoError(t, err)
		assert.Zero(t, time.Since(begin))
		synctest.Wait()
		time.Sleep(20 * time.Second)
		assert.Error(t, <-refused)
		late := time.AfterFunc(time.Second, func() { nc.Close() })
		_, err = nc.Read(make([]byte, 1))
		assert.ErrorIs(t, err, io.ErrClosedPipe, "the deadline was lifted")
		late.Stop()
		l.Close()
	})
}

func TestCrowd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, l, refused := newFake(3)
		accepted := make(chan net.Conn)
		go func() {
			for nc, err := l.Accept(); err == nil; nc, err = l.Accept() {
				accepted <- nc
			}
			close(accepted)
		}()
		var conns []net.Conn
		for range 5 {
			conns = append(conns, f.dial())
			synctest.Wait()
		}
		for i, c := range conns {
			assert.Equal(t, i < 2, closed(c), "the oldest go: %d", i)
		}
		assert.Equal(t, ErrCrowded, <-refused)
		assert.Equal(t, ErrCrowded, <-refused)
		io.WriteString(conns[3], "x")
		(<-accepted).Close()
		l.Close()
		<-accepted
		synctest.Wait()
		assert.True(t, closed(conns[2]))
		assert.True(t, closed(conns[4]))
		assert.Empty(t, refused, "told of what the Listener closed itself, or twice")
		assert.Zero(t, l.beginning.Len())
	})
}

func TestErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, l, _ := newFake(3)
		want := errors.New("too many open files")
		go func() {
			f.next <- want
			f.next <- want
			io.WriteString(f.dial(), "x")
		}()
		for range 2 {
			_, err := l.Accept()
			assert.Equal(t, want, err)
		}
		nc, err := l.Accept()
		require.NoError(t, err)
		nc.Close()
		f.Close()
		_, err = l.Accept()
		assert.ErrorIs(t, err, net.ErrClosed)
		l.Close()
		_, err = l.Accept()
		assert.ErrorIs(t, err, net.ErrClosed)
		assert.Equal(t, f.Addr(), l.Addr())
	})
}

// TestCloseUnused closes a Listener that nobody accepted from, and one with a
// connection that has begun and that nobody takes.
func TestCloseUnused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, l, _ := newFake(3)
		assert.NoError(t, l.Close())
		assert.NoError(t, l.Close())
		_, err := l.Accept()
		assert.ErrorIs(t, err, net.ErrClosed)
	})
	synctest.Test(t, func(t *testing.T) {
		f, l, _ := newFake(3)
		go l.Accept()
		io.WriteString(f.dial(), "x")
		synctest.Wait()
		c := f.dial()
		io.WriteString(c, "x")
		synctest.Wait()
		l.Close()
		synctest.Wait()
		assert.True(t, closed(c))
	})
}
