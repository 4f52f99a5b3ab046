package mesh

import (
	"bytes"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sotto-relay/sotto/crypto"
	"github.com/sotto-relay/sotto/frame"
)

// queryResponse says that a client is at a relay, or nowhere.
func (r *rogue) queryResponse(client crypto.PublicKey, found bool, relay crypto.PublicKey) {
	n := frame.NodeInfo{Subtype: frame.NodeInfoQueryResponse, Client: client, Found: found, Relay: relay}
	payload, err := n.Append(nil)
	require.NoError(r.t, err)
	r.say(frame.TypeNodeInfo, payload)
}

// asked waits for QUERY_CLIENT and returns whom it is about.
func (r *rogue) asked() crypto.PublicKey {
	r.t.Helper()
	for {
		f := r.gets(frame.TypeNodeInfo)
		if n, err := frame.DecodeNodeInfo(f.Payload); err == nil && n.Subtype == frame.NodeInfoQueryClient {
			return n.Client
		}
	}
}

// Only a relay that was asked may answer, for itself, in time, once.
func TestFalseAnswers(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a := w.start("a", "")
		settle()
		r, s := a.rogue(identity(t, 151)), a.rogue(identity(t, 152))
		bob, alice := identity(t, 2), a.attach(identity(t, 1))
		// Unasked.
		r.queryResponse(bob.Public(), true, r.id.Public())
		at := frame.At{Client: bob.Public(), Places: []frame.Place{{Attachment: crypto.Attach(bob, r.id.Public(), time.Now().Add(time.Hour))}}}
		r.say(frame.TypeAt, at.Append(nil))
		time.Sleep(time.Second)
		alice.text(bob, "one")
		r.gets(frame.TypeWhere)
		s.gets(frame.TypeWhere)
		// For another client, by a false statement, for another relay.
		at.Client = identity(t, 3).Public()
		r.say(frame.TypeAt, at.Append(nil))
		at = frame.At{Client: bob.Public(), Places: []frame.Place{{Attachment: forged(bob, r.id, time.Now())}}}
		r.say(frame.TypeAt, at.Append(nil))
		s.say(frame.TypeAt, (&frame.At{Client: bob.Public()}).Append(nil))
		assert.Equal(t, bob.Public(), r.asked())
		assert.Equal(t, bob.Public(), s.asked())
		r.queryResponse(bob.Public(), true, s.id.Public()) // not its own: as good as no
		u := a.rogue(identity(t, 150))                     // not asked
		u.queryResponse(bob.Public(), true, u.id.Public())
		u.silent(frame.TypeData, time.Second)
		s.silent(frame.TypeData, time.Second)
		s.queryResponse(bob.Public(), true, s.id.Public())
		f := s.gets(frame.TypeData)
		assert.Equal(t, "one", string(f.Payload[32:]))
		_ = u.conn.Close(0, "")
		r.queryResponse(bob.Public(), true, r.id.Public()) // late, and again
		r.silent(frame.TypeData, time.Second)
		s.receipt(&f, frame.ReceiptHandedOver, 0)
		assert.Equal(t, []string{"one:1"}, alice.hears(time.Second))
		// A receipt that nobody waits for, or by somebody else, says nothing.
		s.receipt(&f, frame.ReceiptStored, 0)
		r.receipt(&f, frame.ReceiptAcknowledged, 0)
		assert.Equal(t, []string{"one:2"}, alice.hears(time.Second))

		// Too late: it is stored, and found again later.
		carol := identity(t, 4)
		alice.text(carol, "two")
		r.asked2(t, carol.Public(), s)
		assert.Equal(t, []string{"two:2"}, alice.hears(11*time.Second))
		r.queryResponse(carol.Public(), true, r.id.Public())
		r.silent(frame.TypeData, time.Second)
		w.balanced()
	})
}

// asked2 has the relay and another say that they own nothing, and waits for the query.
func (r *rogue) asked2(t *testing.T, client crypto.PublicKey, s *rogue) {
	for _, r := range []*rogue{r, s} {
		r.gets(frame.TypeWhere)
		r.say(frame.TypeAt, (&frame.At{Client: client}).Append(nil))
	}
	assert.Equal(t, client, r.asked())
}

// A relay that claims a client which it does not have: the message is tried elsewhere
// once, and then stored; in the end the liar loses its link.
func TestFalseClaim(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a := w.start("a", "")
		settle()
		r := a.rogue(identity(t, 152))
		alice := a.login(identity(t, 1))
		for i := range 40 {
			if r.isGone() {
				assert.Greater(t, i, 2)
				return
			}
			bob := identity(t, byte(100+i))
			alice.text(bob, "one")
			alice.text(bob, "two")
			synctest.Wait() // both wait for where he is
			for range 2 {   // it is asked once more
				r.gets(frame.TypeWhere)
				r.say(frame.TypeAt, (&frame.At{Client: bob.Public()}).Append(nil))
				r.asked()
				r.queryResponse(bob.Public(), true, r.id.Public())
				for range 2 {
					f := r.gets(frame.TypeData)
					r.receipt(&f, frame.ReceiptRefused, frame.CodeNotHere)
				}
				if r.isGone() {
					break
				}
			}
			assert.Equal(t, []string{"one:2", "two:2"}, alice.hears(10*time.Second))
			assert.Equal(t, []string{"one", "two"}, a.login(bob).hears(time.Second))
			alice.hears(0)
		}
		assert.Fail(t, "it lies on and on")
	})
}

// What stale caches send round in circles stops.
func TestLoop(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, b := w.start("a", "b"), w.start("b", "")
		settle()
		bob := identity(t, 2)
		alice := a.login(identity(t, 1))
		until := time.Now().Add(time.Hour)
		for _, x := range [][2]*node{{a, b}, {b, a}} { // each believes the other has him
			x[0].mesh.mu.Lock()
			x[0].mesh.places.put(bob.Public(), place{relay: x[1].id.Public()}, until)
			x[0].mesh.mu.Unlock()
		}
		alice.text(bob, "one")
		assert.Equal(t, []string{"one:2"}, alice.hears(time.Minute))
		st := b.srv.Stats()
		assert.LessOrEqual(t, st.Refused, uint64(2), "it came there twice at most")
		assert.Equal(t, 1, a.stored())
		w.balanced()
	})
}

// Frames that a relay must not forward.
func TestForgedFrames(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a := w.start("a", "")
		settle()
		r := a.rogue(identity(t, 152))
		alice, bob := a.attach(identity(t, 1)), a.attach(identity(t, 2))
		far := identity(t, 3)
		r.data(alice.id, bob.id, "forged") // she is here
		lr, err := frame.DecodeLinkReceipt(r.gets(frame.TypeReceipt).Payload)
		require.NoError(t, err)
		assert.Equal(t, frame.CodeSpoofedSender, lr.Code)
		assert.Empty(t, bob.hears(time.Second))
		r.data(far, bob.id, "one")
		r.data(far, bob.id, "one") // round a loop
		assert.Equal(t, []string{"one"}, bob.hears(time.Second))
		for _, status := range []frame.ReceiptStatus{frame.ReceiptHandedOver, frame.ReceiptHandedOver, frame.ReceiptAcknowledged} {
			lr, err := frame.DecodeLinkReceipt(r.gets(frame.TypeReceipt).Payload)
			require.NoError(t, err)
			assert.Equal(t, far.Public(), crypto.PublicKey(lr.Sender))
			assert.Equal(t, status, lr.Status)
		}
		key := bob.id.Public()
		r.write(&frame.Brep{Type: frame.TypeData, ID: textID("hops"), Flags: frame.FlagHops, Sender: far.Public(), Payload: append(key[:], "hops"...)})
		r.data(far, identity(t, 4), "nobody")
		for _, code := range []frame.Code{frame.CodeHopLimit, frame.CodeNotHere} {
			lr, err := frame.DecodeLinkReceipt(r.gets(frame.TypeReceipt).Payload)
			require.NoError(t, err)
			assert.Equal(t, code, lr.Code)
		}
		assert.Empty(t, bob.hears(time.Second))
		assert.Zero(t, a.stored())

		// Whoever is blocked here is blocked from there.
		bob.send(frame.TypeRequest, [16]byte{}, 0, []byte(`{"t":"block","req":2,"key":"`+far.String()+`"}`))
		require.Contains(t, bob.response(), `"ok":true`)
		r.data(far, bob.id, "blocked")
		lr, err = frame.DecodeLinkReceipt(r.gets(frame.TypeReceipt).Payload)
		require.NoError(t, err)
		assert.Equal(t, frame.CodeDenied, lr.Code)
		w.balanced()
	})
}

// Who sends rubbish loses the link, and is not let in for a while.
func TestMalformed(t *testing.T) {
	for _, typ := range []frame.Type{
		frame.TypeNodeInfo, frame.TypeHere, frame.TypeWhere, frame.TypeAt, frame.TypeMail, frame.TypeFetch,
		frame.TypeEntry, frame.TypeDone, frame.TypeReceipt, frame.TypeData, frame.TypeSealed, frame.TypePing,
	} {
		bubble(t, func(t *testing.T, w *world) {
			a := w.start("a", "")
			settle()
			r := a.rogue(identity(t, 152))
			r.say(typ, []byte{3, 255, 255})
			assert.False(t, r.isGone(), "%#x", typ)
			for range 5 {
				r.say(typ, []byte{3, 255, 255})
			}
			time.Sleep(2 * time.Second)
			assert.True(t, r.isGone(), "%#x", typ)
			assert.False(t, a.mesh.Admits(r.id.Public()))
			time.Sleep(banFor)
			assert.True(t, a.mesh.Admits(r.id.Public()))
		})
	}
	bubble(t, func(t *testing.T, w *world) {
		a := w.start("a", "")
		settle()
		r := a.rogue(identity(t, 152))
		r.say(0x7f, nil) // unknown types are ignored
		r.say(frame.TypeGoAway, nil)
		assert.False(t, r.isGone())
		r.say(frame.TypeHandshake, make([]byte, 32))
		assert.True(t, r.isGone())
	})
}

// A flood of questions costs the link; false statements do.
func TestFlood(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a := w.start("a", "")
		settle()
		r := a.rogue(identity(t, 152))
		key := identity(t, 2).Public()
		go func() {
			for range controlBurst + 100 {
				r.say(frame.TypeWhere, key[:])
			}
		}()
		time.Sleep(time.Minute)
		assert.True(t, r.isGone())
		s := a.rogue(identity(t, 151))
		h := frame.Here{Attachment: forged(identity(t, 2), s.id, time.Now())}
		for range 5 {
			s.say(frame.TypeHere, h.Append(nil))
		}
		assert.True(t, s.isGone())
	})
}

// A statement counts on the link of the relay that it names, and while it lasts.
func TestHere(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a := w.start("a", "")
		settle()
		r, s := a.rogue(identity(t, 151)), a.rogue(identity(t, 152))
		bob := identity(t, 2)
		places := func() (n int) {
			key := bob.Public()
			s.say(frame.TypeWhere, key[:])
			at, err := frame.DecodeAt(s.gets(frame.TypeAt).Payload)
			require.NoError(t, err)
			return len(at.Places)
		}
		assert.Zero(t, places())
		h := frame.Here{Attachment: crypto.Attach(bob, s.id.Public(), time.Now().Add(time.Hour))}
		r.say(frame.TypeHere, h.Append(nil)) // for another
		time.Sleep(time.Second)
		assert.Zero(t, places())
		r.here(bob)
		assert.Equal(t, 1, places())
		s.here(bob)
		assert.Equal(t, 2, places())
		gone := frame.Here{Attachment: crypto.Attach(bob, s.id.Public(), time.Now().Add(time.Hour)), Gone: true}
		s.say(frame.TypeHere, gone.Append(nil))
		time.Sleep(time.Second)
		assert.Equal(t, 1, places())
		time.Sleep(time.Hour)
		assert.Zero(t, places())
		time.Sleep(time.Minute)
		synctest.Wait()
		a.mesh.mu.Lock()
		assert.Empty(t, a.mesh.owned)
		assert.Zero(t, a.mesh.ownings)
		a.mesh.mu.Unlock()
	})
}

// What a client attaches with.
func TestAttach(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a := w.start("a", "")
		settle()
		bob := a.login(identity(t, 2))
		now, k := time.Now(), a.id.Public()
		for _, c := range []struct {
			statement [crypto.AttachmentSize]byte
			code      string
		}{
			{crypto.Attach(identity(t, 3), k, now.Add(time.Hour)), "denied"},
			{crypto.Attach(bob.id, identity(t, 3).Public(), now.Add(time.Hour)), "denied"},
			{crypto.Attach(bob.id, k, now), "expired"},
			{crypto.Attach(bob.id, k, now.Add(attachMost+clockSkew+time.Second)), "expired"},
			{forged(bob.id, identity(t, 3), now), "bad-signature"},
			{[crypto.AttachmentSize]byte(bytes.Repeat([]byte{255}, crypto.AttachmentSize)), "malformed"},
		} {
			bob.say(c.statement)
			assert.Contains(t, bob.response(), `"`+c.code+`"`)
		}
		for _, stmt := range []string{`"stmt":""`, `"stmt":7`, `"x":1`, `"stmt":"!"`} {
			bob.send(frame.TypeRequest, [16]byte{}, 0, []byte(`{"t":"attach","req":3,`+stmt+`}`))
			assert.Contains(t, bob.response(), `"malformed"`)
		}
		assert.Empty(t, a.mesh.here)
		bob.say(crypto.Attach(bob.id, k, now.Add(attachMost+9*time.Minute))) // its clock is ahead
		assert.Contains(t, bob.response(), `"ok":true`)
		bob.say(crypto.Attach(bob.id, k, now.Add(time.Minute))) // the one that ends last counts
		assert.Contains(t, bob.response(), `"ok":true`)
		assert.Equal(t, now.Add(attachMost+9*time.Minute).UnixMilli(), a.mesh.here[bob.id.Public()].notAfter.UnixMilli())
		bob.close()
		synctest.Wait()
		a.mesh.mu.Lock()
		assert.Empty(t, a.mesh.here)
		a.mesh.mu.Unlock()
	})
}

// A client at two relays can write from each, and does not set them against each other.
func TestSenderAtTwo(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, b := w.start("a", "b"), w.start("b", "")
		settle()
		alice, id := identity(t, 1), identity(t, 2)
		here, there, bob := a.attach(alice), b.attach(alice), b.attach(id)
		var want []string
		for i := range 40 {
			from, text := here, string(rune('A'+i))
			if i%2 == 1 {
				from = there
			}
			from.text(id, text)
			want = append(want, text)
			time.Sleep(5 * time.Second)
		}
		assert.ElementsMatch(t, want, bob.hears(time.Minute))
		assert.Equal(t, "b", a.linkedWith())
		w.balanced()
	})
}

// A relay that takes sealed messages only takes nothing else from others.
func TestSealedOnly(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a := w.start("a", "", func(c *Config) { c.SealedOnly = true })
		settle()
		bob, far := a.attach(identity(t, 2)), identity(t, 3)
		r := a.rogue(identity(t, 151))
		r.data(far, bob.id, "in the clear")
		lr, err := frame.DecodeLinkReceipt(r.gets(frame.TypeReceipt).Payload)
		require.NoError(t, err)
		assert.Equal(t, frame.CodeDenied, lr.Code)
		key := bob.id.Public()
		r.write(&frame.Brep{Type: frame.TypeEncryptedData, ID: textID("e"), Sender: far.Public(), Payload: append(key[:], "sealed"...)})
		f := bob.next()
		assert.Equal(t, frame.TypeEncryptedData, f.Type)
	})
}

// Nobody can have a message taken for one that was there, by its id.
func TestSameID(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a := w.start("a", "")
		settle()
		bob, far := a.attach(identity(t, 2)), identity(t, 3)
		r, s := a.rogue(identity(t, 151)), a.rogue(identity(t, 152))
		key := bob.id.Public()
		f := frame.Brep{Type: frame.TypeData, ID: textID("x"), Sender: far.Public(), Payload: append(key[:], "false"...)}
		r.write(&f)
		f.Payload = append(key[:], "true"...)
		synctest.Wait()
		s.write(&f)
		assert.Equal(t, []string{"false", "true"}, bob.hears(time.Second))
		s.say(frame.TypeMail, key[:])
		s.gets(frame.TypeFetch)
		f.Payload = append(key[:], "from an inbox"...)
		s.say(frame.TypeEntry, (&frame.Entry{Number: 1, Frame: f.Append(nil)}).Append(nil))
		assert.Equal(t, []string{"from an inbox"}, bob.hears(time.Second))
	})
}

// Our own clients cannot make us a flood to others: what they send to anybody is
// stored, when it is too much to ask for.
func TestAsks(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a := w.start("a", "")
		settle()
		r := a.rogue(identity(t, 151))
		a.mesh.mu.Lock()
		a.mesh.asks = 2
		a.mesh.mu.Unlock()
		alice := a.attach(identity(t, 1))
		for i := range 5 {
			alice.text(identity(t, byte(10+i)), string(rune('a'+i)))
		}
		time.Sleep(100 * time.Millisecond)
		synctest.Wait()
		wheres := 0
		for len(r.in) > 0 {
			if f := <-r.in; f.Type == frame.TypeWhere {
				wheres++
			}
		}
		assert.LessOrEqual(t, wheres, 2)
		assert.GreaterOrEqual(t, a.stored(), 3)
		for range 5 { // and the owners hear of all mail in the end
			r.gets(frame.TypeMail)
		}
		time.Sleep(2 * time.Second)
		alice.text(identity(t, 100), "z")
		r.gets(frame.TypeWhere)
	})
}
