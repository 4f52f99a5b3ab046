package blind

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sotto-relay/sotto/frame"
	"github.com/sotto-relay/sotto/internal/race"
	"github.com/sotto-relay/sotto/relay"
	"github.com/sotto-relay/sotto/transport"
	"github.com/sotto-relay/sotto/transport/pipe"
)

// heap returns the bytes that are in use, after a collection.
func heap() int {
	for range 3 {
		runtime.GC()
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}

// A keeper is a dialect that keeps its sessions, to call them directly.
type keeper struct {
	Dialect
	sessions chan *session
}

func newKeeper(r *rig) *keeper {
	d := r.dialect
	d.ConnID = nil
	return &keeper{d, make(chan *session, 1)}
}

func (k *keeper) NewSession(p *relay.Port) (relay.Session, error) {
	s, err := k.Dialect.NewSession(p)
	k.sessions <- s.(*session)
	return s, err
}

// connect returns the session of a new connection that waits for its first
// message.
func (k *keeper) connect(r *rig, c transport.Conn) *session {
	reading := make(chan struct{})
	r.Speak(k).HandleConn(&reader{Conn: c, TryWriter: c.(transport.TryWriter), reading: reading})
	<-reading
	return <-k.sessions
}

// A reader tells when it is first read from.
type reader struct {
	transport.Conn
	transport.TryWriter
	once    sync.Once
	reading chan struct{}
}

func (r *reader) Read() (transport.Kind, []byte, error) {
	r.once.Do(func() { close(r.reading) })
	return r.Conn.Read()
}

// A sink is a Conn that takes everything at once and says nothing.
type sink struct {
	close  sync.Once
	closed chan struct{}
}

func (s *sink) Read() (transport.Kind, []byte, error) {
	<-s.closed
	return 0, nil, io.EOF
}

func (s *sink) Write(_ transport.Kind, msgs [][]byte) (int, error)    { return len(msgs), nil }
func (s *sink) TryWrite(_ transport.Kind, msgs [][]byte) (int, error) { return len(msgs), nil }
func (s *sink) SetReadDeadline(time.Time) error                       { return nil }
func (s *sink) SetWriteDeadline(time.Time) error                      { return nil }
func (s *sink) SetReadLimit(int)                                      {}
func (s *sink) RemoteAddr() net.Addr                                  { return pipe.Addr{} }
func (s *sink) Value(any) any                                         { return nil }

func (s *sink) Close(uint16, string) error {
	s.close.Do(func() { close(s.closed) })
	return nil
}

func newSink() *sink { return &sink{closed: make(chan struct{})} }

// TestAllocations: none for a frame and 100 subscribers, logged or not.
func TestAllocations(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector has sync.Pool forget at random")
	}
	for _, logged := range []bool{false, true} {
		for _, text := range []string{"x small", "x " + strings.Repeat("c", 1024), `e"@x with escapes`} {
			t.Run(fmt.Sprintf("%v/%.4s", logged, text), func(t *testing.T) {
				r := newRig(t, func(r *rig) {
					r.Limits = relay.MaxLimits()
					if !logged {
						r.dialect.Audit = nil
					}
				})
				k := newKeeper(r)
				s := k.connect(r, newSink())
				for range 100 {
					require.NoError(t, k.connect(r, newSink()).Receive(t.Context(), 0, message(subscribe("x"))))
				}
				msg := message(text)
				forward := func() { _ = s.Receive(t.Context(), 0, msg) }
				for range 200 { // until the ring of the log is full
					forward()
				}
				want := 0.0
				if logged && strings.Contains(text, "@") {
					want = 1 // the entity, which is no name of a group
				}
				assert.Equal(t, want, testing.AllocsPerRun(200, forward))
				assert.EqualValues(t, 401*100, r.balance().Accepted)
			})
		}
	}
}

// FuzzReceive: a frame whose header is valid comes to who subscribes to its key,
// byte for byte, and nothing else comes to anybody; nothing of the input is changed
// or kept, and no message ends the connection.
func FuzzReceive(f *testing.F) {
	for _, v := range vectors(f) {
		f.Add(uint8(0), append([]byte{channelFrame}, unhex(f, v.Frame)...))
	}
	for _, text := range []string{
		subscribe("a", "b"), unsubscribe("a"), rotate("a", "b"), rotate("b", "a"), `{"op":"subscribe","entityIds":[1,"a",{}]}`,
		`{"op":"rotate","from":"a","to":"\u0062"}`, "{}", "[", "a text", "a@b text",
	} {
		f.Add(uint8(0), message(text))
	}
	f.Add(uint8(1), []byte("text"))
	f.Add(uint8(0), []byte{2})
	r := newRig(f, func(r *rig) { r.Limits = relay.MaxLimits() })
	k := newKeeper(r)
	s := k.connect(r, newSink())
	near, far := pipe.New()
	all := k.connect(r, far)
	f.Fuzz(func(t *testing.T, kind uint8, msg []byte) {
		before := bytes.Clone(msg)
		var key []byte
		valid := false
		if kind == 0 && len(msg) > 0 && msg[0] == channelFrame {
			if header, err := frame.PeekHeader(msg[1:]); err == nil {
				h, err := frame.ParseHeader(header)
				key, valid = []byte(h.Key()), err == nil && max(len(h.Key()), len(h.EntityID)) <= 512
			}
		}
		if valid {
			require.NoError(t, all.port.Join(address(key), nil))
		}
		require.NoError(t, s.Receive(t.Context(), transport.Kind(kind), msg))
		require.Equal(t, before, msg)
		require.Zero(t, s.msg)
		require.Empty(t, s.to)
		require.Nil(t, s.route.Key)
		mark := message("mark mark")
		if valid {
			_, got, err := near.Read()
			require.NoError(t, err)
			require.Equal(t, msg, got)
			all.port.Leave(address(key))
		}
		require.NoError(t, all.port.Join(address([]byte("mark")), nil))
		require.NoError(t, s.Receive(t.Context(), 0, mark))
		_, got, err := near.Read()
		require.NoError(t, err)
		require.Equal(t, mark, got)
		all.port.Leave(address([]byte("mark")))
	})
}
