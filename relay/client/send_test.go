package client

import (
	"context"
	"math"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sotto-relay/sotto/crypto"
	"github.com/sotto-relay/sotto/frame"
	"github.com/sotto-relay/sotto/transport"
)

// TestProtections: what arrives, by content and option.
func TestProtections(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		alice, bob, carol := identity(t, 1), identity(t, 2), identity(t, 3)
		private, err := crypto.NewX25519PrivateKey(unhex(t, strings.Repeat("05", 32)))
		require.NoError(t, err)
		a := r.client(alice, func(c *Config) {
			c.Contacts = func(k crypto.PublicKey) (crypto.X25519Key, bool) {
				return private.Public(), k == carol.Public()
			}
		})
		b := r.client(bob, nil)
		c := r.client(carol.WithX25519(private), nil)
		synctest.Wait() // until the relay has found their inboxes empty
		for _, o := range []struct {
			name    string
			to      *Client
			content Content
			options []SendOption
			want    Letter
		}{
			{"text", b, Text("grüße"), nil, Letter{Type: crypto.Text, Data: []byte("grüße"), Protection: ProtectionSealed}},
			{"empty text", b, Text(""), nil, Letter{Type: crypto.Text, Data: []byte{}, Protection: ProtectionSealed}},
			{"json", b, JSON(map[string]int{"n": 1}), nil, Letter{Type: crypto.JSON, Data: []byte(`{"n":1}`), Protection: ProtectionSealed}},
			{"file", b, File("a.bin", []byte{0}), nil, Letter{Type: crypto.File, Name: "a.bin", Data: []byte{0}, Protection: ProtectionSealed}},
			{"raw", b, Raw([]byte{1, 2}), nil, Letter{Type: crypto.Raw, Data: []byte{1, 2}, Protection: ProtectionSealed}},
			{"ephemeral", b, Text("now"), []SendOption{Ephemeral()}, Letter{Type: crypto.Text, Data: []byte("now"), Protection: ProtectionSealed}},
			{"contact", c, Text("hi"), nil, Letter{Type: crypto.Text, Data: []byte("hi"), Protection: ProtectionEncrypted}},
			{"signed", b, File("a", []byte{7}), []SendOption{Signed()}, Letter{Type: crypto.File, Name: "a", Data: []byte{7}, Protection: ProtectionSigned}},
			{"signed 32 bytes", b, Raw(make([]byte, 32)), []SendOption{Signed()}, Letter{Data: make([]byte, 32), Protection: ProtectionSigned}},
			{"clear", b, Text("all"), []SendOption{Clear()}, Letter{Type: crypto.Raw, Data: []byte("all"), Protection: ProtectionClear}},
			{"empty and clear", b, Raw(nil), []SendOption{Clear()}, Letter{Data: []byte{}, Protection: ProtectionClear}},
			{"to oneself", a, Text("note"), nil, Letter{Type: crypto.Text, Data: []byte("note"), Protection: ProtectionSealed}},
		} {
			receipt, err := a.Send(t.Context(), o.to.cfg.Identity.Public(), o.content, o.options...)
			require.NoError(t, err, o.name)
			require.Equal(t, Handed, receipt.Status, o.name)
			o.want.From, o.want.ID = alice.Public(), receipt.ID
			require.Equal(t, &o.want, next(t, o.to), o.name)
		}
		var v struct{ N int }
		require.NoError(t, (&Letter{Data: []byte(`{"n":1}`)}).JSON(&v))
		require.Equal(t, 1, v.N)
		require.Equal(t, Stats{Letters: 10}, b.Stats())
	})
}

// TestStrings: the names of constants.
func TestStrings(t *testing.T) {
	var got []string
	for p := ProtectionClear; p <= ProtectionSealed; p++ {
		got = append(got, p.String())
	}
	for s := Queued; s <= Read; s++ {
		got = append(got, s.String())
	}
	require.Equal(t, "clear unsigned legacy signed encrypted sealed queued written handed stored read", strings.Join(got, " "))
	require.Equal(t, `client: refused: quota: "no"`, (&RefusedError{frame.CodeQuota, "no"}).Error())
	require.Equal(t, `client: refused: quota`, (&RefusedError{frame.CodeQuota, "quota"}).Error())
}

// TestSendRefuses: what cannot be sent is an error before anything is.
func TestSendRefuses(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		weak := crypto.PublicKey{1}
		bob := identity(t, 2).Public()
		a := r.client(identity(t, 1), nil)
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		for _, o := range []struct {
			name    string
			ctx     context.Context
			to      crypto.PublicKey
			content Content
			options []SendOption
			want    error // nil: any
		}{
			{"weak recipient", t.Context(), weak, Text("x"), nil, crypto.ErrWeakKey},
			{"weak recipient in the clear", t.Context(), weak, Text("x"), []SendOption{Clear()}, crypto.ErrWeakKey},
			{"not UTF-8", t.Context(), bob, Text("\xff"), nil, crypto.ErrMalformed},
			{"file name", t.Context(), bob, File("../x", nil), nil, crypto.ErrMalformed},
			{"file in the clear", t.Context(), bob, File("x", nil), []SendOption{Clear()}, errClearFile},
			{"signed raw that looks typed", t.Context(), bob, Raw([]byte{1}), []SendOption{Signed()}, crypto.ErrMalformed},
			{"not JSON", t.Context(), bob, JSON(math.NaN()), nil, nil},
			{"too large", t.Context(), bob, Raw(make([]byte, maxPayload+1)), nil, ErrTooLarge},
			{"too large with what goes around it", t.Context(), bob, Raw(make([]byte, maxPayload)), nil, ErrTooLarge},
			{"too large in the clear", t.Context(), bob, Raw(make([]byte, maxPayload-31)), []SendOption{Clear()}, ErrTooLarge},
			{"context", ended, bob, Text("x"), []SendOption{NoWait()}, context.Canceled},
		} {
			_, err := a.Send(o.ctx, o.to, o.content, o.options...)
			require.Error(t, err, o.name)
			if o.want != nil {
				require.ErrorIs(t, err, o.want, o.name)
			}
		}
		_, err := a.Send(t.Context(), bob, Raw(make([]byte, maxPayload-32)), Clear())
		require.NoError(t, err, "the largest")
		require.Equal(t, uint64(5), r.server.Stats().Messages, "the login, two about cards, an attachment, and the one that was sent")
	})
}

// TestReceipts: what Send returns, by what became of the message.
func TestReceipts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bob := identity(t, 2)
		r := newRig(t).start()
		a := r.client(identity(t, 1), nil)
		require.Equal(t, Stored, send(t, a, bob, "later").Status)
		_, err := a.Send(t.Context(), bob.Public(), Text("now"), Ephemeral())
		require.Equal(t, &RefusedError{frame.CodeNotHere, "not-here"}, err)
		b := r.client(bob, nil)
		require.Equal(t, "later", next(t, b).Text())
		synctest.Wait() // until the relay has seen the inbox empty
		require.Equal(t, Handed, send(t, a, bob, "now", Ephemeral()).Status)
		require.Equal(t, "now", next(t, b).Text())

		none := newRig(t)
		none.store = nil
		a = none.start().client(identity(t, 1), nil)
		_, err = a.Send(t.Context(), bob.Public(), Text("x"))
		require.Equal(t, &RefusedError{frame.CodeNotHere, "not-here"}, err)
	})
}

// TestReceiptFrames: what Send makes of what the relay says.
func TestReceiptFrames(t *testing.T) {
	for _, o := range []struct {
		name   string
		answer func(c *fakeConn, id [16]byte)
		want   Status
		err    error
		bad    int
	}{
		{"handed", func(c *fakeConn, id [16]byte) {
			c.receipt(&frame.Receipt{ID: id, Status: frame.ReceiptHandedOver})
		}, Handed, nil, 0},
		{"acknowledged", func(c *fakeConn, id [16]byte) {
			c.receipt(acknowledged(t, 1, 2, id))
		}, Read, nil, 0},
		{"acknowledged by nobody, somebody else, or another message", func(c *fakeConn, id [16]byte) {
			c.receipt(&frame.Receipt{ID: id, Status: frame.ReceiptAcknowledged, Recipient: identity(t, 2).Public()})
			c.receipt(acknowledged(t, 1, 3, id))
			c.receipt(acknowledged(t, 3, 2, id))
			r := acknowledged(t, 1, 2, [16]byte{9})
			r.ID = id
			c.receipt(r)
		}, Handed, nil, 4}, // which is all that it shows
		{"expired", func(c *fakeConn, id [16]byte) {
			c.receipt(&frame.Receipt{ID: id, Status: frame.ReceiptExpired, Code: frame.CodeExpired})
		}, 0, ErrUnread, 0},
		{"refused", func(c *fakeConn, id [16]byte) {
			c.receipt(&frame.Receipt{ID: id, Status: frame.ReceiptRefused, Code: frame.CodeInboxFull, Reason: "full"})
		}, 0, &RefusedError{frame.CodeInboxFull, "full"}, 0},
		{"an error about the frame", func(c *fakeConn, id [16]byte) {
			e := frame.Error{Code: frame.CodeTooLarge, Sentence: "big", ID: id}
			c.write(&frame.Brep{Type: frame.TypeError, Flags: e.Flags(), Payload: e.Append(nil)})
		}, 0, &RefusedError{frame.CodeTooLarge, "big"}, 0},
		{"nonsense, another's, twice", func(c *fakeConn, id [16]byte) {
			c.write(&frame.Brep{Type: frame.TypeReceipt, Payload: id[:]})
			c.write(&frame.Brep{Type: frame.TypeError, Flags: frame.FlagErrorID})
			c.write(&frame.Brep{Type: frame.TypeGoAway})
			c.write(&frame.Brep{Type: 0x7f})
			c.receipt(&frame.Receipt{ID: [16]byte{1}, Status: frame.ReceiptStored})
			c.receipt(&frame.Receipt{ID: id, Status: frame.ReceiptStored})
			c.receipt(&frame.Receipt{ID: id, Status: frame.ReceiptRefused})
		}, Stored, nil, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := &fakeRelay{t: t, seed: relaySeed, script: func(c *fakeConn) {
				f, err := c.read()
				if err != nil {
					return
				}
				o.answer(c, f.ID)
				c.hold()
			}}
			bad := 0
			c, err := r.client(func(c *Config) {
				c.Trace = &Trace{BadReceipt: func(to crypto.PublicKey, id [16]byte) {
					require.Equal(t, identity(t, 2).Public(), to)
					require.NotZero(t, id)
					bad++
				}}
			})
			require.NoError(t, err)
			defer func() {
				time.Sleep(time.Second)
				require.NoError(t, c.Close())
				require.Equal(t, o.bad, bad)
			}()
			receipt, err := c.Send(t.Context(), identity(t, 2).Public(), Text("x"))
			require.Equal(t, o.err, err, o.name)
			require.Equal(t, o.want, receipt.Status, o.name)
		})
	}
}

// acknowledged returns the receipt for which a recipient has signed.
func acknowledged(t *testing.T, sender, recipient byte, id [16]byte) *frame.Receipt {
	from, to := identity(t, sender).Public(), identity(t, recipient)
	signed := append(append([]byte("sotto ack v1\x00"), from[:]...), id[:]...)
	return &frame.Receipt{ID: id, Status: frame.ReceiptAcknowledged, Recipient: to.Public(), Signature: to.Sign(signed)}
}

// TestSendAgain: without a receipt the same bytes are sent after a reconnect, in
// order, and not once the context has ended.
func TestSendAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var got [][]string
		r := &fakeRelay{t: t, seed: relaySeed, script: func(c *fakeConn) {
			mu.Lock()
			got = append(got, nil)
			mu.Unlock()
			for range 3 {
				f, err := c.read()
				if err != nil {
					return
				}
				mu.Lock()
				got[c.n] = append(got[c.n], string(f.Append(nil)))
				mu.Unlock()
				if c.n == 2 {
					c.receipt(&frame.Receipt{ID: f.ID, Status: frame.ReceiptStored})
				}
			}
			if c.n < 2 {
				time.Sleep(time.Second)
				return
			}
			c.hold()
		}}
		settled := make(chan Receipt, 3)
		c, err := r.client(func(c *Config) {
			c.Trace = &Trace{Settled: func(_ crypto.PublicKey, r Receipt, err error) {
				require.NoError(t, err)
				settled <- r
			}}
		})
		require.NoError(t, err)
		bob := identity(t, 2)
		var sent []Receipt
		for _, text := range []string{"one", "two"} {
			sent = append(sent, send(t, c, bob, text, NoWait()))
		}
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		_, err = c.Send(ctx, bob.Public(), Text("given up"))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		sent = append(sent, send(t, c, bob, "three", NoWait()))
		for _, s := range sent {
			require.Equal(t, Receipt{s.ID, Stored}, <-settled)
		}
		mu.Lock()
		defer mu.Unlock()
		require.Len(t, got, 3)
		require.Equal(t, got[0][:2], got[1][:2])
		require.Len(t, got[0], 3)
		require.NotEqual(t, got[0][2], got[1][2])
		require.Equal(t, got[1], got[2])
	})
}

// TestOffline: messages wait for a relay, for 7 days at most, and within bounds.
func TestOffline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bob := identity(t, 2)
		r := newRig(t)
		a := r.client(identity(t, 1), func(c *Config) { c.StartOffline, c.PendingMessages = true, 2 })
		results := make(chan error, 3)
		for range 3 {
			go func() {
				_, err := a.Send(t.Context(), bob.Public(), Text("x"))
				results <- err
			}()
			time.Sleep(time.Hour)
		}
		time.Sleep(retryTime - 150*time.Minute)
		require.ErrorIs(t, <-results, ErrExpired)
		r.start()
		require.NoError(t, <-results)
		require.NoError(t, <-results, "it waited for room only")

		r.stop()
		time.Sleep(time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		for range 2 {
			_, err := a.Send(ctx, bob.Public(), Text("x"), NoWait())
			require.NoError(t, err)
		}
		_, err := a.Send(ctx, bob.Public(), Text("x"), NoWait())
		require.ErrorIs(t, err, context.DeadlineExceeded)
	})
}

// TestPendingBytes: the bound in bytes holds, and one large message passes.
func TestPendingBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newRig(t).client(identity(t, 1), func(c *Config) { c.StartOffline, c.PendingBytes = true, 1000 })
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		bob := identity(t, 2).Public()
		_, err := a.Send(ctx, bob, Raw(make([]byte, 5000)), NoWait())
		require.NoError(t, err)
		_, err = a.Send(ctx, bob, Text("x"), NoWait())
		require.ErrorIs(t, err, context.DeadlineExceeded)
	})
}

// TestPace: a client that sends as fast as it may is not cut by a relay with
// default limits, not even when the network held everything up for a while.
func TestPace(t *testing.T) {
	skipInRace(t)
	bubble(t, func(t *testing.T, r *rig) {
		bob := identity(t, 2)
		b := r.client(bob, nil)
		gate := &gatedDialer{dial: r.dial}
		a := r.client(identity(t, 1), func(c *Config) { c.Dial = gate.Dial })
		const n = 2000
		go func() {
			for range n {
				_, _ = a.Send(t.Context(), bob.Public(), Text("x"), NoWait(), Clear())
			}
		}()
		go func() {
			for range 5 {
				time.Sleep(700 * time.Millisecond)
				gate.mu.Lock()
				time.Sleep(1500 * time.Millisecond)
				gate.mu.Unlock()
			}
		}()
		start := time.Now()
		for range n {
			next(t, b)
		}
		require.Equal(t, 2, r.dialled(), "neither was cut")
		require.Greater(t, time.Since(start), (n-400)*time.Second/200)
		require.Less(t, time.Since(start), n*time.Second/100)
	})
}

// A gatedDialer makes connections that write only while nobody holds mu.
type gatedDialer struct {
	dial transport.Dialer
	mu   chanMutex
}

// A chanMutex is a mutex that a synctest bubble can wait for.
type chanMutex struct {
	once sync.Once
	c    chan struct{}
}

func (m *chanMutex) Lock()   { m.once.Do(func() { m.c = make(chan struct{}, 1) }); m.c <- struct{}{} }
func (m *chanMutex) Unlock() { <-m.c }

func (g *gatedDialer) Dial(ctx context.Context) (transport.Conn, error) {
	c, err := g.dial(ctx)
	return &gatedConn{c, &g.mu}, err
}

type gatedConn struct {
	transport.Conn
	mu *chanMutex
}

func (c *gatedConn) Write(k transport.Kind, msgs [][]byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.Conn.Write(k, msgs)
}
