package main

import (
	"net/http"
	"runtime/debug"
	"slices"

	"github.com/sotto-relay/sotto/crypto"
	"github.com/sotto-relay/sotto/relay"
	"github.com/sotto-relay/sotto/relay/dialect/blind"
	"github.com/sotto-relay/sotto/relay/dialect/brep"
	"github.com/sotto-relay/sotto/relay/dialect/jsonmsg"
	"github.com/sotto-relay/sotto/relay/dialect/mailbox"
)

func (s *service) brep(id *crypto.Identity) brep.Dialect {
	d := brep.Dialect{
		Identity: id, RequireV2: s.v2, SealedOnly: s.sealedOnly, PresenceQueries: s.presence, Durable: s.data != "",
		Version: version(), Transports: s.transports("brep"), Advertise: s.meshing.advertise,
	}
	if s.mesh != nil {
		d.Mesh = s.mesh
	}
	return d
}

// transports are the schemes at which a dialect is spoken.
func (s *service) transports(dialect string) (schemes []string) {
	for _, e := range s.listen {
		if !slices.Contains(schemes, e.scheme) && (e.isWeb() || e.dialect == dialect) {
			schemes = append(schemes, e.scheme)
		}
	}
	return schemes
}

// streamBrep is brep over what does not notice by itself that a peer is gone.
func (s *service) streamBrep(id *crypto.Identity) brep.Dialect {
	d := s.brep(id)
	d.PingInterval = streamPing
	return d
}

func (s *service) json(id *crypto.Identity) jsonmsg.Dialect {
	d := s.limits.json
	d.Identity, d.RequireProof, d.InUse = id, s.proof, s.inUse
	d.Version, d.Transports = version(), s.transports("json")
	return d
}

func (s *service) blind(h *holdings) blind.Dialect {
	d := s.limits.blind
	d.Rotate, d.Audit = s.rotate, h.audit
	return d
}

// byName returns the dialects that connections are upgraded to.
func (s *service) byName(id *crypto.Identity, h *holdings) map[string]relay.Dialect {
	return map[string]relay.Dialect{"brep": s.brep(id), "json": s.json(id), "blind": s.blind(h)}
}

// mailbox returns the handler of the mailbox, or nil if there is none.
func (s *service) mailbox(srv *relay.Server, id *crypto.Identity, h *holdings) http.Handler {
	if h.contacts == nil {
		return nil
	}
	key := id.Public()
	return mailbox.Handler(srv, h.contacts, &mailbox.Options{Relay: &key, Strict: s.strict, TrustedProxies: s.proxies})
}

// version is that of the module that was built.
func version() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "(devel)"
}
