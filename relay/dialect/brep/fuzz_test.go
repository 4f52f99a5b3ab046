package brep

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sotto-relay/sotto/frame"
	"github.com/sotto-relay/sotto/relay"
	"github.com/sotto-relay/sotto/transport"
)

// FuzzBeforeLogin: nobody gets in with bytes that were not signed for this
// connection, and every refusal is one that the peer may see.
func FuzzBeforeLogin(f *testing.F) {
	r := newRig(f, func(r *rig) { r.server.Limits = relay.MaxLimits() })
	for _, b := range layoutBreaches(f, true) {
		f.Add(uint8(b.kind), b.msg)
	}
	var vectors []struct {
		ChallengeFrame string `json:"challenge_frame"`
		ResponseFrame  string `json:"response_frame"`
		ConfirmFrame   string `json:"confirm_frame"`
	}
	readVectors(f, "handshake_v2.json", &vectors)
	for _, v := range vectors {
		for _, s := range []string{v.ChallengeFrame, v.ResponseFrame, v.ConfirmFrame} {
			f.Add(uint8(transport.Binary), unhex(f, s))
		}
	}
	f.Fuzz(func(t *testing.T, kind uint8, msg []byte) {
		conn := r.dial()
		defer conn.Close(0, "")
		s := r.take()
		before := bytes.Clone(msg)
		err := s.Receive(t.Context(), transport.Kind(kind), msg)
		requireRefusal(t, err)
		require.Equal(t, before, msg)
		require.NotNil(t, s.acceptor)
		require.Zero(t, s.port.Address())
	})
}

func requireRefusal(t *testing.T, err error) {
	t.Helper()
	require.Error(t, err)
	r := relay.AsRefusal(err)
	require.NotEqual(t, relay.CodeInternal, r.Code, "%v", err)
	require.NotEqual(t, relay.CodeNone, r.Code, "%v", err)
	require.LessOrEqual(t, len(r.Sentence()), 123)
}

// FuzzAfterLogin: what a peer sends comes to the recipient byte for byte, or to
// nobody, and a frame that is refused changes nothing.
func FuzzAfterLogin(f *testing.F) {
	r := newRig(f, func(r *rig) { r.server.Limits = relay.MaxLimits() })
	bob := r.login(identity(f, 2), formExtended)
	senders := []*session{}
	for form := range formNames {
		p := r.login(identity(f, 1+byte(10*form)), uint8(form))
		senders = append(senders, r.session(len(r.sessions)-1))
		f.Cleanup(func() { _ = p.Close() })
		for _, b := range sessionBreaches(f, uint8(form), p.id, bob.id) {
			f.Add(uint8(b.kind), b.msg, true)
		}
		// The fuzzed sessions' replies are read by nobody but this.
		go func() {
			for {
				if _, err := p.Receive(); err != nil {
					return
				}
			}
		}()
	}
	key := bob.id.Public()
	f.Fuzz(func(t *testing.T, kind uint8, msg []byte, mend bool) {
		for form, s := range senders {
			b := bytes.Clone(msg)
			if mend && len(b) >= frame.BrepHeaderSize { // or few would get past the checks
				copy(b[24:56], s.key[:])
				if len(b) >= frame.BrepHeaderSize+recipientSize {
					copy(b[frame.BrepHeaderSize:], key[:])
				}
			}
			before := bytes.Clone(b)
			err := s.Receive(t.Context(), transport.Kind(kind), b)
			require.Equal(t, before, b)
			require.Zero(t, s.msg, "nothing of the input is kept")
			if err != nil {
				requireRefusal(t, err)
				continue
			}
			sent, err := frame.DecodeBrep(b)
			require.NoError(t, err)
			forwarded := sent.Type == frame.TypeData || sent.Type == frame.TypeSignedData ||
				sent.Type == frame.TypeEncryptedData || sent.Type == frame.TypeSealed
			if !forwarded || !bytes.HasPrefix(sent.Payload, key[:]) {
				continue
			}
			got, err := bob.Receive()
			require.NoError(t, err)
			if form == int(formLegacy) {
				sent.Flags, sent.ID = 0, got.ID
			}
			require.Equal(t, sent, got)
		}
		// And nothing else came.
		mark := &frame.Brep{Type: frame.TypeData, Sender: senders[0].key, Payload: append(key[:], "mark"...)}
		require.NoError(t, senders[0].Receive(t.Context(), 0, mark.Append(nil)))
		got, err := bob.Receive()
		require.NoError(t, err)
		require.Equal(t, mark.Payload, got.Payload)
	})
}
