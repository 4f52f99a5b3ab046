package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/sotto-relay/sotto/mesh"
	"github.com/sotto-relay/sotto/relay"
	"github.com/sotto-relay/sotto/relay/dialect/blind"
)

func (p *program) serveCommand() *cli.Command {
	config := p.stringFlag("config", "", "`FILE` with a line NAME = VALUE for each flag to set; flags and environment win")
	config.Destination = &p.settings.path
	cleartext := p.boolFlag("allow-cleartext", "take messages that a relay could read, which is the default; =false refuses them")
	cleartext.Value = true
	p.settings.flags = slices.Concat([]cli.Flag{
		config, // the first, so that it is known when the others look for their values
		p.stringsFlag("listen", []string{defaultRelay}, "`URL` to listen on, see above; may be repeated"),
		p.stringFlag("data", "", "`DIR` for what has to survive: messages that wait, aliases, retained values, cards, the identity; without it all is in memory"),
		p.boolFlag("quarantine", "move a damaged store in --data aside and report it, instead of refusing to start"),
		p.stringFlag("identity", "", "`FILE` of the relay's identity, made when missing; default DIR/identity of --data, without it there is a fresh one"),
		p.stringFlag("contacts", "", "`FILE` of keys, one a line, that may use the mailbox, or open for everybody; without it there is no mailbox"),
		p.boolFlag("contacts-strict", "mail is taken for contacts only, too"),
		p.stringFlag("json-in-use", "takeover", "`POLICY` of json for an address that is in use: takeover, reject or share"),
		p.boolFlag("json-require-proof", "in json, have every public key proven"),
		p.stringFlag("blind-rotate", "open", "`POLICY` of blind for who may rotate a key: open or subscriber"),
		p.boolFlag("demo", "show browsers a page with chat, rooms and games at /demo/"),
		p.stringFlag("audit", "", "`FILE` for the audit log of blind, a JSON object a line"),
		p.stringFlag("ready", "", "`FILE` to write the relay's key and URLs to, as JSON, when it accepts connections"),
		p.boolFlag("require-v2", "refuse clients that only speak the old handshake"),
		p.boolFlag("presence-queries", "tell any client of brep whether another is connected here (other relays are always told)"),
		cleartext,
		p.stringsFlag("origin", nil, "`HOST` of web pages that browsers may connect from, or https://HOST:PORT; may be repeated (default any)"),
		p.stringsFlag("trusted-proxy", nil, "`CIDR` of proxies that are believed whom they speak for; may be repeated"),
		p.boolFlag("proxy-protocol", "trusted proxies begin their connections with a PROXY header, on every --listen"),
		p.stringsFlag("limit", nil, "`NAME=VALUE`; may be repeated, see --help-limits"),
		p.stringFlag("limits", "on", "`off` lifts rates and counts; what bounds memory stays"),
		p.boolFlag("help-limits", "list the limits, their defaults and meanings"),
		p.stringFlag("metrics", "", "`HOST:PORT` for Prometheus metrics, profiles and probes; for operators only"),
		p.durationFlag("drain", 30*time.Second, "`TIME` that draining may take"),
		p.stringFlag("log-level", "info", "`LEVEL` of the log on standard error: debug, info, warn or error"),
		p.stringFlag("log-format", "text", "`FORMAT` of the log: text or json"),
	}, p.meshFlags())
	return &cli.Command{
		Name:  "serve",
		Usage: "relay messages",
		Description: "Relays messages between keys and addresses, and keeps them for those who are away.\n" +
			"It listens on ws://HOST:PORT and tcp://HOST:PORT, with TLS on wss:// and tls://, with\n" +
			"?cert=FILE&key=FILE or ?acme=DOMAIN, and on udp://HOST:PORT. Over WebSocket it speaks\n" +
			"brep, json and blind at /brep, /json and /blind, and that of ?root= elsewhere; over TCP\n" +
			"that of ?dialect=brep or json; over UDP json. ?page=FILE is shown to browsers.\n" +
			"SIGTERM and SIGINT drain: nobody new is let in, those who are here are told and get\n" +
			"what is queued for them. A second signal ends the program at once. SIGHUP reloads\n" +
			"certificates, pages, contacts and the keys of --mesh-allow, and opens the audit log anew.",
		Flags: p.settings.flags,
		Action: func(ctx context.Context, cmd *cli.Command) error {
			if cmd.Bool("help-limits") {
				return failed(helpLimits(p.stdout))
			}
			err := p.settings.load()
			var unread *runError
			if errors.As(err, &unread) {
				return err
			}
			var s *service
			if err == nil {
				s, err = p.parseServe(cmd)
			}
			if err != nil {
				return usage(ctx, cmd, err, true)
			}
			return failed(s.run(ctx))
		},
	}
}

// A service is what serve was asked for.
type service struct {
	p             *program
	listen        []*endpoint
	data          string // a directory, or empty
	quarantine    bool
	contacts      string // a file, "open", or empty
	strict        bool   // contacts
	inUse         relay.InUse
	proof         bool
	rotate        blind.RotatePolicy
	demo          bool
	audit         string // a file, or empty
	identity      string // likewise
	ready         string // likewise
	metrics       string // an address, or empty
	v2            bool
	sealedOnly    bool
	presence      bool // clients are told who is connected
	origins       []string
	proxies       []netip.Prefix
	proxyProtocol bool
	limits        *limits
	drain         time.Duration
	log           *slog.Logger
	meshing       meshing
	mesh          *mesh.Mesh       // nil: there is none
	onReady       func(*readiness) // nil: nobody wants to know
}

func (p *program) parseServe(cmd *cli.Command) (*service, error) {
	if cmd.Args().Present() {
		return nil, fmt.Errorf("serve takes no argument, such as %q", cmd.Args().First())
	}
	s := &service{
		p:             p,
		data:          cmd.String("data"),
		quarantine:    cmd.Bool("quarantine"),
		contacts:      cmd.String("contacts"),
		strict:        cmd.Bool("contacts-strict"),
		proof:         cmd.Bool("json-require-proof"),
		demo:          cmd.Bool("demo"),
		audit:         cmd.String("audit"),
		identity:      cmd.String("identity"),
		ready:         cmd.String("ready"),
		metrics:       cmd.String("metrics"),
		v2:            cmd.Bool("require-v2"),
		sealedOnly:    !cmd.Bool("allow-cleartext"),
		presence:      cmd.Bool("presence-queries"),
		proxyProtocol: cmd.Bool("proxy-protocol"),
		drain:         cmd.Duration("drain"),
	}
	for _, part := range []func(*cli.Command) error{s.parseLog, s.parseDialects, s.parseFiles, s.parseListeners, s.parseAdmission} {
		if err := part(cmd); err != nil {
			return nil, err
		}
	}
	if s.drain < 0 {
		return nil, fmt.Errorf("--drain %v is in the past", s.drain)
	}
	return s, nil
}

func (s *service) parseLog(cmd *cli.Command) (err error) {
	s.log, err = newLogger(s.p.stderr, cmd.String("log-level"), cmd.String("log-format"))
	return err
}

// parseDialects reads what dialects allow, and the mesh.
func (s *service) parseDialects(cmd *cli.Command) (err error) {
	if s.limits, err = parseLimits(cmd.String("limits"), cmd.StringSlice("limit")); err != nil {
		return err
	}
	if s.inUse, err = choice("json-in-use", cmd.String("json-in-use"), map[string]relay.InUse{
		"takeover": relay.TakeOver, "reject": relay.Reject, "share": relay.Share,
	}); err != nil {
		return err
	}
	if s.rotate, err = choice("blind-rotate", cmd.String("blind-rotate"), map[string]blind.RotatePolicy{
		"open": blind.RotateOpen, "subscriber": blind.RotateSubscriber,
	}); err != nil {
		return err
	}
	s.meshing, err = parseMesh(cmd)
	return err
}

// parseFiles looks whether the files go together.
func (s *service) parseFiles(*cli.Command) error {
	switch {
	case s.quarantine && s.data == "":
		return errors.New("--quarantine is for a store: give --data a directory")
	case s.strict && s.contacts == "":
		return errors.New("--contacts-strict is for a mailbox: give --contacts a file, or open")
	case s.data != "" && s.identity == "":
		s.identity = filepath.Join(s.data, "identity")
	}
	return nil
}

func (s *service) parseListeners(cmd *cli.Command) error {
	if err := parseMetrics(s.metrics); err != nil {
		return err
	}
	for _, raw := range cmd.StringSlice("listen") {
		e, err := parseListen(raw)
		if err != nil {
			return err
		}
		s.listen = append(s.listen, e)
	}
	if len(s.listen) == 0 {
		return errors.New("--listen is empty: give it a URL such as " + defaultRelay)
	}
	return nil
}

// parseAdmission reads from where connections may come.
func (s *service) parseAdmission(cmd *cli.Command) error {
	for _, raw := range cmd.StringSlice("origin") {
		o, err := parseOrigin(raw)
		if err != nil {
			return err
		}
		s.origins = append(s.origins, o...)
	}
	for _, raw := range cmd.StringSlice("trusted-proxy") {
		prefix, err := parseProxy(raw)
		if err != nil {
			return err
		}
		s.proxies = append(s.proxies, prefix)
	}
	if s.proxyProtocol && len(s.proxies) == 0 {
		return errors.New("--proxy-protocol needs to know whom to believe: give --trusted-proxy the proxies")
	}
	return nil
}

// choice reads the value of a flag that has so many.
func choice[T any](flag, value string, of map[string]T) (T, error) {
	v, ok := of[value]
	if !ok {
		return v, fmt.Errorf("--%s is %s, not %q", flag, strings.Join(slices.Sorted(maps.Keys(of)), " or "), value)
	}
	return v, nil
}

// parseOrigin reads a value of --origin; a host stands for pages over HTTP and
// HTTPS on their usual ports.
func parseOrigin(raw string) ([]string, error) {
	u, err := url.Parse(raw)
	if err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != "" && *u == (url.URL{Scheme: u.Scheme, Host: u.Host}) && !strings.Contains(raw, "*") {
		return []string{raw}, nil
	}
	u, err = url.Parse("https://" + raw)
	if err != nil || u.Hostname() == "" || *u != (url.URL{Scheme: "https", Host: u.Host}) || strings.Contains(raw, "*") {
		return nil, fmt.Errorf("--origin %q is neither a host nor an origin such as https://example.org:8443 (without --origin any page may connect)", raw)
	}
	return []string{"https://" + raw, "http://" + raw}, nil
}
