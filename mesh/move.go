package mesh

import (
	"encoding/binary"
	"time"

	"github.com/sotto-relay/sotto/crypto"
	"github.com/sotto-relay/sotto/frame"
	"github.com/sotto-relay/sotto/relay"
)

// A fetching is what we have asked a relay for of the mail of a client that is here.
type fetching struct {
	left  int
	asked bool      // else the holder could not be reached, or the link broke
	used  time.Time // when it was asked for, or something came
}

const (
	fetchMost   = 256 // entries that are asked for at a time
	fetchesMost = 32  // relays that are asked for the mail of one client
)

// fetchFrom asks a relay for the mail of a client that has attached here.
func (m *Mesh) fetchFrom(client, holder crypto.PublicKey, now time.Time) {
	h := m.here[client]
	if h == nil || !h.notAfter.After(now) || holder == m.self || m.srv.Inbox == nil {
		return
	}
	if h.fetches[holder] == nil && len(h.fetches) >= fetchesMost {
		delete(h.fetches, h.leastFetch())
	}
	f := frame.Fetch{Attachment: h.statement, Max: fetchMost}
	h.fetches[holder] = &fetching{left: fetchMost, asked: m.ask(holder, frame.TypeFetch, f.Append(nil), now), used: now}
	m.fetching[client] = h
}

// leastFetch returns the holder that gives way to another: one that could not be asked,
// before the one of which nothing came for the longest time.
func (h *presence) leastFetch() (least crypto.PublicKey) {
	var worst *fetching
	for holder, f := range h.fetches {
		if worst == nil || worst.asked && !f.asked || worst.asked == f.asked && f.used.Before(worst.used) {
			least, worst = holder, f
		}
	}
	return least
}

// fetchAgain asks those who were not reached: nobody says soon again that there is mail.
func (m *Mesh) fetchAgain(now time.Time) {
	for client, h := range m.fetching {
		for holder, f := range h.fetches {
			if !f.asked {
				m.fetchFrom(client, holder, now)
			}
		}
	}
}

// keep takes ENTRY: a message that another relay had stored for a client of ours. It
// is stored here, and the other relay told when it is.
func (l *link) keep(payload []byte, now time.Time) error {
	e, err := frame.DecodeEntry(payload)
	if err != nil {
		return err
	}
	f, err := frame.DecodeBrep(e.Frame)
	if err != nil {
		return err
	}
	key := message{f.Sender, f.ID}
	switch f.Type {
	case frame.TypeData, frame.TypeSignedData, frame.TypeEncryptedData, frame.TypeSealed:
	default:
		return frame.ErrMalformed
	}
	if len(f.Payload) < len(key.sender) {
		return frame.ErrMalformed
	}
	if l.m.inTheClear(f.Type) {
		l.port.Ignored("in the clear")
		return nil // it stays where it is
	}
	client := crypto.PublicKey(f.Payload)
	switch wanted, stored := l.wants(client, key, l.m.sum(&f), now); {
	case !wanted:
		l.misbehaves(0.2, "mail that nobody asked for") // or not any more
		return nil
	case stored:
		l.kept(e.Number, key, relay.Outcome{Status: relay.Stored})
		return nil
	}
	m := relay.Message{
		To: addressOf(client), From: addressOf(f.Sender), ID: f.ID, Form: frame.FormExtended, Flags: f.Flags,
		Data: e.Frame, Note: binary.BigEndian.AppendUint64(f.Sender[:], e.Number),
	}
	if !e.Expires.IsZero() {
		if m.TTL = e.Expires.Sub(now); m.TTL <= 0 {
			l.kept(e.Number, key, relay.Outcome{Code: relay.CodeExpired}) // the other relay purges it
			return nil
		}
	}
	if o := l.port.Keep(&m); o.Status != relay.Pending {
		l.kept(e.Number, key, o)
	}
	return nil
}

// wants says whether mail of a client was asked for here, and whether that message is
// stored already.
func (l *link) wants(client crypto.PublicKey, key message, sum uint64, now time.Time) (wanted, stored bool) {
	m := l.m
	m.mu.Lock()
	defer m.mu.Unlock()
	l.used = now
	h := m.here[client]
	if h == nil || h.fetches[l.key] == nil || h.fetches[l.key].left <= 0 {
		return false, false
	}
	f := h.fetches[l.key]
	f.left--
	f.used = now
	l.owed++
	if f.left <= fetchMost/4 {
		m.fetchFrom(client, l.key, now)
	}
	if key.id == (relay.ID{}) {
		return true, false
	}
	a, ok := m.in.get(key, now)
	if !ok || a.sum != sum {
		m.in.put(key, &arrival{from: l.key, sum: sum}, now.Add(crossedFor))
		return true, false
	}
	return true, !a.left && a.status != 0 && a.status <= frame.ReceiptAcknowledged
}

// kept says what became of an entry.
func (l *link) kept(number uint64, key message, o relay.Outcome) {
	m := l.m
	m.mu.Lock()
	defer m.mu.Unlock()
	l.owed--
	l.used = time.Now()
	a, known := m.in.get(key, l.used)
	if o.Status != relay.Stored {
		if known && a.status == 0 {
			m.in.remove(key) // it may be tried again, or come another way
		}
		return
	}
	if known {
		a.left = false
		a.status = max(a.status, frame.ReceiptStored)
	}
	m.send(l, frame.TypeDone, frame.AppendEntryNumbers(nil, number))
}
