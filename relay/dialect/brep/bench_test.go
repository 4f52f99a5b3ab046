package brep

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sotto-relay/sotto/frame"
	"github.com/sotto-relay/sotto/inbox"
	"github.com/sotto-relay/sotto/relay"
)

// A lane is a sender and a recipient, and one message between them.
type lane struct {
	sender    *session
	receiver  *session
	from, to  *peer
	encoded   []byte
	repliesTo int // frames that the sender gets for each message
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

// run brings one message from the sender's Receive to the recipient's conn.
func (l *lane) run(t testing.TB) {
	if err := l.sender.Receive(t.Context(), 0, l.encoded); err != nil {
		t.Fatal(err)
	}
	_, msg, err := l.to.raw.Conn.Read()
	if err != nil {
		t.Fatal(err)
	}
	if f, err := frame.DecodeBrep(msg); err == nil { // as an ACK does, if that is the receiver's form
		from := relay.Address{Realm: relay.RealmBrep, Name: borrow(f.Sender[:])}
		l.receiver.port.Acknowledge(from, f.ID)
	}
	for range l.repliesTo {
		if _, _, err := l.from.raw.Conn.Read(); err != nil {
			t.Fatal(err)
		}
	}
}

// skipUnderRace skips a test that counts allocations: the race detector has
// sync.Pool forget at random.
func skipUnderRace(t *testing.T) {
	if raceDetector {
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
