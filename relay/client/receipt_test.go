package client

import (
	"bytes"
	"context"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sotto-relay/sotto/crypto"
	"github.com/sotto-relay/sotto/frame"
	"github.com/sotto-relay/sotto/relay"
)

// TestUntil: Send returns at the receipt that was asked for, and keeps the message
// until the best that the relay can give.
func TestUntil(t *testing.T) {
	for _, durable := range []bool{false, true} {
		bubble(t, func(t *testing.T, r *rig) {
			r.dialect.Durable = durable
			bob := identity(t, 2)
			a, b := r.client(identity(t, 1), nil), r.client(bob, nil)
			synctest.Wait()
			start := time.Now()
			require.Equal(t, Handed, send(t, a, bob, "1", Until(Queued)).Status)
			require.Equal(t, Handed, send(t, a, bob, "2", Until(Handed)).Status)
			require.Zero(t, time.Since(start))
			require.Equal(t, Stored, send(t, a, bob, "3", Until(Stored)).Status)
			require.Equal(t, 10*time.Second, time.Since(start), "when the relay does not wait any more")
			var pending []Status
			for _, p := range a.Pending() {
				pending = append(pending, p.Status)
			}
			if durable {
				require.Empty(t, pending)
			} else {
				require.Equal(t, []Status{Stored, Stored, Stored}, pending)
			}
			go func() {
				time.Sleep(time.Hour)
				for range 4 {
					next(t, b)
				}
			}()
			require.Equal(t, Read, send(t, a, bob, "4", Until(Read)).Status)
			require.Equal(t, time.Hour+10*time.Second, time.Since(start))
			synctest.Wait()
			require.Empty(t, a.Pending())
			_, err := a.Send(t.Context(), bob.Public(), Text("x"), Ephemeral(), Until(Stored))
			require.ErrorIs(t, err, ErrEphemeral)
		})
	}
}

// TestReadWhileAway: that a message was read comes to a sender that was not there,
// also when the relay has forgotten it.
func TestReadWhileAway(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.dialect.Durable = true
		bob := identity(t, 2)
		gate := &gatedDialer{dial: r.dial}
		a := r.client(identity(t, 1), func(c *Config) { c.Dial = gate.Dial })
		result := make(chan Receipt, 1)
		go func() { result <- send(t, a, bob, "hello", Until(Read)) }()
		synctest.Wait()
		r.mu.Lock()
		near := r.conns[0]
		r.mu.Unlock()
		gate.mu.Lock()
		_ = near.Close(0, "")
		b := r.client(bob, nil)
		require.Equal(t, "hello", next(t, b).Text())
		time.Sleep(time.Hour)
		require.Empty(t, result)
		gate.mu.Unlock()
		require.Equal(t, Read, (<-result).Status)
		none(t, b)
		require.EqualValues(t, 1, b.Stats().Repeats)
	})
}

// TestBadLetter: of a letter that cannot be opened its sender is not told that it
// was read.
func TestBadLetter(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.dialect.Durable = true
		other, err := crypto.NewX25519PrivateKey(unhex(t, "05"+"00000000000000000000000000000000000000000000000000000000000000"))
		require.NoError(t, err)
		bob := identity(t, 2)
		a := r.client(identity(t, 1), func(c *Config) {
			c.Contacts = func(crypto.PublicKey) (crypto.X25519Key, bool) { return other.Public(), true }
		})
		b := r.client(bob, nil)
		synctest.Wait()
		receipt := send(t, a, bob, "for other eyes", Until(Read))
		require.Equal(t, Handed, receipt.Status, "nothing was heard for 15 s")
		require.Equal(t, Stats{Dropped: 1}, b.Stats())
	})
}

// TestLegacyRecipient: what went to a recipient that acknowledges nothing is not sent
// again, once that shows, and does not hold up what follows.
func TestLegacyRecipient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t).start()
		p := r.v1Peer(bytes.Repeat([]byte{2}, 32))
		var got atomic.Int64
		go func() {
			for {
				if _, err := p.read(); err != nil {
					return
				}
				got.Add(1)
			}
		}()
		a := r.client(identity(t, 1), nil)
		synctest.Wait()
		const n = 5000
		start := time.Now()
		for range n {
			_, err := a.Send(t.Context(), p.public(), Text("x"), Clear())
			require.NoError(t, err)
		}
		require.Less(t, time.Since(start), n*time.Second/170, "the rate is that of Config")
		require.Equal(t, Handed, func() Status {
			receipt, err := a.Send(t.Context(), p.public(), Text("x"), Clear(), Until(Stored))
			require.NoError(t, err)
			return receipt.Status
		}())
		time.Sleep(time.Minute)
		require.Empty(t, a.Pending())
		r.mu.Lock()
		conns := r.conns[1:]
		r.mu.Unlock()
		for _, c := range conns {
			_ = c.Close(0, "")
		}
		time.Sleep(time.Hour)
		require.EqualValues(t, n+1, got.Load())
		_ = p.Close(0, "")
	})
}

// An echo is a fake relay's script that answers each message so.
func echo(answer func(c *fakeConn, f *frame.Brep)) func(*fakeConn) {
	return func(c *fakeConn) {
		for {
			f, err := c.read()
			if err != nil {
				return
			}
			if isLetter(f.Type) {
				answer(c, &f)
			}
		}
	}
}

func (c *fakeConn) say(f *frame.Brep, s frame.ReceiptStatus) {
	c.receipt(&frame.Receipt{ID: f.ID, Status: s})
}

// TestExpiry: a sealed message of which no more than Handed is heard is sent again
// after each reconnect, the same, for 7 days, whether anything happens or not.
func TestExpiry(t *testing.T) {
	for _, quiet := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			var sent atomic.Int64
			r := &fakeRelay{t: t, seed: relaySeed, script: func(c *fakeConn) {
				if !quiet {
					time.AfterFunc(time.Hour, func() { _ = c.Close(0, "") })
				}
				echo(func(c *fakeConn, f *frame.Brep) {
					sent.Add(1)
					c.say(f, frame.ReceiptHandedOver)
				})(c)
			}}
			type end struct {
				r   Receipt
				err error
				at  time.Time
			}
			ends := make(chan end, 9)
			c, err := r.client(func(c *Config) {
				tell := func(_ crypto.PublicKey, r Receipt, err error) { ends <- end{r, err, time.Now()} }
				c.Trace = &Trace{Settled: tell, Revoked: tell}
			})
			require.NoError(t, err)
			start := time.Now()
			receipt := send(t, c, identity(t, 2), "x", NoWait())
			require.Equal(t, end{Receipt{receipt.ID, Handed}, nil, start}, <-ends)
			require.Len(t, c.Pending(), 1)
			last := <-ends
			require.Equal(t, Receipt{receipt.ID, Handed}, last.r)
			require.ErrorIs(t, last.err, ErrExpired)
			require.WithinDuration(t, start.Add(retryTime), last.at, time.Minute)
			require.Empty(t, c.Pending())
			if quiet {
				require.EqualValues(t, 1, sent.Load())
			} else {
				require.InDelta(t, 7*24, sent.Load(), 2)
			}
			n := sent.Load()
			time.Sleep(24 * time.Hour)
			require.Equal(t, n, sent.Load())
		})
	}
}

// TestFailsAfterAll: what a relay takes back after it has answered is told, whether a
// Send has returned or not.
func TestFailsAfterAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &fakeRelay{t: t, seed: relaySeed, script: echo(func(c *fakeConn, f *frame.Brep) {
			c.say(f, frame.ReceiptStored)
			time.Sleep(time.Hour)
			c.say(f, frame.ReceiptHandedOver) // says less: no news
			c.say(f, frame.ReceiptExpired)
		})}
		ends := make(chan error, 9)
		c, err := r.client(func(c *Config) {
			c.Trace = &Trace{
				Settled: func(_ crypto.PublicKey, r Receipt, err error) { ends <- err },
				Revoked: func(_ crypto.PublicKey, r Receipt, err error) {
					require.Equal(t, Stored, r.Status)
					ends <- err
				},
			}
		})
		require.NoError(t, err)
		require.Equal(t, Stored, send(t, c, identity(t, 2), "x").Status)
		require.ErrorIs(t, <-ends, ErrUnread)
		send(t, c, identity(t, 2), "x", NoWait())
		require.NoError(t, <-ends)
		require.ErrorIs(t, <-ends, ErrUnread)
		require.Empty(t, c.Pending())
	})
}

// TestKeptBounds: messages with a receipt are bounded too. What the relay says to
// have stored goes first; for what it has only handed over Send waits, no longer than
// relays take to say more.
func TestKeptBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		status := frame.ReceiptStored
		r := &fakeRelay{t: t, seed: relaySeed, script: echo(func(c *fakeConn, f *frame.Brep) { c.say(f, status) })}
		c, err := r.client(func(c *Config) { c.KeptMessages = 3 })
		require.NoError(t, err)
		bob := identity(t, 2)
		var ids [][16]byte
		start := time.Now()
		for i := range 10 {
			ids = append(ids, send(t, c, bob, strconv.Itoa(i)).ID)
		}
		require.Zero(t, time.Since(start))
		pending := func() (got [][16]byte) {
			for _, p := range c.Pending() {
				got = append(got, p.ID)
			}
			return got
		}
		require.Equal(t, ids[7:], pending())
		status = frame.ReceiptHandedOver
		for i := range 6 {
			ids = append(ids, send(t, c, bob, strconv.Itoa(i)).ID)
			if i == 2 {
				require.Zero(t, time.Since(start), "three were stored")
			}
		}
		require.InDelta(t, quietTime, time.Since(start), float64(2*time.Second))
		require.Equal(t, ids[13:], pending())
	})
}

// TestResent: all that is kept comes first after a reconnect, at no time more of it
// without a receipt than PendingMessages.
func TestResent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n, most = 50, 4
		var last []byte
		bob := identity(t, 2)
		r := &fakeRelay{t: t, seed: relaySeed}
		r.script = func(c *fakeConn) {
			var flying []*frame.Brep
			for i := 0; ; i++ {
				if c.n == 0 && i == n {
					return
				}
				_ = c.SetReadDeadline(time.Now().Add(time.Second))
				f, err := c.read()
				switch {
				case err == nil:
					require.Less(t, len(flying), most)
					flying = append(flying, &f)
					if c.n > 0 {
						last = append(last, f.Payload[32:]...)
					}
				case c.n == 1 && len(last) >= n+1 && len(flying) == 0:
					c.hold()
					return
				}
				if err != nil || c.n == 0 {
					for _, f := range flying {
						c.say(f, frame.ReceiptHandedOver)
					}
					flying = nil
				}
			}
		}
		c, err := r.client(func(c *Config) { c.PendingMessages = most })
		require.NoError(t, err)
		var want []byte
		for i := range n {
			want = append(want, byte(i))
			_, err := c.Send(t.Context(), bob.Public(), Raw([]byte{byte(i)}), Clear())
			require.NoError(t, err)
		}
		_, err = c.Send(t.Context(), bob.Public(), Raw([]byte{n}), Clear())
		require.NoError(t, err)
		require.Equal(t, append(want, n), last)
	})
}

// TestPendingAndCancel: what is pending is listed, and can be taken back, also while
// there is no connection.
func TestPendingAndCancel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.dialect.Durable = true
		bob := identity(t, 2)
		ends := make(chan error, 9)
		a := r.client(identity(t, 1), func(c *Config) {
			c.StartOffline = true
			c.Trace = &Trace{Settled: func(_ crypto.PublicKey, _ Receipt, err error) { ends <- err }}
		})
		made := time.Now()
		one := send(t, a, bob, "one", NoWait(), Clear()).ID
		two := send(t, a, bob, "two", NoWait(), Clear()).ID
		go func() {
			_, err := a.Send(t.Context(), bob.Public(), Text("three"), Clear())
			ends <- err
		}()
		synctest.Wait()
		all := a.Pending()
		require.Len(t, all, 3)
		require.Equal(t, []Pending{
			{one, bob.Public(), made, frame.BrepHeaderSize + 32 + 3, Queued},
			{two, bob.Public(), made, frame.BrepHeaderSize + 32 + 3, Queued},
		}, all[:2])
		for _, id := range [][16]byte{one, all[2].ID} {
			require.True(t, a.Cancel(id))
			require.ErrorIs(t, <-ends, ErrCancelled)
			require.False(t, a.Cancel(id))
		}
		r.start()
		b := r.client(bob, nil)
		require.Equal(t, "two", next(t, b).Text())
		require.NoError(t, <-ends)
		none(t, b)
		require.Empty(t, a.Pending())
		require.False(t, a.Cancel(two))
	})
}

// TestSlowRecipient: one that takes nothing does not hold up what goes to others.
func TestSlowRecipient(t *testing.T) {
	for _, durable := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t)
			r.dialect.Durable = durable
			r.limits = relay.MaxLimits()
			r.start()
			slow, quick := identity(t, 2), identity(t, 3)
			r.client(slow, nil)
			b := r.client(quick, nil)
			a := r.client(identity(t, 1), func(c *Config) { c.MessageRate, c.MessageBurst = 1e6, 1e6 })
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var got atomic.Int64
			go func() {
				for l := range b.Messages(ctx) {
					if l != nil {
						got.Add(1)
					}
				}
			}()
			n := few(700)
			start := time.Now()
			for range n {
				send(t, a, slow, "x", Clear())
				send(t, a, quick, "x", Clear())
			}
			require.Less(t, time.Since(start), time.Second)
			synctest.Wait()
			require.EqualValues(t, n, got.Load())
		})
	}
}
