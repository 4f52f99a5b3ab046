package adversary

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sotto-relay/sotto/crypto"
	"github.com/sotto-relay/sotto/frame"
	"github.com/sotto-relay/sotto/inbox"
	"github.com/sotto-relay/sotto/relay"
	"github.com/sotto-relay/sotto/relay/client"
	"github.com/sotto-relay/sotto/relay/relaytest"
	"github.com/sotto-relay/sotto/transport"
)

// A record is all that somebody saw.
type record struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (r *record) Write(b []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.buf.Write(b)
}

func (r *record) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.buf.String()
}

// A wiretap is a Conn that records everything.
type wiretap struct {
	transport.Conn
	to io.Writer
}

func (c *wiretap) Read() (transport.Kind, []byte, error) {
	k, msg, err := c.Conn.Read()
	_, _ = c.to.Write(msg)
	return k, msg, err
}

func (c *wiretap) Write(k transport.Kind, msgs [][]byte) (int, error) {
	for _, m := range msgs {
		_, _ = c.to.Write(m)
	}
	return c.Conn.Write(k, msgs)
}

// Neither who listens on the wire, nor who has the relay's memory of what waits,
// its log or its counters, finds a word of what clients say by default, nor how
// long it is to the byte (CR-16).
func TestNothingInTheClear(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const marker = "attack at dawn"
		var wire, log record
		store := inbox.NewMemory(nil)
		server := &relay.Server{
			Inbox:  store,
			Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})),
			Trace: &relay.Trace{
				Closed: func(c relay.ConnInfo, r *relay.Refusal) { fmt.Fprintf(&log, "%+v %+v\n", c, r) },
			},
		}
		pair := relaytest.NewPair(t, &relaytest.PairOptions{
			Server: server,
			Client: func(c *client.Config) {
				dial := c.Dial
				c.Dial = func(ctx context.Context) (transport.Conn, error) {
					conn, err := dial(ctx)
					return &wiretap{conn, &wire}, err
				}
				c.Logger = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
			},
		})
		absent := identity(t, bob).Public()
		for _, to := range []crypto.PublicKey{pair.Bob.Key(), absent} {
			_, err := pair.Alice.Send(t.Context(), to, client.Text(marker))
			require.NoError(t, err)
		}
		var sizes []int
		for _, text := range []string{strings.Repeat("a", 95), strings.Repeat("b", 98)} {
			_, err := pair.Alice.Send(t.Context(), absent, client.Text(text))
			require.NoError(t, err)
		}
		for e, err := range store.Entries(t.Context(), relay.Address{Realm: relay.RealmBrep, Name: string(absent[:])}, 1) {
			require.NoError(t, err)
			sizes = append(sizes, len(e.Data))
			_, _ = wire.Write(e.Data)
		}
		require.Len(t, sizes, 3)
		assert.Equal(t, sizes[1], sizes[2], "some bytes more are not to be seen")
		for letter, err := range pair.Bob.Messages(t.Context()) {
			require.NoError(t, err)
			require.Equal(t, marker, letter.Text())
			break
		}
		// What breaks the rules is told to the log, without what it said.
		for _, msg := range [][]byte{
			[]byte(marker),
			(&frame.Brep{Type: frame.TypeData, Payload: []byte(marker)}).Append(nil),
			(&frame.Brep{Type: frame.TypeHandshake, Payload: []byte(marker)}).Append(nil),
		} {
			c := server.Dial(pair.Dialect)
			require.NoError(t, put(c, msg))
			closeOf(t, c)
		}
		synctest.Wait()
		require.NoError(t, server.Close())
		assert.NotEmpty(t, log.String())
		fmt.Fprintf(&log, "%+v", server.Stats())
		assert.NotContains(t, wire.String(), marker)
		assert.NotContains(t, log.String(), marker)
	})
}

// SIGNED_DATA whose content has exactly 32 bytes carries a signature over just
// them, which is what a v1 answer is. So who can have Alice sign a content of his
// choice can log in as her where v1 is spoken and she never did v2; not where she
// did.
func TestSignedContentAsV1Answer(t *testing.T) {
	for _, test := range []struct {
		name  string
		known bool // Alice has logged in with v2 before
		want  byte // of the confirmation
	}{
		{"where she did v2", true, 0},
		{"where she never was", false, 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				r := newRig(t)
				a := identity(t, alice)
				if test.known {
					require.NoError(t, connect(t, r.from("198.51.100.1"), a).Close())
				}
				c := r.from("192.0.2.66")
				challenge := readFrame(t, c)
				for challenge.Payload[0] < 4 { // RAW content must not begin with a type
					c.Close(transport.CloseNormal, "")
					c = r.from("192.0.2.66")
					challenge = readFrame(t, c)
				}
				payload, _, err := crypto.SignContent(a, identity(t, mallory).Public(), crypto.Content{Data: challenge.Payload})
				require.NoError(t, err)
				require.Len(t, payload, 32+64+32)
				putFrame(t, c, &frame.Brep{
					Type: frame.TypeHandshake, Sender: a.Public(),
					Signature: [64]byte(payload[32:]), Payload: challenge.Payload,
				})
				if test.known {
					assert.Equal(t, uint16(transport.ClosePolicy), closeOf(t, c))
					return
				}
				assert.Equal(t, []byte{test.want}, readFrame(t, c).Payload)
				c.Close(transport.CloseNormal, "")
			})
		})
	}
}
