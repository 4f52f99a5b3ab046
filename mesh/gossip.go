package mesh

import (
	"errors"
	"time"

	"github.com/sotto-relay/sotto/crypto"
	"github.com/sotto-relay/sotto/frame"
	"github.com/sotto-relay/sotto/transport"
)

const (
	hintsMost  = 64
	hintsEach  = 4 // of one client in hintsFor
	hintsFor   = time.Hour
	serversMax = 64 // relays told to a client
)

func (m *Mesh) sendNodeInfo(l *link, n frame.NodeInfo) {
	if payload, err := n.Append(nil); err == nil {
		m.send(l, frame.TypeNodeInfo, payload)
	}
}

func (m *Mesh) requestServers(l *link) {
	m.sendNodeInfo(l, frame.NodeInfo{Subtype: frame.NodeInfoRequestServers})
}

// requestOfSome asks for the relays that others know. Lists are most of what a link
// costs, and as many as there are links that we want tell of all soon enough.
func (m *Mesh) requestOfSome() {
	asked := 0
	for _, l := range m.links {
		if asked++; asked > linksMost {
			return
		}
		m.requestServers(l)
	}
}

// nodeInfo takes NODE_INFO from another relay (spec brep.md).
func (l *link) nodeInfo(payload []byte, now time.Time) error {
	n, err := frame.DecodeNodeInfo(payload)
	if errors.Is(err, frame.ErrUnknownSubtype) {
		l.port.Ignored("NODE_INFO")
		return nil
	}
	if err != nil {
		return err
	}
	m := l.m
	m.mu.Lock()
	defer m.mu.Unlock()
	switch n.Subtype {
	case frame.NodeInfoRequestServers:
		if now.Sub(l.listed) >= listEvery {
			l.listed = now
			m.sendNodeInfo(l, frame.NodeInfo{Subtype: frame.NodeInfoResponseServers, Servers: m.dir.random(listMost)})
		}
	case frame.NodeInfoResponseServers:
		list := n.Servers[:min(len(n.Servers), listMost)]
		if !l.gossip.AllowN(now, len(list)) { // each costs us something
			l.port.Ignored("too many relays suggested")
			return nil
		}
		for _, s := range list {
			m.learn(s.Key, s.Address, suggested, l.key, now)
		}
	case frame.NodeInfoAddServer:
		m.learn(l.key, n.Address, told, l.key, now)
		if !l.told {
			l.told = true
			m.tellWatches(n.Address)
		}
	case frame.NodeInfoQueryClient:
		a := frame.NodeInfo{Subtype: frame.NodeInfoQueryResponse, Client: n.Client}
		if m.srv.Online(addressOf(n.Client)) {
			a.Found, a.Relay = true, m.self
		}
		payload, err := a.Append(nil)
		if err != nil {
			return err
		}
		f := frame.Brep{Type: frame.TypeNodeInfo, Sender: m.self, Payload: payload}
		l.port.Reply(transport.Binary, f.Append(nil))
	case frame.NodeInfoQueryResponse:
		m.answered(l, n.Client, n.Found && n.Relay == l.key, now)
	}
	return nil
}

// A watch is somebody who wants to know of new relays.
type watch struct{ added func(address string) }

// Servers returns the relays that are linked and have an address, and has added called
// for each one that is later, until cancel. It is called from any goroutine and must
// not block.
func (m *Mesh) Servers(added func(address string)) (servers []frame.ServerInfo, cancel func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for key := range m.links {
		if address := m.dir.address(key); address != "" && len(servers) < serversMax {
			servers = append(servers, frame.ServerInfo{Key: key, Address: address})
		}
	}
	w := &watch{added}
	m.watches[w] = struct{}{}
	return servers, func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		delete(m.watches, w)
	}
}

// tellWatches tells of a relay with a new link, when that has said where it is.
func (m *Mesh) tellWatches(address string) {
	if CheckAddress(address, m.cfg.PrivateAddresses) != nil {
		return
	}
	for w := range m.watches {
		m.later(func() { w.added(address) })
	}
}

// Suggest takes a client's hint that there is a relay at an address. It is dialled
// only if everybody is admitted, and not often.
func (m *Mesh) Suggest(client crypto.PublicKey, address string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	_, open := m.cfg.Admission.(Open)
	n, _ := m.hinted.get(client, now)
	_, own := m.own.get(address, now)
	_, tried := m.tried.get(address, now)
	switch {
	case !open, m.phase != running, own, tried, n >= hintsEach, len(m.hints) >= hintsMost, address == m.cfg.Advertise,
		CheckAddress(address, m.cfg.PrivateAddresses) != nil, m.dir.at(address) != nil:
		return
	}
	m.hinted.put(client, n+1, now.Add(hintsFor))
	m.tried.put(address, struct{}{}, now.Add(hintsFor))
	m.hints = append(m.hints, address)
}
