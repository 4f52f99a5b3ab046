package mesh

import (
	"cmp"
	"errors"
	"slices"
	"time"

	"github.com/sotto-relay/sotto/crypto"
	"github.com/sotto-relay/sotto/frame"
)

// A place is where a client is.
type place struct {
	relay    crypto.PublicKey
	attached bool // by its own word
	nowhere  bool // it was looked for
}

// A search is what goes on until it is known where a client is. All messages for it
// wait together, in order.
type search struct {
	client  crypto.PublicKey
	phase   searchPhase
	waiting []*item
	bytes   int
	askers  []func(relay *crypto.PublicKey) // who only want to know
	asked   map[crypto.PublicKey]struct{}   // who owes an answer
	until   time.Time                       // of the phase
	target  place                           // the best so far, then that is being dialled
	ends    time.Time                       // the attachment of the best so far
}

type searchPhase uint8

const (
	asking   searchPhase = iota // the owners
	querying                    // the relays that are linked
	reaching                    // the relay is known, and being dialled
	landing                     // none yet: what went to another relay has not been answered
)

// A quiet is how long a client is not asked for with QUERY_CLIENT.
type quiet struct {
	until time.Time
	wait  time.Duration
}

const (
	foundFor    = 60 * time.Second
	nowhereFor  = 2 * time.Second
	askFor      = 5 * time.Second
	othersFor   = time.Second // the other owners have, when one has answered
	queryFor    = 5 * time.Second
	reachFor    = 20 * time.Second // dialling and the handshake
	quietMost   = 10 * time.Second
	asksRate    = 300.0 // a second: clients of ours that write to anybody must not make us a flood
	asksBurst   = 3000.0
	searchBytes = 1 << 20  // that wait for one client
	waitingMost = 64 << 20 // and for all
)

// place brings a message on its way.
func (m *Mesh) place(it *item, now time.Time) {
	if s := m.searches[it.to]; s != nil {
		m.await(s, it)
		return
	}
	p, known := m.places.use(it.to, now)
	f := m.flying[it.to]
	online := m.srv.Online(addressOf(it.to)) // it came just now, or messages for it are away
	switch {
	case m.phase != running:
		m.back(it)
	case f != nil && (online || !known || m.links[p.relay] != f.l):
		m.awaitLanding(it, now)
	case online:
		m.back(it)
	case known && p.nowhere:
		m.count.CacheHits++
		m.back(it)
	case known && m.links[p.relay] != nil:
		m.count.CacheHits++
		m.dispatch(it, p, m.links[p.relay], now)
	case !known && m.asks < 1:
		m.count.CacheMisses++
		m.back(it)
	default:
		s := &search{client: it.to}
		m.searches[it.to] = s
		m.await(s, it)
		m.asks--
		if known {
			m.count.CacheHits++
			s.phase = reaching
			m.found(s, p, now)
		} else {
			m.count.CacheMisses++
			m.seek(s, now)
		}
	}
}

// awaitLanding has a message wait for the end of a flight.
func (m *Mesh) awaitLanding(it *item, now time.Time) {
	s := &search{client: it.to, phase: landing, until: now.Add(2 * receiptTime)}
	m.searches[it.to] = s
	m.await(s, it)
}

// await has a message wait for the end of a search. If there is no room, all that
// wait are stored, in order.
func (m *Mesh) await(s *search, it *item) {
	n := it.size()
	s.waiting = append(s.waiting, it)
	s.bytes += n
	m.waiting += n
	if len(s.waiting) > 1 && s.bytes > searchBytes || m.waiting > waitingMost {
		m.recall(s.client)
		m.empty(s, m.back)
	}
}

// empty takes the messages out of a search, in order.
func (m *Mesh) empty(s *search, each func(*item)) {
	waiting := s.waiting
	m.waiting -= s.bytes
	s.waiting, s.bytes = nil, 0
	for _, it := range waiting {
		each(it)
	}
}

// giveUp ends a search and gives its messages back.
func (m *Mesh) giveUp(s *search) {
	delete(m.searches, s.client)
	m.tell(s, nil)
	m.recall(s.client)
	m.empty(s, m.back)
}

// tell tells those who asked where the client is.
func (m *Mesh) tell(s *search, relay *crypto.PublicKey) {
	for _, tell := range s.askers {
		m.later(func() { tell(relay) })
	}
	s.askers = nil
}

// Find looks for a client at other relays, as for the recipient of a message, and calls
// tell, from any goroutine and later, with the key of the one where it is, or nil.
func (m *Mesh) Find(client crypto.PublicKey, tell func(relay *crypto.PublicKey)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	s := m.searches[client]
	p, known := m.places.get(client, now)
	switch {
	case s != nil && s.phase < reaching:
		s.askers = append(s.askers, tell)
	case known && !p.nowhere:
		m.later(func() { tell(&p.relay) })
	case s != nil || known || m.phase != running || m.asks < 1:
		m.later(func() { tell(nil) })
	default:
		m.asks--
		s = &search{client: client, askers: []func(*crypto.PublicKey){tell}}
		m.searches[client] = s
		m.seek(s, now)
	}
}

// missing ends a search that has found nothing.
func (m *Mesh) missing(s *search, now time.Time) {
	m.places.put(s.client, place{nowhere: true}, now.Add(nowhereFor))
	if s.phase < reaching {
		m.count.Missing++
	}
	m.giveUp(s)
}

// dispatch sends a message to where its recipient is. While older ones are stored
// here that can go there, they are fetched from there, and it goes behind them.
func (m *Mesh) dispatch(it *item, p place, l *link, now time.Time) {
	if s := m.searches[it.to]; s != nil { // one before it found no room
		m.await(s, it)
		return
	}
	if !p.attached || !m.mayLend(l) || m.backing[it.to] == 0 && !m.srv.Waiting(addressOf(it.to)) {
		m.carry(it, l, now)
		return
	}
	m.back(it)
	if h := m.mail[it.to]; h != nil && h.lending == nil { // owners may have forgotten, or withhold, that there is mail
		m.tellOfMail(it.to, h, l.key, now)
	}
}

// found ends a search, as soon as there is a link.
func (m *Mesh) found(s *search, p place, now time.Time) {
	m.places.put(s.client, p, now.Add(foundFor))
	m.tell(s, &p.relay)
	if s.phase < reaching {
		m.count.Found++
		s.phase = reaching
	}
	if len(s.waiting) == 0 {
		delete(m.searches, s.client)
		return
	}
	if l := m.links[p.relay]; l != nil {
		delete(m.searches, s.client)
		m.empty(s, func(it *item) { m.dispatch(it, p, l, now) })
		return
	}
	if !m.reach(p.relay, true, now) {
		m.missing(s, now)
		return
	}
	s.target, s.asked, s.until = p, nil, now.Add(reachFor)
}

// seek asks the owners.
func (m *Mesh) seek(s *search, now time.Time) {
	if m.srv.Online(addressOf(s.client)) {
		m.tell(s, &m.self)
		m.giveUp(s)
		return
	}
	m.count.Lookups++
	s.phase, s.until, s.ends = asking, now.Add(askFor), time.Time{}
	s.asked = make(map[crypto.PublicKey]struct{})
	if p, _, ok := m.placeOwned(s.client, now); ok {
		m.found(s, p, now)
		return
	}
	for _, owner := range m.ownersOf(s.client) {
		if owner != m.self && m.ask(owner, frame.TypeWhere, s.client[:], now) {
			s.asked[owner] = struct{}{}
		}
	}
	if len(s.asked) == 0 {
		m.query(s, now)
	}
}

// at takes an owner's answer.
func (l *link) at(payload []byte, now time.Time) error {
	a, err := frame.DecodeAt(payload)
	if err != nil {
		return err
	}
	m, client := l.m, crypto.PublicKey(a.Client)
	if !l.owes(client) {
		l.port.Ignored("answer that nobody waits for")
		return nil
	}
	var best crypto.Attachment
	address := ""
	for _, p := range a.Places[:min(len(a.Places), placesEach)] {
		x, err := attachment(&p.Attachment, now)
		switch {
		case errors.Is(err, errAttachment): // clocks differ
		case err != nil || x.Client != client:
			l.misbehaves(2, "false attachment")
		case x.Relay != m.self && x.NotAfter.After(best.NotAfter):
			best, address = x, p.Address
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if best.NotAfter.IsZero() {
		m.answer(l.key, client, now)
		return nil
	}
	if !m.attested.has(client) {
		m.attested.put(client, l.key)
	}
	m.learn(best.Relay, address, suggested, l.key, now)
	if s := m.searches[client]; s != nil {
		m.offer(s, place{relay: best.Relay, attached: true}, best.NotAfter, now)
		m.answer(l.key, client, now)
	}
	return nil
}

// offer takes a place where a client has attached. The owners that are still to answer
// may know of an attachment that ends later, which counts; but one that withholds holds
// nothing up for long.
func (m *Mesh) offer(s *search, p place, ends, now time.Time) {
	switch {
	case s.phase == querying:
		m.found(s, p, now)
	case s.phase == asking && ends.After(s.ends):
		s.target, s.ends = p, ends
		if soon := now.Add(othersFor); soon.Before(s.until) {
			s.until = soon
		}
	}
}

// owes says whether the relay was asked for a client.
func (l *link) owes(client crypto.PublicKey) bool {
	l.m.mu.Lock()
	defer l.m.mu.Unlock()
	s := l.m.searches[client]
	if s == nil || s.phase != asking {
		return false
	}
	_, ok := s.asked[l.key]
	return ok
}

// answer notes that a relay does not know where a client is.
func (m *Mesh) answer(relay, client crypto.PublicKey, now time.Time) {
	s := m.searches[client]
	if s == nil {
		return
	}
	if _, ok := s.asked[relay]; !ok {
		return
	}
	delete(s.asked, relay)
	if len(s.asked) > 0 {
		return
	}
	m.next(s, now)
}

// next ends a phase that found nothing.
func (m *Mesh) next(s *search, now time.Time) {
	switch s.phase {
	case asking:
		if s.ends.IsZero() {
			m.query(s, now)
		} else {
			m.found(s, s.target, now)
		}
	case querying:
		q, _ := m.quiet.get(s.client, now)
		q.wait = min(max(2*q.wait, nowhereFor), quietMost)
		q.until = now.Add(q.wait)
		m.quiet.put(s.client, q, now.Add(foundFor))
		m.missing(s, now)
	default:
		m.missing(s, now)
	}
}

// query asks all relays that are linked whether they have the client.
func (m *Mesh) query(s *search, now time.Time) {
	q, _ := m.quiet.get(s.client, now)
	// Nobody is believed who says without an attachment that a client is there which makes
	// them.
	if m.attested.has(s.client) || now.Before(q.until) || len(m.links) == 0 {
		m.missing(s, now)
		return
	}
	m.count.Queries++
	s.phase, s.until = querying, now.Add(queryFor)
	s.asked = make(map[crypto.PublicKey]struct{})
	for key, l := range m.links {
		s.asked[key] = struct{}{}
		m.sendNodeInfo(l, frame.NodeInfo{Subtype: frame.NodeInfoQueryClient, Client: s.client})
	}
}

// answered takes the answer to QUERY_CLIENT.
func (m *Mesh) answered(l *link, client crypto.PublicKey, found bool, now time.Time) {
	s := m.searches[client]
	if s == nil || s.phase != querying {
		return
	}
	if _, ok := s.asked[l.key]; !ok {
		return
	}
	if !found {
		m.answer(l.key, client, now)
		return
	}
	m.quiet.remove(client)
	m.found(s, place{relay: l.key}, now)
}

// unanswered is for a relay that is gone, or cannot be reached.
func (m *Mesh) unanswered(relay crypto.PublicKey, now time.Time) {
	for _, s := range m.searches {
		if s.phase == reaching && s.target.relay == relay {
			m.missing(s, now)
			continue
		}
		m.answer(relay, s.client, now)
	}
}

// notHere looks once more for the recipient of a message that a relay did not have,
// with all others for him that went there, so that they keep their order.
func (m *Mesh) notHere(it *item, l *link, now time.Time) {
	m.count.NotHere++
	p, known := m.places.get(it.to, now)
	if known && p.relay == l.key {
		m.places.remove(it.to)
		if !p.attached {
			m.blame(l.key, 1, "said that a client was there")
		}
	}
	m.landed(it)
	items := []*item{it}
	for i := 0; i < len(l.window); i++ {
		if other := l.window[i]; other.to == it.to {
			l.take(other.key)
			m.landed(other)
			items = append(items, other)
			i--
		}
	}
	slices.SortFunc(items, func(x, y *item) int { return cmp.Compare(x.n, y.n) }) // older ones may not have been answered
	if it.again {
		for _, it := range items {
			m.back(it)
		}
		m.goOn(it.to)
		return
	}
	s := m.searches[it.to]
	begun := s != nil
	if !begun {
		s = &search{client: it.to}
		m.searches[it.to] = s
	}
	behind := s.waiting
	m.waiting -= s.bytes
	s.waiting, s.bytes = nil, 0
	for _, it := range append(items, behind...) {
		it.again = true
		m.await(s, it)
	}
	if !begun || s.phase == landing {
		m.seek(s, now)
	}
}

// lookAtSearches ends what takes too long.
func (m *Mesh) lookAtSearches(now time.Time) {
	for _, s := range m.searches {
		if !now.Before(s.until) {
			m.next(s, now)
		}
	}
}
