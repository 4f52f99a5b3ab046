package client

import (
	"context"
	"encoding/binary"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/sotto-relay/sotto/crypto"
)

const (
	// cardLife is how long our cards are valid, the longest that there is: who was
	// away for less than half of it can be written to. Then a card is renewed.
	cardLife  = crypto.MaxCardLife
	cardRenew = cardLife / 2

	// keyTime is for how long keys open what is sealed to a card that has ended: a
	// message sealed in its last moment is tried for 7 days and waits in an inbox
	// for 7, as Config.Remembered has it too. The day is for clocks.
	keyTime = rememberTime + 24*time.Hour

	// outdoAfter and maxCards bound the cards that are made because a relay says
	// that it has a newer one.
	outdoAfter = time.Hour
	maxCards   = 64

	// clockSkew is how far the clock of a contact may be ahead of ours.
	clockSkew = 10 * time.Minute
)

// The bucket of our cards in Config.Store: the key is the serial, u64; the value,
// encrypted, the secret keys 64 ‖ the card.
const cardsBucket = "client/cards/"

// An ownCard is a card of ours, with what opens what is sealed to it.
type ownCard struct {
	card *crypto.Card
	open []*crypto.OpenKey
}

func newOwnCard(card *crypto.Card, keys *crypto.CardKeys) (ownCard, error) {
	open, err := keys.OpenKeys(card)
	return ownCard{card, open}, err
}

// ended says whether nothing sealed to the card can come any more.
func (o ownCard) ended(now time.Time) bool { return now.After(o.card.NotAfter().Add(keyTime)) }

// A keyring has our cards, and opens what is sealed to them.
//
// With a store their keys are random and erased in time, so that who comes by the
// identity later does not open what was sealed before. Without one, random keys
// would be lost with the Client, and the messages in the inbox with them: the keys
// are derived from the identity and the number of the card, which follows from the
// time, so that every Client with the identity has the same.
type keyring struct {
	identity *crypto.Identity
	safe     *safe // nil: without a store
	logger   *slog.Logger
	first    *crypto.OpenKey // the key derived from the identity, for those who know no card

	mu      sync.Mutex
	random  []ownCard // by serial, the oldest first
	derived []ownCard // likewise
	open    []*crypto.OpenKey
	renewed chan struct{} // closed when there is another current card
	kept    *crypto.Card  // the one that the relay has taken last; nil: none yet

	taken   chan struct{} // with room for one: kept is another
	outdone chan struct{} // with room for one: the relay has a card with a higher serial
}

// newKeyring returns the keyring with what the safe has, which may be nil.
func newKeyring(ctx context.Context, id *crypto.Identity, s *safe, logger *slog.Logger) (*keyring, error) {
	first, err := id.OpenKey()
	if err != nil {
		return nil, err
	}
	r := &keyring{
		identity: id, safe: s, logger: logger, first: first,
		renewed: make(chan struct{}), taken: make(chan struct{}, 1), outdone: make(chan struct{}, 1),
	}
	if s != nil {
		if err := r.load(ctx); err != nil {
			return nil, err
		}
	}
	r.open = []*crypto.OpenKey{first}
	if err := r.tend(ctx); err != nil {
		r.fail(err)
	}
	return r, nil
}

func (r *keyring) load(ctx context.Context) error {
	for item, err := range r.safe.all(ctx) {
		if err != nil {
			return err
		}
		own, err := decodeOwnCard(item.Value)
		if err != nil {
			r.safe.failed(fmt.Errorf("client: a card of ours in the store: %w", err))
			continue
		}
		r.random = append(r.random, own)
	}
	return nil
}

func decodeOwnCard(b []byte) (ownCard, error) {
	if len(b) < 64 {
		return ownCard{}, crypto.ErrMalformed
	}
	keys, err := crypto.NewCardKeys((*[64]byte)(b))
	if err != nil {
		return ownCard{}, err
	}
	card, err := crypto.ParseCard(b[64:])
	if err != nil {
		return ownCard{}, err
	}
	return newOwnCard(card, keys)
}

func serialKey(serial uint64) string { return string(binary.BigEndian.AppendUint64(nil, serial)) }

// run tends the keyring until ctx ends.
func (r *keyring) run(ctx context.Context) {
	t := time.NewTicker(time.Hour) // not for days: a timer sleeps as long as the machine does
	defer t.Stop()
	for {
		do := r.tend
		select {
		case <-t.C:
		case <-r.taken:
		case <-r.outdone:
			do = r.outdo
		case <-ctx.Done():
			return
		}
		if err := do(ctx); err != nil && ctx.Err() == nil {
			r.fail(err)
		}
	}
}

func (r *keyring) fail(err error) {
	r.logger.Warn("client: the card of this identity was not renewed", "err", err)
}

// tend renews the card when it is time, and erases keys that nothing is sealed to any
// more. Our clock alone does not decide that: it can be wrong for once, and keys of a
// card that others use would be gone for good. So the relay has to have taken the
// newest card, which it does not when that begins in what is the future to it.
func (r *keyring) tend(ctx context.Context) error {
	now := time.Now()
	if err := r.derive(now); err != nil {
		return err
	}
	if r.safe == nil {
		return nil
	}
	if !r.isFresh(now) {
		if err := r.renew(ctx); err != nil {
			return err
		}
	}
	if !r.isKept() {
		return nil
	}
	for _, old := range r.random {
		if !old.ended(now) {
			continue
		}
		if err := r.safe.delete(ctx, serialKey(old.card.Serial())); err != nil {
			return err
		}
		r.change(func() {
			r.random = slices.DeleteFunc(slices.Clone(r.random), func(o ownCard) bool { return o.card == old.card })
		})
	}
	return nil
}

// isFresh says whether the stored card that is the newest need not be renewed yet.
func (r *keyring) isFresh(now time.Time) bool {
	n := len(r.random)
	if n == 0 {
		return false
	}
	from := r.random[n-1].card.NotBefore()
	return !now.Before(from.Add(-clockSkew)) && now.Before(from.Add(cardRenew))
}

// keep notes that the relay has taken a card.
func (r *keyring) keep(card *crypto.Card) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.kept = card
	signal(r.taken)
}

// isKept says whether the relay has taken the newest card.
func (r *keyring) isKept() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.kept != nil && r.kept == r.newest()
}

// outdo makes a card with a higher serial than the one that the relay has, which is
// another client's with this identity: what is sealed to that one we cannot open.
// A relay has no more of it than that we do so now and then.
func (r *keyring) outdo(ctx context.Context) error {
	card, _ := r.current()
	switch {
	case r.safe == nil:
		return errOutdone
	case card == nil || time.Since(card.NotBefore()) < outdoAfter || len(r.random) >= maxCards:
		return nil
	}
	return r.renew(ctx)
}

// renew makes a new card, which with a store is current once it is stored. Serials are times,
// so that they increase even if the store is lost; a clock that was put back does
// not let them decrease.
func (r *keyring) renew(ctx context.Context) error {
	now := time.Now()
	serial := uint64(now.UnixMilli())
	if n := len(r.random); n > 0 {
		serial = max(serial, r.random[n-1].card.Serial()+1)
	}
	keys, err := crypto.GenerateCardKeys()
	if err != nil {
		return err
	}
	card, err := crypto.NewCard(r.identity, serial, now, now.Add(cardLife), keys)
	if err != nil {
		return err
	}
	own, err := newOwnCard(card, keys)
	if err != nil {
		return err
	}
	secret := keys.Secret()
	if err := r.safe.put(ctx, serialKey(serial), append(secret[:], card.Bytes()...)); err != nil {
		return err
	}
	r.change(func() { r.random = append(slices.Clip(r.random), own) })
	return nil
}

// derive has the derived cards for a time: number n begins n half lives after 1970,
// and a time of the identity's own later, so that not everybody's begin at once.
func (r *keyring) derive(now time.Time) error {
	id := r.identity.Public()
	const half = int64(cardRenew / time.Millisecond)
	shift := int64(binary.BigEndian.Uint64(id[:]) % uint64(half))
	current := (now.UnixMilli() - shift) / half
	start := func(number int64) time.Time { return time.UnixMilli(number*half + shift) }
	if n := len(r.derived); n > 0 && r.derived[n-1].card.NotBefore().Equal(start(current)) {
		return nil
	}
	var cards []ownCard
	for number := max(0, current-2); number <= current; number++ { // the first until its keyTime is over
		keys, err := r.identity.CardKeys(uint64(number))
		if err != nil {
			return err
		}
		from := start(number)
		card, err := crypto.NewCard(r.identity, uint64(from.UnixMilli()), from, from.Add(cardLife), keys)
		if err != nil {
			return err
		}
		own, err := newOwnCard(card, keys)
		if err != nil {
			return err
		}
		cards = append(cards, own)
	}
	r.change(func() { r.derived = cards })
	return nil
}

// change changes the cards, and tells who waits for another one.
func (r *keyring) change(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	before := r.newest()
	f()
	open := []*crypto.OpenKey{r.first}
	for _, cards := range [][]ownCard{r.random, r.derived} {
		for _, own := range slices.Backward(cards) {
			open = append(open, own.open...)
		}
	}
	r.open = open
	if r.newest() != before {
		close(r.renewed)
		r.renewed = make(chan struct{})
	}
}

// newest returns the card that others are to have; nil: none yet.
func (r *keyring) newest() *crypto.Card {
	cards := r.derived
	if r.safe != nil {
		cards = r.random
	}
	if len(cards) == 0 {
		return nil
	}
	return cards[len(cards)-1].card
}

// current returns the card that others are to have, and what is closed when it is
// another one.
func (r *keyring) current() (*crypto.Card, <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.newest(), r.renewed
}

// openKeys returns all keys that something may be sealed to. They are not changed.
func (r *keyring) openKeys() []*crypto.OpenKey {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.open
}
