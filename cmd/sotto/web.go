package main

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/sotto-relay/sotto/demo"
)

// A webServer is the HTTP side of a relay, on one listener: upgrades to dialects
// at the paths of their names, and to that of the root at every other; the
// mailbox; probes; the demo; and a page for browsers.
type webServer struct {
	http.Server
	*health
	upgrades map[string]http.Handler // by the name of a dialect
	root     string                  // one of them
	mailbox  http.Handler            // nil: there is none
	page     *page                   // nil: the demo, or a line of text
	demo     http.Handler            // nil: there is none
}

// listen sets the server up to be safe on the open internet: a client that is
// slow with its request, or long, is cut. Requests that wait end with ctx.
func (s *webServer) listen(ctx context.Context, log *slog.Logger) {
	s.Server = http.Server{
		Handler:           http.HandlerFunc(s.serve),
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second,
		WriteTimeout:      10 * time.Second,
		IdleTimeout:       30 * time.Second,
		MaxHeaderBytes:    16 << 10,
		BaseContext:       func(net.Listener) context.Context { return ctx },
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
}

func (s *webServer) serve(w http.ResponseWriter, r *http.Request) {
	isUpgrade := r.Header.Get("Upgrade") != ""
	upgrade := s.upgrades[s.root]
	if named, ok := s.upgrades[strings.TrimPrefix(r.URL.Path, "/")]; ok {
		upgrade = named
	}
	switch {
	case s.mailbox != nil && strings.HasPrefix(r.URL.Path, "/relay/"):
		s.mailbox.ServeHTTP(w, r)
	case isUpgrade || r.Method != http.MethodGet && r.Method != http.MethodHead:
		upgrade.ServeHTTP(w, r) // which refuses what is no upgrade
	case s.demo != nil && strings.HasPrefix(r.URL.Path+"/", demo.Path):
		s.demo.ServeHTTP(w, r)
	case r.URL.Path == "/" && s.page != nil:
		s.page.ServeHTTP(w, r)
	case r.URL.Path == "/" && s.demo != nil:
		http.Redirect(w, r, demo.Path, http.StatusFound)
	case r.URL.Path == "/":
		answer(w, http.StatusOK, "This is a sotto relay: connect with a WebSocket client that speaks "+s.root+".")
	case r.URL.Path == "/healthz":
		s.healthz(w, r)
	case r.URL.Path == "/readyz":
		s.readyz(w, r)
	default:
		upgrade.ServeHTTP(w, r)
	}
}
