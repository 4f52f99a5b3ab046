package brep

import (
	"context"
	"encoding/base64"

	"github.com/sotto-relay/sotto/crypto"
	"github.com/sotto-relay/sotto/frame"
	"github.com/sotto-relay/sotto/handshake"
	"github.com/sotto-relay/sotto/relay"
	"github.com/sotto-relay/sotto/transport"
)

// A Mesh takes the connections of other relays over, and hears from clients what
// concerns it. A *mesh.Mesh is one. Its methods may be called concurrently, and must
// not block.
type Mesh interface {
	// Admits says whether to link with a relay that claims to have a key.
	Admits(key crypto.PublicKey) bool

	// Accept takes over the connection of a relay that has proved its key, with
	// Port.Become.
	Accept(p *relay.Port, peer handshake.Peer) error

	// Attach takes a client's signed statement that it is connected here.
	Attach(client crypto.PublicKey, statement []byte) error

	// Servers returns relays to tell a client of, and calls added, from any goroutine,
	// for each that comes later, until cancel.
	Servers(added func(address string)) (known []frame.ServerInfo, cancel func())

	// Find looks for a client at all relays, and calls tell, from any goroutine, with the
	// key of the one where it is, or nil.
	Find(client crypto.PublicKey, tell func(relay *crypto.PublicKey))

	// Suggest takes a client's hint that there is a relay at an address.
	Suggest(client crypto.PublicKey, address string)
}

// authenticateRelay goes on with the handshake of a relay that dialled (spec brep.md,
// "Relay to relay"): it has made itself known, or proved its key, or both of us are
// done.
func (s *session) authenticateRelay(answer *frame.Brep, peer handshake.Peer) error {
	if answer != nil {
		s.port.Reply(transport.Binary, answer.Append(nil))
	}
	if !s.acceptor.Done() {
		return nil
	}
	s.common = s.port.Shared(relay.RealmBrep, newCommon).(*common) // asked about what comes from there
	return s.dialect.Mesh.Accept(s.port, peer)
}

// attach takes a statement of the client about where it is (spec mesh.md).
func (s *session) attach(_ context.Context, q *request) error {
	if s.dialect.Mesh == nil {
		return errUnknownVerb
	}
	text, err := q.text("stmt")
	if err != nil {
		return err
	}
	statement, err := base64.StdEncoding.DecodeString(text)
	if err != nil || base64.StdEncoding.EncodeToString(statement) != text {
		return &relay.Refusal{Code: relay.CodeMalformed, Reason: "not an attachment"}
	}
	if err := s.dialect.Mesh.Attach(s.key, statement); err != nil {
		return err
	}
	return s.done(q)
}

// linkedServers adds the relays that are linked, and has the client told of others
// that come.
func (s *session) linkedServers(n frame.NodeInfo) frame.NodeInfo {
	if s.dialect.Mesh == nil {
		return n
	}
	if s.unwatch != nil {
		s.unwatch()
	}
	var linked []frame.ServerInfo
	linked, s.unwatch = s.dialect.Mesh.Servers(func(address string) {
		_ = s.replyNodeInfo(frame.NodeInfo{Subtype: frame.NodeInfoAddServer, Address: address})
	})
	n.Servers = append(n.Servers, linked...)
	return n
}

// Screens says whether a client has blocked the sender of what came from another
// relay (relay.Screener).
func (c *common) Screens(to, from relay.Address) bool {
	if len(to.Name) != len(crypto.PublicKey{}) || len(from.Name) != len(crypto.PublicKey{}) {
		return false
	}
	return c.blocks.has([32]byte([]byte(to.Name)), crypto.PublicKey([]byte(from.Name)))
}
