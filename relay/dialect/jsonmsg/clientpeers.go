package jsonmsg

import (
	"encoding/base64"
	"errors"
	"sync"
	"time"

	"github.com/sotto-relay/sotto/crypto"
)

// clientPeers knows the keys of others, and seals and opens. All methods may be
// called by any goroutine.
type clientPeers struct {
	self    string
	key     *crypto.X25519PrivateKey
	pins    PinStore
	xchacha bool

	mu      sync.Mutex
	changed chan struct{}        // closed, and replaced, when a key has been pinned
	asked   map[string]bool      // whom we have told our key to be told his
	told    map[string]time.Time // when we have told somebody ours because he told his
	boxes   recentBoxes
}

func newClientPeers(self string, key *crypto.X25519PrivateKey, o *ClientOptions) *clientPeers {
	return &clientPeers{
		self: self, key: key, pins: o.Pins, xchacha: o.XChaCha,
		changed: make(chan struct{}),
		asked:   make(map[string]bool),
		told:    make(map[string]time.Time),
	}
}

// lookup returns the key of an address, if it is known.
func (p *clientPeers) lookup(addr string) (crypto.X25519Key, bool, error) {
	if addr == p.self {
		return p.key.Public(), true, nil
	}
	key, ok, err := p.pins.Lookup(addr)
	if ok && err == nil {
		err = check(addr, key)
	}
	return key, ok && err == nil, err
}

// check refuses a key that an address cannot have, whoever says so.
func check(addr string, key crypto.X25519Key) error {
	if crypto.IsAddress(addr) && key.Address() != addr {
		return &ForeignKeyError{addr, key}
	}
	return nil
}

// keyOf returns the key of a peer that says that it is pub, or says nothing: the one
// that is known, else pub, which is fresh then.
func (p *clientPeers) keyOf(addr, pub string) (key crypto.X25519Key, fresh bool, err error) {
	pinned, known, err := p.lookup(addr)
	switch {
	case err != nil:
		return key, false, err
	case pub == "" && !known:
		return key, false, ErrNoKey
	case pub == "":
		return pinned, false, nil
	}
	key, err = crypto.ParseX25519Key(pub)
	switch {
	case err != nil:
		return key, false, err
	case !known:
		return key, true, check(addr, key)
	case pinned != key:
		return key, false, &KeyChangedError{addr, pinned, key}
	}
	return key, false, nil
}

// pin remembers the key of an address, for which there was none.
func (p *clientPeers) pin(addr string, key crypto.X25519Key) error {
	if err := p.pins.Remember(addr, key); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	close(p.changed)
	p.changed = make(chan struct{})
	return nil
}

// changes returns what is closed when the next key is pinned.
func (p *clientPeers) changes() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.changed
}

// asks notes that somebody is asked for his key.
func (p *clientPeers) asks(addr string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked[addr] = true
}

// mostTold bounds what is remembered of whom we have told our key.
const mostTold = 1024

// answers says whether an announcement of somebody's is to be answered with ours.
// It is not if it is itself an answer, or the last one was not long ago: two that
// always answered would never come to an end.
func (p *clientPeers) answers(addr string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.asked[addr] {
		delete(p.asked, addr)
		return false
	}
	now := time.Now()
	if at, ok := p.told[addr]; ok && now.Sub(at) < askAgain {
		return false
	}
	for a, at := range p.told {
		if len(p.told) < mostTold {
			break
		}
		if now.Sub(at) >= askAgain {
			delete(p.told, a)
		}
	}
	if len(p.told) >= mostTold {
		return false
	}
	p.told[addr] = now
	return true
}

// seal returns nonce and box in base64. The nonce is random.
func (p *clientPeers) seal(to string, key crypto.X25519Key, data []byte) (nonce, ct string, err error) {
	seal := crypto.SealBox
	if p.xchacha {
		seal = crypto.SealXChaChaBox
	}
	n, box, err := seal(p.key, key, data)
	if err != nil {
		return "", "", err
	}
	if to != p.self {
		// Both ends have the same key for boxes. Who sends us our own back has made
		// none.
		p.isRepeat(key, n)
	}
	return base64.StdEncoding.EncodeToString(n[:]), base64.StdEncoding.EncodeToString(box), nil
}

// open opens a box of either kind. repeat says that it has been opened before, or
// is our own.
func (p *clientPeers) open(key crypto.X25519Key, nonce, ct string) (data []byte, repeat bool, err error) {
	n, err := decode(nonce)
	if err != nil {
		return nil, false, err
	}
	box, err := decode(ct)
	if err != nil {
		return nil, false, err
	}
	data, err = crypto.OpenBox(p.key, key, n, box)
	if errors.Is(err, crypto.ErrOpen) {
		data, err = crypto.OpenXChaChaBox(p.key, key, n, box)
	}
	if err != nil {
		return nil, false, err
	}
	return data, p.isRepeat(key, [24]byte(n)), nil
}

func (p *clientPeers) isRepeat(key crypto.X25519Key, nonce [24]byte) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.boxes.note(boxName{key, nonce})
}

// decode reads standard base64 of which no bit is left over: two texts never stand
// for the same bytes.
func decode(text string) ([]byte, error) {
	b, err := base64.StdEncoding.DecodeString(text)
	if err != nil || base64.StdEncoding.EncodeToString(b) != text {
		return nil, crypto.ErrMalformed
	}
	return b, nil
}

// A boxName is what no two boxes share: who the other end is, and the nonce.
type boxName struct {
	peer  crypto.X25519Key
	nonce [24]byte
}

// mostBoxes is how many boxes are remembered.
const mostBoxes = 4096

// recentBoxes remembers the latest boxes. The zero value is empty.
type recentBoxes struct {
	names map[boxName]struct{}
	order []boxName // a ring, once it is full
	next  int
}

// note remembers a box, and says whether it was there.
func (r *recentBoxes) note(b boxName) bool {
	if _, there := r.names[b]; there {
		return true
	}
	if r.names == nil {
		r.names = make(map[boxName]struct{})
	}
	r.names[b] = struct{}{}
	if len(r.order) < mostBoxes {
		r.order = append(r.order, b)
		return false
	}
	delete(r.names, r.order[r.next])
	r.order[r.next] = b
	r.next = (r.next + 1) % mostBoxes
	return false
}
