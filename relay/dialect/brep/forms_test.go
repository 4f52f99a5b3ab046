package brep

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sotto-relay/sotto/frame"
	"github.com/sotto-relay/sotto/inbox"
	"github.com/sotto-relay/sotto/relay"
	"github.com/sotto-relay/sotto/transport"
)

var formNames = []string{formLegacy: "legacy", formExtended: "extended"}

// TestByteForByte sends every type between every two forms, live and through the
// inbox.
func TestByteForByte(t *testing.T) {
	types := []frame.Type{frame.TypeData, frame.TypeSignedData, frame.TypeEncryptedData, frame.TypeSealed}
	for from, fromName := range formNames {
		for to, toName := range formNames {
			for _, typ := range types {
				for _, stored := range []bool{false, true} {
					if typ == frame.TypeSealed && (from == int(formLegacy) || to == int(formLegacy)) {
						continue // TestSealedStaysInTheInbox
					}
					name := fmt.Sprintf("%s to %s/%v/stored %v", fromName, toName, typ, stored)
					t.Run(name, func(t *testing.T) { testByteForByte(t, uint8(from), uint8(to), typ, stored) })
				}
			}
		}
	}
}

func testByteForByte(t *testing.T, from, to uint8, typ frame.Type, stored bool) {
	bubble(t, func(r *rig) { r.server.Inbox = inbox.NewMemory(nil) }, func(t *testing.T, r *rig) {
		alice, bob := r.login(identity(t, 1), from), identity(t, 2)
		var b *peer
		if !stored {
			b = r.login(bob, to)
		}
		key := bob.Public()
		content := make([]byte, sealedMinSize)
		for i := range content {
			content[i] = byte(i)
		}
		// Bit 0 is left out, since a receipt is no matter here; 0xe4 has 14 hops and
		// retain, and a legacy sender's bits mean nothing.
		sent := withID(alice.frame(typ, key[:], content), 7, 0xe4)
		sent.Signature = [64]byte{0: 1, 63: 2}
		alice.put(transport.Binary, sent.Append(nil))
		if stored {
			alice.send(alice.frame(frame.TypeNodeInfo, []byte{byte(frame.NodeInfoRequestServers)}))
			alice.next() // so the first one has been taken
			b = r.login(bob, to)
		}
		got := b.next()

		want := *sent
		switch {
		case from == formLegacy && to == formExtended:
			require.NotZero(t, got.ID, "a legacy message gets an id at the entrance")
			require.NotEqual(t, sent.ID, got.ID, "which is not what its sender wrote there")
			want.Flags, want.ID = 0, got.ID
		case from == formExtended && to == formLegacy:
			want.Flags, want.ID = 0, [16]byte{}
		}
		require.Equal(t, want.Append(nil), got.Append(nil))
	})
}

// TestRenderAgain renders what came back from a session in that session's form.
func TestRenderAgain(t *testing.T) {
	id := relay.ID{1, 2, 3}
	for _, c := range []struct {
		name               string
		from, via, to      uint8
		flags, wantFlags   uint8
		id, wantID         relay.ID
		headFlags          uint8
		headID             relay.ID
		wantUnchangedBytes bool
	}{
		{name: "extended, via legacy, to extended", from: formExtended, via: formLegacy, to: formExtended,
			flags: 0x15, id: id, headFlags: 0x15, headID: id, wantFlags: 0x15, wantID: id},
		{name: "extended, via extended, to legacy", from: formExtended, via: formExtended, to: formLegacy,
			flags: 0x15, id: id, headFlags: 0x15, headID: id},
		{name: "legacy, via extended, to legacy", from: formLegacy, via: formExtended, to: formLegacy, id: id},
		{name: "legacy, via extended, to extended", from: formLegacy, via: formExtended, to: formExtended,
			id: id, wantID: id},
		{name: "legacy, via legacy, to extended", from: formLegacy, via: formLegacy, to: formExtended,
			id: id, wantID: id},
		{name: "legacy with reserved bytes, via legacy, to legacy", from: formLegacy, via: formLegacy, to: formLegacy,
			id: id, headFlags: 9, headID: relay.ID{9}, wantFlags: 9, wantID: relay.ID{9}},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := frame.Brep{Type: frame.TypeData, Flags: c.headFlags, ID: c.headID, Payload: make([]byte, 40)}
			m := relay.Message{ID: c.id, Flags: c.flags, Form: c.from, Data: f.Append(nil)}
			_, data, err := Dialect{}.Render([]byte("before"), c.via, &m)
			require.NoError(t, err)
			require.Equal(t, "before", string(data[:6]))
			m.Form, m.Data = c.via, data[6:]
			_, data, err = Dialect{}.Render(nil, c.to, &m)
			require.NoError(t, err)
			want := f
			want.Flags, want.ID = c.wantFlags, c.wantID
			require.Equal(t, want.Append(nil), data)
		})
	}
}

func TestRenderUnfit(t *testing.T) {
	sealed := frame.Brep{Type: frame.TypeSealed, Payload: make([]byte, sealedMinSize)}
	data := frame.Brep{Type: frame.TypeData}
	for _, c := range []struct {
		name string
		form uint8
		data []byte
	}{
		{"SEALED for legacy", formLegacy, sealed.Append(nil)},
		{"damaged, for legacy", formLegacy, data.Append(nil)[:frame.BrepHeaderSize-1]},
		{"damaged, for extended", formExtended, data.Append(nil)[:frame.BrepHeaderSize-1]},
		{"nothing", formLegacy, nil},
	} {
		_, buf, err := Dialect{}.Render([]byte("kept"), c.form, &relay.Message{Form: formExtended, Data: c.data})
		require.ErrorIs(t, err, relay.ErrUnfit, c.name)
		require.Equal(t, "kept", string(buf), c.name)
	}
}

// TestSealedStaysInTheInbox: for a legacy session, until an extended one comes;
// what came after it is not held up.
func TestSealedStaysInTheInbox(t *testing.T) {
	bubble(t, func(r *rig) { r.server.Inbox = inbox.NewMemory(nil) }, func(t *testing.T, r *rig) {
		alice, bob := r.login(identity(t, 1), formExtended), identity(t, 2)
		b := r.login(bob, formLegacy)
		key := bob.Public()
		sealed := alice.frame(frame.TypeSealed, key[:], make([]byte, sealedMinSize))
		alice.send(withID(sealed, 1, frame.FlagReceipt))
		require.Equal(t, frame.ReceiptStored, alice.receipt(1).Status)
		alice.data(bob, "after")
		require.Equal(t, "after", b.text())

		b = r.login(bob, formExtended)
		require.Equal(t, withID(sealed, 1, frame.FlagReceipt).Append(nil), ptr(b.next()).Append(nil))
	})
}

func ptr[T any](v T) *T { return &v }
