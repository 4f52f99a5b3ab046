package mesh

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/sotto-relay/sotto/crypto"
	"github.com/sotto-relay/sotto/frame"
	"github.com/sotto-relay/sotto/handshake"
	"github.com/sotto-relay/sotto/relay"
)

// A peer is what is remembered of a relay beside where it is.
type peer struct {
	dialling  bool
	queue     []frame.Brep // waits for the link that is being dialled
	failures  int          // of dialling, since the last link
	notBefore time.Time    // it is not dialled
	score     float64      // of what it did wrong
	banned    time.Time    // until
}

const (
	linksMost = 32 // that we keep up with relays we were told of
	queueMost = 256
	failing   = 3    // failures from which a relay is no owner
	forgotten = 6    // from which one that was only suggested is forgotten
	scoreMost = 10   // then the link goes
	scorePer  = 30.0 // ticks in which one point is forgiven
	banFor    = 10 * time.Minute
	badFor    = time.Hour
	failedFor = 10 * time.Minute // after which another attempt is worth as much as a first
	dialRate  = 2.0              // discovered relays dialled a second
	dialBurst = 10.0

	demandRate  = 20.0 // relays dialled because there is something for them
	demandBurst = 200.0
)

// peer returns what is remembered of a relay, made when missing.
func (m *Mesh) peer(key crypto.PublicKey) *peer {
	p := m.peers[key]
	if p == nil {
		p = new(peer)
		m.peers[key] = p
	}
	return p
}

// forgetPeers forgets relays of which there is nothing to remember.
func (m *Mesh) forgetPeers(now time.Time) {
	for key, p := range m.peers {
		p.score = max(0, p.score-30/scorePer)
		if p.failures > 0 && !p.dialling && now.Sub(p.notBefore) > failedFor && m.links[key] == nil {
			p.failures = 0
			m.voters.changed()
		}
		if !p.dialling && p.failures == 0 && p.score == 0 && now.After(p.banned) ||
			len(m.peers) > 2*directoryMost && !p.dialling && now.After(p.banned) {
			delete(m.peers, key)
		}
	}
}

// misbehaves counts something against the other relay.
func (l *link) misbehaves(points float64, what string) {
	l.port.Ignored(what)
	l.m.mu.Lock()
	defer l.m.mu.Unlock()
	l.m.blame(l.key, points, what)
}

// blame counts something against a relay. With too much there are no links with it
// for a while.
func (m *Mesh) blame(relayKey crypto.PublicKey, points float64, what string) {
	p := m.peer(relayKey)
	if p.score += points; p.score < scoreMost {
		return
	}
	p.score, p.banned = 0, time.Now().Add(banFor)
	m.log.Warn("mesh: a relay misbehaves; no link with it for a while", "relay", relayKey, "last", what)
	for other := range m.all {
		if other.key == relayKey {
			m.end(other, &relay.Refusal{Code: relay.CodeDenied, Reason: "misbehaviour"})
		}
	}
}

// learn notes where a relay is, if that is an address to be dialled.
func (m *Mesh) learn(key crypto.PublicKey, address string, t trust, by crypto.PublicKey, now time.Time) {
	if t == suggested && m.dir.relays[key] != nil {
		return // as it is of most in a list; the checks cost more than looking
	}
	if t < linked && (CheckAddress(address, m.cfg.PrivateAddresses) != nil || key.Check() != nil) || address == m.cfg.Advertise {
		return
	}
	if t < linked && m.isBad(key, address, now) {
		return
	}
	if _, dead := m.dead.get(key, now); dead && t == suggested {
		return
	}
	before := m.dir.changes
	m.dir.add(key, address, t, by, now)
	if m.dir.changes != before {
		m.voters.changed()
	}
}

// A relayAt is a relay that was said to be at an address. Others can be there still:
// whoever said it may have lied.
type relayAt struct {
	key     crypto.PublicKey
	address string
}

// isBad says whether another relay was found at an address, or we are there.
func (m *Mesh) isBad(key crypto.PublicKey, address string, now time.Time) bool {
	_, bad := m.bad.get(relayAt{key, address}, now)
	_, own := m.own.get(address, now)
	return bad || own
}

// ask sends a frame of ours to a relay, over a link that there is or is dialled for
// that. False: the relay cannot be reached.
func (m *Mesh) ask(key crypto.PublicKey, t frame.Type, payload []byte, now time.Time) bool {
	return m.pass(key, frame.Brep{Type: t, Sender: m.self, Payload: payload}, now)
}

// pass is ask, of a frame that may be another relay's.
func (m *Mesh) pass(key crypto.PublicKey, f frame.Brep, now time.Time) bool {
	if l := m.links[key]; l != nil {
		l.used = now
		m.put(l, f)
		return true
	}
	if !m.reach(key, true, now) {
		return false
	}
	p := m.peer(key)
	if len(p.queue) >= queueMost {
		return false
	}
	p.queue = append(p.queue, f)
	return true
}

// reach dials a relay, unless that is being done. False: it cannot be, or not now.
func (m *Mesh) reach(key crypto.PublicKey, onDemand bool, now time.Time) bool {
	address := m.dir.address(key)
	if address == "" || m.cfg.Dial == nil || !m.admits(key, now) {
		return false
	}
	if m.dir.relays[key].trust < seeded && m.isBad(key, address, now) {
		return false
	}
	p := m.peer(key)
	if p.dialling {
		return true
	}
	if now.Before(p.notBefore) {
		return false
	}
	if onDemand {
		if m.demand < 1 || len(m.all) >= acceptMost {
			return false
		}
		m.demand--
	}
	p.dialling = true
	o := &outgoing{m: m, address: address, expect: &key, onDemand: onDemand}
	ctx := m.ctx
	m.wg.Go(func() { m.failed(o, m.dial(ctx, o)) })
	return true
}

var errEnded = errors.New("mesh: the relay ended the connection; does it admit our key?")

// dial opens a connection and returns when that has ended.
func (m *Mesh) dial(ctx context.Context, o *outgoing) error {
	if err := CheckAddress(o.address, m.cfg.PrivateAddresses); err != nil {
		return err
	}
	dialCtx, cancel := context.WithTimeout(ctx, dialTimeout)
	conn, err := m.cfg.Dial(dialCtx, o.address, m.guard)
	cancel()
	if err != nil {
		return err
	}
	if err = m.srv.ServeConn(ctx, conn, o); err == nil && !o.up {
		err = errEnded
	}
	return err
}

// failed notes the end of a connection that we opened, and of one to a relay with a
// known key that there was no link.
func (m *Mesh) failed(o *outgoing, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	m.judge(o, err, now)
	if o.expect == nil {
		return
	}
	key := *o.expect
	p := m.peer(key)
	if o.up {
		if !unused(err) {
			p.notBefore = now.Add(backoff(1))
		}
		return
	}
	p.dialling, p.queue = false, nil
	p.failures++
	if p.failures == 1 && m.phase == running {
		m.log.Info("mesh: cannot link with a relay", "address", o.address, "err", err)
	}
	p.notBefore = now.Add(backoff(p.failures))
	if r := m.dir.relays[key]; r != nil && p.failures >= forgotten {
		if r.moved = true; r.trust < linked {
			m.dir.remove(key)
			m.dead.put(key, struct{}{}, now.Add(badFor)) // or others, who were told too, would tell us again
		}
	}
	m.unanswered(key, now)
	m.forgetTold(key) // what waited for the link; and there may be other owners
}

// judge remembers addresses where somebody else was than announced.
func (m *Mesh) judge(o *outgoing, err error, now time.Time) {
	var other *handshake.KeyMismatchError
	switch {
	case errors.Is(err, handshake.ErrSelf):
		m.own.put(o.address, struct{}{}, now.Add(24*time.Hour))
	case errors.As(err, &other):
		m.log.Error("mesh: a relay has another key than it had or was said to have; not linking with it",
			"address", o.address, "want", other.Want, "got", other.Got)
		m.bad.put(relayAt{other.Want, o.address}, struct{}{}, now.Add(badFor))
		if r := m.dir.relays[other.Want]; r != nil && r.trust < linked && r.address == o.address {
			m.dir.remove(other.Want)
			m.voters.changed()
		}
	}
}

// keepUp keeps a link with a peer that the operator named, until ctx ends.
func (m *Mesh) keepUp(ctx context.Context, named Peer) {
	failures := 0
	for {
		wait := tick
		key, on := m.named(named)
		switch {
		case !on:
			return
		case key != nil:
			m.mu.Lock()
			if m.links[*key] == nil {
				m.reach(*key, false, time.Now())
			}
			m.mu.Unlock()
		default: // whoever is there
			o := &outgoing{m: m, address: named.Address, named: true}
			err := m.dial(ctx, o)
			m.failed(o, err)
			if failures++; failures == 1 && !o.up && ctx.Err() == nil {
				m.log.Info("mesh: cannot link with a peer; without a key behind its URL, it has to admit ours",
					"address", named.Address, "our_key", m.self.String(), "err", err)
			}
			wait = backoff(failures)
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return
		}
	}
}

// named returns the key that a peer is known to have. It is not to be dialled when it
// turned out to be ourselves.
func (m *Mesh) named(p Peer) (key *crypto.PublicKey, on bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, own := m.own.get(p.Address, time.Now()); own || p.Key != nil && *p.Key == m.self {
		return nil, false
	}
	if p.Key != nil {
		return p.Key, true
	}
	key = m.dir.at(p.Address)
	if key != nil {
		m.dir.add(*key, p.Address, seeded, m.self, time.Now()) // as it was before a restart
	}
	return key, true
}

// discover links with relays that we were told of, if there are few links, and tries
// again those that were not there, or others would see them as owners and we would not.
func (m *Mesh) discover(now time.Time) {
	m.dials = min(dialBurst, m.dials+5*dialRate)
	kept := 0
	for _, l := range m.links {
		if !l.onDemand {
			kept++
		}
	}
	for _, i := range rand.Perm(len(m.dir.keys)) {
		if m.dials < 1 {
			return
		}
		key, many := m.dir.keys[i], kept >= linksMost
		p := m.peers[key]
		switch {
		case m.links[key] != nil, m.dir.relays[key].trust == seeded, p != nil && p.dialling:
			continue
		case many && (p == nil || p.failures == 0 || p.failures >= forgotten):
			continue
		}
		if m.reach(key, many, now) {
			m.dials--
			if !many {
				kept++
			}
		}
	}
	m.dialHints()
}

// dialHints dials addresses that clients named. Whoever is there is asked for its key.
func (m *Mesh) dialHints() {
	for len(m.hints) > 0 && m.dials >= 1 && m.cfg.Dial != nil {
		address := m.hints[0]
		m.hints = m.hints[1:]
		m.dials--
		o := &outgoing{m: m, address: address, onDemand: true}
		m.wg.Go(func() { m.failed(o, m.dial(m.ctx, o)) })
	}
}

// fails says whether a relay was not there when it was dialled: once, if somebody else
// said where it is, since made up relays would own clients in vain.
func (m *Mesh) fails(key crypto.PublicKey) bool {
	p := m.peers[key]
	if p == nil {
		return false
	}
	r := m.dir.relays[key]
	return p.failures >= failing || p.failures > 0 && r != nil && r.trust == suggested
}

// voters are the relays that owners are chosen from: those of the directory, those
// that are linked, and we.
type voters struct {
	version uint64 // grows when there may be others
	built   uint64
	keys    []crypto.PublicKey
}

func (v *voters) changed() { v.version++ }

// ownersOf returns the owners of a client's key, as far as we know.
func (m *Mesh) ownersOf(client crypto.PublicKey) []crypto.PublicKey {
	v := &m.voters
	if v.keys == nil || v.built != v.version {
		v.keys, v.built = append(v.keys[:0], m.self), v.version
		for _, key := range m.dir.keys {
			if m.links[key] != nil || !m.fails(key) && m.listed(key) {
				v.keys = append(v.keys, key)
			}
		}
		for key := range m.links {
			if m.dir.relays[key] == nil {
				v.keys = append(v.keys, key)
			}
		}
	}
	return ownersOf(client, v.keys)
}
