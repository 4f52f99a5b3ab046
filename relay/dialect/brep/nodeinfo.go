package brep

import (
	"errors"

	"github.com/sotto-relay/sotto/crypto"
	"github.com/sotto-relay/sotto/frame"
	"github.com/sotto-relay/sotto/relay"
)

// nodeInfo takes NODE_INFO (spec brep.md). What only relays say, a client says in
// vain.
func (s *session) nodeInfo(f *frame.Brep) error {
	n, err := frame.DecodeNodeInfo(f.Payload)
	if err != nil && !errors.Is(err, frame.ErrUnknownSubtype) {
		return &relay.Refusal{Code: relay.CodeMalformed, Err: err}
	}
	switch n.Subtype {
	case frame.NodeInfoRequestServers:
		return s.replyNodeInfo(s.servers())
	case frame.NodeInfoAddServer:
		if s.dialect.Mesh != nil {
			s.dialect.Mesh.Suggest(s.key, n.Address)
			return nil
		}
	case frame.NodeInfoQueryClient:
		return s.whereIs(n.Client)
	}
	s.port.Ignored("NODE_INFO")
	return nil
}

func (s *session) servers() frame.NodeInfo {
	n := frame.NodeInfo{Subtype: frame.NodeInfoResponseServers}
	if s.dialect.Advertise != "" {
		n.Servers = []frame.ServerInfo{{Key: s.dialect.Identity.Public(), Address: s.dialect.Advertise}}
	}
	return s.linkedServers(n)
}

// whereIs answers whether a client is connected: to clients if they may know, and then
// for this relay alone. Who logs in with the relay's own key is its operator, and hears
// what the mesh knows.
func (s *session) whereIs(client [32]byte) error {
	here := s.port.Online(relay.Address{Realm: relay.RealmBrep, Name: string(client[:])})
	self := s.dialect.Identity.Public()
	operator := s.key == self
	switch {
	case here && (operator || s.dialect.PresenceQueries):
		return s.answerWhere(client, &self)
	case operator && s.dialect.Mesh != nil:
		s.dialect.Mesh.Find(client, func(at *crypto.PublicKey) { _ = s.answerWhere(client, at) })
		return nil
	}
	return s.answerWhere(client, nil)
}

func (s *session) answerWhere(client [32]byte, at *crypto.PublicKey) error {
	n := frame.NodeInfo{Subtype: frame.NodeInfoQueryResponse, Client: client}
	if at != nil {
		n.Found, n.Relay = true, *at
	}
	return s.replyNodeInfo(n)
}

func (s *session) replyNodeInfo(n frame.NodeInfo) error {
	payload, err := n.Append(nil)
	if err != nil {
		return err
	}
	s.reply(frame.TypeNodeInfo, 0, payload)
	return nil
}
