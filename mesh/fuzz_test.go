package mesh

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sotto-relay/sotto/crypto"
	"github.com/sotto-relay/sotto/frame"
)

// Whatever another relay says, the relay goes on, and its counters agree. The input is
// frames: a type, a length, a payload.
func FuzzLink(f *testing.F) {
	bob := identity(f, 2)
	key := bob.Public()
	rogue := identity(f, 151)
	add := func(frames ...frame.Brep) {
		var b []byte
		for _, x := range frames {
			b = append(append(b, byte(x.Type), byte(len(x.Payload))), x.Payload...)
		}
		f.Add(b)
	}
	attach := crypto.Attach(bob, rogue.Public(), time.Date(2000, 1, 1, 1, 0, 0, 0, time.UTC))
	add(frame.Brep{Type: frame.TypeData, Payload: key[:]}, frame.Brep{Type: frame.TypeMail, Payload: key[:]},
		frame.Brep{Type: frame.TypeWhere, Payload: key[:]})
	add(frame.Brep{Type: frame.TypeHere, Payload: append(attach[:], 1)}, frame.Brep{Type: frame.TypeHere, Payload: append(attach[:], 0)})
	add(frame.Brep{Type: frame.TypeFetch, Payload: append(attach[:], 0, 0, 0, 9)}, frame.Brep{Type: frame.TypeDone, Payload: make([]byte, 16)})
	add(frame.Brep{Type: frame.TypeAt, Payload: append(append(key[:], 1), append(attach[:], 0)...)})
	add(frame.Brep{Type: frame.TypeNodeInfo, Payload: []byte{2}}, frame.Brep{Type: frame.TypeNodeInfo, Payload: append([]byte{5}, key[:]...)})
	inner := frame.Brep{Type: frame.TypeData, Payload: key[:]}
	add(frame.Brep{Type: frame.TypeEntry, Payload: (&frame.Entry{Number: 1, Frame: inner.Append(nil)}).Append(nil)})
	f.Fuzz(func(t *testing.T, b []byte) {
		bubble(t, func(t *testing.T, w *world) {
			a := w.start("a", "")
			settle()
			c, alice := a.attach(bob), a.attach(identity(t, 1))
			r := a.rogue(rogue)
			alice.text(identity(t, 3), "a search")
			for n := byte(0); len(b) >= 2; n++ {
				payload := b[2:]
				payload = payload[:min(len(payload), int(b[1]))]
				r.write(&frame.Brep{Type: frame.Type(b[0]), ID: [16]byte{n}, Sender: r.id.Public(), Payload: payload})
				b = b[2+len(payload):]
			}
			time.Sleep(time.Minute)
			alice.text(bob, "still here")
			require.Contains(t, c.hears(time.Second), "still here")
			w.balanced()
		})
	})
}
