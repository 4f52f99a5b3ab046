package mesh

import (
	"encoding/binary"
	"hash/maphash"
	"slices"
	"time"

	"github.com/sotto-relay/sotto/crypto"
	"github.com/sotto-relay/sotto/frame"
	"github.com/sotto-relay/sotto/relay"
	"github.com/sotto-relay/sotto/transport"
)

// A message is what stands for a message on links.
type message struct {
	sender crypto.PublicKey
	id     relay.ID
}

// An item is a message of the server's on its way to another relay.
type item struct {
	f     *relay.Forwarded
	to    crypto.PublicKey
	key   message
	n     uint64    // on its link
	over  time.Time // a receipt came for one that was sent later
	again bool      // the relay that it was sent to did not have the recipient
}

func (it *item) size() int { return len(it.f.Data) }

// An arrival is a message that came from another relay.
type arrival struct {
	from   crypto.PublicKey
	sum    uint64              // of what came, so that nobody can have another message taken for it
	status frame.ReceiptStatus // 0: not known yet
	left   bool                // it has been lent to another relay since, and may come back
}

// A departure is a message that wants receipts, and was sent to another relay.
type departure struct {
	to     crypto.PublicKey
	status frame.ReceiptStatus // that the sender knows of
}

// sum is a hash of a frame, but for what changes on its way.
func (m *Mesh) sum(f *frame.Brep) uint64 {
	var h maphash.Hash
	h.SetSeed(m.seed)
	_, _ = h.Write(f.Signature[:])
	_, _ = h.Write(f.Payload)
	return h.Sum64()
}

// Forward takes a message whose recipient is not here (relay.Forwarder).
func (m *Mesh) Forward(f *relay.Forwarded) bool {
	to, ok := clientOf(f.To)
	from, fromOK := clientOf(f.From)
	if !ok || !fromOK || len(f.Data) < frame.BrepHeaderSize {
		return false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.phase != running && m.backing[to] == 0 { // else it goes behind those
		return false
	}
	m.place(&item{f: f, to: to, key: message{from, f.ID}}, time.Now())
	return true
}

// back gives a message back to the server: for a session here, or the inbox.
func (m *Mesh) back(it *item) {
	m.backing[it.to]++
	m.later(func() {
		it.f.Return()
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.backing[it.to]--; m.backing[it.to] == 0 {
			delete(m.backing, it.to)
		}
	})
}

// carry sends a message over a link, or gives it back when it is too long or there is
// no room.
func (m *Mesh) carry(it *item, l *link, now time.Time) {
	if it.size() > messageMost || len(l.window) > 0 && (len(l.window) >= windowMessages || l.bytes+it.size() > windowBytes) {
		if m.flying[it.to] != nil && it.size() <= messageMost { // which may come back, and would be stored behind it
			m.awaitLanding(it, now)
		} else {
			m.back(it)
		}
		return
	}
	flags, hops := it.f.Flags, uint8(0)
	if it.f.Form == frame.FormLegacy {
		flags = 0
	}
	if hops = flags & frame.FlagHops >> 4; hops == frame.FlagHops>>4 {
		m.later(func() { it.f.Settle(relay.Outcome{Code: relay.CodeHopLimit}) })
		return
	}
	flags = flags&^frame.FlagHops | (hops+1)<<4
	l.used = now
	m.count.Carried++
	m.later(func() { l.port.Reply(transport.Binary, onLink(it.f.Data, flags, it.f.ID)) })
	if it.f.ID == (relay.ID{}) { // there can be no receipt
		m.later(func() { it.f.Settle(relay.Outcome{Status: relay.Delivered}) })
		return
	}
	if len(l.window) == 0 && !l.recalled {
		l.progress = now
	}
	if l.index[it.key] != nil { // the same id again: one receipt is for one of them
		m.later(func() { it.f.Settle(relay.Outcome{Status: relay.Delivered}) })
		return
	}
	m.takeOff(it, l)
	l.carried++
	it.n, it.over = l.carried, time.Time{}
	l.window = append(l.window, it)
	l.index[it.key] = it
	l.bytes += it.size()
}

// A flight is the messages for one recipient in the window of a link. Until they have
// been answered, none goes another way, or it could overtake them.
type flight struct {
	l *link
	n int
}

func (m *Mesh) takeOff(it *item, l *link) {
	f := m.flying[it.to]
	if f == nil {
		f = &flight{l: l}
		m.flying[it.to] = f
	}
	f.n++
}

// landed notes that a message has been answered, and says whether it was the last.
func (m *Mesh) landed(it *item) (last bool) {
	f := m.flying[it.to]
	if f.n--; f.n > 0 {
		return false
	}
	delete(m.flying, it.to)
	return true
}

// land is landed, and has those go on that waited for it.
func (m *Mesh) land(it *item) {
	if m.landed(it) {
		m.goOn(it.to)
	}
}

// recall gives back what is on its way to a client, before what came later is stored:
// there may be no answer, and then it would be stored behind that. What arrives all the same
// is known there when it comes again. Of a client that never attached nothing moves, so
// it would get both.
func (m *Mesh) recall(client crypto.PublicKey) {
	f := m.flying[client]
	if f == nil || !m.attested.has(client) || !m.mayLend(f.l) {
		return
	}
	f.l.recalled = true
	for i := 0; i < len(f.l.window); i++ {
		if it := f.l.window[i]; it.to == client {
			f.l.take(it.key)
			m.landed(it)
			m.back(it)
			i--
		}
	}
}

// goOn has those messages for a client go on that waited for what was on its way.
func (m *Mesh) goOn(client crypto.PublicKey) {
	if s := m.searches[client]; s != nil && s.phase == landing {
		delete(m.searches, client)
		now := time.Now()
		m.empty(s, func(it *item) { m.place(it, now) })
	}
}

// onLink returns a frame as a link carries it.
func onLink(data []byte, flags uint8, id relay.ID) []byte {
	b := slices.Clone(data)
	b[frame.BrepFlagsOffset] = flags
	copy(b[frame.BrepIDOffset:], id[:])
	return b
}

// take takes a message out of the window, if it is there.
func (l *link) take(key message) *item {
	it := l.index[key]
	if it == nil {
		return nil
	}
	delete(l.index, key)
	i := slices.Index(l.window, it)
	l.window = slices.Delete(l.window, i, i+1)
	l.bytes -= it.size()
	return it
}

// overdue gives back what a link has not answered, while it has answered later ones.
func (m *Mesh) overdue(l *link, now time.Time) {
	for len(l.window) > 0 && !l.window[0].over.IsZero() && now.Sub(l.window[0].over) > receiptTime {
		it := l.take(l.window[0].key)
		m.back(it)
		m.land(it)
	}
}

// abandon gives back all that a link has not answered.
func (m *Mesh) abandon(l *link) {
	window := l.window
	l.window, l.bytes = nil, 0
	clear(l.index)
	for _, it := range window {
		m.back(it)
		m.land(it)
	}
}

// receipt takes a RECEIPT for a message that we sent.
func (l *link) receipt(payload []byte, now time.Time) error {
	r, err := frame.DecodeLinkReceipt(payload)
	if err != nil {
		return err
	}
	m := l.m
	m.mu.Lock()
	defer m.mu.Unlock()
	key := message{r.Sender, r.ID}
	if l.recalled {
		l.recalled, l.progress = false, now
	}
	if it := l.take(key); it != nil {
		l.progress = now
		if len(l.window) > 0 && l.window[0].n < it.n && l.window[0].over.IsZero() {
			l.window[0].over = now
		}
		if it.f.Flags&frame.FlagReceipt != 0 && r.Status != frame.ReceiptRefused {
			m.out.put(key, &departure{l.key, min(r.Status, frame.ReceiptStored)}, now.Add(crossedFor))
		}
		switch {
		case r.Status == frame.ReceiptStored && m.mayLend(l):
			m.later(func() { it.f.Settle(relay.Outcome{Status: relay.Stored}) })
		case r.Status != frame.ReceiptRefused:
			m.later(func() { it.f.Settle(relay.Outcome{Status: relay.Delivered}) })
		case r.Code == frame.CodeNotHere:
			m.notHere(it, l, now)
			return nil
		case r.Code == frame.CodeSpoofedSender: // it is not for the other relay to say
			m.back(it)
		default:
			m.later(func() { it.f.Settle(relay.Outcome{Code: relay.Code(r.Code)}) })
		}
		m.land(it)
		if r.Status <= frame.ReceiptStored || r.Status == frame.ReceiptRefused {
			return nil
		}
	}
	if r.Status == frame.ReceiptStored && !m.mayLend(l) {
		return nil // that it was handed over has been said
	}
	if d, ok := m.out.get(key, now); ok && d.to == l.key && r.Status > d.status {
		d.status = r.Status
		m.passOn(&r)
		return nil
	}
	l.wasted(now)
	return nil
}

// passOn tells a sender, here or on another relay, what became of a message later.
func (m *Mesh) passOn(r *frame.LinkReceipt) {
	n := relay.Notice{ID: r.ID, Flags: frame.FlagReceipt}
	switch r.Status {
	case frame.ReceiptStored:
		n.Kind = relay.NoticeStored
	case frame.ReceiptAcknowledged:
		n.Kind, n.Peer, n.Proof = relay.NoticeAcknowledged, addressOf(r.Recipient), r.Signature[:]
	case frame.ReceiptExpired:
		n.Kind = relay.NoticeExpired
	case frame.ReceiptRefused:
		n.Kind = relay.NoticeDropped
	default:
		return
	}
	m.later(func() { m.srv.Tell(addressOf(r.Sender), n) })
}

// Follow tells the relay that a message came from what became of it
// (relay.Follower).
func (m *Mesh) Follow(sender relay.Address, n relay.Notice) {
	from, ok := clientOf(sender)
	if !ok || n.Kind != relay.NoticeAcknowledged && n.Flags&frame.FlagReceipt == 0 {
		return
	}
	r := frame.LinkReceipt{Sender: from, Receipt: frame.Receipt{ID: n.ID}}
	switch n.Kind {
	case relay.NoticeAcknowledged:
		if len(n.Peer.Name) != len(r.Recipient) || len(n.Proof) != len(r.Signature) {
			return
		}
		r.Status, r.Recipient, r.Signature = frame.ReceiptAcknowledged, [32]byte([]byte(n.Peer.Name)), [64]byte(n.Proof)
	case relay.NoticeStored:
		r.Status = frame.ReceiptStored
	case relay.NoticeExpired:
		r.Status, r.Code = frame.ReceiptExpired, frame.CodeExpired
	case relay.NoticeDropped:
		r.Status, r.Code = frame.ReceiptRefused, frame.CodeInboxFull
	default:
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	key := message{from, n.ID}
	a, ok := m.in.get(key, time.Now())
	if !ok {
		return
	}
	if r.Status > frame.ReceiptStored {
		m.in.put(key, &arrival{sum: a.sum, status: r.Status}, time.Now().Add(crossedFor)) // said once, or relays could go round in circles
	}
	if l := m.links[a.from]; l != nil {
		m.send(l, frame.TypeReceipt, r.Append(nil))
	}
}

// message takes a frame for a client of ours.
func (l *link) message(f *frame.Brep, msg []byte, now time.Time) error {
	m, key := l.m, message{f.Sender, f.ID}
	if len(f.Payload) < len(key.sender) {
		return frame.ErrMalformed
	}
	if f.Type == frame.TypeSealed {
		if _, err := frame.DecodeSealed(f.Payload); err != nil {
			return err
		}
	}
	on := course{f.Sender, crypto.PublicKey(f.Payload)}
	if m.srv.Online(addressOf(f.Sender)) {
		// Forged; or its sender is at both relays, or was there: the other one keeps it.
		l.refuse(key, frame.CodeSpoofedSender)
		l.turnAway(on, key, frame.CodeSpoofedSender)
		return nil
	}
	switch {
	case f.Flags&frame.FlagHops == frame.FlagHops:
		l.refuse(key, frame.CodeHopLimit)
		return nil
	case m.inTheClear(f.Type):
		l.refuse(key, frame.CodeDenied)
		return nil
	}
	if code := l.turnedAway(on, key); code != 0 {
		l.refuse(key, code)
		m.mu.Lock()
		defer m.mu.Unlock()
		l.wasted(now)
		return nil
	}
	if key.id != (relay.ID{}) && l.isRepeat(key, m.sum(f), now) {
		return nil
	}
	msgOut := relay.Message{
		To: relay.Address{Realm: relay.RealmBrep, Name: string(f.Payload[:len(key.sender)])}, From: addressOf(f.Sender),
		ID: f.ID, Form: frame.FormExtended, Flags: f.Flags, Data: msg, Ephemeral: f.Flags&frame.FlagEphemeral != 0,
		Note: f.Sender[:],
	}
	if o := l.port.Arrive(&msgOut); o.Status != relay.Pending {
		l.settle(key, o)
		if o.Status == relay.Refused && o.Code == relay.CodeNotHere {
			l.turnAway(on, key, frame.CodeNotHere)
		}
	}
	return nil
}

// inTheClear says whether frames of a type are refused, since a relay could read them.
func (m *Mesh) inTheClear(t frame.Type) bool {
	return m.cfg.SealedOnly && (t == frame.TypeData || t == frame.TypeSignedData)
}

// refuse answers a message that is dropped, and counts it.
func (l *link) refuse(key message, code frame.Code) {
	l.port.Ignored(code.String())
	if key.id != (relay.ID{}) {
		l.answer(key, frame.Receipt{Status: frame.ReceiptRefused, Code: code})
	}
}

// wasted counts a message that was of no use here. The caller holds m.mu.
func (l *link) wasted(now time.Time) {
	if !l.control.AllowN(now, 1) {
		l.m.blame(l.key, 1, "flood")
	}
}

// isRepeat says whether a message has come before. It is then answered as the first
// time, if that was.
func (l *link) isRepeat(key message, sum uint64, now time.Time) bool {
	m := l.m
	m.mu.Lock()
	defer m.mu.Unlock()
	l.used = now
	a, ok := m.in.get(key, now)
	if !ok || a.sum != sum {
		m.in.put(key, &arrival{from: l.key, sum: sum}, now.Add(crossedFor))
		l.owed++
		return false
	}
	l.port.Ignored("repeat")
	l.wasted(now)
	switch a.status {
	case 0:
	case frame.ReceiptStored, frame.ReceiptHandedOver:
		l.answer(key, frame.Receipt{Status: a.status})
	default:
		l.answer(key, frame.Receipt{Status: frame.ReceiptHandedOver}) // and more had been said
	}
	return true
}

// Settled says what became of a message or an entry that was on its way to the inbox.
// Its note is the sender, and of an entry the number behind that.
func (l *link) Settled(r relay.Receipt) {
	key := message{crypto.PublicKey(r.Note), r.ID}
	if number := r.Note[len(key.sender):]; len(number) > 0 {
		l.kept(binary.BigEndian.Uint64(number), key, r.Outcome)
		return
	}
	l.settle(key, r.Outcome)
}

// settle answers a message that came.
func (l *link) settle(key message, o relay.Outcome) {
	if key.id == (relay.ID{}) {
		return
	}
	m := l.m
	r := frame.Receipt{Status: frame.ReceiptRefused, Code: frame.Code(o.Code)}
	switch o.Status {
	case relay.Delivered:
		r = frame.Receipt{Status: frame.ReceiptHandedOver}
	case relay.Stored:
		r = frame.Receipt{Status: frame.ReceiptStored}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	l.owed--
	l.used = time.Now()
	if a, ok := m.in.get(key, l.used); ok {
		if r.Status == frame.ReceiptRefused {
			l.wasted(l.used)
			m.in.remove(key) // it may be tried again
		} else if a.status == 0 {
			a.status = r.Status
		}
	}
	l.answer(key, r)
}

// answer has a RECEIPT sent.
func (l *link) answer(key message, r frame.Receipt) {
	r.ID = key.id
	if r.Code != 0 {
		r.Reason = r.Code.String()
	}
	lr := frame.LinkReceipt{Sender: key.sender, Receipt: r}
	f := frame.Brep{Type: frame.TypeReceipt, Sender: l.m.self, Payload: lr.Append(nil)}
	l.port.Reply(transport.Binary, f.Append(nil))
}
