package client

import (
	"bytes"
	"context"
	"encoding/base64"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sotto-relay/sotto/crypto"
	"github.com/sotto-relay/sotto/frame"
	"github.com/sotto-relay/sotto/inbox"
	"github.com/sotto-relay/sotto/transport"
)

// A cardTap is what lies between a Client and its relay: it sees with which suite
// messages go out, and may answer for the relay who asks for a card.
type cardTap struct {
	t    testing.TB
	dial transport.Dialer

	mu     sync.Mutex
	evil   func(real []byte) []byte // nil: as the relay answers. Of what and to what: nil: there is no card
	suites []byte                   // of the SEALED frames that went out
	asked  int                      // for cards
	open   map[int64]bool           // requests for cards
}

func tap(t testing.TB, dial transport.Dialer) *cardTap {
	return &cardTap{t: t, dial: dial, open: make(map[int64]bool)}
}

func (p *cardTap) Dial(ctx context.Context) (transport.Conn, error) {
	c, err := p.dial(ctx)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	clear(p.open)
	return &tappedConn{c, p}, nil
}

func (p *cardTap) answer(evil func([]byte) []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.evil = evil
}

// sent returns the suites of what was sealed since the last call.
func (p *cardTap) sent() []byte {
	synctest.Wait() // a receipt may come before Write has returned
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.suites
	p.suites = nil
	return s
}

func (p *cardTap) timesAsked() int {
	synctest.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.asked
}

type tappedConn struct {
	transport.Conn
	tap *cardTap
}

func (c *tappedConn) Write(k transport.Kind, msgs [][]byte) (int, error) {
	c.each(msgs, func(f *frame.Brep) {
		if q := readRequest(c.tap.t, f.Payload); q.Verb == "get_card" && !c.tap.open[q.Number] {
			c.tap.asked++
			c.tap.open[q.Number] = true // before there can be an answer
		}
	}, frame.TypeRequest)
	n, err := c.Conn.Write(k, msgs)
	c.each(msgs[:n], func(f *frame.Brep) { c.tap.suites = append(c.tap.suites, f.Payload[32]) }, frame.TypeSealed)
	return n, err
}

// each calls do for the frames of a type.
func (c *tappedConn) each(msgs [][]byte, do func(*frame.Brep), of frame.Type) {
	c.tap.mu.Lock()
	defer c.tap.mu.Unlock()
	for _, b := range msgs {
		if f, err := frame.DecodeBrep(b); err == nil && f.Type == of {
			do(&f)
		}
	}
}

func (c *tappedConn) Read() (transport.Kind, []byte, error) {
	k, b, err := c.Conn.Read()
	if err != nil {
		return k, b, err
	}
	f, err := frame.DecodeBrep(b)
	if err != nil || f.Type != frame.TypeResponse {
		return k, b, nil
	}
	q := readRequest(c.tap.t, f.Payload)
	c.tap.mu.Lock()
	defer c.tap.mu.Unlock()
	if !c.tap.open[q.Number] || c.tap.evil == nil {
		return k, b, nil
	}
	delete(c.tap.open, q.Number)
	if card := c.tap.evil(q.Card); card != nil {
		f.Payload = frame.AppendResponse(nil, q.Number, frame.AppendCard(nil, base64.StdEncoding.EncodeToString(card)))
	} else {
		f.Payload = frame.AppendRefusal(nil, q.Number, frame.CodeNotFound, "")
	}
	return k, f.Append(nil), nil
}

// withTap has a Client dial through a tap.
func withTap(p *cardTap) func(*Config) { return func(c *Config) { c.Dial = p.Dial } }

// newCard returns a card of id's, valid from now on for as long as said.
func newCard(t testing.TB, id *crypto.Identity, serial uint64, from time.Time, life time.Duration) *crypto.Card {
	t.Helper()
	keys, err := crypto.GenerateCardKeys()
	require.NoError(t, err)
	card, err := crypto.NewCard(id, serial, from, from.Add(life), keys)
	require.NoError(t, err)
	return card
}

// TestSealingChoice: spec native.md, "Choice".
func TestSealingChoice(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		alice, bob, carol := identity(t, 1), identity(t, 2), identity(t, 3)
		b := r.client(bob, nil)
		p := tap(t, r.dial)
		a := r.client(alice, withTap(p))
		synctest.Wait()

		send(t, a, bob, "to a card")
		l := next(t, b)
		require.Equal(t, "to a card", l.Text())
		require.Equal(t, ProtectionSealed, l.Protection)
		send(t, a, carol, "to somebody who has none")
		send(t, a, alice, "to myself")
		require.Equal(t, []byte{3, 2, 3}, p.sent())
		require.Equal(t, "to myself", next(t, a).Text())

		require.Equal(t, 3, p.timesAsked())
		send(t, a, bob, "again", NoWait())
		send(t, a, carol, "again", NoWait())
		synctest.Wait()
		require.Equal(t, []byte{3, 2}, p.sent())
		require.Equal(t, 3, p.timesAsked(), "the answers hold")

		c := r.client(carol, nil)
		require.Equal(t, "to somebody who has none", next(t, c).Text())
		require.Equal(t, "again", next(t, c).Text())
		time.Sleep(askAgain)
		send(t, a, carol, "who has one now")
		require.Equal(t, []byte{3}, p.sent())
		require.Equal(t, "who has one now", next(t, c).Text())
	})
}

// TestSealingOffline: what is known suffices, and who is new gets suite 2. Nobody
// waits for somebody else.
func TestSealingOffline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.state = inbox.NewMemoryState(nil)
		r.start()
		alice, bob, carol, dave := identity(t, 1), identity(t, 2), identity(t, 3), identity(t, 4)
		b, c, d := r.client(bob, nil), r.client(carol, nil), r.client(dave, nil)
		p := tap(t, r.dial)
		a := r.client(alice, withTap(p))
		synctest.Wait() // their cards are there
		send(t, a, bob, "known")
		require.Equal(t, "known", next(t, b).Text())
		time.Sleep(time.Second)
		p.sent()
		r.stop()
		time.Sleep(time.Second)
		send(t, a, bob, "known", NoWait())
		send(t, a, carol, "new", NoWait())
		waited := make(chan error, 1)
		go func() {
			_, err := a.Send(t.Context(), dave.Public(), Text("new"))
			waited <- err
		}()
		time.Sleep(time.Hour)
		r.start()
		require.NoError(t, <-waited)
		require.ElementsMatch(t, []byte{3, 2, 2}, p.sent())
		require.Equal(t, "known", next(t, b).Text())
		require.Equal(t, "new", next(t, c).Text())
		require.Equal(t, "new", next(t, d).Text())
	})
}

// TestSilentRelay: at first contact nobody waits for a card for ever.
func TestSilentRelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var suites []byte
		r := &fakeRelay{t: t, seed: relaySeed, script: func(c *fakeConn) {
			for {
				f, err := c.readAny()
				if err != nil {
					return
				}
				if f.Type == frame.TypeSealed {
					suites = append(suites, f.Payload[32])
				}
			}
		}}
		c, err := r.client(nil)
		require.NoError(t, err)
		start := time.Now()
		for range 3 {
			_, err = c.Send(t.Context(), identity(t, 2).Public(), Text("x"), NoWait())
			require.NoError(t, err)
		}
		require.Equal(t, patience, time.Since(start), "once")
		synctest.Wait()
		require.Equal(t, []byte{2, 2, 2}, suites)
	})
}

// TestEvilRelay: what a relay can say about cards that is not so. Nothing is sent
// then, and nothing is forgotten by it.
func TestEvilRelay(t *testing.T) {
	alice, bob, eve := identity(t, 1), identity(t, 2), identity(t, 3)
	always := func(b []byte) func([]byte) []byte { return func([]byte) []byte { return b } }
	edited := func(at int) func([]byte) []byte {
		return func(real []byte) []byte {
			b := bytes.Clone(real)
			b[at] ^= 1
			return b
		}
	}
	type evil struct {
		answer func(t *testing.T) func([]byte) []byte
		want   error // once a card was seen
		first  error // at first contact; nil: it cannot be noticed
	}
	of := func(id *crypto.Identity, serial uint64, from, life time.Duration) func(*testing.T) func([]byte) []byte {
		return func(t *testing.T) func([]byte) []byte {
			return always(newCard(t, id, serial, time.Now().Add(from), life).Bytes())
		}
	}
	const far = 1 << 60
	for name, o := range map[string]evil{
		"forged key":         {func(*testing.T) func([]byte) []byte { return edited(100) }, ErrCardForged, ErrCardForged},
		"forged serial":      {func(*testing.T) func([]byte) []byte { return edited(40) }, ErrCardForged, ErrCardForged},
		"forged end":         {func(*testing.T) func([]byte) []byte { return edited(56) }, ErrCardForged, ErrCardForged},
		"forged signature":   {func(*testing.T) func([]byte) []byte { return edited(crypto.CardSize - 1) }, ErrCardForged, ErrCardForged},
		"for another":        {func(*testing.T) func([]byte) []byte { return edited(1) }, ErrCardForged, ErrCardForged},
		"short":              {func(*testing.T) func([]byte) []byte { return always([]byte{1}) }, ErrCardForged, ErrCardForged},
		"empty":              {func(*testing.T) func([]byte) []byte { return always([]byte{}) }, ErrCardForged, ErrCardForged},
		"swapped":            {of(eve, far, 0, day), ErrCardSwapped, ErrCardSwapped},
		"rolled back":        {of(bob, 1, 0, day), ErrCardRolledBack, nil},
		"another, same name": {nil, ErrCardRolledBack, nil}, // below
		"ended":              {of(bob, far, -2*day, day), ErrCardTime, ErrCardTime},
		"not begun":          {of(bob, far, day, day), ErrCardTime, ErrCardTime},
		"withheld":           {func(*testing.T) func([]byte) []byte { return always(nil) }, ErrCardWithheld, nil},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				b := r.client(bob, nil)
				synctest.Wait()
				real, _ := b.keys.current()
				answer := func() func([]byte) []byte {
					if o.answer == nil {
						return always(newCard(t, bob, real.Serial(), time.Now(), day).Bytes())
					}
					return o.answer(t)
				}
				store := inbox.NewMemoryState(nil)
				p := tap(t, r.dial)
				set := func(c *Config) { c.Dial, c.Store = p.Dial, store }
				a := r.client(alice, set)

				p.answer(answer())
				_, err := a.Send(t.Context(), bob.Public(), Text("first"))
				if o.first == nil {
					require.NoError(t, err)
					require.NoError(t, a.Forget(t.Context(), bob.Public()))
					p.sent()
				} else {
					requireCardError(t, err, bob, o.first)
					require.Empty(t, p.sent())
				}

				p.answer(nil)
				send(t, a, bob, "seen")
				require.Equal(t, []byte{3}, p.sent())
				require.NoError(t, a.Close())
				require.NoError(t, b.Close())
				r.skip(cardLife + day) // so that another card is needed

				r.client(bob, nil)
				synctest.Wait()
				p.answer(answer())
				a = r.client(alice, set)
				for range 2 {
					_, err = a.Send(t.Context(), bob.Public(), Text("not sent"))
					requireCardError(t, err, bob, o.want)
					_, err = a.Send(t.Context(), bob.Public(), Text("not sent"), NoWait())
					requireCardError(t, err, bob, o.want)
				}
				require.Empty(t, p.sent())
				p.answer(nil)
				send(t, a, bob, "last")
				require.Equal(t, []byte{3}, p.sent())
			})
		})
	}
}

func requireCardError(t testing.TB, err error, of *crypto.Identity, want error) {
	t.Helper()
	require.ErrorIs(t, err, want)
	var e *CardError
	require.ErrorAs(t, err, &e)
	require.Equal(t, of.Public(), e.Contact)
}

// TestCardWithheldWhileValid: a card that was seen serves until its end, whatever the
// relay has; but it is told.
func TestCardWithheldWhileValid(t *testing.T) {
	skipInRace(t)
	bubble(t, func(t *testing.T, r *rig) {
		bob := identity(t, 2)
		b := r.client(bob, nil)
		synctest.Wait()
		p := tap(t, r.dial)
		var told []error
		a := r.client(identity(t, 1), func(c *Config) {
			c.Dial = p.Dial
			c.Trace = &Trace{Card: func(_ crypto.PublicKey, err error) { told = append(told, err) }}
		})
		send(t, a, bob, "seen")
		card, _ := b.keys.current()
		require.NoError(t, b.Close())
		p.answer(func([]byte) []byte { return nil })
		send(t, a, bob, "no need to ask")
		require.Equal(t, 1, p.timesAsked())
		r.skip(time.Until(halfLife(card)))
		send(t, a, bob, "asked")
		send(t, a, bob, "not asked again")
		require.Equal(t, 2, p.timesAsked())
		require.Len(t, told, 1)
		requireCardError(t, told[0], bob, ErrCardWithheld)
		require.Equal(t, []byte{3, 3, 3, 3}, p.sent())

		r.skip(time.Until(card.NotAfter()))
		send(t, a, bob, "in its last moment")
		time.Sleep(time.Millisecond)
		_, err := a.Send(t.Context(), bob.Public(), Text("too late"))
		requireCardError(t, err, bob, ErrCardWithheld)
		require.Equal(t, []byte{3}, p.sent())

		require.NoError(t, a.Forget(t.Context(), bob.Public()))
		send(t, a, bob, "as to somebody new")
		require.Equal(t, []byte{2}, p.sent())

		b = r.client(bob, nil)
		require.Equal(t, "in its last moment", next(t, b).Text())
		require.Equal(t, "as to somebody new", next(t, b).Text())
	})
}

// TestContactLostKeys: who has lost its store is written to with its new card within a
// day, and no relay is asked more often for that.
func TestContactLostKeys(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		bob := identity(t, 2)
		set := func(c *Config) { c.Store = inbox.NewMemoryState(nil) }
		b := r.client(bob, set)
		synctest.Wait()
		p := tap(t, r.dial)
		a := r.client(identity(t, 1), withTap(p))
		send(t, a, bob, "seen")
		require.Equal(t, "seen", next(t, b).Text())
		require.NoError(t, b.Close())
		time.Sleep(time.Hour)
		b = r.client(bob, set)
		time.Sleep(checkAgain - time.Hour - time.Minute)
		send(t, a, bob, "lost")
		require.Equal(t, 1, p.timesAsked())
		time.Sleep(time.Minute)
		send(t, a, bob, "x")
		send(t, a, bob, "y")
		require.Equal(t, "x", next(t, b).Text())
		require.Equal(t, "y", next(t, b).Text())
		require.Equal(t, 2, p.timesAsked())
		require.Equal(t, []byte{3, 3, 3, 3}, p.sent())
	})
}

// TestGivenByHand: a contact with an X25519 key that was given by hand gets
// ENCRYPTED_DATA, and nobody asks for a card; unless one was seen.
func TestGivenByHand(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		bob := identity(t, 2)
		b := r.client(bob, nil)
		synctest.Wait()
		byHand := true
		p := tap(t, r.dial)
		a := r.client(identity(t, 1), func(c *Config) {
			c.Dial = p.Dial
			c.Contacts = func(crypto.PublicKey) (crypto.X25519Key, bool) { return bob.X25519().Public(), byHand }
		})
		send(t, a, bob, "x")
		require.Equal(t, ProtectionEncrypted, next(t, b).Protection)
		require.Zero(t, p.timesAsked())
		byHand = false
		send(t, a, bob, "x")
		require.Equal(t, ProtectionSealed, next(t, b).Protection)
		byHand = true
		_, err := a.Send(t.Context(), bob.Public(), Text("x"))
		requireCardError(t, err, bob, ErrCardUnused)
		send(t, a, bob, "readable, by an option", Signed())
		require.Equal(t, ProtectionSigned, next(t, b).Protection)
	})
}

// TestPairing: a card that was promised cannot be withheld or rolled back, not even at
// first contact, and not after a restart.
func TestPairing(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		bob := identity(t, 2)
		b := r.client(bob, nil)
		synctest.Wait()
		promise := b.Pairing()
		promise.Host = "relay.example"
		promise, err := crypto.ParsePairing(promise.String())
		require.NoError(t, err)
		require.NotZero(t, promise.Card)

		p := tap(t, r.dial)
		set := func(c *Config) { c.Dial, c.Store = p.Dial, inbox.NewMemoryState(nil) }
		a := r.client(identity(t, 1), set)
		require.NoError(t, a.Pair(t.Context(), promise))
		refused := func(want error) {
			t.Helper()
			_, err := a.Send(t.Context(), bob.Public(), Text("not sent"))
			requireCardError(t, err, bob, want)
		}
		p.answer(func([]byte) []byte { return nil })
		refused(ErrCardWithheld)
		old := newCard(t, bob, promise.Card-1, time.Now(), day)
		p.answer(func([]byte) []byte { return old.Bytes() })
		refused(ErrCardRolledBack)
		require.NoError(t, a.Pair(t.Context(), crypto.Pairing{Key: bob.Public(), Card: promise.Card - 1}))
		refused(ErrCardRolledBack)
		require.NoError(t, a.Close())
		a = r.client(identity(t, 1), func(c *Config) { set(c); c.Store = a.cfg.Store })
		refused(ErrCardRolledBack)

		r.stop()
		time.Sleep(time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err = a.Send(ctx, bob.Public(), Text("not sent"), NoWait())
		require.ErrorIs(t, err, context.DeadlineExceeded, "nobody to ask")
		r.start()
		time.Sleep(time.Minute)
		require.Empty(t, p.sent())
		p.answer(nil)
		send(t, a, bob, "x")
		require.Equal(t, []byte{3}, p.sent())
		require.ErrorIs(t, a.Pair(t.Context(), crypto.Pairing{Key: crypto.PublicKey{1}}), crypto.ErrWeakKey)
	})
}

// TestContactNotKept: what cannot be remembered is not relied on.
func TestContactNotKept(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		bob := identity(t, 2)
		r.client(bob, nil)
		synctest.Wait()
		p := tap(t, r.dial)
		store := &readOnly{State: inbox.NewMemoryState(nil)}
		a := r.client(identity(t, 1), func(c *Config) { c.Dial, c.Store = p.Dial, store })
		store.set(true)
		_, err := a.Send(t.Context(), bob.Public(), Text("x"))
		require.ErrorIs(t, err, inbox.ErrStorageFull)
		require.Empty(t, p.sent())
		store.set(false)
		send(t, a, bob, "x")
		require.Equal(t, []byte{3}, p.sent())
	})
}

// A readOnly store has no room, if it is set.
type readOnly struct {
	inbox.State
	mu   sync.Mutex
	full bool
}

func (s *readOnly) set(full bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.full = full
}

func (s *readOnly) Put(ctx context.Context, bucket, key string, value []byte) error {
	s.mu.Lock()
	full := s.full
	s.mu.Unlock()
	if full {
		return inbox.ErrStorageFull
	}
	return s.State.Put(ctx, bucket, key, value)
}

// TestManyContacts: more than are kept in memory, and several at once.
func TestManyContacts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := Config{Identity: identity(t, 1)}.withDefaults()
		s, err := newSafe(&cfg, contactsBucket, inbox.NewMemoryState(nil))
		require.NoError(t, err)
		b := &cardbook{safe: s, relay: noCards{}, contacts: make(map[crypto.PublicKey]*contact)}
		for n := range uint64(maxContacts + 100) {
			who := crypto.PublicKey{byte(n), byte(n >> 8)}
			require.NoError(t, b.promise(t.Context(), who, n+1))
		}
		require.LessOrEqual(t, len(b.contacts), maxContacts)
		for n := range uint64(maxContacts + 100) {
			k, err := b.take(t.Context(), crypto.PublicKey{byte(n), byte(n >> 8)})
			require.NoError(t, err)
			require.Equal(t, n+1, k.floor)
			b.release(k)
		}

		who := identity(t, 2).Public()
		k, err := b.take(t.Context(), who)
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = b.sealKey(ctx, who)
		require.ErrorIs(t, err, context.DeadlineExceeded, "one at a time")
		require.Equal(t, 1, k.users)
		b.release(k)
		_, err = b.sealKey(t.Context(), who)
		require.NoError(t, err)
	})
}

type noCards struct{}

func (noCards) isOnline() bool { return true }

func (noCards) getCard(context.Context, crypto.PublicKey) ([]byte, error) { return nil, errNoCard }

// TestPairingRenewed: a pairing string may promise the card that comes after the one
// that was seen.
func TestPairingRenewed(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		alice, bob := identity(t, 1), identity(t, 2)
		b := r.client(bob, func(c *Config) { c.Store = inbox.NewMemoryState(nil) })
		p := tap(t, r.dial)
		a := r.client(alice, withTap(p))
		synctest.Wait()
		send(t, a, bob, "seen")
		before := b.Pairing().Card
		require.NoError(t, b.keys.renew(t.Context()))
		synctest.Wait()
		require.Greater(t, b.Pairing().Card, before)
		require.NoError(t, a.Pair(t.Context(), b.Pairing()))
		send(t, a, bob, "promised")
		require.Equal(t, []byte{3, 3}, p.sent())
		require.Equal(t, "seen", next(t, b).Text())
		require.Equal(t, "promised", next(t, b).Text())
	})
}

// TestContactDamaged: what is known of a contact and cannot be read any more says that
// there was a card.
func TestContactDamaged(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		alice, bob := identity(t, 1), identity(t, 2)
		b := r.client(bob, nil)
		p := tap(t, r.dial)
		store, key := inbox.NewMemoryState(nil), bob.Public()
		var failed error
		set := func(c *Config) {
			c.Dial, c.Store = p.Dial, store
			c.Trace = &Trace{StoreFailed: func(err error) { failed = err }}
		}
		a := r.client(alice, set)
		synctest.Wait()
		send(t, a, bob, "seen")
		require.Equal(t, "seen", next(t, b).Text())
		synctest.Wait()
		require.NoError(t, a.Close())
		require.NoError(t, store.Put(t.Context(), a.book.safe.bucket, string(key[:]), []byte("damaged")))
		p.sent()
		p.answer(func([]byte) []byte { return nil })
		a = r.client(alice, set)
		_, err := a.Send(t.Context(), key, Text("x"))
		requireCardError(t, err, bob, ErrCardWithheld)
		require.Equal(t, errStored, failed)
		p.answer(nil)
		send(t, a, bob, "again")
		require.Equal(t, []byte{3}, p.sent())
	})
}
