package brep

import (
	"errors"

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
	case frame.NodeInfoQueryClient:
		return s.replyNodeInfo(s.whereIs(n.Client))
	}
	s.port.Ignored("NODE_INFO")
	return nil
}

func (s *session) servers() frame.NodeInfo {
	n := frame.NodeInfo{Subtype: frame.NodeInfoResponseServers}
	if s.dialect.Advertise != "" {
		n.Servers = []frame.ServerInfo{{Key: s.dialect.Identity.Public(), Address: s.dialect.Advertise}}
	}
	return n
}

func (s *session) whereIs(client [32]byte) frame.NodeInfo {
	n := frame.NodeInfo{Subtype: frame.NodeInfoQueryResponse, Client: client}
	if s.dialect.PresenceQueries && s.port.Online(relay.Address{Realm: relay.RealmBrep, Name: string(client[:])}) {
		n.Found, n.Relay = true, s.dialect.Identity.Public()
	}
	return n
}

func (s *session) replyNodeInfo(n frame.NodeInfo) error {
	payload, err := n.Append(nil)
	if err != nil {
		return err
	}
	s.reply(frame.TypeNodeInfo, 0, payload)
	return nil
}
