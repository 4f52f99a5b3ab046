package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/sotto-relay/sotto/crypto"
	"github.com/sotto-relay/sotto/inbox"
	"github.com/sotto-relay/sotto/relay"
	"github.com/sotto-relay/sotto/relay/dialect/brep"
	"github.com/sotto-relay/sotto/transport/tcp"
	"github.com/sotto-relay/sotto/transport/ws"
)

// streamPing is the time between PINGs to extended sessions over TCP, which has
// none of its own (spec brep.md, "Errors seen by a peer").
const streamPing = 30 * time.Second

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
	operators, err := s.openMetrics()
	if err != nil {
		closeAll(listeners)
		return err
	}
	reload := make(chan os.Signal, 1)
	signal.Notify(reload, syscall.SIGHUP)
	defer signal.Stop(reload)

	o := s.start(id, listeners, operators)
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
	srv       *relay.Server
	listeners []*listener
	webs      []*webServer
	operators *http.Server // of the metrics; it may serve nobody
	health    *health
	announced readiness
	served    chan error // from each that serves, once
	serving   int
}

// start serves at all listeners; operators may be nil.
func (s *service) start(id *crypto.Identity, listeners []*listener, operators net.Listener) *operation {
	srv := &relay.Server{Inbox: inbox.NewMemory(nil), Limits: s.limits, Logger: s.log}
	o := &operation{
		service: s, srv: srv, listeners: listeners, health: &health{load: srv.Load},
		announced: readiness{Key: id.String()}, served: make(chan error, len(listeners)+1),
	}
	for _, l := range listeners {
		o.announced.Listeners = append(o.announced.Listeners, readyListener{l.url()})
		if !l.isWeb() {
			o.serve(s.stream(srv, l, id))
			continue
		}
		web := s.web(srv, l, id, o.health)
		o.webs = append(o.webs, web)
		o.serve(func() error { return web.Serve(l.overTLS()) })
	}
	o.operators = newMetricsServer(srv, o.health, s.log)
	if operators != nil {
		o.announced.Metrics = "http://" + operators.Addr().String() + "/metrics"
		s.log.Info("for operators", "metrics", o.announced.Metrics)
		o.serve(func() error { return o.operators.Serve(operators) })
	}
	s.log.Info("ready", "listeners", o.announced.Listeners, slog.String(relayKeyAttr, id.String()))
	s.log.Warn("everything is kept in memory: messages that wait are lost when this program ends")
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
			for _, l := range o.listeners {
				for _, file := range l.reload {
					if err := file(); err != nil {
						whole = false
						o.log.Error("cannot reload; what was before stays in use", "listener", fmt.Sprint(l.endpoint), "err", err)
					}
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
	if o.srv.Shutdown(ctx) != nil {
		o.log.Warn("not everything could be written in time")
	}
	for _, web := range o.webs {
		_ = web.Close()
	}
	_ = o.operators.Close()
	for range o.serving {
		<-o.served
	}
	if n := o.srv.Stats().Held; n > 0 {
		o.log.Warn("messages that waited are lost", "count", n)
	}
	o.log.Info("ended")
}

// notify tells the service manager; it can do without.
func (s *service) notify(assignments ...string) {
	if err := s.p.notify(assignments...); err != nil {
		s.log.Warn("cannot tell the service manager", "err", err)
	}
}

func (s *service) dialect(id *crypto.Identity) brep.Dialect {
	return brep.Dialect{Identity: id, RequireV2: s.v2, SealedOnly: s.sealedOnly}
}

// web returns what answers at a ws:// or wss:// listener.
func (s *service) web(srv *relay.Server, l *listener, id *crypto.Identity, h *health) *webServer {
	o := &ws.Options{Origins: s.origins, TrustedProxies: s.proxies}
	return newWebServer(srv.Speak(s.dialect(id)), o, l.page, h, s.log)
}

// stream returns what serves a tcp:// or tls:// listener.
func (s *service) stream(srv *relay.Server, l *listener, id *crypto.Identity) func() error {
	d := s.streamDialect(id)
	return func() error {
		return srv.Serve(tcp.NewListener(l.Listener, d.Framing(), &tcp.Options{TLS: l.tls, Refused: s.refused}), d)
	}
}

func (s *service) streamDialect(id *crypto.Identity) brep.Dialect {
	d := s.dialect(id)
	d.PingInterval = streamPing
	return d
}

// overTLS returns the listener for an HTTP server, which shakes hands itself.
func (l *listener) overTLS() net.Listener {
	if l.tls == nil {
		return l.Listener
	}
	return tls.NewListener(l.Listener, l.tls)
}

func (s *service) loadIdentity() (*crypto.Identity, error) {
	if s.identity == "" {
		s.log.Warn("the relay has a fresh identity, which clients will not know after a restart: give --identity a file")
		return crypto.GenerateIdentity()
	}
	return crypto.LoadOrCreateIdentity(s.identity)
}
