package client

import (
	"context"
	"encoding/hex"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sotto-relay/sotto/crypto"
	"github.com/sotto-relay/sotto/frame"
	"github.com/sotto-relay/sotto/inbox"
	"github.com/sotto-relay/sotto/relay/dialect/brep"
)

const day = 24 * time.Hour

// testRing returns a keyring with a store, which may be nil.
func testRing(t testing.TB, id *crypto.Identity, store inbox.State) *keyring {
	t.Helper()
	cfg := Config{Identity: id, Logger: slog.New(slog.DiscardHandler), Store: store}.withDefaults()
	var own *safe
	if store != nil {
		var err error
		own, err = newSafe(&cfg, cardsBucket, store)
		require.NoError(t, err)
	}
	r, err := newKeyring(t.Context(), id, own, cfg.Logger)
	require.NoError(t, err)
	return r
}

// sealTo returns what somebody seals to a card.
func sealTo(t testing.TB, from *crypto.Identity, card *crypto.Card) *frame.Brep {
	t.Helper()
	f := &frame.Brep{Type: frame.TypeSealed, ID: [16]byte{1}, Sender: from.Public()}
	var err error
	f.Payload, f.Signature, err = crypto.Seal(from, card.SealKey(crypto.SuiteXWing), f.ID, crypto.Content{Type: crypto.Text, Data: []byte("x")})
	require.NoError(t, err)
	return f
}

// TestCardLife: over a year there always is a card that is valid for half of its
// life or more, its serial increases, what is sealed in a card's last moment opens
// for 14 days, and a day later it does not. So with and without a store, with a
// Client that runs and with one that is started again all the time.
func TestCardLife(t *testing.T) {
	skipInRace(t)
	for name, o := range map[string]struct{ stored, again bool }{
		"stored": {true, false}, "stored, again": {true, true}, "derived": {false, false}, "derived, again": {false, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				self, from := identity(t, 1), identity(t, 2)
				var store inbox.State
				if o.stored {
					store = inbox.NewMemoryState(nil)
				}
				r := testRing(t, self, store)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if !o.again {
					go r.run(ctx)
				}
				latest := map[crypto.KeyID]*frame.Brep{}
				cards := map[crypto.KeyID]*crypto.Card{}
				var last *crypto.Card
				for start := time.Now(); time.Since(start) < 365*day; time.Sleep(day) {
					if o.again {
						r = testRing(t, self, store)
					}
					card, _ := r.current()
					r.keep(card)
					if o.again {
						require.NoError(t, r.tend(ctx))
					}
					if last == nil || card.KeyID() != last.KeyID() {
						if last != nil {
							require.Greater(t, card.Serial(), last.Serial())
							require.WithinDuration(t, halfLife(last), time.Now(), day+time.Hour)
						}
						last = card
						cards[card.KeyID()], latest[card.KeyID()] = card, sealTo(t, from, card)
					}
					require.True(t, card.ValidAt(time.Now()))
					require.GreaterOrEqual(t, time.Until(card.NotAfter()), cardLife/2-day-time.Hour)
					for id, f := range latest {
						_, err := (&opener{self, r}).open(f)
						switch late := time.Since(cards[id].NotAfter()); {
						case late <= rememberTime:
							require.NoError(t, err)
						case late > keyTime+day+time.Hour && (o.stored || late > cardRenew):
							require.ErrorIs(t, err, crypto.ErrUnknownKey)
						}
					}
					require.LessOrEqual(t, len(r.openKeys()), 1+2*3+2*3)
				}
				require.GreaterOrEqual(t, len(cards), 8)
				if o.stored {
					n := 0
					for _, err := range store.Range(t.Context(), cardsBucket+self.Public().String(), "") {
						require.NoError(t, err)
						n++
					}
					require.LessOrEqual(t, n, 3)
				}
			})
		})
	}
}

// TestStoredKeysAreEncrypted: nothing secret is in the store, and what is there opens
// for its identity only, in its place.
func TestStoredKeysAreEncrypted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		self := identity(t, 1)
		store := inbox.NewMemoryState(nil)
		r := testRing(t, self, store)
		card, _ := r.current()
		value, err := r.safe.get(t.Context(), serialKey(card.Serial()))
		require.NoError(t, err)
		require.Equal(t, card.Bytes(), value[64:])
		for item, err := range store.Range(t.Context(), r.safe.bucket, "") {
			require.NoError(t, err)
			require.NotContains(t, string(item.Value), string(value[:32]))
			require.NotContains(t, string(item.Value), string(value[32:64]))
			require.NoError(t, store.Put(t.Context(), r.safe.bucket, serialKey(7), item.Value), "elsewhere")
		}
		require.NotContains(t, fmt.Sprintf("%+v %#v", r, r), hex.EncodeToString(value[:16]))

		var failed []error
		r.safe.failed = func(err error) { failed = append(failed, err) }
		again := &keyring{identity: self, safe: r.safe, logger: slog.New(slog.DiscardHandler)}
		require.NoError(t, again.load(t.Context()))
		require.Len(t, again.random, 1)
		require.Len(t, failed, 1, "the copy elsewhere, and it is told")
	})
}

// TestClockPutBack: serials increase all the same, and there is a card.
func TestClockPutBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		self := identity(t, 1)
		store := inbox.NewMemoryState(nil)
		r := testRing(t, self, store)
		ahead := newCard(t, self, 1<<50, time.Now().Add(365*day), cardLife)
		keys, err := crypto.GenerateCardKeys()
		require.NoError(t, err)
		ahead, err = crypto.NewCard(self, 1<<50, ahead.NotBefore(), ahead.NotAfter(), keys)
		require.NoError(t, err)
		secret := keys.Secret()
		require.NoError(t, r.safe.put(t.Context(), serialKey(1<<50), append(secret[:], ahead.Bytes()...)))

		r = testRing(t, self, store)
		card, _ := r.current()
		require.Equal(t, uint64(1<<50+1), card.Serial())
		require.True(t, card.ValidAt(time.Now()))
	})
}

// TestClockPutForward: a clock that was wrong once costs no key of a card that others
// have.
func TestClockPutForward(t *testing.T) {
	store := inbox.NewMemoryState(nil)
	self, from := identity(t, 1), identity(t, 2)
	var card *crypto.Card
	synctest.Test(t, func(t *testing.T) {
		r := testRing(t, self, store)
		card, _ = r.current()
		r.keep(card)
	})
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(200 * day)
		r := testRing(t, self, store)
		require.NoError(t, r.tend(t.Context()), "and no relay takes that card")
	})
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(day)
		r := testRing(t, self, store)
		now, _ := r.current()
		r.keep(now)
		require.NoError(t, r.tend(t.Context()))
		require.Greater(t, now.Serial(), card.Serial())
		require.True(t, now.ValidAt(time.Now()))
		_, err := (&opener{self, r}).open(sealTo(t, from, card))
		require.NoError(t, err)
	})
}

// TestKeysErasedOnceTaken: a Client erases old keys when a relay has taken the newest
// card, and not before.
func TestKeysErasedOnceTaken(t *testing.T) {
	skipInRace(t)
	bubble(t, func(t *testing.T, r *rig) {
		store := inbox.NewMemoryState(nil)
		b := r.client(identity(t, 2), func(c *Config) { c.Store = store })
		synctest.Wait()
		stored := func() (n int) {
			for _, err := range store.Range(t.Context(), b.keys.safe.bucket, "") {
				require.NoError(t, err)
				n++
			}
			return n
		}
		require.Equal(t, 1, stored())
		r.stop()
		time.Sleep(cardLife + keyTime + day)
		require.Equal(t, 3, stored())
		r.start()
		time.Sleep(10 * time.Minute)
		require.Equal(t, 2, stored())
	})
}

// TestKeysSurvive: what waits in the inbox opens for the next Client, with a store and
// without.
func TestKeysSurvive(t *testing.T) {
	for name, store := range map[string]inbox.State{"store": inbox.NewMemoryState(nil), "no store": nil} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				bob := identity(t, 2)
				set := func(c *Config) { c.Store = store }
				b := r.client(bob, set)
				synctest.Wait()
				p := tap(t, r.dial)
				a := r.client(identity(t, 1), withTap(p))
				send(t, a, bob, "one")
				require.Equal(t, "one", next(t, b).Text())
				time.Sleep(time.Second) // it is acknowledged
				require.NoError(t, b.Close())
				send(t, a, bob, "two")
				require.Equal(t, []byte{3, 3}, p.sent())
				b = r.client(bob, set)
				require.Equal(t, "two", next(t, b).Text())
			})
		})
	}
}

// TestStoreComes: who gets a store opens what was sealed to the cards before.
func TestStoreComes(t *testing.T) {
	skipInRace(t)
	bubble(t, func(t *testing.T, r *rig) {
		bob := identity(t, 2)
		b := r.client(bob, nil)
		synctest.Wait()
		p := tap(t, r.dial)
		a := r.client(identity(t, 1), withTap(p))
		require.NoError(t, b.Close())
		send(t, a, bob, "before")
		b = r.client(bob, func(c *Config) { c.Store = inbox.NewMemoryState(nil) })
		require.Equal(t, "before", next(t, b).Text())
		r.skip(cardRenew)
		send(t, a, bob, "after")
		require.Equal(t, "after", next(t, b).Text())
		require.Equal(t, []byte{3, 3}, p.sent())
	})
}

// TestKeysErased: what is sealed to keys that are gone is dropped, and it is told.
func TestKeysErased(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		bob := identity(t, 2)
		var why error
		b := r.client(bob, func(c *Config) {
			c.Store = inbox.NewMemoryState(nil)
			c.Trace = &Trace{Dropped: func(_ crypto.PublicKey, err error) { why = err }}
		})
		card, _ := b.keys.current()
		send(t, r.client(identity(t, 1), nil), bob, "fine")
		require.Equal(t, "fine", next(t, b).Text())
		synctest.Wait() // what follows is for the keyring's goroutine
		require.NoError(t, b.keys.renew(t.Context()))
		synctest.Wait()
		b.keys.change(func() { b.keys.random = b.keys.random[1:] })
		conn, err := r.dial(t.Context())
		require.NoError(t, err)
		s, err := brep.Connect(t.Context(), conn, &brep.ClientOptions{Identity: identity(t, 3)})
		require.NoError(t, err)
		defer s.Close()
		require.NoError(t, s.Send(t.Context(), sealTo(t, identity(t, 3), card)))
		synctest.Wait()
		require.ErrorIs(t, why, crypto.ErrUnknownKey)
		none(t, b)
	})
}

// TestOutdone: of two Clients with one identity and a store each, the one that is
// connected has the card that others are given.
func TestOutdone(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		bob := identity(t, 2)
		first, second := inbox.NewMemoryState(nil), inbox.NewMemoryState(nil)
		b := r.client(bob, func(c *Config) { c.Store = first })
		synctest.Wait()
		require.NoError(t, b.Close())
		time.Sleep(2 * time.Hour)
		b = r.client(bob, func(c *Config) { c.Store = second })
		synctest.Wait()
		require.NoError(t, b.Close())
		time.Sleep(2 * time.Hour)
		b = r.client(bob, func(c *Config) { c.Store = first })
		synctest.Wait()
		p := tap(t, r.dial)
		a := r.client(identity(t, 1), withTap(p))
		send(t, a, bob, "x")
		require.Equal(t, "x", next(t, b).Text())
		require.Equal(t, []byte{3}, p.sent())
		require.NoError(t, b.Close())

		b = r.client(bob, nil)
		synctest.Wait()
		card, _ := b.keys.current()
		_, renewed := b.keys.current()
		time.Sleep(3 * askAgain)
		again, still := b.keys.current()
		require.Equal(t, card, again, "without a store there is no other card")
		require.Equal(t, renewed, still)
	})
}

// TestOutdoneByALiar: a relay that says so all the time does not get more than a card
// an hour, and not more than maxCards.
func TestOutdoneByALiar(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := testRing(t, identity(t, 1), inbox.NewMemoryState(nil))
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go r.run(ctx)
		for range 100 * 60 {
			signal(r.outdone)
			time.Sleep(time.Minute)
		}
		require.LessOrEqual(t, len(r.random), maxCards)
		require.Greater(t, len(r.random), 50)
	})
}
