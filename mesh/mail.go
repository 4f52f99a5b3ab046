package mesh

import (
	"context"
	"time"

	"github.com/sotto-relay/sotto/crypto"
	"github.com/sotto-relay/sotto/frame"
	"github.com/sotto-relay/sotto/inbox"
	"github.com/sotto-relay/sotto/relay"
	"github.com/sotto-relay/sotto/transport"
)

// A holding is a client that is not here, and has mail here.
type holding struct {
	told    map[crypto.PublicKey]struct{} // owners, and where it is
	lending *lending                      // nil: nobody has asked for the mail
}

func newHolding() *holding { return &holding{told: make(map[crypto.PublicKey]struct{})} }

const forgetMailMost = 20 // clients looked at, a tick

// findMail notes for whom there is mail from before.
func (m *Mesh) findMail(ctx context.Context) error {
	store, ok := m.srv.Inbox.(inbox.Lister)
	if !ok {
		return nil
	}
	all, err := store.Addressees(ctx)
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, a := range all {
		if client, ok := clientOf(a); ok && m.mail[client] == nil && !m.srv.Online(a) {
			m.mail[client] = newHolding()
		}
	}
	m.voters.changed() // retell will announce it
	return err
}

// Kept says that a message was stored for a client that is not here
// (relay.Forwarder).
func (m *Mesh) Kept(a relay.Address) {
	client, ok := clientOf(a)
	if !ok {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.phase == running && !m.srv.Online(a) {
		m.hold(client, time.Now())
	}
}

// hold notes that there is mail for a client, and has it moved if somebody asked.
func (m *Mesh) hold(client crypto.PublicKey, now time.Time) {
	h := m.mail[client]
	if h == nil {
		h = newHolding()
		m.mail[client] = h
		if m.asks >= 1 {
			m.asks--
			m.announce(client, h, now)
		} else {
			m.voters.changed() // retell will
		}
	}
	m.resume(h.lending)
}

// heldNoMore is for a client that has come here, or whose mail has gone.
func (m *Mesh) heldNoMore(client crypto.PublicKey) {
	h := m.mail[client]
	if h == nil {
		return
	}
	delete(m.mail, client)
	m.stopped(h.lending)
}

// forgetMail forgets some of the clients whose mail has expired, or was removed.
func (m *Mesh) forgetMail() {
	looked := 0
	for client, h := range m.mail {
		if h.lending == nil && !m.srv.Waiting(addressOf(client)) {
			m.heldNoMore(client)
		}
		if looked++; looked == forgetMailMost {
			return
		}
	}
}

// announce tells the owners of a client that there is mail for it.
func (m *Mesh) announce(client crypto.PublicKey, h *holding, now time.Time) {
	for _, owner := range m.ownersOf(client) {
		m.tellOfMail(client, h, owner, now)
	}
}

// tellOfMail tells a relay that there is mail for a client, unless it has been told.
func (m *Mesh) tellOfMail(client crypto.PublicKey, h *holding, to crypto.PublicKey, now time.Time) {
	if _, told := h.told[to]; told {
		return
	}
	if to == m.self {
		m.holds(client, m.self, now)
	} else if !m.ask(to, frame.TypeMail, client[:], now) {
		m.untold = true
		return
	}
	h.told[to] = struct{}{}
}

// holds notes, as an owner, that a relay has mail for a client, and tells those where
// the client is.
func (m *Mesh) holds(client, holder crypto.PublicKey, now time.Time) {
	o := m.ownedOf(client)
	if _, known := o.holders[holder]; !known {
		if !m.hasRoom(holder) {
			m.tidy(client, o)
			return
		}
		if len(o.holders) >= holdersEach {
			last := m.leastHolder(o)
			delete(o.holders, last)
			m.owns(last, -1)
		}
		m.owns(holder, 1)
	}
	o.holders[holder] = now.Add(holderFor)
	for place, p := range o.places {
		switch {
		case !p.notAfter.After(now), place == holder:
		case place == m.self:
			m.fetchFrom(client, holder, now)
		default:
			m.pass(place, frame.Brep{Type: frame.TypeMail, Sender: holder, Payload: client[:]}, now)
		}
	}
}

// leastHolder returns the holder that gives way to another: one that cannot be reached,
// which could hand over nothing, before the one that was heard of longest ago.
func (m *Mesh) leastHolder(o *owned) (least crypto.PublicKey) {
	first, reached := time.Time{}, true
	for holder, until := range o.holders {
		can := holder == m.self || m.links[holder] != nil || m.dir.address(holder) != ""
		if first.IsZero() || reached && !can || reached == can && until.Before(first) {
			least, first, reached = holder, until, can
		}
	}
	return least
}

func (m *Mesh) holdersOf(client crypto.PublicKey, now time.Time) (holders []crypto.PublicKey) {
	if o := m.owned[client]; o != nil {
		for holder, until := range o.holders {
			if until.After(now) {
				holders = append(holders, holder)
			}
		}
	}
	return holders
}

// sendMail passes a MAIL on, as it came from the holder.
func (m *Mesh) sendMail(l *link, client, holder crypto.PublicKey) {
	if holder == l.key {
		return
	}
	f := frame.Brep{Type: frame.TypeMail, Sender: holder, Payload: client[:]}
	m.later(func() { l.port.Reply(transport.Binary, f.Append(nil)) })
}

// hasMail takes MAIL: of the holder itself, as an owner and as the client's relay; or
// passed on by an owner.
func (l *link) hasMail(f *frame.Brep, now time.Time) error {
	client, err := frame.DecodeClientKey(f.Payload)
	if err != nil {
		return err
	}
	m := l.m
	m.mu.Lock()
	defer m.mu.Unlock()
	l.used = now
	if f.Sender == l.key {
		m.holds(client, l.key, now)
	}
	// Who passes it on is an owner that we have told that the client is here: others have
	// us ask relays that they made up.
	if h := m.here[client]; h != nil {
		if _, told := h.told[l.key]; told || f.Sender == l.key {
			m.fetchFrom(client, f.Sender, now)
		}
	}
	return nil
}

func (m *Mesh) check(err error) {
	if err != nil {
		m.log.Error("mesh: inbox", "err", err)
	}
}
