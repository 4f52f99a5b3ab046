package client

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/sotto-relay/sotto/crypto"
)

// A CardError means that the relay's word about a contact's card cannot be, so that
// nothing was sent: it lies, or somebody else does, or it has lost its memory.
// errors.Is tells what is wrong, and [Client.Forget] begins anew with the contact.
type CardError struct {
	Contact crypto.PublicKey
	Err     error
}

func (e *CardError) Error() string {
	return fmt.Sprintf("client: card of %v: %v", e.Contact, e.Err)
}

// Unwrap returns one of the errors below.
func (e *CardError) Unwrap() error { return e.Err }

// What is wrong with a card.
var (
	// ErrCardForged: it is none, or its identity has not signed it.
	ErrCardForged = errors.New("not signed by its identity")

	// ErrCardSwapped: it is somebody else's.
	ErrCardSwapped = errors.New("of another identity")

	// ErrCardTime: it has ended or not begun.
	ErrCardTime = errors.New("not valid now")

	// ErrCardRolledBack: a newer one was seen, or promised by a pairing string.
	ErrCardRolledBack = errors.New("older than one that was seen")

	// ErrCardWithheld: there is none, and one was seen or promised. So it is too when
	// the contact has not renewed its card for 90 days, or has none any more.
	ErrCardWithheld = errors.New("there is none, and there was one")

	// ErrCardUnused: the contact has a card, and Config.Contacts an X25519 key for
	// what is sealed with less.
	ErrCardUnused = errors.New("to be sealed with less than a card that was seen")
)

const (
	// askAgain is how long the answer about a contact holds, whose card is to be
	// renewed or who has none.
	askAgain = 10 * time.Minute

	// checkAgain is how long it holds about a contact whose card serves: who has lost
	// its keys has another card before its time, and does not read what is sealed to
	// this one.
	checkAgain = 24 * time.Hour

	// patience bounds the wait for a card where something else will do.
	patience = 10 * time.Second

	// maxContacts is how many contacts are kept in memory beside those in the store.
	maxContacts = 4096
)

// The bucket of contacts in Config.Store: the key is the contact's, 32 bytes; the
// value, encrypted, the floor u64 ‖ the card, or nothing.
const contactsBucket = "client/contacts/"

// A cardbook has the cards of contacts.
type cardbook struct {
	safe  *safe
	relay cardSource
	alarm func(crypto.PublicKey, error) // a card is wrong and another serves

	mu       sync.Mutex
	contacts map[crypto.PublicKey]*contact
}

// A cardSource is a relay that may be asked for cards.
type cardSource interface {
	// getCard returns a card, not verified. It waits for a connection.
	// errNoCard: the relay has none, or can have none.
	getCard(context.Context, crypto.PublicKey) ([]byte, error)

	// isOnline says whether there is a connection.
	isOnline() bool
}

var (
	errNoCard  = errors.New("client: the relay has no card")
	errOutdone = errors.New("client: the relay has a newer card, which another client made that keeps its keys")
)

// A contact is what is known of somebody's cards.
type contact struct {
	users int           // who have it or wait for it; under the cardbook's mu
	turn  chan struct{} // with room for one: taken by who uses the rest

	loaded bool
	floor  uint64       // the highest serial that was seen or promised; zero: none
	card   *crypto.Card // the one with the highest serial that was seen; nil: none
	asked  time.Time    // when the relay has answered
}

// take returns a contact for the caller alone, who gives it back with release.
func (b *cardbook) take(ctx context.Context, who crypto.PublicKey) (*contact, error) {
	b.mu.Lock()
	k := b.contacts[who]
	if k == nil {
		b.makeRoom()
		k = &contact{turn: make(chan struct{}, 1)}
		b.contacts[who] = k
	}
	k.users++
	b.mu.Unlock()
	select {
	case k.turn <- struct{}{}:
	case <-ctx.Done():
		b.left(k)
		return nil, ctx.Err()
	}
	if k.loaded {
		return k, nil
	}
	if err := b.load(ctx, who, k); err != nil {
		b.release(k)
		return nil, err
	}
	return k, nil
}

func (b *cardbook) release(k *contact) {
	<-k.turn
	b.left(k)
}

func (b *cardbook) left(k *contact) {
	b.mu.Lock()
	defer b.mu.Unlock()
	k.users--
}

// makeRoom forgets a contact that nobody uses, if there are many: it is in the
// store. The caller holds mu.
func (b *cardbook) makeRoom() {
	if len(b.contacts) < maxContacts {
		return
	}
	for who, k := range b.contacts {
		if k.users == 0 {
			delete(b.contacts, who)
			return
		}
	}
}

func (b *cardbook) load(ctx context.Context, who crypto.PublicKey, k *contact) error {
	v, err := b.safe.get(ctx, string(who[:]))
	if err != nil && !errors.Is(err, crypto.ErrOpen) {
		return err
	}
	k.loaded = true
	if v == nil && err == nil {
		return nil
	}
	if len(v) >= 8 {
		k.floor = binary.BigEndian.Uint64(v)
		if len(v) == 8 {
			return nil
		}
		if k.card, err = crypto.ParseCard(v[8:]); err == nil && k.card.Identity() == who {
			return nil
		}
		k.card = nil
	}
	k.floor = max(k.floor, 1) // only who has a card, or was said to, is in the store
	b.safe.failed(errStored)
	return nil
}

// keep stores a contact, so that what was seen is not forgotten, and then changes it.
func (b *cardbook) keep(ctx context.Context, who crypto.PublicKey, k *contact, floor uint64, card *crypto.Card) error {
	v := binary.BigEndian.AppendUint64(nil, floor)
	if card != nil {
		v = append(v, card.Bytes()...)
	}
	if err := b.safe.put(ctx, string(who[:]), v); err != nil {
		return err
	}
	k.floor, k.card = floor, card
	return nil
}

// promise notes that a contact has a card with at least that serial.
func (b *cardbook) promise(ctx context.Context, who crypto.PublicKey, serial uint64) error {
	k, err := b.take(ctx, who)
	if err != nil {
		return err
	}
	defer b.release(k)
	if serial <= k.floor {
		return nil
	}
	k.asked = time.Time{}
	return b.keep(ctx, who, k, serial, k.card)
}

// forget forgets what is known of a contact.
func (b *cardbook) forget(ctx context.Context, who crypto.PublicKey) error {
	k, err := b.take(ctx, who)
	if err != nil {
		return err
	}
	defer b.release(k)
	if err := b.safe.delete(ctx, string(who[:])); err != nil {
		return err
	}
	k.floor, k.card, k.asked = 0, nil, time.Time{}
	return nil
}

// mayDoWithout is an error if a contact has a card, for all that was heard.
func (b *cardbook) mayDoWithout(ctx context.Context, who crypto.PublicKey) error {
	k, err := b.take(ctx, who)
	if err != nil {
		return err
	}
	defer b.release(k)
	if k.floor > 0 || k.card != nil {
		return &CardError{who, ErrCardUnused}
	}
	return nil
}

// sealKey returns the key to seal to a contact with (spec native.md, "Choice"):
// that of its card, for suite 3, or the derived one for suite 2 if it has none and
// never had.
//
// At first contact it asks the relay, unless there is no connection, and not for
// long: a relay that withholds a card then cannot be noticed anyway. So it does now
// and then about a card that serves, which goes on to serve if there is no answer. It
// waits for a card that was promised or seen and will not do any more.
func (b *cardbook) sealKey(ctx context.Context, who crypto.PublicKey) (*crypto.SealKey, error) {
	k, err := b.take(ctx, who)
	if err != nil {
		return nil, err
	}
	defer b.release(k)
	now := time.Now()
	derived := k.card == nil && k.floor == 0
	serves := k.card != nil && isValid(k.card, now) && k.card.Serial() >= k.floor
	best := func() (*crypto.SealKey, error) {
		if derived {
			return who.SealKey()
		}
		return k.card.SealKey(crypto.SuiteXWing), nil
	}
	asking := ctx
	if derived || serves {
		holds := askAgain
		if serves && now.Before(halfLife(k.card)) {
			holds = checkAgain
		}
		recent := !k.asked.IsZero() && now.Sub(k.asked) < holds
		if recent || !b.relay.isOnline() {
			return best()
		}
		var cancel context.CancelFunc
		asking, cancel = context.WithTimeout(ctx, patience)
		defer cancel()
	}
	err = b.ask(asking, who, k, now)
	switch {
	case err == nil:
		return k.card.SealKey(crypto.SuiteXWing), nil
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case errors.Is(err, errNoCard) && !derived:
		err = &CardError{who, ErrCardWithheld}
		if !serves {
			return nil, err
		}
		b.alarm(who, err)
	case errors.Is(err, errNoCard), asking.Err() != nil, serves && !errors.As(err, new(*CardError)):
	default:
		return nil, err
	}
	k.asked = now // though there is no answer, perhaps
	return best()
}

// ask gets the contact's card from the relay.
func (b *cardbook) ask(ctx context.Context, who crypto.PublicKey, k *contact, now time.Time) error {
	encoded, err := b.relay.getCard(ctx, who)
	if err != nil {
		return err
	}
	card, err := crypto.ParseCard(encoded)
	switch {
	case err != nil:
		return &CardError{who, ErrCardForged}
	case card.Identity() != who:
		return &CardError{who, ErrCardSwapped}
	case card.Serial() < k.floor, k.card != nil && card.Serial() == k.card.Serial() && card.KeyID() != k.card.KeyID():
		return &CardError{who, ErrCardRolledBack}
	case !isValid(card, now):
		return &CardError{who, ErrCardTime}
	}
	if k.card == nil || card.KeyID() != k.card.KeyID() {
		if err := b.keep(ctx, who, k, card.Serial(), card); err != nil {
			return err
		}
	}
	k.asked = now
	return nil
}

// isValid allows for the contact's clock at the beginning only: after the end it may
// have erased its keys.
func isValid(card *crypto.Card, now time.Time) bool {
	return !now.After(card.NotAfter()) && !now.Add(clockSkew).Before(card.NotBefore())
}

// halfLife returns when a contact renews its card.
func halfLife(card *crypto.Card) time.Time {
	return card.NotBefore().Add(card.NotAfter().Sub(card.NotBefore()) / 2)
}
