package brep

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sotto-relay/sotto/frame"
	"github.com/sotto-relay/sotto/internal/vectors"
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
	type vector struct {
		ChallengeFrame string `json:"challenge_frame"`
		ResponseFrame  string `json:"response_frame"`
		ConfirmFrame   string `json:"confirm_frame"`
	}
	for _, v := range vectors.Cases[vector](f, "handshake_v2.json") {
		for _, s := range []string{v.ChallengeFrame, v.ResponseFrame, v.ConfirmFrame} {
			f.Add(uint8(transport.Binary), vectors.Unhex(f, s))
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

// nativeSeeds are frames of extended sessions that do something.
func nativeSeeds(p *peer) (seeds [][]byte) {
	add := func(f *frame.Brep) { seeds = append(seeds, f.Append(nil)) }
	for _, q := range []string{
		`{"t":"join_room","room":"n","req":1}`, `{"t":"leave_room","room":"n","req":1}`,
		`{"t":"subscribe","topic":"n/#","req":1}`, `{"t":"unsubscribe","topic":"n/#","req":1}`,
		`{"t":"find_match","game":"n","req":1}`, `{"t":"cancel_match","game":"n","req":1}`,
		`{"t":"capabilities","req":1}`, `{"t":"auth","token":"","req":1}`, `{"t":"erase","req":1}`,
		`{"t":"put_card","card":"AQ==","req":1}`, get(p.id.Public()), verbOf("block", p), verbOf("unblock", p),
	} {
		add(p.frame(frame.TypeRequest, []byte(q)))
	}
	for _, typ := range []frame.Type{frame.TypePublish, frame.TypeRoomSend} {
		add(p.post(typ, 1, frame.FlagReceipt|frame.FlagRetain, "n", "content"))
		add(p.post(typ, 0, 0xf0, "n", ""))
		add(p.signed(typ, 1, 0, []byte{0, 2, 'n'}))
	}
	add(p.frame(frame.TypeAck, make([]byte, 2*frame.AckSize)))
	return seeds
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
		for _, msg := range nativeSeeds(p) {
			f.Add(uint8(transport.Binary), msg, true)
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
	var ids uint64
	f.Fuzz(func(t *testing.T, kind uint8, msg []byte, mend bool) {
		for form, s := range senders {
			b := bytes.Clone(msg)
			if mend && len(b) >= frame.BrepHeaderSize { // or few would get past the checks
				copy(b[24:56], s.key[:])
				if id := b[frame.BrepIDOffset:24]; !bytes.Equal(id, make([]byte, 16)) { // or it would be a repeat
					ids++
					binary.BigEndian.PutUint64(id, ids)
				}
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
			atLimit := form == int(formExtended) && sent.Flags&frame.FlagHops == frame.FlagHops
			if !forwarded || atLimit || !bytes.HasPrefix(sent.Payload, key[:]) {
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
