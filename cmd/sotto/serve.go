package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"net/url"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/sotto-relay/sotto/relay"
)

func (p *program) serveCommand() *cli.Command {
	config := p.stringFlag("config", "", "`FILE` with a line NAME = VALUE for each flag to set; flags and environment win")
	config.Destination = &p.settings.path
	cleartext := p.boolFlag("allow-cleartext", "take messages that a relay could read, which is the default; =false refuses them")
	cleartext.Value = true
	p.settings.flags = []cli.Flag{
		config, // the first, so that it is known when the others look for their values
		p.stringsFlag("listen", []string{defaultRelay}, "`URL` to listen on, see above; may be repeated"),
		p.stringFlag("identity", "", "`FILE` of the relay's identity, made when missing; without it there is a fresh one"),
		p.stringFlag("ready", "", "`FILE` to write the relay's key and URLs to, as JSON, when it accepts connections"),
		p.boolFlag("require-v2", "refuse clients that only speak the old handshake"),
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
	}
	return &cli.Command{
		Name:  "serve",
		Usage: "relay messages",
		Description: "Relays messages between keys, and keeps them in memory for those who are away.\n" +
			"It listens on ws://HOST:PORT and tcp://HOST:PORT, and with TLS on wss:// and tls://,\n" +
			"with ?cert=FILE&key=FILE or ?acme=DOMAIN. ?page=FILE is shown to browsers.\n" +
			"SIGTERM and SIGINT drain: nobody new is let in, those who are here are told and get\n" +
			"what is queued for them. A second signal ends the program at once. SIGHUP reloads\n" +
			"certificates and pages.",
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
	identity      string // a file, or empty
	ready         string // likewise
	metrics       string // an address, or empty
	v2            bool
	sealedOnly    bool
	origins       []string
	proxies       []netip.Prefix
	proxyProtocol bool
	limits        relay.Limits
	drain         time.Duration
	log           *slog.Logger
	onReady       func(*readiness) // nil: nobody wants to know
}

func (p *program) parseServe(cmd *cli.Command) (*service, error) {
	if cmd.Args().Present() {
		return nil, fmt.Errorf("serve takes no argument, such as %q", cmd.Args().First())
	}
	s := &service{
		p:             p,
		identity:      cmd.String("identity"),
		ready:         cmd.String("ready"),
		metrics:       cmd.String("metrics"),
		v2:            cmd.Bool("require-v2"),
		sealedOnly:    !cmd.Bool("allow-cleartext"),
		proxyProtocol: cmd.Bool("proxy-protocol"),
		drain:         cmd.Duration("drain"),
	}
	var err error
	if s.log, err = newLogger(p.stderr, cmd.String("log-level"), cmd.String("log-format")); err != nil {
		return nil, err
	}
	if s.limits, err = parseLimits(cmd.String("limits"), cmd.StringSlice("limit")); err != nil {
		return nil, err
	}
	if s.drain < 0 {
		return nil, fmt.Errorf("--drain %v is in the past", s.drain)
	}
	if err := parseMetrics(s.metrics); err != nil {
		return nil, err
	}
	for _, raw := range cmd.StringSlice("listen") {
		e, err := parseListen(raw)
		if err != nil {
			return nil, err
		}
		s.listen = append(s.listen, e)
	}
	if len(s.listen) == 0 {
		return nil, errors.New("--listen is empty: give it a URL such as " + defaultRelay)
	}
	for _, raw := range cmd.StringSlice("origin") {
		o, err := parseOrigin(raw)
		if err != nil {
			return nil, err
		}
		s.origins = append(s.origins, o...)
	}
	for _, raw := range cmd.StringSlice("trusted-proxy") {
		prefix, err := parseProxy(raw)
		if err != nil {
			return nil, err
		}
		s.proxies = append(s.proxies, prefix)
	}
	if s.proxyProtocol && len(s.proxies) == 0 {
		return nil, errors.New("--proxy-protocol needs to know whom to believe: give --trusted-proxy the proxies")
	}
	return s, nil
}

// parseOrigin reads a value of --origin; a host stands for pages over HTTP and
// HTTPS on their usual ports.
func parseOrigin(raw string) ([]string, error) {
	u, err := url.Parse(raw)
	if err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != "" && *u == (url.URL{Scheme: u.Scheme, Host: u.Host}) {
		return []string{raw}, nil
	}
	u, err = url.Parse("https://" + raw)
	if err != nil || u.Hostname() == "" || *u != (url.URL{Scheme: "https", Host: u.Host}) {
		return nil, fmt.Errorf("--origin %q is neither a host nor an origin such as https://example.org:8443", raw)
	}
	return []string{"https://" + raw, "http://" + raw}, nil
}
