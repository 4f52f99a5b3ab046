package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/sotto-relay/sotto/crypto"
	"github.com/sotto-relay/sotto/inbox"
	"github.com/sotto-relay/sotto/relay"
	"github.com/sotto-relay/sotto/relay/dialect/brep"
)

func (p *program) serveCommand() *cli.Command {
	return &cli.Command{
		Name:  "serve",
		Usage: "relay messages",
		Description: "Relays messages between keys, and keeps them in memory for those who are away.\n" +
			"SIGTERM and SIGINT drain: nobody new is let in, those who are here are told and get\n" +
			"what is queued for them. A second signal ends the program at once.",
		Flags: []cli.Flag{
			p.stringsFlag("listen", []string{defaultRelay}, "`URL` to listen on, ws://HOST:PORT, port 0 for any; may be repeated"),
			p.stringFlag("identity", "", "`FILE` of the relay's identity, made when missing; without it there is a fresh one"),
			p.stringFlag("ready", "", "`FILE` to write the relay's key and URLs to, as JSON, when it accepts connections"),
			p.boolFlag("require-v2", "refuse clients that only speak the old handshake"),
			p.stringsFlag("origin", nil, "`HOST` of web pages that browsers may connect from, or https://HOST:PORT; may be repeated (default any)"),
			p.stringsFlag("limit", nil, "`NAME=VALUE`; may be repeated, see --help-limits"),
			p.stringFlag("limits", "on", "`off` lifts rates and counts; what bounds memory stays"),
			p.boolFlag("help-limits", "list the limits, their defaults and meanings"),
			p.durationFlag("drain", 30*time.Second, "`TIME` that draining may take"),
			p.stringFlag("log-level", "info", "`LEVEL` of the log on standard error: debug, info, warn or error"),
			p.stringFlag("log-format", "text", "`FORMAT` of the log: text or json"),
		},
		Action: func(ctx context.Context, cmd *cli.Command) error {
			if cmd.Bool("help-limits") {
				return failed(helpLimits(p.stdout))
			}
			s, err := p.parseServe(cmd)
			if err != nil {
				return usage(ctx, cmd, err, true)
			}
			return failed(s.run(ctx))
		},
	}
}

// A service is what serve was asked for.
type service struct {
	listen   []*url.URL
	identity string // a file, or empty
	ready    string // likewise
	v2       bool
	origins  []string
	limits   relay.Limits
	drain    time.Duration
	log      *slog.Logger
}

func (p *program) parseServe(cmd *cli.Command) (*service, error) {
	if cmd.Args().Present() {
		return nil, fmt.Errorf("serve takes no argument, such as %q", cmd.Args().First())
	}
	s := &service{
		identity: cmd.String("identity"),
		ready:    cmd.String("ready"),
		v2:       cmd.Bool("require-v2"),
		drain:    cmd.Duration("drain"),
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
	for _, raw := range cmd.StringSlice("listen") {
		u, err := parseListen(raw)
		if err != nil {
			return nil, err
		}
		s.listen = append(s.listen, u)
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
	return s, nil
}

// parseListen reads a value of --listen.
func parseListen(raw string) (*url.URL, error) {
	u, err := url.Parse(raw)
	if err != nil {
		return nil, fmt.Errorf("--listen %q is no URL such as %s", raw, defaultRelay)
	}
	switch u.Scheme {
	case "ws":
	case "wss", "tcp", "tls", "udp":
		return nil, fmt.Errorf("--listen %s: this version listens on ws:// only; for TLS, put a proxy in front", raw)
	default:
		return nil, fmt.Errorf("--listen %q is no URL such as %s", raw, defaultRelay)
	}
	if u.Port() == "" || u.User != nil || u.Fragment != "" || u.Path != "" && u.Path != "/" {
		return nil, fmt.Errorf("--listen %q has to be ws://HOST:PORT", u.Redacted())
	}
	for name, values := range u.Query() {
		if name != "root" || len(values) != 1 {
			return nil, fmt.Errorf("--listen %s: this version knows ?root=brep only", raw)
		}
		if values[0] != "brep" {
			return nil, fmt.Errorf("--listen %s: this version speaks brep only, not %q", raw, values[0])
		}
	}
	return u, nil
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

// run relays until ctx ends and then drains, or until something fails.
func (s *service) run(ctx context.Context) error {
	if err := removeReady(s.ready); err != nil {
		return err
	}
	id, err := s.loadIdentity()
	if err != nil {
		return err
	}
	listeners, err := s.open()
	if err != nil {
		return err
	}
	srv := &relay.Server{Inbox: inbox.NewMemory(nil), Limits: s.limits, Logger: s.log}
	web := newWebServer(srv.Speak(brep.Dialect{Identity: id, RequireV2: s.v2}), s.origins, s.log)
	served := make(chan error, len(listeners))
	for _, l := range listeners {
		go func() { served <- web.Serve(l) }()
	}
	urls := s.urls(listeners)
	s.log.Info("ready", "listeners", urls, slog.String(relayKeyAttr, id.String()))
	s.log.Warn("everything is kept in memory: messages that wait are lost when this program ends")

	err = writeReady(s.ready, id.Public(), urls)
	if err == nil {
		select {
		case err = <-served:
			served <- err
		case <-ctx.Done():
		}
	}
	s.log.Info("draining", "time", s.drain)
	web.draining.Store(true)
	for _, l := range listeners {
		_ = l.Close()
	}
	bound, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.drain)
	defer cancel()
	if srv.Shutdown(bound) != nil {
		s.log.Warn("not everything could be written in time")
	}
	_ = web.Close()
	for range listeners {
		<-served
	}
	if n := srv.Stats().Held; n > 0 {
		s.log.Warn("messages that waited are lost", "count", n)
	}
	s.log.Info("ended")
	return err
}

func (s *service) loadIdentity() (*crypto.Identity, error) {
	if s.identity == "" {
		s.log.Warn("the relay has a fresh identity, which clients will not know after a restart: give --identity a file")
		return crypto.GenerateIdentity()
	}
	return crypto.LoadOrCreateIdentity(s.identity)
}

// open opens all listeners, or none.
func (s *service) open() (listeners []net.Listener, err error) {
	for _, u := range s.listen {
		l, err := net.Listen("tcp", u.Host)
		if err != nil {
			for _, l := range listeners {
				_ = l.Close()
			}
			return nil, fmt.Errorf("cannot listen on %s: %w; choose another --listen, or end what is there", u, err)
		}
		listeners = append(listeners, l)
		if a, ok := l.Addr().(*net.TCPAddr); ok && !a.IP.IsLoopback() {
			s.log.Warn("other machines reach this listener without TLS: put a proxy with TLS in front", "listener", a)
		}
	}
	return listeners, nil
}

// urls returns where the listeners are reached.
func (s *service) urls(listeners []net.Listener) []string {
	urls := make([]string, len(listeners))
	for i, l := range listeners {
		host := s.listen[i].Hostname()
		_, port, err := net.SplitHostPort(l.Addr().String())
		if host == "" || err != nil {
			urls[i] = "ws://" + l.Addr().String()
			continue
		}
		urls[i] = "ws://" + net.JoinHostPort(host, port)
	}
	return urls
}
