package mesh

import (
	"context"
	"errors"
	"time"

	"github.com/sotto-relay/sotto/crypto"
	"github.com/sotto-relay/sotto/frame"
	"github.com/sotto-relay/sotto/relay"
	"github.com/sotto-relay/sotto/transport"
)

// A presence is a client of ours that has attached.
type presence struct {
	statement frame.Attachment
	notAfter  time.Time
	told      map[crypto.PublicKey]struct{}  // owners
	fetches   map[crypto.PublicKey]*fetching // of its mail, by the relay that holds it
}

// An owned is what we know of a client as an owner of its key.
type owned struct {
	places  map[crypto.PublicKey]attached  // by relay
	holders map[crypto.PublicKey]time.Time // relays that hold mail, until
}

type attached struct {
	statement frame.Attachment
	notAfter  time.Time
}

const (
	attachMost  = time.Hour
	attachStep  = time.Minute
	clockSkew   = 10 * time.Minute // between a client and us
	placesEach  = 8                // of one client
	holdersEach = 8
	ownedMost   = 400_000 // in all
	ownedShare  = 4       // a relay has at most this part of the room that the others leave, and it does
	holderFor   = 7 * 24 * time.Hour
)

var errAttachment = errors.New("mesh: attachment is not of now")

// attachment reads and verifies a client's statement.
func attachment(b *frame.Attachment, now time.Time) (crypto.Attachment, error) {
	a, err := crypto.ParseAttachment(b[:])
	if err == nil && (!a.NotAfter.After(now) || a.NotAfter.After(now.Add(attachMost+clockSkew))) {
		err = errAttachment
	}
	return a, err
}

// Attach takes a client's statement that it is connected here. The error is a
// *relay.Refusal.
func (m *Mesh) Attach(client crypto.PublicKey, statement []byte) error {
	if len(statement) != len(frame.Attachment{}) {
		return &relay.Refusal{Code: relay.CodeMalformed, Reason: "not an attachment"}
	}
	b, now := frame.Attachment(statement), time.Now()
	a, err := attachment(&b, now)
	switch {
	case errors.Is(err, errAttachment):
		return &relay.Refusal{Code: relay.CodeExpired, Reason: "attachment is not of now"}
	case errors.Is(err, crypto.ErrMalformed):
		return &relay.Refusal{Code: relay.CodeMalformed, Reason: "not an attachment"}
	case err != nil:
		return &relay.Refusal{Code: relay.CodeBadSignature, Reason: "attachment is not signed"}
	case a.Client != client || a.Relay != m.self:
		return &relay.Refusal{Code: relay.CodeDenied, Reason: "attachment of another client or to another relay"}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	switch m.phase {
	case fresh: // clients that come back to a relay that starts ask again
		return &relay.Refusal{Code: relay.CodeOverloaded, Reason: "the mesh is not up yet"}
	case stopped:
		return &relay.Refusal{Code: relay.CodeNotFound, Reason: "no mesh here"}
	}
	if !m.srv.Online(addressOf(client)) {
		return nil // it has gone already
	}
	if h := m.here[client]; h != nil && a.NotAfter.Sub(h.notAfter) < attachStep {
		return nil // the one that ends last counts, and owners need not hear of each
	}
	m.attested.put(client, m.self)
	h := &presence{b, a.NotAfter, make(map[crypto.PublicKey]struct{}), make(map[crypto.PublicKey]*fetching)}
	if old := m.here[client]; old != nil {
		h.fetches = old.fetches
	}
	m.here[client] = h
	for _, owner := range m.ownersOf(client) {
		m.tellOwner(client, h, owner, now)
	}
	for holder := range h.fetches {
		m.fetchFrom(client, holder, now) // with what holds longer
	}
	return nil
}

// leaves forgets a client of ours that is attached no more, and what is fetched for it.
func (m *Mesh) leaves(client crypto.PublicKey) {
	delete(m.here, client)
	delete(m.fetching, client)
}

// tellOwner tells an owner that a client is here, if it can be reached.
func (m *Mesh) tellOwner(client crypto.PublicKey, h *presence, owner crypto.PublicKey, now time.Time) {
	here := frame.Here{Attachment: h.statement}
	if owner == m.self {
		m.note(client, m.self, attached{h.statement, h.notAfter})
		for _, holder := range m.holdersOf(client, now) {
			m.fetchFrom(client, holder, now)
		}
	} else if !m.ask(owner, frame.TypeHere, here.Append(nil), now) {
		m.untold = true
		return
	}
	h.told[owner] = struct{}{}
}

// What retell does at a time: so many hashes, and clients, each a frame to an owner. To
// others many frames are a flood.
const (
	retellWork = 200_000
	retellMost = 300
)

// retell tells those who have become owners, of some clients at a time.
func (m *Mesh) retell(now time.Time) {
	if len(m.retold) == 0 {
		if m.told == m.voters.version {
			return
		}
		m.told = m.voters.version
		for client := range m.here {
			m.retold = append(m.retold, client)
		}
		for client := range m.mail {
			m.retold = append(m.retold, client)
		}
	}
	n := min(len(m.retold), retellMost, retellWork/(len(m.dir.keys)+1)+1)
	some := m.retold[:n]
	m.retold = m.retold[n:]
	for _, client := range some {
		if h := m.here[client]; h != nil && !h.notAfter.After(now) {
			m.leaves(client)
		} else if h != nil {
			for _, owner := range m.ownersOf(client) {
				if _, told := h.told[owner]; !told {
					m.tellOwner(client, h, owner, now)
				}
			}
		}
		if h := m.mail[client]; h != nil {
			m.announce(client, h, now)
		}
	}
}

// remindEvery is after how many ticks a relay is told again of clients and mail.
const remindEvery = 600

// remind has some relays told again, each in its turn: those that started anew while there
// was no link with them have forgotten, and nothing else says so.
func (m *Mesh) remind(now time.Time) {
	n := uint64(len(m.voters.keys))
	for i := (m.ticks - 1) * n / remindEvery; i < m.ticks*n/remindEvery; i++ {
		key := m.voters.keys[i%n]
		if l := m.links[key]; key == m.self || l != nil && now.Sub(l.since) >= remindEvery*tick {
			continue
		}
		for client, h := range m.here {
			if _, told := h.told[key]; told {
				delete(h.told, key)
				m.retold = append(m.retold, client)
			}
		}
		for client, h := range m.mail {
			if _, told := h.told[key]; told {
				delete(h.told, key)
				m.retold = append(m.retold, client)
			}
		}
	}
}

// forgetTold has a relay told again, which may have forgotten what it was.
func (m *Mesh) forgetTold(relay crypto.PublicKey) {
	for _, h := range m.here {
		delete(h.told, relay)
		if f := h.fetches[relay]; f != nil {
			f.asked = false
		}
	}
	for _, h := range m.mail {
		delete(h.told, relay)
	}
	m.voters.changed()
}

// Comes has a client's mail stay here (relay.Forwarder).
func (m *Mesh) Comes(a relay.Address) {
	client, ok := clientOf(a)
	if !ok {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	h := m.mail[client]
	if h == nil {
		return
	}
	m.heldNoMore(client)
	if x := h.lending; x != nil {
		var seqs []uint64
		for e := range x.out {
			x.gone(e)
			seqs = append(seqs, e.seq)
		}
		m.check(m.srv.Inbox.Release(context.WithoutCancel(m.ctx), a, seqs...))
	}
}

// Came says that a client has a session here (relay.Forwarder).
func (m *Mesh) Came(a relay.Address) {
	client, ok := clientOf(a)
	if !ok {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.phase != running {
		return
	}
	m.places.remove(client)
	if s := m.searches[client]; s != nil && s.phase != landing {
		m.tell(s, &m.self)
		m.giveUp(s)
	}
	m.heldNoMore(client)
}

// Went says that a client has no session any more (relay.Forwarder).
func (m *Mesh) Went(a relay.Address) {
	client, ok := clientOf(a)
	if !ok {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.phase != running || m.srv.Online(a) {
		return
	}
	now := time.Now()
	if h := m.here[client]; h != nil {
		m.leaves(client)
		gone := frame.Here{Attachment: h.statement, Gone: true}
		for owner := range h.told {
			if owner == m.self {
				m.forget(client, m.self)
			} else {
				m.ask(owner, frame.TypeHere, gone.Append(nil), now)
			}
		}
	}
	if m.srv.Waiting(a) {
		m.hold(client, now)
	}
}

// hears takes HERE from the relay of a client.
func (l *link) hears(payload []byte, now time.Time) error {
	h, err := frame.DecodeHere(payload)
	if err != nil {
		return err
	}
	a, err := attachment(&h.Attachment, now)
	if err != nil || a.Relay != l.key {
		if !errors.Is(err, errAttachment) { // else clocks differ
			l.misbehaves(2, "false attachment")
		}
		return nil
	}
	m := l.m
	m.mu.Lock()
	defer m.mu.Unlock()
	l.used = now
	if h.Gone {
		m.forget(a.Client, l.key)
		if p, ok := m.places.get(a.Client, now); ok && p.relay == l.key {
			m.places.remove(a.Client)
		}
		return nil
	}
	if !m.note(a.Client, l.key, attached{h.Attachment, a.NotAfter}) {
		return nil
	}
	m.attested.put(a.Client, l.key)
	if p, ends, ok := m.placeOwned(a.Client, now); ok {
		m.places.put(a.Client, p, now.Add(foundFor))
		if s := m.searches[a.Client]; s != nil {
			m.offer(s, p, ends, now)
		}
	}
	for _, holder := range m.holdersOf(a.Client, now) {
		m.sendMail(l, a.Client, holder)
	}
	return nil
}

// note keeps where a client is. Of too many places the one that ends first goes.
func (m *Mesh) note(client, relay crypto.PublicKey, p attached) bool {
	o := m.ownedOf(client)
	old, known := o.places[relay]
	if known && p.notAfter.Before(old.notAfter) || !known && !m.hasRoom(relay) {
		m.tidy(client, o)
		return false
	}
	if !known {
		m.owns(relay, 1)
	}
	o.places[relay] = p
	if len(o.places) > placesEach {
		first := relay
		for r, x := range o.places {
			if x.notAfter.Before(o.places[first].notAfter) {
				first = r
			}
		}
		delete(o.places, first)
		m.owns(first, -1)
	}
	return true
}

// ownedOf returns what we know of a client, made when missing.
func (m *Mesh) ownedOf(client crypto.PublicKey) *owned {
	o := m.owned[client]
	if o == nil {
		o = &owned{make(map[crypto.PublicKey]attached), make(map[crypto.PublicKey]time.Time)}
		m.owned[client] = o
	}
	return o
}

// hasRoom says whether a relay may tell us of one more client, or of more mail: nobody
// can fill what there is for all.
func (m *Mesh) hasRoom(relay crypto.PublicKey) bool {
	return relay == m.self || ownedShare*m.shares[relay] < ownedMost-m.ownings
}

// owns counts places and holders, but for our own: our clients and inbox bound those.
func (m *Mesh) owns(relay crypto.PublicKey, n int) {
	if relay == m.self {
		return
	}
	m.ownings += n
	if m.shares[relay] += n; m.shares[relay] == 0 {
		delete(m.shares, relay)
	}
}

func (m *Mesh) forget(client, relay crypto.PublicKey) {
	o := m.owned[client]
	if o == nil {
		return
	}
	if _, known := o.places[relay]; known {
		delete(o.places, relay)
		m.owns(relay, -1)
	}
	m.tidy(client, o)
}

func (m *Mesh) tidy(client crypto.PublicKey, o *owned) {
	if len(o.places) == 0 && len(o.holders) == 0 {
		delete(m.owned, client)
	}
}

// forgetPlaces forgets what is out of date.
func (m *Mesh) forgetPlaces(now time.Time) {
	for client, o := range m.owned {
		for relay, p := range o.places {
			if !p.notAfter.After(now) {
				delete(o.places, relay)
				m.owns(relay, -1)
			}
		}
		for holder, until := range o.holders {
			if !until.After(now) {
				delete(o.holders, holder)
				m.owns(holder, -1)
			}
		}
		m.tidy(client, o)
	}
}

// placeOwned returns where a client is as far as we own it: where its attachment
// ends last.
func (m *Mesh) placeOwned(client crypto.PublicKey, now time.Time) (p place, last time.Time, ok bool) {
	o := m.owned[client]
	if o == nil {
		return p, last, false
	}
	for relay, x := range o.places {
		if relay != m.self && x.notAfter.After(now) && x.notAfter.After(last) {
			p, last, ok = place{relay: relay, attached: true}, x.notAfter, true
		}
	}
	return p, last, ok
}

// where answers WHERE.
func (l *link) where(payload []byte, now time.Time) error {
	client, err := frame.DecodeClientKey(payload)
	if err != nil {
		return err
	}
	m := l.m
	a := frame.At{Client: client}
	m.mu.Lock()
	l.used = now
	if o := m.owned[client]; o != nil {
		for relay, p := range o.places {
			if p.notAfter.After(now) {
				address := m.dir.address(relay)
				if relay == m.self {
					address = m.cfg.Advertise
				}
				a.Places = append(a.Places, frame.Place{Attachment: p.statement, Address: address})
			}
		}
	}
	m.mu.Unlock()
	f := frame.Brep{Type: frame.TypeAt, Sender: m.self, Payload: a.Append(nil)}
	l.port.Reply(transport.Binary, f.Append(nil))
	return nil
}
