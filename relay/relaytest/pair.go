package relaytest

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/sotto-relay/sotto/crypto"
	"github.com/sotto-relay/sotto/inbox"
	"github.com/sotto-relay/sotto/relay"
	"github.com/sotto-relay/sotto/relay/client"
	"github.com/sotto-relay/sotto/relay/dialect/brep"
	"github.com/sotto-relay/sotto/transport"
	"github.com/sotto-relay/sotto/transport/pipe"
)

// PairOptions say how a [Pair] differs from the usual one. Zero fields mean what
// is said there.
type PairOptions struct {
	// Server is the relay, not in use yet, with its inbox, limits and policy. Nil:
	// one with an inbox in memory and the default limits, which logs nothing.
	Server *relay.Server

	// Dialect is what it speaks. Without an Identity it gets a new one.
	Dialect brep.Dialect

	// Network, if not nil, lies between the clients and the relay.
	Network *Network

	// Client may change the configuration of each client before it is used.
	Client func(*client.Config)
}

// A Pair is a relay with two clients that are logged in, in memory. It ends with
// the test.
type Pair struct {
	Alice, Bob *Peer
	Server     *relay.Server
	Dialect    brep.Dialect

	// Dial connects to the relay, through the network if there is one.
	Dial transport.Dialer

	options PairOptions
}

// A Peer is a client with the key that others write to.
type Peer struct {
	*client.Client
	Identity *crypto.Identity
}

// Key returns the key of the peer.
func (p *Peer) Key() crypto.PublicKey { return p.Identity.Public() }

// NewPair returns a Pair; o may be nil. It fails the test where it cannot.
//
//	pair := relaytest.NewPair(t, nil)
//	receipt, err := pair.Alice.Send(ctx, pair.Bob.Key(), client.Text("hello"))
func NewPair(t testing.TB, o *PairOptions) *Pair {
	t.Helper()
	p := &Pair{}
	if o != nil {
		p.options = *o
	}
	p.Server, p.Dialect = p.options.Server, p.options.Dialect
	if p.Server == nil {
		p.Server = &relay.Server{Inbox: inbox.NewMemory(nil), Logger: slog.New(slog.DiscardHandler)}
	}
	if p.Dialect.Identity == nil {
		p.Dialect.Identity = newIdentity(t)
	}
	line := pipe.Listen()
	p.Dial = line.Dial
	if n := p.options.Network; n != nil {
		p.Dial = n.Dialer(p.Dial)
	}
	served := make(chan error, 1)
	go func() { served <- p.Server.Serve(line, p.Dialect) }()
	t.Cleanup(func() {
		_ = p.Server.Close()
		<-served
	})
	p.Alice, p.Bob = p.Peer(t, nil), p.Peer(t, nil)
	return p
}

// Peer logs another client in, until the test ends: one with that identity, or,
// if it is nil, with a new one. Configurations are changed as those of the first
// two.
func (p *Pair) Peer(t testing.TB, id *crypto.Identity) *Peer {
	t.Helper()
	if id == nil {
		id = newIdentity(t)
	}
	key := p.Dialect.Identity.Public()
	config := &client.Config{
		Identity: id, Dial: p.Dial, Relay: &key,
		Logger: slog.New(slog.DiscardHandler),
	}
	if p.options.Client != nil {
		p.options.Client(config)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	c, err := client.New(ctx, config)
	if err != nil {
		t.Fatalf("relaytest: logging in: %v", err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return &Peer{c, id}
}

func newIdentity(t testing.TB) *crypto.Identity {
	t.Helper()
	id, err := crypto.GenerateIdentity()
	if err != nil {
		t.Fatalf("relaytest: %v", err)
	}
	return id
}
