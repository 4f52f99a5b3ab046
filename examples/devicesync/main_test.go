package main

import (
	"bytes"
	"log/slog"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/sotto-relay/sotto/frame"
	"github.com/sotto-relay/sotto/relay"
	"github.com/sotto-relay/sotto/relay/dialect/blind"
	"github.com/sotto-relay/sotto/transport/ws"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const story = `laptop and phone have written at the same time, and both have 100 entries
the tablet came later, was let in by the laptop, and has them too
all three wrote while the key was rotated twice and the phone lost its connection, and all have 400 entries
`

func TestRun(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, run(t.Context(), &out, ""))
	assert.Equal(t, story+"the relay saw 4 opaque keys, sizes, and frames of the kinds awareness, pairing, snapshot, update, wrap-bootstrap\n", out.String())
}

func TestRunOverWebSocket(t *testing.T) {
	srv := &relay.Server{Logger: slog.New(slog.DiscardHandler)}
	defer srv.Close()
	web := httptest.NewServer(ws.Handler(srv.Speak(blind.Dialect{}), nil))
	defer web.Close()
	var out bytes.Buffer
	require.NoError(t, run(t.Context(), &out, strings.Replace(web.URL, "http", "ws", 1)))
	assert.Equal(t, story, out.String())
}

// TestKeyring: only what a known device has sealed with a key that we have opens.
func TestKeyring(t *testing.T) {
	ann, bob, s, invitation := newKeyring(), newKeyring(), newSecret(1), newSecret(0)
	for _, k := range []*keyring{ann, bob} {
		k.add(s)
	}
	seal := func(k *keyring, key string, change func(*frame.BlindFrame)) *frame.BlindFrame {
		h := frame.BlindHeader{Kind: frame.BlindUpdate, EntityID: key, Sender: k.name(), Seq: 1, Nonce: k.Nonce(), TS: 1}
		encoded := h.Append(nil)
		signature, ciphertext, err := k.Seal(&h, encoded, []byte("text"))
		require.NoError(t, err)
		f := &frame.BlindFrame{Header: h, Encoded: encoded, Signature: signature, Ciphertext: ciphertext}
		if change != nil {
			change(f)
		}
		return f
	}
	_, err := bob.Open(seal(ann, s.Key, nil))
	assert.Equal(t, errStranger, err)
	bob.admit(ann.name(), "no key")
	data, err := bob.Open(seal(ann, s.Key, nil))
	require.NoError(t, err)
	assert.Equal(t, "text", string(data))
	for _, change := range []func(*frame.BlindFrame){
		func(f *frame.BlindFrame) { f.Encoded[10]++ },
		func(f *frame.BlindFrame) { f.Signature[0]++ },
		func(f *frame.BlindFrame) { f.Ciphertext[0]++ },
		func(f *frame.BlindFrame) { f.Header.Sender = "no key" },
	} {
		_, err = bob.Open(seal(ann, s.Key, change))
		assert.Equal(t, errForged, err)
	}
	_, err = bob.Open(seal(ann, s.Key, func(f *frame.BlindFrame) { f.Header.Nonce = "short" }))
	assert.Equal(t, errForged, err)
	_, _, err = bob.Seal(&frame.BlindHeader{EntityID: invitation.Key}, nil, nil)
	assert.Equal(t, errSealed, err)

	cat := newKeyring()
	cat.invite(invitation)
	bob.invite(invitation)
	data, err = bob.Open(seal(cat, invitation.Key, nil))
	require.NoError(t, err)
	assert.Equal(t, "text", string(data))
}
