package mesh

import (
	"context"
	"encoding/binary"
	"math/rand/v2"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/sotto-relay/sotto/crypto"
	"github.com/sotto-relay/sotto/frame"
	"github.com/sotto-relay/sotto/inbox"
)

// A trust says what an entry of the directory rests on. What is trusted less never
// replaces what is trusted more.
type trust uint8

const (
	suggested trust = iota // by another relay
	told                   // by the relay itself, over a link
	linked                 // we dialled the address, and the relay with that key was there
	seeded                 // the operator named it; never evicted, and not kept in the state store
)

const (
	directoryMost = 10_000
	suggestedMost = 512 // entries by one suggester
	suggestedHost = 4   // entries at one host and port
	listMost      = 256 // entries sent out
)

// A directory knows relays by key and where they are. The owner of the Mesh's lock
// has it.
type directory struct {
	self crypto.PublicKey
	most int

	relays  map[crypto.PublicKey]*known
	keys    []crypto.PublicKey // those of relays, in no order
	by      map[crypto.PublicKey]int
	hosts   map[string]int // suggestions, by host and port
	changes uint64         // grows when a relay comes or goes
	dirty   map[crypto.PublicKey]struct{}
}

// A known is a relay that is known.
type known struct {
	key     crypto.PublicKey
	address string
	trust   trust
	by      crypto.PublicKey // who suggested it, of suggested
	seen    time.Time
	moved   bool // perhaps: it was not there any more
	index   int  // in keys
}

func newDirectory(self crypto.PublicKey) *directory {
	return &directory{
		self: self, most: directoryMost,
		relays: make(map[crypto.PublicKey]*known), by: make(map[crypto.PublicKey]int), hosts: make(map[string]int),
		dirty: make(map[crypto.PublicKey]struct{}),
	}
}

// add notes a relay. It returns false for what is not taken: our own key, what an
// entry that is trusted more says otherwise, or one suggestion too many.
func (d *directory) add(key crypto.PublicKey, address string, t trust, by crypto.PublicKey, now time.Time) bool {
	if key == d.self || len(address) > maxAddress {
		return false
	}
	r := d.relays[key]
	switch {
	case r != nil && t == told && r.trust == linked && r.moved && r.address != address:
		r.trust = told // it says where it is now
	case r != nil && r.trust > t && r.address != address:
		return false
	case r != nil && t == suggested && r.address != address: // whoever came first
		return false
	case r == nil && t == suggested && (d.by[by] >= suggestedMost || d.hosts[hostOf(address)] >= suggestedHost):
		return false
	case r == nil && len(d.relays) >= d.most && !d.evict(t):
		return false
	}
	if r == nil {
		r = &known{key: key, index: len(d.keys), by: by, trust: t}
		d.relays[key] = r
		d.keys = append(d.keys, key)
		if t == suggested {
			d.by[by]++
			d.hosts[hostOf(address)]++
		}
		d.changes++
	}
	if t > r.trust {
		d.unsuggest(r)
		r.trust = t
	}
	if r.address != address || t > suggested && now.Sub(r.seen) > time.Hour || r.seen.IsZero() {
		d.dirty[key] = struct{}{}
		r.seen = now
	}
	r.address, r.moved = address, false
	return true
}

// hostOf returns the part of an address that is dialled.
func hostOf(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return address
	}
	port := u.Port()
	if port == "" {
		port = map[string]string{"ws": "80", "wss": "443"}[u.Scheme]
	}
	return strings.ToLower(u.Hostname()) + " " + port
}

// unsuggest gives the suggester of r a place back.
func (d *directory) unsuggest(r *known) {
	if r.trust != suggested {
		return
	}
	if d.by[r.by]--; d.by[r.by] <= 0 {
		delete(d.by, r.by)
	}
	host := hostOf(r.address)
	if d.hosts[host]--; d.hosts[host] <= 0 {
		delete(d.hosts, host)
	}
}

// evict makes room for an entry that is trusted so much: of those trusted least the
// oldest go, unless they are trusted more. Of suggestions a hundredth goes at once, so
// that a flood of them costs no search each.
func (d *directory) evict(t trust) bool {
	var least []*known
	for _, r := range d.relays {
		if len(least) > 0 && r.trust < least[0].trust {
			least = least[:0]
		}
		if len(least) == 0 || r.trust == least[0].trust {
			least = append(least, r)
		}
	}
	if least[0].trust > t || least[0].trust == seeded {
		return false
	}
	slices.SortFunc(least, func(a, b *known) int { return a.seen.Compare(b.seen) })
	n := 1
	if least[0].trust == suggested {
		n = max(1, min(len(least), d.most/100))
	}
	for _, r := range least[:n] {
		d.remove(r.key)
	}
	return true
}

func (d *directory) remove(key crypto.PublicKey) {
	r := d.relays[key]
	if r == nil {
		return
	}
	d.unsuggest(r)
	last := d.keys[len(d.keys)-1]
	d.keys[r.index] = last
	d.relays[last].index = r.index
	d.keys = d.keys[:len(d.keys)-1]
	delete(d.relays, key)
	d.dirty[key] = struct{}{}
	d.changes++
}

func (d *directory) address(key crypto.PublicKey) string {
	if r := d.relays[key]; r != nil {
		return r.address
	}
	return ""
}

// at returns the relay that was found at an address.
func (d *directory) at(address string) *crypto.PublicKey {
	for _, r := range d.relays {
		if r.address == address && r.trust >= linked {
			return &r.key
		}
	}
	return nil
}

// random returns up to n relays that have an address, each of those known as likely
// as another.
func (d *directory) random(n int) []frame.ServerInfo {
	var list []frame.ServerInfo
	for _, i := range rand.Perm(len(d.keys)) {
		if r := d.relays[d.keys[i]]; r.address != "" {
			if list = append(list, frame.ServerInfo{Key: r.key, Address: r.address}); len(list) == n {
				break
			}
		}
	}
	return list
}

// The directory is kept in the state store:
//
//	bucket  "mesh-relays"
//	key     the relay's key, 32 bytes
//	value   when it was seen, u64 big-endian, seconds since 1970 ‖ trust u8 ‖ address
const relaysBucket = "mesh-relays"

// changed returns what has to be written to the state store, a nil value standing for
// what has to be deleted.
func (d *directory) changed() map[string][]byte {
	if len(d.dirty) == 0 {
		return nil
	}
	values := make(map[string][]byte, len(d.dirty))
	for key := range d.dirty {
		var value []byte
		if r := d.relays[key]; r != nil {
			value = binary.BigEndian.AppendUint64(nil, uint64(r.seen.Unix()))
			value = append(append(value, byte(min(r.trust, linked))), r.address...)
		}
		values[string(key[:])] = value
	}
	clear(d.dirty)
	return values
}

// load fills the directory from the state store. What is damaged there is left out.
func (d *directory) load(ctx context.Context, state inbox.State) error {
	for it, err := range state.Range(ctx, relaysBucket, "") {
		if err != nil {
			return err
		}
		if len(it.Key) != len(d.self) || len(it.Value) < 9 || trust(it.Value[8]) > linked {
			continue
		}
		seen := time.Unix(int64(binary.BigEndian.Uint64(it.Value)), 0)
		key := crypto.PublicKey([]byte(it.Key))
		d.add(key, string(it.Value[9:]), trust(it.Value[8]), key, seen)
	}
	clear(d.dirty)
	return nil
}
