package mesh

import (
	"context"
	"errors"

	"github.com/sotto-relay/sotto/crypto"
	"github.com/sotto-relay/sotto/frame"
	"github.com/sotto-relay/sotto/handshake"
	"github.com/sotto-relay/sotto/relay"
	"github.com/sotto-relay/sotto/transport"
)

// An outgoing is one connection that we open to a relay: the dialect of its handshake.
type outgoing struct {
	linkDialect
	m        *Mesh
	address  string
	expect   *crypto.PublicKey // nil: whoever is there
	onDemand bool
	named    bool // by the operator, without a key
	up       bool // there was a link; read when the connection has ended
}

// NewSession begins with our challenge.
func (o *outgoing) NewSession(p *relay.Port) (relay.Session, error) {
	cfg := &handshake.DiallerConfig{Identity: o.m.cfg.Identity, Expect: o.expect}
	if o.m.cfg.Durable {
		cfg.Features |= handshake.FeatureDurable
	}
	d, err := handshake.NewDialler(cfg)
	if err != nil {
		return nil, err
	}
	p.Reply(transport.Binary, d.Challenge().Append(nil))
	return &greeting{o, p, d}, nil
}

// A greeting is the session of a handshake with a relay that we dialled.
type greeting struct {
	*outgoing
	port    *relay.Port
	dialler *handshake.Dialler
}

func (g *greeting) Receive(_ context.Context, k transport.Kind, msg []byte) error {
	f, err := frame.DecodeBrep(msg)
	if err != nil || k != transport.Binary {
		return &relay.Refusal{Code: relay.CodeMalformed, Err: err}
	}
	answer, err := g.dialler.Receive(&f)
	var he *handshake.Error
	if errors.As(err, &he) {
		return &relay.Refusal{Code: relay.Code(he.Code), Err: err}
	}
	if err != nil {
		return err
	}
	if answer != nil {
		g.port.Reply(transport.Binary, answer.Append(nil))
	}
	r, done := g.dialler.Relay()
	if !done {
		return nil
	}
	err = g.m.begin(&link{
		m: g.m, port: g.port, key: r.Key, dialled: true, address: g.address,
		onDemand: g.onDemand, named: g.named, durable: r.Features&handshake.FeatureDurable != 0,
	})
	g.up = err == nil
	return err
}

// Close has nothing to end.
func (*greeting) Close(error) {}
