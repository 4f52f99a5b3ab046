package brep

import (
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/sotto-relay/sotto/frame"
)

// TestSealedOnly: what a relay could read is refused, and the session goes on.
func TestSealedOnly(t *testing.T) {
	bubble(t, func(r *rig) { r.SealedOnly = true }, func(t *testing.T, r *rig) {
		bob := r.login(identity(t, 9), formExtended)
		key := bob.id.Public()
		for n, form := range []uint8{formExtended, formLegacy} {
			p := r.login(identity(t, byte(n+1)), form)
			for _, typ := range []frame.Type{frame.TypeData, frame.TypeSignedData} {
				p.send(withID(p.frame(typ, key[:], []byte("open")), 1, frame.FlagReceipt))
				if form == formExtended {
					require.Equal(t, frame.CodeDenied, p.receipt(1).Code)
				}
			}
			p.send(p.frame(frame.TypeEncryptedData, key[:], []byte("closed")))
			require.Equal(t, "closed", string(bob.next().Payload[recipientSize:]))
		}
		synctest.Wait()
		require.EqualValues(t, 4, r.server.Stats().Ignored["brep: in the clear"])
	})
}
