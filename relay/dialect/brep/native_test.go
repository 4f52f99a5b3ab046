package brep

import (
	"bytes"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sotto-relay/sotto/crypto"
	"github.com/sotto-relay/sotto/frame"
	"github.com/sotto-relay/sotto/inbox"
)

func withInbox(r *rig) { r.server.Inbox = inbox.NewMemory(nil) }

// signed returns a frame of this peer's with an id, signed as native.md says.
func (p *peer) signed(typ frame.Type, id byte, flags uint8, payload ...[]byte) *frame.Brep {
	f := withID(p.frame(typ, payload...), id, flags)
	f.Signature = crypto.SignFrame(p.id, uint8(typ), f.ID, f.Payload)
	return f
}

// sealed returns a SEALED frame, which is one only in its layout.
func (p *peer) sealed(to *crypto.Identity, id byte, flags uint8, text string) *frame.Brep {
	s := frame.Sealed{Recipient: to.Public(), Suite: 2, Sealed: append(make([]byte, 32+16), text...)}
	return p.signed(frame.TypeSealed, id, flags, s.Append(nil))
}

// post returns a PUBLISH or ROOM_SEND.
func (p *peer) post(typ frame.Type, id byte, flags uint8, name, content string) *frame.Brep {
	b := frame.Publication{Name: []byte(name), Content: []byte(content)}
	return p.signed(typ, id, flags, b.Append(nil))
}

// took returns the next frame and does not acknowledge it.
func (p *peer) took() frame.Brep {
	p.t.Helper()
	_, msg, err := p.raw.Read()
	require.NoError(p.t, err)
	f, err := frame.DecodeBrep(bytes.Clone(msg))
	require.NoError(p.t, err)
	return f
}

// acks acknowledges frames, with signatures where receipts are wanted.
func (p *peer) acks(frames ...frame.Brep) {
	p.t.Helper()
	var b []byte
	for _, f := range frames {
		a := frame.Ack{Sender: f.Sender, ID: f.ID}
		if f.Flags&frame.FlagReceipt != 0 {
			a.Signature = p.id.Sign(ackMessage(a.Sender, a.ID))
		}
		b = a.Append(b)
	}
	p.send(p.frame(frame.TypeAck, b))
}

// leave closes the connection, after what was sent has been taken, and waits for
// the relay to notice.
func (p *peer) leave() {
	synctest.Wait()
	_ = p.raw.Close(0, "")
	synctest.Wait()
}

// nothing checks that no frame is there, nor on its way.
func (p *peer) nothing() {
	p.t.Helper()
	synctest.Wait()
	require.NoError(p.t, p.raw.SetReadDeadline(time.Now().Add(time.Nanosecond)))
	_, msg, err := p.raw.Read()
	require.Error(p.t, err, "%q", msg)
	require.NoError(p.t, p.raw.SetReadDeadline(time.Time{}))
}

// ask sends a REQUEST and returns the payload of the next frame, a RESPONSE.
func (p *peer) ask(q string) string {
	p.t.Helper()
	p.send(p.frame(frame.TypeRequest, []byte(q)))
	return p.response()
}

func (p *peer) response() string {
	p.t.Helper()
	f := p.took()
	require.Equal(p.t, frame.TypeResponse, f.Type, "%+v", f)
	require.Equal(p.t, [32]byte(identity(p.t, relaySeed).Public()), f.Sender)
	require.Zero(p.t, f.ID)
	require.Zero(p.t, f.Flags)
	return string(f.Payload)
}

// hears checks that the next frames are RECEIPTs for withID(id), with these
// statuses, and nothing else.
func (p *peer) hears(id byte, statuses ...frame.ReceiptStatus) {
	p.t.Helper()
	for _, s := range statuses {
		require.Equal(p.t, s, p.receipt(id).Status)
	}
	p.nothing()
}

// TestV1AndNative: a client of version 1 and a native session, both ways, live and
// through the inbox.
func TestV1AndNative(t *testing.T) {
	bubble(t, withInbox, func(t *testing.T, r *rig) {
		native, v1 := r.login(identity(t, 1), formExtended), r.login(identity(t, 2), formLegacy)
		synctest.Wait() // until they have caught up with their inboxes
		key, err := v1.id.Public().X25519()
		require.NoError(t, err)
		want := crypto.Content{Type: crypto.Text, Data: []byte("to v1")}
		payload, sig, err := crypto.SealEncrypted(native.id, v1.id.Public(), key, want)
		require.NoError(t, err)
		f := withID(native.frame(frame.TypeEncryptedData, payload), 1, frame.FlagReceipt)
		f.Signature = sig
		open := func(got frame.Brep) {
			t.Helper()
			require.Zero(t, got.ID)
			require.Zero(t, got.Flags)
			c, err := crypto.OpenEncrypted(v1.id, got.Sender, &got.Signature, got.Payload)
			require.NoError(t, err)
			require.Equal(t, want, c)
		}
		native.send(f)
		open(v1.next())
		native.hears(1, frame.ReceiptHandedOver)

		v1.data(native.id, "to native")
		got := native.took()
		require.Equal(t, "to native", string(got.Payload[recipientSize:]))
		require.NotZero(t, got.ID, "made by the relay")
		native.acks(got)
		synctest.Wait()
		require.Zero(t, r.server.Stats().Held)

		v1.leave()
		native.send(withID(f, 2, frame.FlagReceipt))
		native.hears(2, frame.ReceiptStored)
		native.send(native.sealed(v1.id, 3, frame.FlagReceipt, "not for v1"))
		native.hears(3, frame.ReceiptStored)
		v1 = r.login(v1.id, formLegacy)
		open(v1.next())
		v1.nothing()
		native.leave()
		v1.data(native.id, "later")
		synctest.Wait()
		require.Equal(t, "later", r.login(native.id, formExtended).text())
	})
}

// TestHops: at 15 a frame goes no further; below, the relay leaves them alone.
func TestHops(t *testing.T) {
	bubble(t, nil, func(t *testing.T, r *rig) {
		alice, bob := r.login(identity(t, 1), formExtended), r.login(identity(t, 2), formExtended)
		for hops := range uint8(16) {
			alice.send(alice.sealed(bob.id, hops+1, hops<<4|frame.FlagReceipt, ""))
			if hops < 15 {
				require.Equal(t, hops<<4|frame.FlagReceipt, bob.took().Flags)
				require.Equal(t, frame.ReceiptHandedOver, alice.receipt(hops+1).Status)
				continue
			}
			got := alice.receipt(hops + 1)
			require.Equal(t, frame.ReceiptRefused, got.Status)
			require.Equal(t, frame.CodeHopLimit, got.Code)
		}
		alice.send(alice.post(frame.TypePublish, 20, 0xf0, "a", ""))
		require.Equal(t, frame.CodeHopLimit, alice.error().Code)
		bob.nothing()
		require.EqualValues(t, 2, r.server.Stats().Ignored["brep: hop limit"])

		legacy := r.login(identity(t, 3), formLegacy) // whose flags mean nothing
		legacy.put(0, withID(legacy.frame(frame.TypeData, bob.frame(0).Sender[:]), 1, 0xff).Append(nil))
		require.Zero(t, bob.next().Flags)
	})
}

// TestSpoofedPublication: the sender of a publication is the session, too.
func TestSpoofedPublication(t *testing.T) {
	for _, typ := range []frame.Type{frame.TypePublish, frame.TypeRoomSend} {
		bubble(t, nil, func(t *testing.T, r *rig) {
			p := r.login(identity(t, 1), formExtended)
			f := p.post(typ, 1, 0, "a", "")
			f.Sender = identity(t, 2).Public()
			p.put(0, f.Append(nil))
			require.Equal(t, frame.CodeSpoofedSender, p.error().Code)
			code, _ := p.closed()
			require.EqualValues(t, 1008, code)
			require.EqualValues(t, 1, r.server.Stats().Ignored["brep: spoofed sender"])
		})
	}
}

// TestNativeIsForExtended: a legacy session has none of the verbs.
func TestNativeIsForExtended(t *testing.T) {
	for _, typ := range []frame.Type{frame.TypeRequest, frame.TypePublish, frame.TypeRoomSend, frame.TypeAck, frame.TypePing} {
		bubble(t, nil, func(t *testing.T, r *rig) {
			p := r.login(identity(t, 1), formLegacy)
			p.put(0, p.frame(typ, []byte(`{"t":"capabilities","req":1}`)).Append(nil))
			code, _ := p.closed()
			require.EqualValues(t, 1002, code)
		})
	}
}

func denied(t testing.TB, code frame.Code, response string) {
	t.Helper()
	require.Contains(t, response, `"ok":false,"code":"`+code.String()+`"`)
}
