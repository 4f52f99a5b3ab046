package brep

import (
	"bytes"
	"crypto/ed25519"
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sotto-relay/sotto/frame"
	"github.com/sotto-relay/sotto/inbox"
	"github.com/sotto-relay/sotto/transport"
)

// A thirdParty is a MERK-BREP client that was written from the format alone: it
// knows bytes, and nothing of this module.
type thirdParty struct {
	t    *testing.T
	conn transport.Conn
	key  ed25519.PrivateKey
}

func (c *thirdParty) public() []byte { return c.key.Public().(ed25519.PublicKey) }

func (c *thirdParty) pack(typ byte, signature, payload []byte) []byte {
	b := make([]byte, 120, 120+len(payload))
	b[0], b[1], b[2] = 0x58, 1, typ
	binary.BigEndian.PutUint32(b[4:], uint32(len(payload)))
	copy(b[24:], c.public())
	copy(b[56:], signature)
	return append(b, payload...)
}

func (c *thirdParty) write(b []byte) {
	c.t.Helper()
	_, err := c.conn.Write(transport.Binary, [][]byte{b})
	require.NoError(c.t, err)
}

func (c *thirdParty) read() []byte {
	c.t.Helper()
	kind, b, err := c.conn.Read()
	require.NoError(c.t, err)
	require.Equal(c.t, transport.Binary, kind)
	return bytes.Clone(b)
}

func (c *thirdParty) login() {
	c.t.Helper()
	challenge := c.read()
	require.Len(c.t, challenge, 120+32)
	require.Equal(c.t, []byte{0x58, 1, 1, 0, 0, 0, 0, 32}, challenge[:8])
	require.Equal(c.t, make([]byte, 64), challenge[56:120])
	c.write(c.pack(1, ed25519.Sign(c.key, challenge[120:]), challenge[120:]))
	confirmation := c.read()
	require.Equal(c.t, []byte{0x58, 1, 1, 0, 0, 0, 0, 1}, confirmation[:8])
	require.Equal(c.t, make([]byte, 16), confirmation[8:24])
	require.Equal(c.t, challenge[24:56], confirmation[24:56], "the relay's key")
	require.Equal(c.t, append(make([]byte, 64), 1), confirmation[56:])
}

func TestThirdPartyClients(t *testing.T) {
	bubble(t, func(r *rig) { r.server.Inbox = inbox.NewMemory(nil) }, func(t *testing.T, r *rig) {
		client := func(seed byte) *thirdParty {
			key := ed25519.NewKeyFromSeed(bytes.Repeat([]byte{seed}, 32))
			return &thirdParty{t, r.dial(), key}
		}
		alice, bob := client(1), client(2)
		alice.login()

		// To somebody who is away: it is the first thing after the login, in order.
		var sent [][]byte
		for _, typ := range []byte{2, 4, 5, 2} {
			f := alice.pack(typ, bytes.Repeat([]byte{typ}, 64), append(bytes.Clone(bob.public()), byte(len(sent)), 9, 8))
			sent = append(sent, f)
			alice.write(f)
		}
		bob.login()
		for _, want := range sent {
			require.Equal(t, want, bob.read())
		}

		// Live, with bytes that version 1 reserves.
		f := alice.pack(2, nil, append(bytes.Clone(bob.public()), "hello"...))
		f[3] = 0xff
		copy(f[8:24], bytes.Repeat([]byte{0xaa}, 16))
		alice.write(f)
		require.Equal(t, f, bob.read())

		// Larger than what may be sent before the login.
		f = bob.pack(5, nil, append(bytes.Clone(alice.public()), make([]byte, 200_000)...))
		bob.write(f)
		require.Equal(t, f, alice.read())

		// With a client of an extended session, both ways.
		carol := r.login(identity(t, 3), formExtended)
		key := carol.id.Public()
		alice.write(alice.pack(2, nil, append(key[:], "from afar"...)))
		require.Equal(t, "from afar", carol.text())
		carol.send(withID(carol.frame(frame.TypeData, alice.public(), []byte("back")), 1, frame.FlagReceipt))
		got := alice.read()
		require.Equal(t, make([]byte, 16), got[8:24])
		require.Zero(t, got[3])
		require.Equal(t, key[:], got[24:56])
		require.Equal(t, "back", string(got[152:]))
		require.Equal(t, frame.ReceiptHandedOver, carol.receipt(1).Status)

		// A second device takes over.
		second := client(1)
		second.login()
		require.EqualValues(t, transport.ClosePolicy, closeOf(t, alice.conn))
		bob.write(bob.pack(2, nil, second.public()))
		require.Equal(t, bob.pack(2, nil, second.public()), second.read())
	})
}
