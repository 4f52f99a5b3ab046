package adversary

import (
	"context"
	"crypto/ed25519"
	"errors"
	"log/slog"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sotto-relay/sotto/crypto"
	"github.com/sotto-relay/sotto/frame"
	"github.com/sotto-relay/sotto/handshake"
	"github.com/sotto-relay/sotto/relay/client"
	"github.com/sotto-relay/sotto/transport"
	"github.com/sotto-relay/sotto/transport/pipe"
)

// An evil is a hostile relay: do has each connection after its upgrade.
type evil struct {
	t     testing.TB
	dials atomic.Int32
	do    func(transport.Conn)
}

// dial is a transport.Dialer.
func (e *evil) dial(context.Context) (transport.Conn, error) {
	e.dials.Add(1)
	near, far := pipe.New()
	go func() {
		e.do(far)
		_ = far.Close(0, "")
	}()
	return near, nil
}

// login is the relay's half of a handshake, done right.
func (e *evil) login(c transport.Conn) bool {
	a, err := handshake.NewAcceptor(&handshake.AcceptorConfig{Identity: identity(e.t, evilRelay)})
	if err != nil || put(c, a.Challenge().Append(nil)) != nil {
		return false
	}
	_, msg, err := c.Read()
	if err != nil {
		return false
	}
	f, err := frame.DecodeBrep(msg)
	if err != nil {
		return false
	}
	confirmation, err := a.Receive(&f)
	return err == nil && put(c, confirmation.Append(nil)) == nil
}

// client returns a client with the default configuration.
func (e *evil) client(ctx context.Context, trace *client.Trace) (*client.Client, error) {
	return client.New(ctx, &client.Config{
		Identity: identity(e.t, alice), Dial: e.dial, Trace: trace, Logger: slog.New(slog.DiscardHandler),
	})
}

// sealed returns a SEALED frame from Bob to Alice.
func sealed(t testing.TB, text string, id byte) *frame.Brep {
	t.Helper()
	to, err := identity(t, alice).Public().SealKey()
	require.NoError(t, err)
	f := &frame.Brep{Type: frame.TypeSealed, ID: [16]byte{id}, Sender: identity(t, bob).Public()}
	f.Payload, f.Signature, err = crypto.Seal(identity(t, bob), to, f.ID, crypto.Content{Type: crypto.Text, Data: []byte(text)})
	require.NoError(t, err)
	return f
}

// A relay that carries a message can neither change nor read nor redirect nor
// repeat it, nor make one up.
func TestForgedLetters(t *testing.T) {
	bubble(t, func(t *testing.T) {
		change := func(what func(*frame.Brep)) *frame.Brep {
			f := sealed(t, "genuine", 9)
			what(f)
			return f
		}
		mallorys := identity(t, mallory)
		forged := []*frame.Brep{
			change(func(f *frame.Brep) { f.Sender = mallorys.Public() }),
			change(func(f *frame.Brep) { f.ID[0]++ }),
			change(func(f *frame.Brep) { f.Payload[len(f.Payload)-1] ^= 1 }),
			change(func(f *frame.Brep) { f.Payload[40] ^= 1 }),
			change(func(f *frame.Brep) { f.Signature[0] ^= 1 }),
			change(func(f *frame.Brep) { f.Signature = [64]byte{} }),
			change(func(f *frame.Brep) { // for somebody else
				key := mallorys.Public()
				copy(f.Payload, key[:])
				f.Signature = crypto.SignFrame(identity(t, bob), uint8(f.Type), f.ID, f.Payload)
			}),
			change(func(f *frame.Brep) { // signed by another who has not sealed it
				f.Sender = mallorys.Public()
				f.Signature = crypto.SignFrame(mallorys, uint8(f.Type), f.ID, f.Payload)
			}),
		}
		genuine := sealed(t, "genuine", 1)
		e := &evil{t: t}
		e.do = func(c transport.Conn) {
			if !e.login(c) {
				return
			}
			for _, f := range forged {
				_ = put(c, f.Append(nil))
			}
			for range 3 {
				_ = put(c, genuine.Append(nil))
			}
			_ = put(c, sealed(t, "last", 2).Append(nil))
			_, _, _ = c.Read()
		}
		c, err := e.client(t.Context(), nil)
		require.NoError(t, err)
		defer c.Close()
		var got []string
		for letter, err := range c.Messages(t.Context()) {
			require.NoError(t, err)
			assert.Equal(t, client.ProtectionSealed, letter.Protection)
			if got = append(got, letter.Text()); letter.Text() == "last" {
				break
			}
		}
		assert.Equal(t, []string{"genuine", "last"}, got)
		assert.Equal(t, uint64(len(forged)), c.Stats().Dropped)
		assert.Equal(t, uint64(2), c.Stats().Repeats)
		assert.Equal(t, int32(1), e.dials.Load(), "it is still connected")
	})
}

// A client that allows no v1 signs nothing that a relay chose: what it signs
// begins with the label of a client's answer, whatever the challenge is.
func TestClientIsNoOracle(t *testing.T) {
	bubble(t, func(t *testing.T) {
		challenge := []byte("\x01I owe Mallory 100 crowns. Alice")
		answers := make(chan frame.Brep, 1)
		e := &evil{t: t, do: func(c transport.Conn) {
			key := identity(t, evilRelay).Public()
			_ = put(c, (&frame.Brep{Type: frame.TypeHandshake, Sender: key, Payload: challenge}).Append(nil))
			if _, msg, err := c.Read(); err == nil {
				f, err := frame.DecodeBrep(msg)
				require.NoError(t, err)
				f.Payload = append([]byte(nil), f.Payload...)
				answers <- f
			}
		}}
		require.Len(t, challenge, 32)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := e.client(ctx, nil)
		require.Error(t, err)
		f := <-answers
		key := f.Sender
		assert.False(t, ed25519.Verify(key[:], challenge, f.Signature[:]))
		assert.False(t, ed25519.Verify(key[:], f.Payload, f.Signature[:]))
		signed := (&answer{challenge: challenge, nonce: [32]byte(f.Payload[32:]), relay: identity(t, evilRelay).Public()}).signedBy(identity(t, alice))
		assert.Equal(t, signed.Signature, f.Signature, "over label ‖ relay ‖ challenge ‖ nonce ‖ client ‖ role")
	})
}

// Relays that do not do their part cost a client little, and it says so.
func TestUselessRelays(t *testing.T) {
	for name, do := range map[string]func(*evil, transport.Conn){
		"says nothing":   func(_ *evil, c transport.Conn) { _, _, _ = c.Read() },
		"closes at once": func(*evil, transport.Conn) {},
		"never confirms": func(e *evil, c transport.Conn) {
			_ = put(c, (&frame.Brep{Type: frame.TypeHandshake, Sender: identity(e.t, evilRelay).Public(), Payload: make([]byte, 32)}).Append(nil))
			for {
				if _, _, err := c.Read(); err != nil {
					return
				}
			}
		},
		"closes after the login": func(e *evil, c transport.Conn) { e.login(c) },
		"shakes hands again": func(e *evil, c transport.Conn) {
			e.login(c)
			e.login(c)
		},
		"sends garbage": func(e *evil, c transport.Conn) {
			e.login(c)
			_ = put(c, []byte("garbage"))
			_, _, _ = c.Read()
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				e := &evil{t: t}
				e.do = func(c transport.Conn) { do(e, c) }
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
				defer cancel()
				c, err := e.client(ctx, nil)
				if err == nil {
					time.Sleep(10 * time.Minute)
					require.NoError(t, c.Close())
				} else {
					assert.ErrorIs(t, err, context.DeadlineExceeded)
				}
				dials := int(e.dials.Load())
				assert.Greater(t, dials, 5, "it goes on trying")
				assert.Less(t, dials, 200, "and not too often")
			})
		})
	}
}

// What a relay floods a client with does not pile up there.
func TestRelayFloods(t *testing.T) {
	key := identity(t, evilRelay).Public()
	ping := (&frame.Brep{Type: frame.TypePing, Sender: key, Payload: make([]byte, 8)}).Append(nil)
	junk := (&frame.Brep{Type: frame.TypeSealed, Sender: key, Payload: make([]byte, 64<<10)}).Append(nil)
	huge := make([]byte, 64<<20)
	letter := sealed(t, string(make([]byte, 30<<10)), 0)
	for name, flood := range map[string]func(transport.Conn) error{
		"PING":     func(c transport.Conn) error { return put(c, ping) },
		"junk":     func(c transport.Conn) error { return put(c, junk) },
		"huge":     func(c transport.Conn) error { return put(c, huge) },
		"replayed": func(c transport.Conn) error { return put(c, letter.Append(nil)) },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				e := &evil{t: t}
				flooded := make(chan int, 1)
				e.do = func(c transport.Conn) {
					if !e.login(c) {
						return
					}
					n := 0
					_ = c.SetWriteDeadline(time.Now().Add(time.Minute))
					for range size(2000, 200_000) {
						if flood(c) != nil {
							break
						}
						n++
					}
					select {
					case flooded <- n:
					default:
					}
					_, _, _ = c.Read()
				}
				before := heap()
				c, err := e.client(t.Context(), nil)
				require.NoError(t, err)
				t.Logf("%d messages sent", <-flooded)
				synctest.Wait()
				// The unread letters (8 MiB) and what the pipe holds are the most.
				assert.Less(t, heap()-before, int64(24<<20))
				require.NoError(t, c.Close())
			})
		})
	}
}

// heap returns the bytes that are in use on the heap and on stacks.
func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse)
}

// A relay whose key has changed is not spoken to, and an attempt to have the
// client go back to v1 with a relay that it knows fails for good (HS-06).
func TestRelayKeyChanges(t *testing.T) {
	bubble(t, func(t *testing.T) {
		trust := new(handshake.MemoryTrust)
		require.NoError(t, trust.Remember("relay.test", identity(t, honestRelay).Public()))
		for name, do := range map[string]func(*evil, transport.Conn){
			"another key": func(e *evil, c transport.Conn) { e.login(c) },
			"no key": func(_ *evil, c transport.Conn) {
				_ = put(c, (&frame.Brep{Type: frame.TypeHandshake, Payload: make([]byte, 32)}).Append(nil))
				_, _, err := c.Read()
				assert.Error(t, err, "%s: the client answered")
			},
		} {
			e := &evil{t: t}
			e.do = func(c transport.Conn) { do(e, c) }
			_, err := client.New(t.Context(), &client.Config{
				Identity: identity(t, alice), Dial: e.dial, Address: "relay.test", Trust: trust,
				AllowLegacy: true, Logger: slog.New(slog.DiscardHandler),
			})
			var he *handshake.Error
			require.True(t, errors.As(err, &he), "%s: %v", name, err)
			assert.Equal(t, int32(1), e.dials.Load(), name)
		}
	})
}
