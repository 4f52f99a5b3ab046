package udp

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sotto-relay/sotto/transport"
)

// TestPace: 50 at once, then one each 20 ms.
func TestPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Options{Demux: demux})
		c, _ := r.proven(aliceAt, "alice")
		client := r.at(aliceAt)
		msgs := make([][]byte, 60)
		for i := range msgs {
			msgs[i] = []byte(fmt.Sprint(i))
		}
		n, err := c.TryWrite(transport.Binary, msgs)
		require.NoError(t, err)
		assert.Equal(t, 1, n)
		n, err = c.TryWrite(transport.Binary, msgs[1:])
		require.NoError(t, err)
		assert.Zero(t, n)

		begin := time.Now()
		for left := msgs[1:]; len(left) > 0; left = left[n:] {
			n, err = c.Write(transport.Binary, left)
			require.NoError(t, err)
			assert.Equal(t, 1, n)
		}
		assert.Equal(t, 59*20*time.Millisecond, time.Since(begin))

		c.SetWriteDeadline(time.Now().Add(5 * time.Millisecond))
		begin = time.Now()
		n, err = c.Write(transport.Binary, msgs[:1])
		assert.Zero(t, n)
		assert.ErrorIs(t, err, os.ErrDeadlineExceeded)
		assert.Equal(t, 5*time.Millisecond, time.Since(begin))
		n, err = c.TryWrite(transport.Binary, nil)
		assert.Zero(t, n)
		assert.NoError(t, err)

		// A Write that waits heeds a deadline that is set later, and Close.
		c.SetWriteDeadline(time.Time{})
		time.AfterFunc(3*time.Millisecond, func() { c.SetWriteDeadline(time.Now().Add(time.Millisecond)) })
		_, err = c.Write(transport.Binary, msgs[:1])
		assert.ErrorIs(t, err, os.ErrDeadlineExceeded)
		c.SetWriteDeadline(time.Time{})
		time.AfterFunc(3*time.Millisecond, func() { c.Close(transport.ClosePolicy, "bye") })
		_, err = c.Write(transport.Binary, msgs[:1])
		assert.Equal(t, net.ErrClosed, err)
		_, _, err = c.Read()
		assert.Equal(t, &transport.CloseError{Code: transport.ClosePolicy, Reason: "bye"}, err)

		got := r.hear(client)
		require.Len(t, got, 60)
		for i := range msgs {
			assert.Equal(t, string(msgs[i]), got[i])
		}
		assert.EqualValues(t, 60, r.l.Stats().Sent)
	})
}

// TestPaceUnproven: what is dropped takes its turn, too.
func TestPaceUnproven(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Options{Demux: demux})
		c := r.open(aliceAt)
		msgs := make([][]byte, 60)
		for i := range msgs {
			msgs[i] = make([]byte, 100)
		}
		n, err := c.TryWrite(transport.Binary, msgs)
		require.NoError(t, err)
		require.Equal(t, 1, n)
		n, err = c.TryWrite(transport.Binary, msgs)
		assert.Zero(t, n)
		assert.NoError(t, err)
		begin := time.Now()
		n, err = c.Write(transport.Binary, msgs)
		assert.Equal(t, 1, n)
		assert.NoError(t, err)
		assert.Equal(t, 20*time.Millisecond, time.Since(begin))
		assert.EqualValues(t, 2, r.l.Stats().Unproven)
	})
}

// TestOverrun: a session that does not read loses what comes then, and no other
// does.
func TestOverrun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, unmetered())
		slow, slows := r.proven(aliceAt, "slow")
		quick, quicks := r.proven(bobAt, "quick")
		size := len(pair("slow", slows, "00000"))
		fits := 64 << 10 / (size + overhead)
		for i := range fits + 10 {
			r.say(aliceAt, pair("slow", slows, fmt.Sprintf("%05d", i)))
			r.say(bobAt, pair("quick", quicks, "x"))
			assert.NotEmpty(t, r.read(quick))
		}
		assert.EqualValues(t, 10, r.l.Stats().Overrun)
		for i := range fits {
			assert.Equal(t, pair("slow", slows, fmt.Sprintf("%05d", i)), r.read(slow))
		}
		assert.Empty(t, r.read(slow))
		r.say(aliceAt, pair("slow", slows, "again"))
		assert.NotEmpty(t, r.read(slow))
	})
}

// TestIdleHoldsNothing: a session that waits for something has no buffer.
func TestIdleHoldsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, unmetered())
		c, token := r.proven(aliceAt, "alice")
		require.Empty(t, r.read(c))
		assert.Nil(t, c.out)
		assert.Nil(t, c.in)
		r.say(aliceAt, pair("alice", token, ""))
		assert.NotNil(t, c.in)
		_, b, err := c.Read()
		require.NoError(t, err)
		assert.NotNil(t, c.out)
		before := string(b)
		for range 10 {
			r.say(aliceAt, pair("alice", token, "overwrites that?"))
		}
		assert.Equal(t, before, string(b), "valid until the next Read")
	})
}

// TestDry: dry is called once all that has come in has been read.
func TestDry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, unmetered())
		c, token := r.proven(aliceAt, "alice")
		read, dry := 0, []int{}
		c.SetDry(func() { dry = append(dry, read) })
		for range 3 {
			for range 5 {
				r.say(aliceAt, pair("alice", token, "x"))
			}
			for r.read(c) != "" {
				read++
			}
		}
		assert.Equal(t, []int{5, 10, 15}, dry)
	})
}

func TestBacklog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := unmetered()
		o.Backlog = 3
		r := newRig(t, o)
		alice := r.open(aliceAt)
		for p := range uint16(5) {
			r.say(port(bobAt, p+1), "open")
		}
		r.say(aliceAt, "open")
		assert.EqualValues(t, 2, r.l.Stats().Refused)
		assert.Len(t, r.l.conns, 4)
		assert.Equal(t, "open", r.read(alice), "who is in is not concerned")
		c, err := r.l.Accept()
		require.NoError(t, err)
		assert.Equal(t, port(bobAt, 1).String(), c.RemoteAddr().String())
		r.say(port(bobAt, 5), "open")
		assert.Len(t, r.l.conns, 5)
	})
}

// TestClose: Close takes no new sessions; those that are there go on, and the
// socket is closed when the last has ended.
func TestClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, unmetered())
		alice, token := r.proven(aliceAt, "alice")
		r.say(bobAt, "open")
		require.NoError(t, r.l.Close())
		require.NoError(t, r.l.Close())
		_, err := r.l.Accept()
		assert.Equal(t, net.ErrClosed, err)
		assert.Len(t, r.l.conns, 1, "what nobody has accepted is closed")

		client := r.at(aliceAt)
		r.say(eveAt, "open")
		assert.EqualValues(t, 1, r.l.Stats().Refused)
		r.say(aliceAt, pair("alice", token, "last words"))
		assert.NotEmpty(t, r.read(alice))
		send(t, alice, "your last words")
		assert.Len(t, r.hear(client), 1)
		_, err = r.net.Listen(relayAt)
		assert.Error(t, err, "still open")

		time.AfterFunc(time.Second, func() { alice.Close(0, "") })
		_, _, err = alice.Read()
		assert.Equal(t, net.ErrClosed, err)
		r.at(relayAt)
	})
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, unmetered())
		time.AfterFunc(time.Second, func() { r.l.Close() })
		_, err := r.l.Accept()
		assert.Equal(t, net.ErrClosed, err)
		time.Sleep(time.Second)
		r.at(relayAt)
	})
}

// A faulty socket fails to read as often as it is told to.
type faulty struct {
	net.PacketConn
	failures atomic.Int32
	full     atomic.Bool
	lossy    atomic.Bool
	during   func() // what happens while something is written
}

var errFaulty = errors.New("the cable is out")

func (f *faulty) ReadFrom(b []byte) (int, net.Addr, error) {
	if f.failures.Add(-1) >= 0 {
		return 0, nil, errFaulty
	}
	return f.PacketConn.ReadFrom(b)
}

func (f *faulty) WriteTo(b []byte, to net.Addr) (int, error) {
	switch {
	case f.full.Load():
		return 0, &net.OpError{Op: "write", Err: os.NewSyscallError("sendmmsg", syscall.EAGAIN)}
	case f.lossy.Load():
		return 0, errFaulty
	case f.during != nil:
		f.during()
	}
	return f.PacketConn.WriteTo(b, to)
}

func newFaultyRig(t *testing.T, o Options) (*rig, *faulty) {
	r := newRig(t, o)
	r.l.fail(net.ErrClosed) // it has not begun
	r.at(relayAt).Close()
	f := &faulty{PacketConn: r.at(relayAt)}
	r.l = NewListener([]net.PacketConn{f}, &o)
	return r, f
}

// TestReadFails: a socket may fail for a while. When it does not stop, that is the
// end.
func TestReadFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, f := newFaultyRig(t, unmetered())
		f.failures.Store(9)
		c, _ := r.proven(aliceAt, "alice")
		f.failures.Store(9)
		r.say(aliceAt, "open") // is read, and then it fails
		r.say(aliceAt, "open") // is read in the end
		time.Sleep(time.Second)
		assert.Equal(t, "open", r.read(c))
		assert.Equal(t, "open", r.read(c))

		f.failures.Store(10)
		r.say(eveAt, "wakes it up")
		begin := time.Now()
		_, err := r.l.Accept()
		assert.Equal(t, errFaulty, err)
		assert.Less(t, time.Since(begin), 2*time.Second)
		_, _, err = c.Read()
		assert.Equal(t, errFaulty, err)
		r.at(relayAt)
	})
}

// TestSocketFull: what the socket has no room for is not taken, and what it does
// not want is lost.
func TestSocketFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, f := newFaultyRig(t, Options{Demux: demux, PaceRate: 100}) // two at once
		c, _ := r.proven(aliceAt, "alice")
		client := r.at(aliceAt)
		f.full.Store(true)
		msgs := [][]byte{{'a'}, {'b'}}
		n, err := c.TryWrite(transport.Binary, msgs)
		assert.Zero(t, n)
		assert.NoError(t, err)
		begin := time.Now()
		time.AfterFunc(time.Second, func() { f.full.Store(false) })
		n, err = c.Write(transport.Binary, msgs)
		assert.Equal(t, 2, n)
		assert.NoError(t, err)
		assert.InDelta(t, time.Second, time.Since(begin), float64(time.Millisecond))
		assert.Equal(t, []string{"a", "b"}, r.hear(client))

		f.lossy.Store(true)
		send(t, c, "c", "d")
		assert.Empty(t, r.hear(client))
		st := r.l.Stats()
		assert.EqualValues(t, 2, st.Unsent)
		assert.EqualValues(t, 2, st.Sent)
	})
	// A message that was not taken costs no credit, and one that went to where the
	// session was costs none where it is.
	synctest.Test(t, func(t *testing.T) {
		r, f := newFaultyRig(t, unmetered())
		c := r.open(aliceAt)
		client := r.at(aliceAt)
		c.Renew("alice")
		f.full.Store(true)
		for range 10 {
			n, err := c.TryWrite(transport.Binary, [][]byte{make([]byte, 12)})
			assert.Zero(t, n)
			assert.NoError(t, err)
		}
		f.full.Store(false)
		token := c.Renew("alice")
		send(t, c, "the first token", "123456789012")
		assert.Len(t, r.hear(client), 2)

		r.say(bobAt, pair("alice", token, "from elsewhere"))
		moved := []byte(pair("alice", token, ""))
		f.during = func() { r.l.receive(r.l.sockets[0], eveAt, moved, 0) }
		send(t, c, "123456789012")
		f.during = nil
		eve := r.at(eveAt)
		send(t, c, strings.Repeat("x", 3*len(moved)), "x")
		assert.Equal(t, []string{strings.Repeat("x", 3*len(moved))}, r.hear(eve))
	})
}
