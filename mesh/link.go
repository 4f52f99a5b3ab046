package mesh

import (
	"bytes"
	"context"
	"errors"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/sotto-relay/sotto/crypto"
	"github.com/sotto-relay/sotto/frame"
	"github.com/sotto-relay/sotto/handshake"
	"github.com/sotto-relay/sotto/relay"
	"github.com/sotto-relay/sotto/transport"
)

// A link is a connection to another relay, after the handshake.
type link struct {
	m        *Mesh
	port     *relay.Port
	key      crypto.PublicKey // of the other relay
	dialled  bool             // by us
	address  string           // that was dialled
	named    bool             // by the operator, without a key
	durable  bool             // the other relay's inbox survives a crash
	onDemand bool             // closed when it is not used any more
	since    time.Time        // there is the link
	heard    atomic.Int64     // when something came, ns since 1970
	control  *rate.Limiter    // of frames that are no messages, and of messages that are of no use here
	gossip   *rate.Limiter    // of relays that are suggested

	// Owned by Receive.
	away  map[course]turn // whose messages are refused
	pings uint64          // that were sent for that

	// Under m.mu.
	window   []*item // sent, and no receipt yet, in order
	index    map[message]*item
	bytes    int    // of window
	carried  uint64 // messages that were in window
	progress time.Time
	recalled bool // messages were given back, and no receipt has come since
	used     time.Time
	owed     int       // messages and entries that came and are not answered
	listed   time.Time // relays were sent
	told     bool      // clients, of its address
	lent     int       // bytes of entries
	retired  bool      // another link with the same relay has taken over
	leaving  bool      // it is about to be closed
	ended    bool
	lendings map[*lending]struct{}
	entries  map[uint64]*lent
	entry    uint64 // the last number
}

// messageMost is the longest message that a link carries, as brep has it.
const messageMost = frame.BrepHeaderSize + 4<<20

const (
	acceptMost     = 512 // links in all, from which the least used of those that others made go
	listEvery      = 5 * time.Second
	windowMessages = 1024
	windowBytes    = 8 << 20
	receiptTime    = 10 * time.Second // without a receipt, while some are due
	pingEvery      = 30               // ticks
	silenceMost    = 75 * time.Second
	idleMost       = 60 * time.Second
	retiredFor     = 2 * time.Second
	controlRate    = 1000 // frames a second
	controlBurst   = 20_000
	gossipRate     = 20   // relays suggested, a second
	gossipBurst    = 1024 // four lists
)

// A linkDialect is what connections between relays speak after the handshake, as the
// server sees it.
type linkDialect struct{}

var errLink = errors.New("mesh: a link begins as something else")

func (linkDialect) Name() string { return "mesh" }

func (linkDialect) Limits() relay.DialectLimits {
	return relay.DialectLimits{
		MessageBytes: frame.EntryOverhead + messageMost,
		UnreadyBytes: 1 << 10,
		ReadyTimeout: 10 * time.Second,
		// Messages to other relays are control here: what bounds them is the window,
		// and the entries under way.
		ControlBytes:   2*windowBytes + 8<<20,
		InboxMessages:  10_000,
		InboxBytes:     64 << 20,
		InboxPerSender: 1_000,
		InboxTTL:       7 * 24 * time.Hour,
	}
}

func (linkDialect) NewSession(*relay.Port) (relay.Session, error) { return nil, errLink }

func (linkDialect) Render(buf []byte, _ uint8, _ *relay.Message) (transport.Kind, []byte, error) {
	return transport.Binary, buf, relay.ErrUnfit // nobody's address is at a link
}

// Admits says whether to link with the relay that has a key.
func (m *Mesh) Admits(key crypto.PublicKey) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.admits(key, time.Now())
}

func (m *Mesh) admits(key crypto.PublicKey, now time.Time) bool {
	if m.phase != running || key == m.self {
		return false
	}
	if p := m.peers[key]; p != nil && now.Before(p.banned) {
		return false
	}
	return m.listed(key)
}

// listed says whether the operator wants links with a relay. That can change.
func (m *Mesh) listed(key crypto.PublicKey) bool {
	r := m.dir.relays[key]
	return r != nil && r.trust == seeded || m.cfg.Admission.Admit(key)
}

// Accept takes over the connection of a relay that dialled and has proved its key,
// for the session that has it.
func (m *Mesh) Accept(p *relay.Port, peer handshake.Peer) error {
	return m.begin(&link{m: m, port: p, key: peer.Key, durable: peer.Features&handshake.FeatureDurable != 0})
}

// begin makes l a link. The caller is a session of l.port's.
func (m *Mesh) begin(l *link) error {
	now := time.Now()
	l.away = make(map[course]turn)
	l.index, l.entries, l.lendings = make(map[message]*item), make(map[uint64]*lent), make(map[*lending]struct{})
	l.control = rate.NewLimiter(controlRate, controlBurst)
	l.gossip = rate.NewLimiter(gossipRate, gossipBurst)
	l.since, l.progress, l.used = now, now, now
	l.heard.Store(now.UnixNano())
	m.mu.Lock()
	defer m.mu.Unlock()
	if l.named && m.phase == running {
		m.dir.add(l.key, l.address, seeded, m.self, now) // trusted on first use
	}
	if !m.admits(l.key, now) {
		return &relay.Refusal{Code: relay.CodeDenied, Reason: "no link with this relay"}
	}
	if len(m.all) >= acceptMost && m.staying() >= acceptMost {
		m.makeRoom()
	}
	l.port.Become(linkDialect{}, l)
	m.all[l] = struct{}{}
	if old := m.links[l.key]; old != nil && old.dialler() != l.dialler() && less(old.dialler(), l.dialler()) {
		l.retired = true
	} else {
		if old != nil {
			old.retired, old.used = true, now
		}
		m.links[l.key] = l
		m.up(l, now)
	}
	return nil
}

// makeRoom ends the link that was not used for the longest time, of those that others
// have made and nobody named.
func (m *Mesh) makeRoom() {
	var least *link
	for l := range m.all {
		r := m.dir.relays[l.key]
		if !l.leaving && !l.dialled && (r == nil || r.trust < seeded) && (least == nil || l.used.Before(least.used)) {
			least = l
		}
	}
	if least != nil {
		m.end(least, &relay.Refusal{Code: relay.CodeOverloaded, Reason: "too many links"})
	}
}

// staying returns how many links are not about to go.
func (m *Mesh) staying() (n int) {
	for l := range m.all {
		if !l.leaving {
			n++
		}
	}
	return n
}

// dialler returns which of the two relays dialled.
func (l *link) dialler() crypto.PublicKey {
	if l.dialled {
		return l.m.self
	}
	return l.key
}

func less(a, b crypto.PublicKey) bool { return string(a[:]) < string(b[:]) }

// up has a new link used.
func (m *Mesh) up(l *link, now time.Time) {
	p := m.peer(l.key)
	queue := p.queue
	p.queue, p.dialling, p.failures, p.notBefore = nil, false, 0, time.Time{}
	m.voters.changed()
	for _, f := range queue {
		m.put(l, f)
	}
	if len(m.links) <= linksMost { // else enough others tell us of relays
		m.requestServers(l)
	}
	if m.cfg.Advertise != "" {
		m.sendNodeInfo(l, frame.NodeInfo{Subtype: frame.NodeInfoAddServer, Address: m.cfg.Advertise})
	}
	if l.dialled {
		m.learn(l.key, l.address, linked, l.key, now)
	}
	for client, h := range m.fetching {
		if h.fetches[l.key] != nil { // it may have been broken off
			m.fetchFrom(client, l.key, now)
		}
	}
	for _, s := range m.searches {
		if s.phase == reaching && s.target.relay == l.key {
			m.found(s, s.target, now)
		}
	}
}

// Close ends the link.
func (l *link) Close(err error) {
	m := l.m
	m.mu.Lock()
	defer m.mu.Unlock()
	current := m.links[l.key] == l
	m.down(l, time.Now())
	if current && !unused(err) && m.phase == running {
		m.forgetTold(l.key)
	}
}

// unused says whether a link ended because one of us did not need it any more.
func unused(err error) bool {
	var r *relay.Refusal
	var ce *transport.CloseError
	return errors.As(err, &r) && r.Code == relay.CodeNone || errors.As(err, &ce) && ce.Code == transport.CloseNormal
}

// down forgets a link. What it has not answered is given back, in order.
func (m *Mesh) down(l *link, now time.Time) {
	if l.ended {
		return
	}
	l.ended = true
	delete(m.all, l)
	current := m.links[l.key] == l
	if current {
		delete(m.links, l.key)
		m.voters.changed()
	}
	m.abandon(l)
	m.stopLending(l)
	if !current {
		return
	}
	m.unanswered(l.key, now)
}

// end closes a link.
func (m *Mesh) end(l *link, why *relay.Refusal) {
	l.leaving = true
	m.later(func() { l.port.End(why) })
}

// send has a frame of ours sent over a link.
func (m *Mesh) send(l *link, t frame.Type, payload []byte) {
	m.put(l, frame.Brep{Type: t, Sender: m.self, Payload: payload})
}

func (m *Mesh) put(l *link, f frame.Brep) {
	m.later(func() { l.port.Reply(transport.Binary, f.Append(nil)) })
}

// Receive takes a frame of the other relay's.
func (l *link) Receive(_ context.Context, k transport.Kind, msg []byte) error {
	if k != transport.Binary {
		return &relay.Refusal{Code: relay.CodeMalformed, Close: transport.CloseUnsupported}
	}
	f, err := frame.DecodeBrep(msg)
	if err != nil {
		return &relay.Refusal{Code: relay.CodeMalformed, Err: err}
	}
	now := time.Now()
	l.heard.Store(now.UnixNano())
	switch f.Type {
	case frame.TypeData, frame.TypeSignedData, frame.TypeEncryptedData, frame.TypeSealed:
		err = l.message(&f, msg, now)
	case frame.TypeReceipt:
		err = l.receipt(f.Payload, now)
	case frame.TypeEntry:
		err = l.keep(f.Payload, now)
	case frame.TypeDone:
		err = l.done(f.Payload, now)
	default:
		if !l.control.AllowN(now, 1) {
			l.misbehaves(1, "flood")
			return nil
		}
		err = l.receiveControl(&f, now)
	}
	if errors.Is(err, frame.ErrMalformed) {
		l.misbehaves(4, "malformed frame")
		return nil
	}
	return err
}

// Excess drops what is too long: whoever sent it knows that it is.
func (l *link) Excess(*relay.Refusal, []byte) error {
	l.misbehaves(1, "too long")
	return nil
}

// receiveControl takes what is about relays, and about where clients and their mail
// are.
func (l *link) receiveControl(f *frame.Brep, now time.Time) error {
	switch f.Type {
	case frame.TypeNodeInfo:
		return l.nodeInfo(f.Payload, now)
	case frame.TypeHere:
		return l.hears(f.Payload, now)
	case frame.TypeWhere:
		return l.where(f.Payload, now)
	case frame.TypeAt:
		return l.at(f.Payload, now)
	case frame.TypeMail:
		return l.hasMail(f, now)
	case frame.TypeFetch:
		return l.fetch(f.Payload, now)
	case frame.TypePing:
		if len(f.Payload) != 8 {
			return frame.ErrMalformed
		}
		// Behind what has been decided to send: it says that what came before is known.
		l.m.mu.Lock()
		l.m.send(l, frame.TypePong, bytes.Clone(f.Payload))
		l.m.mu.Unlock()
	case frame.TypePong:
		l.heardOf(f.Payload)
	case frame.TypeGoAway, frame.TypeError:
	case frame.TypeHandshake:
		return &relay.Refusal{Code: relay.CodeDenied, Reason: "the handshake is over"}
	default:
		l.port.Ignored("unknown type")
	}
	return nil
}

// lookAtLinks ends links that are dead, not used or taken over.
func (m *Mesh) lookAtLinks(now time.Time) {
	for l := range m.all {
		m.overdue(l, now)
		switch {
		case !m.listed(l.key):
			m.end(l, &relay.Refusal{Code: relay.CodeDenied, Reason: "no link with this relay any more"})
		case now.UnixNano()-l.heard.Load() > silenceMost.Nanoseconds():
			m.end(l, &relay.Refusal{Code: relay.CodeGoingAway, Reason: "nothing heard for too long"})
		case (len(l.window) > 0 || l.recalled) && now.Sub(l.progress) > receiptTime:
			m.end(l, &relay.Refusal{Code: relay.CodeOverloaded, Reason: "no receipts"})
		case len(l.window) > 0 || l.owed > 0 || len(l.entries) > 0:
		case l.retired && now.Sub(l.used) > retiredFor:
			m.end(l, &relay.Refusal{Code: relay.CodeReplaced, Reason: "there is another link"})
		case l.onDemand && l.dialled && now.Sub(l.used) > idleMost:
			m.end(l, &relay.Refusal{Code: relay.CodeNone, Reason: "not used"})
		}
		if m.ticks%pingEvery == 0 {
			m.send(l, frame.TypePing, make([]byte, 8))
		}
	}
}
