package mesh

import (
	"context"
	"iter"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sotto-relay/sotto/crypto"
	"github.com/sotto-relay/sotto/frame"
	"github.com/sotto-relay/sotto/inbox"
)

// A slow store takes a second to say what there is.
type slow struct{ inbox.Store }

func (s slow) Entries(ctx context.Context, to inbox.Address, from uint64) iter.Seq2[*inbox.Entry, error] {
	time.Sleep(time.Second)
	return s.Store.Entries(ctx, to, from)
}

// A client comes home just when the inbox is looked through for more to lend: what is
// lent is its own at once.
func TestHomeWhileLending(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a := w.start("a", "")
		a.stop()
		a.store = slow{a.store}
		a.run("")
		settle()
		alice, bob := a.attach(identity(t, 1)), identity(t, 2)
		alice.text(bob, "one")
		time.Sleep(time.Minute)
		r := a.rogue(identity(t, 152))
		fetch := frame.Fetch{Attachment: crypto.Attach(bob, r.id.Public(), time.Now().Add(time.Hour)), Max: 10}
		r.say(frame.TypeFetch, fetch.Append(nil))
		r.gets(frame.TypeEntry)
		time.Sleep(leaseFor/4 + time.Second/2) // the inbox is looked at again
		synctest.Wait()
		assert.Equal(t, []string{"one"}, a.login(bob).hears(5*time.Second))
		w.balanced()
	})
}

// A lease that runs out makes an entry deliverable here again; one that is never
// taken stays after three times, and others pass it.
func TestLease(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a := w.start("a", "")
		settle()
		alice, bob := a.attach(identity(t, 1)), identity(t, 2)
		alice.text(bob, "poison")
		alice.text(bob, "other")
		time.Sleep(time.Minute)
		r := a.rogue(identity(t, 152))
		fetch := frame.Fetch{Attachment: crypto.Attach(bob, r.id.Public(), time.Now().Add(time.Hour)), Max: 10}
		r.say(frame.TypeFetch, fetch.Append(nil))
		texts := map[string]int{}
		for len(texts) < 2 || texts["poison"] < triesMost {
			e, err := frame.DecodeEntry(r.gets(frame.TypeEntry).Payload)
			require.NoError(t, err)
			f, err := frame.DecodeBrep(e.Frame)
			require.NoError(t, err)
			text := string(f.Payload[32:])
			if texts[text]++; text == "other" {
				r.say(frame.TypeDone, frame.AppendEntryNumbers(nil, e.Number))
			}
		}
		r.silent(frame.TypeEntry, 3*time.Minute)
		assert.Equal(t, map[string]int{"poison": triesMost, "other": 1}, texts)
		assert.Equal(t, 1, a.stored())
		assert.Equal(t, []string{"poison"}, a.login(bob).hears(2*time.Minute))
		synctest.Wait()
		w.balanced()
	})
}

// A session that is here gets what was lent elsewhere and not taken.
func TestLeaseHome(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a := w.start("a", "")
		settle()
		alice, bob := a.attach(identity(t, 1)), identity(t, 2)
		alice.text(bob, "one")
		time.Sleep(time.Minute)
		r := a.rogue(identity(t, 152))
		fetch := frame.Fetch{Attachment: crypto.Attach(bob, r.id.Public(), time.Now().Add(time.Hour)), Max: 10}
		r.say(frame.TypeFetch, fetch.Append(nil))
		r.gets(frame.TypeEntry)
		assert.Equal(t, []string{"one"}, a.login(bob).hears(time.Second), "it does not wait for the lease")
		w.balanced()
	})
}
