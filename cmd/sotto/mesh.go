package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"

	"github.com/urfave/cli/v3"

	"github.com/sotto-relay/sotto/crypto"
	"github.com/sotto-relay/sotto/mesh"
	"github.com/sotto-relay/sotto/relay"
	"github.com/sotto-relay/sotto/relay/policy"
	"github.com/sotto-relay/sotto/transport"
	"github.com/sotto-relay/sotto/transport/ws"
)

// meshFlags are those of serve that are about other relays.
func (p *program) meshFlags() []cli.Flag {
	return []cli.Flag{
		p.stringsFlag("peer", nil, "`URL` of a relay to link with, or URL#KEY with its key in hex; may be repeated"),
		p.stringFlag("mesh", "", "`POLICY` for other relays: closed, to peers and the keys of --mesh-allow, or open (default closed with any of these flags; without them there is no mesh)"),
		p.stringFlag("mesh-allow", "", "`FILE` of keys, one a line, of relays that may link"),
		p.stringFlag("advertise", "", "`URL` at which other relays and clients reach this relay"),
		p.boolFlag("mesh-private-addresses", "link with relays at addresses of private networks and of this machine"),
	}
}

// meshing is what serve was asked to do about other relays.
type meshing struct {
	on, open  bool
	peers     []mesh.Peer
	allow     string // a file, or empty
	advertise string // a URL, or empty
	private   bool
}

func parseMesh(cmd *cli.Command) (m meshing, err error) {
	m = meshing{allow: cmd.String("mesh-allow"), advertise: cmd.String("advertise"), private: cmd.Bool("mesh-private-addresses")}
	admission := cmd.String("mesh")
	if admission != "" {
		if m.open, err = choice("mesh", admission, map[string]bool{"closed": false, "open": true}); err != nil {
			return m, err
		}
	}
	for _, raw := range cmd.StringSlice("peer") {
		p, err := mesh.ParsePeer(raw)
		if err != nil {
			return m, fmt.Errorf("--peer %q is no ws or wss URL, with # and the relay's key of 64 hex digits or without", raw)
		}
		if err := mesh.CheckAddress(p.Address, m.private); err != nil {
			return m, fmt.Errorf("--peer %q is an address of a private network or of this machine: allow them with --mesh-private-addresses", raw)
		}
		m.peers = append(m.peers, p)
	}
	if m.advertise != "" && mesh.CheckAddress(m.advertise, true) != nil {
		return m, fmt.Errorf("--advertise %q is no ws or wss URL", m.advertise)
	}
	m.on = admission != "" || len(m.peers) > 0 || m.allow != "" || m.advertise != "" || m.private
	if m.open && m.allow != "" {
		return m, errors.New("--mesh-allow is for a closed mesh: leave it out with --mesh open")
	}
	return m, nil
}

// allowed are the keys of a file, as a mesh.Admission.
type allowed struct{ file *policy.KeyFile }

func (a allowed) Admit(key crypto.PublicKey) bool {
	ok, _ := a.file.Known(context.Background(), key)
	return ok
}

// newMesh returns the relay's part of the mesh; nil if there is none.
func (s *service) newMesh(id *crypto.Identity, h *holdings) *mesh.Mesh {
	if !s.meshing.on {
		return nil
	}
	cfg := &mesh.Config{
		Identity: id, Peers: s.meshing.peers, Admission: mesh.Closed{}, Advertise: s.meshing.advertise,
		PrivateAddresses: s.meshing.private, SealedOnly: s.sealedOnly, Durable: s.data != "", State: h.state, Logger: s.log,
		Dial: func(ctx context.Context, address string, d *net.Dialer) (transport.Conn, error) {
			return ws.Dialer(address, &ws.DialOptions{Dial: d.DialContext})(ctx)
		},
	}
	switch {
	case s.meshing.open:
		cfg.Admission = mesh.Open{}
	case h.relays != nil:
		cfg.Admission = allowed{h.relays}
	}
	return mesh.New(cfg)
}

// holdRelays opens the file of relays that may link.
func (s *service) holdRelays(h *holdings) error {
	if s.meshing.allow == "" {
		return nil
	}
	file, err := policy.OpenKeyFile(s.meshing.allow)
	if err != nil {
		return fmt.Errorf("--mesh-allow: %w", err)
	}
	h.relays = file
	h.reload = append(h.reload, func() error { _, err := file.Reload(); return err })
	return nil
}

// inboxOf has what comes from other relays kept as what comes from clients is.
func inboxOf(l relay.DialectLimits) relay.DialectLimits {
	return relay.DialectLimits{
		InboxMessages: l.InboxMessages, InboxBytes: l.InboxBytes, InboxPerSender: l.InboxPerSender,
		SenderTotal: l.SenderTotal, InboxTTL: l.InboxTTL, DropOldest: l.DropOldest,
	}
}

// join sets up the mesh and has it run with the server.
func (o *operation) join(id *crypto.Identity) {
	m := o.newMesh(id, o.holdings)
	if m == nil {
		return
	}
	o.mesh, o.srv.Mesh = m, m
	o.srv.Limits.Dialects["mesh"] = inboxOf(o.srv.Limits.Dialects["brep"])
	if len(o.meshing.peers) > 0 && slices.ContainsFunc(o.meshing.peers, func(p mesh.Peer) bool { return p.Key == nil }) {
		o.log.Info("a peer without a key is trusted on first use: give its URL # and its key")
	}
	o.serve(func() error { return m.Run(context.Background(), o.srv) })
}
