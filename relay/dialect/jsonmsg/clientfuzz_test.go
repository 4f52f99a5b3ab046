package jsonmsg

import (
	"context"
	"encoding/base64"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sotto-relay/sotto/crypto"
	"github.com/sotto-relay/sotto/relay"
	"github.com/sotto-relay/sotto/transport"
	"github.com/sotto-relay/sotto/transport/pipe"
)

// FuzzClientReceive: whatever a relay says, in a registered session or before it: no
// panic, no message of anybody's that is not sealed to us by him, and each `deliver`
// is told of.
func FuzzClientReceive(f *testing.F) {
	bob, err := crypto.NewX25519PrivateKey([]byte(strings.Repeat("b", 32)))
	require.NoError(f, err)
	ann, err := crypto.NewX25519PrivateKey([]byte(strings.Repeat("a", 32)))
	require.NoError(f, err)
	nonce, box, err := crypto.SealBox(bob, ann.Public(), []byte("hi"))
	require.NoError(f, err)
	b64 := base64.StdEncoding.EncodeToString
	good := fmt.Sprintf(`{"t":"deliver","from":"bob","pub":"%s","nonce":"%s","ct":"%s","id":"m1"}`, bob.Public(), b64(nonce[:]), b64(box))
	for _, seed := range []string{
		good,
		fmt.Sprintf(`{"t":"deliver","from":"bob","pub":"%s","ct":""}`, bob.Public()),
		`{"t":"registered","addr":"ann","token":"00","queued":1}`,
		`{"t":"error","msg":"room full","id":"x"}`, `{"t":"error","msg":"x"}`,
		`{"t":"challenge","relay":"","epk":"","nonce":"","box":""}`,
		`{"t":"ack","id":"m1","from":"bob"}`, `{"t":"queued","to":"bob","id":"m1"}`,
		`{"t":"matched","game":"pong","peer":"bob"}`, `{"t":"joined_room","room":"hall","members":2}`,
		`{"t":"message","topic":"a","from":"bob","ct":"x","retained":true}`,
		`{"t":"room_deliver","room":"hall","from":"bob","ct":"x"}`, `{"t":"unsubscribed","topic":"a"}`,
		`{"t":"capabilities","load_tier":"normal"}`, `{"t":"match_cancelled","game":"pong"}`,
	} {
		f.Add([]byte(seed), true, true)
		f.Add([]byte(seed), false, false)
	}
	f.Fuzz(func(t *testing.T, msg []byte, registered, datagrams bool) {
		c, err := newClient(nil, &ClientOptions{Address: "ann", Key: ann})
		require.NoError(t, err)
		near, far := pipe.New()
		defer func() { _ = far.Close(0, "") }()
		l := newClientLink(c, near)
		l.datagrams = datagrams
		l.inTime = func() bool { return true }
		defer func() {
			l.end(nil)
			l.running.Wait()
			_ = near.Close(0, "")
		}()
		if registered {
			require.NoError(t, l.receive([]byte(`{"t":"registered","addr":"ann","token":"01","queued":0}`)))
		}
		before := len(c.in.queue)
		_ = l.receive(msg)

		told := c.in.queue[before:]
		assert.LessOrEqual(t, len(told), 2, "%s", msg)
		isDeliver := l.in.Parse(msg) == nil && l.in.text("t") == "deliver"
		announced := isDeliver && l.in.text("pub") != "" && l.in.text("ct") == ""
		if isDeliver && !announced {
			assert.NotEmpty(t, told, "%s", msg)
		}
		for _, e := range told {
			if m, ok := e.(*Message); ok {
				assert.Equal(t, "hi", string(m.Data))
				assert.Equal(t, bob.Public(), m.Key)
			}
		}
	})
}

// TestClientToldIsBounded: a relay that makes people up does not fill the memory.
func TestClientToldIsBounded(t *testing.T) {
	c, err := newClient(nil, &ClientOptions{Address: "ann"})
	require.NoError(t, err)
	answered := 0
	for i := range 3 * mostTold {
		if c.peers.answers(fmt.Sprint(i)) {
			answered++
		}
	}
	assert.Equal(t, mostTold, answered)
	assert.Len(t, c.peers.told, mostTold)
}

// TestClientAnswerAtTheEnd: an answer that is being taken when the context ends is
// not lost.
func TestClientAnswerAtTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, err := newClient(nil, &ClientOptions{Address: "ann"})
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		k, taking := newCall("find_match", "matched", "game", "pong"), make(chan struct{})
		k.take = func(*incoming) { <-taking }
		ended := make(chan error, 1)
		go func() { ended <- c.call(ctx, k) }()
		synctest.Wait()
		m := new(incoming)
		require.NoError(t, m.Parse([]byte(`{"t":"matched","game":"pong","peer":"bob"}`)))
		go c.answered("matched", m)
		synctest.Wait()
		cancel()
		synctest.Wait()
		close(taking)
		assert.NoError(t, <-ended)
	})
}

// TestReasons: the relay's half says what the client's half names.
func TestReasons(t *testing.T) {
	for reason, err := range map[Reason]error{
		ErrInvalidJSON: errInvalidJSON, ErrUnknownType: errUnknownType, ErrBinary: errBinary,
		ErrNotRegistered: errNotRegistered, ErrNoAddress: errNeither, ErrInvalidAddr: errInvalidAddr,
		ErrInvalidPubkey: errInvalidPubkey, ErrAliasBound: errBound, ErrNeedsKey: errNeedsKey,
		ErrProofFailed: errProof, ErrNotInRoom: errNotInRoom, ErrInvalidRoom: errInvalidRoom,
		ErrRoomFull: errRoomFull, ErrTooManyRooms: errRooms, ErrInvalidGame: errInvalidGame,
		ErrTooManyGames: errGames, ErrTooManyFilters: errSubscriptions, ErrStorageFull: errStorageFull,
		ErrOverloaded:    errOverloaded,
		ErrTooLarge:      &relay.Refusal{Code: relay.CodeTooLarge},
		ErrRateLimited:   &relay.Refusal{Code: relay.CodeRateLimited},
		ErrTakenOver:     &relay.Refusal{Code: relay.CodeReplaced},
		ErrInvalidTopic:  &relay.Refusal{Code: relay.CodeInvalidTopic},
		ErrInvalidFilter: &relay.Refusal{Code: relay.CodeInvalidFilter},
		ErrRetainedFull:  &relay.Refusal{Code: relay.CodeRetainedFull},
	} {
		assert.Equal(t, string(reason), textOf(err))
	}
}

// TestRecentBoxes: the latest boxes are remembered, and no more.
func TestRecentBoxes(t *testing.T) {
	var r recentBoxes
	name := func(i int) (b boxName) {
		b.nonce[0], b.nonce[1] = byte(i), byte(i>>8)
		return b
	}
	for i := range 3 * mostBoxes / 2 {
		require.False(t, r.note(name(i)))
		require.True(t, r.note(name(i)))
	}
	assert.Len(t, r.names, mostBoxes)
	for i := range mostBoxes {
		require.True(t, r.note(name(mostBoxes/2+i)))
	}
	assert.False(t, r.note(name(0)), "forgotten")
}

// BenchmarkClientSealAndOpen is all that two clients do for one message but the
// network.
func BenchmarkClientSealAndOpen(b *testing.B) {
	bob, err := crypto.GenerateX25519()
	require.NoError(b, err)
	c, err := newClient(nil, &ClientOptions{Address: "ann"})
	require.NoError(b, err)
	near, _ := pipe.New()
	l := newClientLink(c, near)
	l.accepted = true
	other, pub, data := newClientPeers("bob", bob, &c.o), bob.Public().String(), make([]byte, 128)
	for b.Loop() {
		nonce, ct, err := other.seal("ann", c.Key(), data)
		require.NoError(b, err)
		require.NoError(b, l.receive(encode("deliver", "from", "bob", "pub", pub, "nonce", nonce, "ct", ct)))
		for len(c.in.queue) > 0 {
			_, _ = c.in.take(context.Background())
		}
	}
	_ = near.Close(transport.CloseNormal, "")
}
