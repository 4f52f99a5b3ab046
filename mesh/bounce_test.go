package mesh

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/sotto-relay/sotto/frame"
)

// Mail that follows a client which reads none of it, and comes to a relay where it was
// before, is not taken for a copy of what is stored there.
func TestMailToAndFro(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, c := w.start("a", "c"), w.start("c", "")
		settle()
		alice, id := a.attach(identity(t, 1)), identity(t, 2)
		key := id.Public()
		alice.send(frame.TypeEncryptedData, textID("one"), frame.FlagReceipt, append(key[:], "one"...)) // never acknowledged
		time.Sleep(10 * time.Second)
		for i, at := range []*node{c, a, c, a} {
			bob := at.attach(id)
			f := bob.next()
			assert.Equal(t, frame.TypeEncryptedData, f.Type, "visit %d", i)
			bob.close()
			time.Sleep(10 * time.Second)
			assert.Equal(t, 1, at.stored(), "visit %d", i)
		}
		w.balanced()
	})
}
