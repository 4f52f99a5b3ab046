package client

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sotto-relay/sotto/crypto"
	"github.com/sotto-relay/sotto/frame"
	"github.com/sotto-relay/sotto/handshake"
	"github.com/sotto-relay/sotto/relay/dialect/brep"
	"github.com/sotto-relay/sotto/transport"
)

// TestConfig: what New refuses at once.
func TestConfig(t *testing.T) {
	id, dial := identity(t, 1), newRig(t).dial
	for _, c := range []Config{
		{Dial: dial},
		{Identity: id},
		{Identity: id, Dial: dial, Trust: new(handshake.MemoryTrust)},
	} {
		_, err := New(t.Context(), &c)
		require.ErrorContains(t, err, "client: Config has ")
	}
}

// TestNewWaits: New waits for a relay that is not there yet, as long as it may.
func TestNewWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		cfg := &Config{Identity: identity(t, 1), Dial: r.dial, Logger: slog.New(slog.DiscardHandler)}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		start := time.Now()
		_, err := New(ctx, cfg)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorIs(t, err, errDown, "the last attempt says more")
		require.Equal(t, time.Minute, time.Since(start))

		time.AfterFunc(time.Minute, func() { r.start() })
		c, err := New(t.Context(), cfg)
		require.NoError(t, err)
		require.NoError(t, c.Err())
		require.NoError(t, c.Close())

		gone, cancel := context.WithCancel(t.Context())
		cancel()
		cfg.Dial = func(ctx context.Context) (transport.Conn, error) { <-ctx.Done(); return nil, ctx.Err() }
		_, err = New(gone, cfg)
		require.ErrorIs(t, err, context.Canceled)
	})
}

// TestRefused: what will not pass ends the client at once, everywhere and with its
// type; nothing is dialled again.
func TestRefused(t *testing.T) {
	pin := identity(t, relaySeed).Public()
	other := identity(t, 9).Public()
	const address = "wss://relay.example"
	seen := func(key crypto.PublicKey) func(*Config) {
		return func(c *Config) {
			c.Trust, c.Address = new(handshake.MemoryTrust), address
			require.NoError(t, c.Trust.Remember(address, key))
		}
	}
	isMismatch := func(t *testing.T, err error) {
		var e *handshake.KeyMismatchError
		require.ErrorAs(t, err, &e)
		require.Equal(t, &handshake.KeyMismatchError{Want: other, Got: pin}, e)
	}
	isLegacy := func(t *testing.T, err error) { require.ErrorIs(t, err, handshake.ErrLegacyRelay) }
	for _, o := range []struct {
		name   string
		legacy bool
		set    func(*Config)
		check  func(*testing.T, error) // nil: accepted
	}{
		{"first contact", false, nil, nil},
		{"pinned", false, func(c *Config) { c.Relay = &pin }, nil},
		{"pinned otherwise", false, func(c *Config) { c.Relay = &other }, isMismatch},
		{"seen before", false, seen(pin), nil},
		{"seen with another key", false, seen(other), isMismatch},
		{"pinned, whatever was seen", false, func(c *Config) { seen(other)(c); c.Relay = &pin }, nil},
		{"legacy, allowed", true, func(c *Config) { c.AllowLegacy = true }, nil},
		{"legacy, not allowed", true, func(c *Config) { c.AllowLegacy = false }, isLegacy},
		{"legacy, pinned", true, func(c *Config) { c.Relay, c.AllowLegacy = &pin, true }, isLegacy},
		{"legacy, seen in v2", true, func(c *Config) { seen(pin)(c); c.AllowLegacy = true }, isLegacy},
		{"broken store", false, func(c *Config) { c.Trust, c.Address = brokenTrust{}, address },
			func(t *testing.T, err error) { require.ErrorIs(t, err, errBroken) }},
		{"store that cannot write", false, func(c *Config) { c.Trust, c.Address = brokenTrust{canRead: true}, address },
			func(t *testing.T, err error) { require.ErrorIs(t, err, errBroken) }},
	} {
		t.Run(o.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := &fakeRelay{t: t, seed: relaySeed, legacy: o.legacy, script: (*fakeConn).hold}
				_, err := r.client(o.set)
				if o.check == nil {
					require.NoError(t, err)
					return
				}
				o.check(t, err)
				c, err := r.client(func(c *Config) {
					c.StartOffline = true
					if o.set != nil {
						o.set(c)
					}
				})
				require.NoError(t, err)
				_, err = c.Send(t.Context(), other, Text("x"))
				o.check(t, err)
				for l, err := range c.Messages(t.Context()) {
					require.Nil(t, l)
					o.check(t, err)
				}
				require.NoError(t, c.Close())
				o.check(t, c.Err())
				time.Sleep(time.Hour)
				require.LessOrEqual(t, r.dialled(), 2)
			})
		})
	}
}

var errBroken = errors.New("disk on fire")

type brokenTrust struct{ canRead bool }

func (b brokenTrust) Lookup(string) (k crypto.PublicKey, ok bool, err error) {
	if b.canRead {
		return k, false, nil
	}
	return k, false, errBroken
}

func (brokenTrust) Remember(string, crypto.PublicKey) error { return errBroken }

// TestTrust: the key of the first contact is remembered and told, once, and
// another one later ends the client.
func TestTrust(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t).start()
		var first []crypto.PublicKey
		c := r.client(identity(t, 1), func(c *Config) {
			c.Trace = &Trace{FirstContact: func(k crypto.PublicKey) { first = append(first, k) }}
		})
		r.stop()
		r.start()
		require.Equal(t, Stored, send(t, c, identity(t, 2), "x").Status)
		require.Equal(t, []crypto.PublicKey{identity(t, relaySeed).Public()}, first)
		r.stop()
		r.dialect.Identity = identity(t, 9)
		r.start()
		_, err := c.Send(t.Context(), identity(t, 2).Public(), Text("x"))
		var e *handshake.KeyMismatchError
		require.ErrorAs(t, err, &e)
		require.Equal(t, err, c.Err())
	})
}

// TestCodes: after 3, 4, 5, 17 and 18 a client stays away, in whichever session;
// after the others it comes back.
func TestCodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for code := frame.CodeMalformed; code <= frame.CodeInternal; code++ {
			r := &fakeRelay{t: t, seed: relaySeed}
			r.script = func(c *fakeConn) {
				if c.n == 0 {
					time.Sleep(time.Second)
					c.fail(code, transport.ClosePolicy)
				}
				c.hold()
			}
			c, err := r.client(nil)
			require.NoError(t, err)
			time.Sleep(time.Minute)
			switch code {
			case 3, 4, 5, 17, 18:
				var e *brep.RelayError
				require.ErrorAs(t, c.Err(), &e)
				require.Equal(t, code, e.Code)
				require.Equal(t, 1, r.dialled(), code)
			default:
				require.NoError(t, c.Err(), code)
				require.Equal(t, 2, r.dialled(), code)
			}
			require.NoError(t, c.Close())
		}
	})
}

// TestReplaced: of two clients with one identity the newer stays (HS-08).
func TestReplaced(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		bob := identity(t, 2)
		older := r.client(bob, nil)
		newer := r.client(bob, nil)
		for _, err := range older.Messages(t.Context()) {
			var e *brep.RelayError
			require.ErrorAs(t, err, &e)
			require.Equal(t, frame.CodeReplaced, e.Code)
		}
		a := r.client(identity(t, 1), nil)
		for range 10 {
			send(t, a, bob, "x")
			next(t, newer)
			time.Sleep(time.Minute)
		}
		require.Equal(t, 3, r.dialled())
		require.NoError(t, newer.Err())
	})
}

// TestGoAway: a relay that goes away says when to come back.
func TestGoAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		away := frame.GoAway{After: 7 * time.Second}
		r := &fakeRelay{t: t, seed: relaySeed, script: func(c *fakeConn) {
			if c.n > 0 {
				c.hold()
				return
			}
			c.write(&frame.Brep{Type: frame.TypeGoAway, Payload: away.Append(nil)})
			_ = c.Close(transport.CloseGoingAway, "")
		}}
		start := time.Now()
		_, err := r.client(nil)
		require.NoError(t, err)
		time.Sleep(time.Minute)
		r.mu.Lock()
		defer r.mu.Unlock()
		require.Len(t, r.dials, 2)
		require.Equal(t, away.After, r.dials[1].Sub(start))
	})
}

// TestBackoff: the times between attempts are random below a bound that doubles,
// and begin again after a connection that lasted.
func TestBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		var waits []time.Duration
		c := r.client(identity(t, 1), func(c *Config) {
			c.StartOffline = true
			c.Trace = &Trace{Disconnected: func(err error, d time.Duration) {
				waits = append(waits, d)
			}}
		})
		check := func() {
			t.Helper()
			limit := 500 * time.Millisecond
			for _, w := range waits {
				require.GreaterOrEqual(t, w, time.Duration(0))
				require.LessOrEqual(t, w, limit)
				limit = min(2*limit, 30*time.Second)
			}
		}
		start := time.Now()
		time.Sleep(time.Hour)
		synctest.Wait()
		check()
		require.Greater(t, len(waits), 180, "15 s on average")
		require.Less(t, len(waits), 320)
		sum := time.Duration(0)
		for _, w := range waits[:len(waits)-1] {
			sum += w
		}
		require.LessOrEqual(t, sum, time.Since(start))

		r.start()
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		waits = nil
		r.stop()
		time.Sleep(time.Minute)
		synctest.Wait()
		require.NotEmpty(t, waits)
		waits[0] = min(waits[0], 500*time.Millisecond) // it was the relay that named it
		check()
		require.NoError(t, c.Close())
	})
	for attempt := range 100 {
		seen := time.Duration(0)
		for range 1000 {
			d := backoff(attempt, time.Second, time.Minute)
			require.GreaterOrEqual(t, d, time.Duration(0))
			seen = max(seen, d)
		}
		limit := min(time.Second<<min(attempt, 10), time.Minute)
		require.LessOrEqual(t, seen, limit)
		require.Greater(t, seen, limit/2)
	}
}

// TestFlapping: a relay that takes logins and ends them at once is not hammered.
func TestFlapping(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &fakeRelay{t: t, seed: relaySeed, script: func(c *fakeConn) { c.fail(frame.CodeOverloaded, transport.CloseTryLater) }}
		_, err := r.client(nil)
		require.NoError(t, err)
		time.Sleep(time.Hour)
		require.Less(t, r.dialled(), 320)
	})
}

// TestUnencrypted: there is one warning, for connections to other machines only.
func TestUnencrypted(t *testing.T) {
	for _, o := range []struct {
		addr      net.Addr
		encrypted bool
		warns     bool
	}{
		{&net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 443}, false, true},
		{&net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 443}, true, false},
		{&net.TCPAddr{IP: net.ParseIP("2001:db8::1"), Port: 443}, false, true},
		{&net.UDPAddr{IP: net.IPv4(10, 0, 0, 1), Port: 1}, false, true},
		{&net.TCPAddr{IP: net.IPv4(127, 9, 9, 9), Port: 1}, false, false},
		{&net.TCPAddr{IP: net.ParseIP("::1"), Port: 1}, false, false},
		{net.TCPAddrFromAddrPort(netip.MustParseAddrPort("[::ffff:127.0.0.1]:1")), false, false},
		{&net.UnixAddr{Name: "/run/relay", Net: "unix"}, false, false},
		{odd{}, false, true},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t).start()
			var log bytes.Buffer
			var told []net.Addr
			c := r.client(identity(t, 1), func(c *Config) {
				c.Dial = func(ctx context.Context) (transport.Conn, error) {
					conn, err := r.dial(ctx)
					return addressed{conn, o.addr}, err
				}
				if o.encrypted {
					c.Encrypted = func(transport.Conn) bool { return true }
				}
				c.Logger = slog.New(slog.NewTextHandler(&log, nil))
				c.Trace = &Trace{Unencrypted: func(a net.Addr) { told = append(told, a) }}
			})
			r.stop()
			r.start()
			send(t, c, identity(t, 2), "x")
			require.NoError(t, c.Close())
			want := 0
			if o.warns {
				want = 1
			}
			require.Equal(t, want, strings.Count(log.String(), "not encrypted"), "%v", o.addr)
			require.Len(t, told, want)
		})
	}
}

type odd struct{}

func (odd) Network() string { return "tcp" }
func (odd) String() string  { return "relay.example:443" }

type addressed struct {
	transport.Conn
	addr net.Addr
}

func (a addressed) RemoteAddr() net.Addr { return a.addr }

// TestRestart: a relay is killed and another started with its inbox; what was
// stored comes, and what had no receipt is sent.
func TestRestart(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		alice, bob := identity(t, 1), identity(t, 2)
		a := r.client(alice, nil)
		for _, text := range []string{"one", "two"} {
			require.Equal(t, Stored, send(t, a, bob, text).Status)
		}
		r.stop()
		sent := make(chan Receipt)
		go func() {
			for _, text := range []string{"three", "four"} {
				sent <- send(t, a, bob, text)
			}
			close(sent)
		}()
		time.Sleep(time.Hour)
		r.start()
		require.Equal(t, Stored, (<-sent).Status)
		require.Equal(t, Stored, (<-sent).Status)
		<-sent
		b := r.client(bob, nil)
		for _, text := range []string{"one", "two", "three", "four"} {
			require.Equal(t, text, next(t, b).Text())
		}
	})
}
