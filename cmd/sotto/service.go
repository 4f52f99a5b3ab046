package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"github.com/sotto-relay/sotto/crypto"
	"github.com/sotto-relay/sotto/demo"
	"github.com/sotto-relay/sotto/relay"
	"github.com/sotto-relay/sotto/relay/dialect/jsonmsg"
	"github.com/sotto-relay/sotto/transport"
	"github.com/sotto-relay/sotto/transport/tcp"
	"github.com/sotto-relay/sotto/transport/udp"
	"github.com/sotto-relay/sotto/transport/ws"
)

// requestTime is how much of a drain HTTP requests may take.
const requestTime = 5 * time.Second

// streamPing is the time between PINGs to extended sessions over TCP, which has
// none of its own (spec brep.md, "Errors seen by a peer").
const streamPing = 30 * time.Second

// run relays until ctx ends and then drains, or until something fails.
func (s *service) run(ctx context.Context) (err error) {
	// Both would end the program, also while it opens a large store: a SIGHUP by
	// whoever has turned the log files, a SIGPIPE when who reads the log has gone.
	reload, broken := make(chan os.Signal, 1), make(chan os.Signal, 1)
	signal.Notify(reload, syscall.SIGHUP)
	signal.Notify(broken, syscall.SIGPIPE)
	defer signal.Stop(reload)
	defer signal.Stop(broken)
	if err := removeReady(s.ready); err != nil {
		return err
	}
	held, err := s.hold(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, held.end()) }()
	id, err := s.loadIdentity()
	if err != nil {
		return err
	}
	listeners, err := s.open()
	if err != nil {
		return err
	}
	operators, err := s.openMetrics()
	if err != nil {
		closeAll(listeners)
		return err
	}

	o := s.start(id, held, listeners, operators)
	if err = writeReady(s.ready, &o.announced); err == nil {
		if s.onReady != nil {
			s.onReady(&o.announced)
		}
		s.notify("READY=1", "STATUS=relaying")
		err = o.wait(ctx, reload)
	}
	o.end(context.WithoutCancel(ctx))
	return err
}

// An operation is a service that runs.
type operation struct {
	*service
	*holdings
	srv       *relay.Server
	listeners []*listener
	webs      []*webServer
	waits     context.Context // of requests: it ends when the drain begins
	endWaits  context.CancelFunc
	operators *http.Server // of the metrics; it may serve nobody
	health    *health
	announced readiness
	served    chan error // from each that serves, once
	serving   int
}

// start serves at all listeners; operators may be nil.
func (s *service) start(id *crypto.Identity, held *holdings, listeners []*listener, operators net.Listener) *operation {
	srv := &relay.Server{Inbox: held.inbox, State: held.state, Limits: s.limits.relay, Logger: s.log}
	o := &operation{
		service: s, holdings: held, srv: srv, listeners: listeners, health: &health{load: srv.Load, store: held.store},
		announced: readiness{Key: id.String()}, served: make(chan error, len(listeners)+2),
	}
	o.join(id)
	o.waits, o.endWaits = context.WithCancel(context.Background())
	mailbox := s.mailbox(srv, id, held)
	for _, l := range listeners {
		o.announced.Listeners = append(o.announced.Listeners, readyListener{l.url()})
		switch {
		case l.sockets != nil:
			o.serve(s.datagrams(srv, l, id))
			continue
		case !l.isWeb():
			o.serve(s.stream(srv, l, id))
			continue
		}
		web := &webServer{health: o.health, root: l.dialect, upgrades: make(map[string]http.Handler), mailbox: mailbox, page: l.page}
		if s.demo {
			web.demo = demo.Handler()
		}
		for name, d := range s.byName(id, held) {
			web.upgrades[name] = ws.Handler(srv.Speak(d), &ws.Options{Origins: s.origins, TrustedProxies: s.proxies})
		}
		web.listen(o.waits, s.log)
		o.webs = append(o.webs, web)
		o.serve(func() error { return web.Serve(l.overTLS(s.log)) })
	}
	o.operators = newMetricsServer(srv, o.mesh, o.health, s.log)
	if operators != nil {
		o.announced.Metrics = "http://" + operators.Addr().String() + "/metrics"
		s.log.Info("for operators", "metrics", o.announced.Metrics)
		o.serve(func() error { return o.operators.Serve(operators) })
	}
	s.log.Info("ready", "listeners", o.announced.Listeners, slog.String(relayKeyAttr, id.String()))
	return o
}

func (o *operation) serve(f func() error) {
	o.serving++
	go func() { o.served <- f() }()
}

// wait returns when ctx ends, or with the error of what has stopped serving.
// Meanwhile it reloads files when it is told to.
func (o *operation) wait(ctx context.Context, reload <-chan os.Signal) error {
	for {
		select {
		case err := <-o.served:
			o.served <- err // for end
			return err
		case <-ctx.Done():
			return nil
		case <-reload:
			o.notify("RELOADING=1")
			whole := true
			files := o.reload
			for _, l := range o.listeners {
				files = slices.Concat(files, l.reload)
			}
			for _, file := range files {
				if err := file(); err != nil {
					whole = false
					o.log.Error("cannot reload; what was before stays in use", "err", err)
				}
			}
			if whole {
				o.log.Info("reloaded")
			}
			o.notify("READY=1", "STATUS=relaying")
		}
	}
}

// end drains, and returns when everything has ended. The metrics go last.
func (o *operation) end(ctx context.Context) {
	const spare = 5 * time.Second // for what is not the drain
	o.log.Info("draining", "within", o.drain)
	o.notify("STOPPING=1", fmt.Sprintf("STATUS=draining, %d connections", o.srv.Stats().Sessions),
		fmt.Sprintf("EXTEND_TIMEOUT_USEC=%d", (o.drain+spare).Microseconds()))
	o.health.draining.Store(true)
	closeAll(o.listeners)
	ctx, cancel := context.WithTimeout(ctx, o.drain)
	defer cancel()
	o.endRequests(ctx)
	if o.srv.Shutdown(ctx) != nil {
		o.log.Warn("not everything could be written in time")
	}
	_ = o.operators.Close()
	for range o.serving {
		<-o.served
	}
	if n := o.srv.Stats().Held; n > 0 && o.data == "" {
		o.log.Warn("messages that waited are lost", "count", n)
	}
	o.log.Info("ended")
}

// endRequests ends the HTTP servers. A mailbox has to remove what it has answered
// with while there is a relay to do that.
func (o *operation) endRequests(ctx context.Context) {
	o.endWaits()
	ctx, cancel := context.WithTimeout(ctx, requestTime)
	defer cancel()
	for _, web := range o.webs {
		_ = web.Shutdown(ctx)
		_ = web.Close()
	}
}

// notify tells the service manager; it can do without.
func (s *service) notify(assignments ...string) {
	if err := s.p.notify(assignments...); err != nil {
		s.log.Warn("cannot tell the service manager", "err", err)
	}
}

// stream returns what serves a tcp:// or tls:// listener.
func (s *service) stream(srv *relay.Server, l *listener, id *crypto.Identity) func() error {
	var d interface {
		relay.Dialect
		Framing() transport.Framing
	} = s.streamBrep(id)
	if l.dialect == "json" {
		d = s.json(id)
	}
	return func() error {
		return srv.Serve(tcp.NewListener(l.Listener, d.Framing(), &tcp.Options{TLS: l.tls, Refused: s.refused}), d)
	}
}

// datagrams returns what serves a udp:// listener.
func (s *service) datagrams(srv *relay.Server, l *listener, id *crypto.Identity) func() error {
	o := s.limits.datagram
	o.Demux, o.Answer = jsonmsg.Demux, jsonmsg.Answer(srv.Load)
	return func() error { return srv.Serve(udp.NewListener(l.sockets, &o), s.json(id)) }
}

// overTLS returns the listener for an HTTP server, which shakes hands itself.
func (l *listener) overTLS(log *slog.Logger) net.Listener {
	loud := loudListener{l.Listener, log}
	if l.tls == nil {
		return loud
	}
	return tls.NewListener(loud, l.tls)
}

// A loudListener logs why it cannot accept. An HTTP server, which tries again, tells
// that among what strangers can have it say, and that is not looked at.
type loudListener struct {
	net.Listener
	log *slog.Logger
}

func (l loudListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil && !errors.Is(err, net.ErrClosed) {
		l.log.Warn("accept failed; trying again", "listener", l.Addr(), "err", err)
	}
	return c, err
}

func (s *service) loadIdentity() (*crypto.Identity, error) {
	if s.identity == "" {
		s.log.Warn("the relay has a fresh identity, which clients will not know after a restart: give --identity a file")
		return crypto.GenerateIdentity()
	}
	return crypto.LoadOrCreateIdentity(s.identity)
}
