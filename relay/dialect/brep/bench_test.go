package brep

import (
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sotto-relay/sotto/crypto"
	"github.com/sotto-relay/sotto/frame"
	"github.com/sotto-relay/sotto/inbox"
	"github.com/sotto-relay/sotto/internal/race"
	"github.com/sotto-relay/sotto/relay"
)

// A lane is a sender and a recipient, and one message between them.
type lane struct {
	sender    *session
	receiver  *session
	from, to  *peer
	encoded   []byte
	sent      uint64 // messages so far: each has an id of its own, or it is a repeat
	repliesTo int    // frames that the sender gets for each message
}

func newLane(t testing.TB, from, to uint8, flags uint8, size int) *lane {
	r := newRig(t, func(r *rig) {
		r.server.Limits = relay.MaxLimits()
		r.server.Inbox = inbox.NewMemory(nil)
	})
	l := &lane{from: r.login(identity(t, 1), from)}
	l.sender = r.session(0)
	l.to = r.login(identity(t, 2), to)
	l.receiver = r.session(1)
	key := l.to.id.Public()
	l.encoded = withID(l.from.frame(frame.TypeData, key[:], make([]byte, size)), 1, flags).Append(nil)
	if flags&frame.FlagReceipt != 0 {
		l.repliesTo = 1
	}
	// Once the recipient has caught up with its inbox, messages go live.
	for range 3 {
		l.from.data(l.to.id, "warm")
		require.Equal(t, "warm", l.to.text())
	}
	return l
}

// renew gives the message another id.
func (l *lane) renew() {
	l.sent++
	binary.BigEndian.PutUint64(l.encoded[frame.BrepIDOffset:], l.sent)
}

// run brings one message from the sender's Receive to the recipient's conn.
func (l *lane) run(t testing.TB) {
	l.renew()
	if err := l.sender.Receive(t.Context(), 0, l.encoded); err != nil {
		t.Fatal(err)
	}
	_, msg, err := l.to.raw.Conn.Read()
	if err != nil {
		t.Fatal(err)
	}
	// As an ACK does, if that is the receiver's form.
	from := relay.Address{Realm: relay.RealmBrep, Name: borrow(msg[24:56])}
	l.receiver.port.Acknowledge(from, relay.ID(msg[frame.BrepIDOffset:]), nil)
	for range l.repliesTo {
		if _, _, err := l.from.raw.Conn.Read(); err != nil {
			t.Fatal(err)
		}
	}
}

// skipUnderRace skips a test that counts allocations: the race detector has
// sync.Pool forget at random.
func skipUnderRace(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector allocates")
	}
}

// TestAllocations: none from the bytes of the sender to those of the recipient,
// in any pair of forms, with a receipt too.
func TestAllocations(t *testing.T) {
	skipUnderRace(t)
	for from, fromName := range formNames {
		for to, toName := range formNames {
			for _, flags := range []uint8{0, frame.FlagReceipt} {
				if flags != 0 && from == int(formLegacy) {
					continue // it gets none
				}
				t.Run(fmt.Sprintf("%s to %s, flags %d", fromName, toName, flags), func(t *testing.T) {
					l := newLane(t, uint8(from), uint8(to), flags, 128)
					for range 100 {
						l.run(t)
					}
					if n := testing.AllocsPerRun(1000, func() { l.run(t) }); n >= 1 {
						t.Errorf("%v allocations a message, want none", n)
					}
				})
			}
		}
	}
}

// TestAllocationsOfClient: a frame received costs nothing.
func TestAllocationsOfClient(t *testing.T) {
	skipUnderRace(t)
	l := newLane(t, formExtended, formExtended, 0, 128)
	run := func() {
		l.renew()
		if err := l.sender.Receive(t.Context(), 0, l.encoded); err != nil {
			t.Fatal(err)
		}
		if _, err := l.to.Receive(); err != nil {
			t.Fatal(err)
		}
	}
	for range 100 {
		run()
	}
	if n := testing.AllocsPerRun(1000, run); n >= 1 {
		t.Errorf("%v allocations a message, want none", n)
	}
}

// A hall is a publisher and those whom a publication of its reaches.
type hall struct {
	lane
	audience []*peer
}

func newHall(t testing.TB, typ frame.Type, n, size int) *hall {
	r := newRig(t, func(r *rig) { r.server.Limits = relay.MaxLimits() })
	h := &hall{lane: lane{from: r.login(identity(t, 1), formExtended)}}
	h.sender = r.session(0)
	q := []byte(`{"t":"subscribe","topic":"n","req":1}`)
	if typ == frame.TypeRoomSend {
		q = []byte(`{"t":"join_room","room":"n","req":1}`)
		require.NoError(t, h.sender.Receive(t.Context(), 0, h.from.frame(frame.TypeRequest, q).Append(nil)))
		h.read(t, h.from)
	}
	for i := range n {
		p := r.login(identity(t, byte(i+2)), formExtended)
		require.NoError(t, r.session(i+1).Receive(t.Context(), 0, p.frame(frame.TypeRequest, q).Append(nil)))
		h.read(t, p)
		h.audience = append(h.audience, p)
	}
	h.encoded = h.from.post(typ, 1, frame.FlagReceipt, "n", string(make([]byte, size))).Append(nil)
	return h
}

func (h *hall) read(t testing.TB, p *peer) {
	if _, _, err := p.raw.Conn.Read(); err != nil {
		t.Fatal(err)
	}
}

// run brings one publication to the audience, and its receipt to the publisher.
func (h *hall) run(t testing.TB) {
	h.renew()
	if err := h.sender.Receive(t.Context(), 0, h.encoded); err != nil {
		t.Fatal(err)
	}
	for _, p := range h.audience {
		h.read(t, p)
	}
	h.read(t, h.from)
}

// TestAllocationsOfFanOut: none for a publication, however many it reaches, with a
// receipt.
func TestAllocationsOfFanOut(t *testing.T) {
	skipUnderRace(t)
	for name, typ := range postNames {
		for _, size := range []int{100, 4 << 10} {
			t.Run(fmt.Sprintf("%s, %d bytes", name, size), func(t *testing.T) {
				h := newHall(t, typ, 50, size)
				for range 100 {
					h.run(t)
				}
				if n := testing.AllocsPerRun(500, func() { h.run(t) }); n >= 1 {
					t.Errorf("%v allocations a publication, want none", n)
				}
			})
		}
	}
}

var postNames = map[string]frame.Type{"topic": frame.TypePublish, "room": frame.TypeRoomSend}

// BenchmarkFanOut is one publication to 50, over pipes.
func BenchmarkFanOut(b *testing.B) {
	for name, typ := range postNames {
		b.Run(name, func(b *testing.B) {
			h := newHall(b, typ, 50, 128)
			b.ReportAllocs()
			for b.Loop() {
				h.run(b)
			}
		})
	}
}

// BenchmarkRemember is what the memory of what came costs a message.
func BenchmarkRemember(b *testing.B) {
	s := &session{sent: newMemory().enter(crypto.PublicKey{})}
	f := frame.Brep{Signature: [64]byte{1}}
	b.ReportAllocs()
	for n := uint64(1); b.Loop(); n++ {
		binary.BigEndian.PutUint64(f.ID[:], n)
		if s.isRepeat(&f) {
			b.Fatal("a repeat")
		}
	}
}

// BenchmarkRelay is Receive, route, render and write, over pipes.
func BenchmarkRelay(b *testing.B) {
	for from, fromName := range formNames {
		for to, toName := range formNames {
			for _, size := range []int{128, 4 << 10} {
				b.Run(fmt.Sprintf("%s/%s/%d", fromName, toName, size), func(b *testing.B) {
					l := newLane(b, uint8(from), uint8(to), 0, size)
					b.SetBytes(int64(len(l.encoded)))
					b.ReportAllocs()
					for b.Loop() {
						l.run(b)
					}
				})
			}
		}
	}
}

func BenchmarkRender(b *testing.B) {
	f := frame.Brep{Type: frame.TypeData, Payload: make([]byte, 160)}
	m := relay.Message{ID: relay.ID{1}, Form: formExtended, Data: f.Append(nil)}
	for form, name := range formNames {
		b.Run(name, func(b *testing.B) {
			buf := make([]byte, 0, 1<<10)
			b.ReportAllocs()
			for b.Loop() {
				_, _, _ = Dialect{}.Render(buf, uint8(form), &m)
			}
		})
	}
}

func BenchmarkNewID(b *testing.B) {
	for b.Loop() {
		newID()
	}
}
