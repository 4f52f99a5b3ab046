package mesh

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/sotto-relay/sotto/crypto"
	"github.com/sotto-relay/sotto/frame"
)

// Nobody having a client, it is asked for less and less often; what comes meanwhile is
// stored at once, and owners are asked all the same.
func TestQuiet(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a := w.start("a", "")
		settle()
		r := a.rogue(identity(t, 151))
		alice, bob := a.attach(identity(t, 1)), identity(t, 2)
		key, start := bob.Public(), time.Now()
		var queries []time.Duration
		go func() {
			for range 500 {
				alice.send(frame.TypeData, [16]byte{}, 0, append(key[:], 'x'))
				time.Sleep(100 * time.Millisecond)
			}
		}()
		wheres := 0
		for time.Since(start) < 50*time.Second {
			select {
			case f := <-r.in:
				switch f.Type {
				case frame.TypeWhere:
					wheres++
					r.say(frame.TypeAt, (&frame.At{Client: bob.Public()}).Append(nil))
				case frame.TypeNodeInfo:
					if n, err := frame.DecodeNodeInfo(f.Payload); err == nil && n.Subtype == frame.NodeInfoQueryClient {
						queries = append(queries, time.Since(start).Round(100*time.Millisecond))
						r.queryResponse(bob.Public(), false, r.id.Public())
					}
				}
			case <-time.After(time.Second):
			}
		}
		for i, want := range []time.Duration{0, 2, 6, 14, 24, 34, 44} {
			if assert.Greater(t, len(queries), i) {
				assert.InDelta(t, (want * time.Second).Seconds(), queries[i].Seconds(), 2.2)
			}
		}
		assert.LessOrEqual(t, len(queries), 7)
		assert.GreaterOrEqual(t, wheres, 15)
		assert.LessOrEqual(t, wheres, 27)
	})
}

// What waits for one client is bounded; beyond that all of it is stored, in order.
func TestAwait(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a := w.start("a", "")
		settle()
		r := a.rogue(identity(t, 151)) // an owner, who says nothing
		alice, bob := a.attach(identity(t, 1)), identity(t, 2)
		big := strings.Repeat("x", searchBytes*2/3)
		alice.text(bob, "1"+big)
		time.Sleep(time.Second)
		assert.Zero(t, a.stored())
		alice.text(bob, "2"+big)
		time.Sleep(time.Second)
		synctest.Wait()
		assert.Equal(t, 2, a.stored())
		alice.text(bob, "3") // the search goes on
		time.Sleep(time.Second)
		assert.Equal(t, 2, a.stored())
		r.queryResponse(bob.Public(), true, r.id.Public())
		time.Sleep(10 * time.Second)
		assert.Equal(t, 3, a.stored())
		a.mesh.mu.Lock()
		assert.Zero(t, a.mesh.waiting)
		assert.Empty(t, a.mesh.searches)
		a.mesh.mu.Unlock()
		var first string
		for _, text := range a.login(bob).hears(time.Second) {
			first += text[:1]
		}
		assert.Equal(t, "123", first)
		w.balanced()
	})
}

// Of several owners' answers the attachment that ends last counts, whichever comes
// first; an owner that does not answer holds nothing up for long.
func TestOwnersDiffer(t *testing.T) {
	for name, silent := range map[string]bool{"both answer": false, "one withholds": true} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world) {
				a := w.start("a", "")
				settle()
				r, s := a.rogue(identity(t, 151)), a.rogue(identity(t, 152))
				bob, alice := identity(t, 2), a.login(identity(t, 1))
				at := func(r *rogue, ends time.Duration) {
					r.gets(frame.TypeWhere)
					p := frame.Place{Attachment: crypto.Attach(bob, r.id.Public(), time.Now().Add(ends))}
					r.say(frame.TypeAt, (&frame.At{Client: bob.Public(), Places: []frame.Place{p}}).Append(nil))
					synctest.Wait()
				}
				began := time.Now()
				alice.text(bob, "one")
				at(r, 10*time.Minute)
				if silent {
					assert.Equal(t, []byte("one"), r.gets(frame.TypeData).Payload[32:])
					assert.LessOrEqual(t, time.Since(began), othersFor+tick)
					return
				}
				at(s, time.Hour)
				assert.Equal(t, []byte("one"), s.gets(frame.TypeData).Payload[32:])
				r.silent(frame.TypeData, 4*time.Second)
			})
		})
	}
}

// Of places that are remembered the one that was not asked for longest makes room, and
// none lasts longer for being asked for.
func TestLeastUsed(t *testing.T) {
	now := time.Now()
	l := newLasting[int, string](2)
	l.put(1, "one", now.Add(time.Minute))
	l.put(2, "two", now.Add(time.Minute))
	v, ok := l.use(1, now)
	assert.True(t, ok)
	assert.Equal(t, "one", v)
	l.put(3, "three", now.Add(time.Hour))
	_, ok = l.use(2, now)
	assert.False(t, ok)
	_, ok = l.use(1, now.Add(time.Minute-1))
	assert.True(t, ok)
	_, ok = l.use(1, now.Add(time.Minute))
	assert.False(t, ok)
	assert.Equal(t, 1, l.order.Len())
}

// An operator hears where a client is, as far as relays know, and nothing is dialled for
// that beside owners.
func TestFind(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, b := w.start("a", "b"), w.start("b", "")
		settle()
		bob, legacy := b.attach(identity(t, 2)), b.login(identity(t, 3))
		a.mesh.mu.Lock()
		a.mesh.places.remove(bob.id.Public())
		a.mesh.mu.Unlock()
		find := func(id *crypto.Identity) string {
			told := make(chan string, 2)
			a.mesh.Find(id.Public(), func(at *crypto.PublicKey) {
				if at == nil {
					told <- "nowhere"
				} else {
					told <- at.String()
				}
			})
			return <-told
		}
		for range 2 { // looked for, and remembered
			assert.Equal(t, b.id.Public().String(), find(bob.id))
			assert.Equal(t, b.id.Public().String(), find(legacy.id))
			assert.Equal(t, "nowhere", find(identity(t, 4)))
		}
		assert.Equal(t, a.id.Public().String(), find(a.login(identity(t, 60)).id), "it is here")
		assert.Empty(t, a.mesh.searches)

		// It comes here while it is looked for.
		a.rogue(identity(t, 152)) // asked, and silent
		synctest.Wait()
		answer := make(chan string, 2)
		go func() { answer <- find(identity(t, 5)) }()
		synctest.Wait()
		a.attach(identity(t, 5))
		assert.Equal(t, a.id.Public().String(), <-answer)
		// A message that waits with the question goes on.
		go func() { answer <- find(identity(t, 6)) }()
		synctest.Wait()
		a.attach(identity(t, 1)).text(identity(t, 6), "one")
		carol := b.attach(identity(t, 6))
		assert.Equal(t, b.id.Public().String(), <-answer)
		assert.Equal(t, []string{"one"}, carol.hears(10*time.Second))
		w.balanced()
	})
}
