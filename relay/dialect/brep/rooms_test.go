package brep

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/sotto-relay/sotto/crypto"
	"github.com/sotto-relay/sotto/frame"
	"github.com/sotto-relay/sotto/relay"
)

// extended returns n extended sessions, with identities from 1 on.
func (r *rig) extended(n int) []*peer {
	r.t.Helper()
	var peers []*peer
	for i := range n {
		peers = append(peers, r.login(identity(r.t, byte(i+1)), formExtended))
	}
	return peers
}

// requirePublished checks what a subscriber or a member gets of a publication: the
// sender's key, id, signature and payload, under the type typ.
func requirePublished(t testing.TB, typ frame.Type, flags uint8, sent *frame.Brep, got frame.Brep) {
	t.Helper()
	want := *sent
	want.Type, want.Flags = typ, flags
	require.Equal(t, want, got)
	require.NoError(t, crypto.VerifyFrame(got.Sender, uint8(sent.Type), got.ID, got.Payload, &got.Signature))
}

func TestRooms(t *testing.T) {
	bubble(t, nil, func(t *testing.T, r *rig) {
		p := r.extended(3)
		alice, bob, carol := p[0], p[1], p[2]
		require.Equal(t, `{"t":"joined_room","room":"r","members":1,"req":1,"ok":true}`, alice.ask(`{"t":"join_room","room":"r","req":1}`))
		require.Equal(t, `{"t":"joined_room","room":"r","members":2,"req":1,"ok":true}`, bob.ask(`{"t":"join_room","room":"r","req":1}`))
		require.Equal(t, `{"t":"joined_room","room":"r","members":2,"req":2,"ok":true}`, bob.ask(`{"t":"join_room","room":"r","req":2}`), "once is enough")
		require.Equal(t, `{"t":"joined_room","room":"r","members":3,"req":1,"ok":true}`, carol.ask(`{"t":"join_room","room":"r","req":1}`))

		// Of the flags only the hops reach the members.
		sent := alice.post(frame.TypeRoomSend, 1, 0x36, "r", "hello")
		alice.send(sent)
		requirePublished(t, frame.TypeRoomMessage, 0x30, sent, bob.took())
		requirePublished(t, frame.TypeRoomMessage, 0x30, sent, carol.took())
		alice.nothing()

		require.Equal(t, `{"t":"left_room","room":"r","req":3,"ok":true}`, carol.ask(`{"t":"leave_room","room":"r","req":3}`))
		require.Equal(t, `{"t":"left_room","room":"r","req":4,"ok":true}`, carol.ask(`{"t":"leave_room","room":"r","req":4}`))
		sent = bob.post(frame.TypeRoomSend, 0, 0, "r", "")
		bob.send(sent)
		requirePublished(t, frame.TypeRoomMessage, 0, sent, alice.took())
		carol.nothing()
		bob.leave()
		alice.send(alice.post(frame.TypeRoomSend, 2, frame.FlagReceipt, "r", "alone"))
		alice.hears(2, handedOver)
	})
}

// TestRoomNames: 1 to 128 bytes without control characters, compared as bytes; a
// realm of their own.
func TestRoomNames(t *testing.T) {
	bubble(t, nil, func(t *testing.T, r *rig) {
		p := r.extended(2)
		alice, bob := p[0], p[1]
		for _, room := range []string{"alice ", "e\u0301", "\U0001F600", strings.Repeat("x", 128)} {
			require.Contains(t, alice.ask(fmt.Sprintf(`{"t":"join_room","room":%q,"req":1}`, room)), `"ok":true`)
			require.Contains(t, bob.ask(fmt.Sprintf(`{"t":"join_room","room":%q,"req":1}`, room)), `"members":2`)
			sent := alice.post(frame.TypeRoomSend, 0, 0, room, "x")
			alice.send(sent)
			requirePublished(t, frame.TypeRoomMessage, 0, sent, bob.took())
		}
		for _, room := range []string{`""`, `"a\u0000"`, `"\n"`, `"` + strings.Repeat("x", 129) + `"`, `1`, `null`, `["a"]`} {
			for _, verb := range []string{"join_room", "leave_room"} {
				denied(t, frame.CodeMalformed, alice.ask(`{"t":"`+verb+`","room":`+room+`,"req":1}`))
			}
		}
		denied(t, frame.CodeMalformed, alice.ask(`{"t":"join_room","req":1}`))
	})
}

// TestRoomRefusals: a ROOM_SEND is answered only when it asks, or with an ERROR.
func TestRoomRefusals(t *testing.T) {
	bubble(t, nil, func(t *testing.T, r *rig) {
		alice := r.login(identity(t, 1), formExtended)
		for _, c := range []struct {
			f    *frame.Brep
			code frame.Code
		}{
			{alice.post(frame.TypeRoomSend, 1, 0, "r", "x"), frame.CodeNotInRoom},
			{alice.post(frame.TypeRoomSend, 1, 0, "", ""), frame.CodeNotInRoom},
			{alice.post(frame.TypeRoomSend, 1, 0, "\xff", ""), frame.CodeNotInRoom},
			{alice.signed(frame.TypeRoomSend, 1, 0, []byte{0, 2, 'r'}), frame.CodeMalformed},
			{alice.signed(frame.TypeRoomSend, 1, 0), frame.CodeMalformed},
		} {
			alice.send(c.f)
			e := alice.error()
			require.Equal(t, c.code, e.Code)
			require.Equal(t, c.f.ID, e.ID)
			c.f.Flags = frame.FlagReceipt
			alice.send(c.f)
			got := alice.receipt(1)
			require.Equal(t, refused, got.Status)
			require.Equal(t, c.code, got.Code)
			c.f.ID = [16]byte{}
			alice.send(c.f)
			e = alice.error()
			require.Equal(t, c.code, e.Code)
			require.Zero(t, e.ID)
		}
	})
}

// TestRoomQuotas: RM-02, and that a connection is in no more rooms than it may.
func TestRoomQuotas(t *testing.T) {
	bubble(t, func(r *rig) {
		r.server.Limits.Dialects = map[string]relay.DialectLimits{"brep": {GroupMembers: 2}}
	}, func(t *testing.T, r *rig) {
		p := r.extended(3)
		for i := range 50 {
			require.Contains(t, p[0].ask(fmt.Sprintf(`{"t":"join_room","room":"r%d","req":1}`, i)), `"ok":true`)
		}
		require.Equal(t, `{"req":1,"ok":false,"code":"quota","msg":"too many rooms"}`, p[0].ask(`{"t":"join_room","room":"one more","req":1}`))
		require.Contains(t, p[1].ask(`{"t":"join_room","room":"r0","req":1}`), `"ok":true`)
		require.Equal(t, `{"req":1,"ok":false,"code":"quota","msg":"room full"}`, p[2].ask(`{"t":"join_room","room":"r0","req":1}`))
	})
	require.Equal(t, 10_000, Dialect{}.Limits().GroupMembers)
}

// TestRepeatedPublications are answered as the first one, and published once.
func TestRepeatedPublications(t *testing.T) {
	for typ, q := range map[frame.Type]string{
		frame.TypeRoomSend: `{"t":"join_room","room":"n","req":1}`,
		frame.TypePublish:  `{"t":"subscribe","topic":"n","req":1}`,
	} {
		bubble(t, nil, func(t *testing.T, r *rig) {
			p := r.extended(2)
			alice, bob := p[0], p[1]
			bob.ask(q)
			if typ == frame.TypeRoomSend {
				alice.ask(q)
			}
			f := alice.post(typ, 1, frame.FlagReceipt, "n", "x")
			for range 3 {
				alice.send(f)
				alice.hears(1, handedOver)
			}
			alice.leave()
			alice = r.login(alice.id, formExtended)
			alice.send(f)
			alice.hears(1, handedOver)
			bob.took()
			bob.nothing()
		})
	}
}

// TestPublicationsAreNotKept: who gets them acknowledges nothing, and they wait for
// nobody.
func TestPublicationsAreNotKept(t *testing.T) {
	bubble(t, withInbox, func(t *testing.T, r *rig) {
		p := r.extended(2)
		alice, bob := p[0], p[1]
		alice.ask(`{"t":"join_room","room":"n","req":1}`)
		bob.ask(`{"t":"join_room","room":"n","req":1}`)
		bob.ask(`{"t":"subscribe","topic":"n","req":1}`)
		alice.send(alice.post(frame.TypeRoomSend, 1, frame.FlagReceipt, "n", "x"))
		alice.send(alice.post(frame.TypePublish, 2, frame.FlagReceipt, "n", "x"))
		require.Equal(t, handedOver, alice.receipt(1).Status)
		alice.hears(2, handedOver)
		bob.leave()
		synctest.Wait()
		require.Zero(t, r.server.Stats().Held)
		r.login(bob.id, formExtended).nothing()
	})
}
