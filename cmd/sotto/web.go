package main

import (
	"log/slog"
	"net/http"
	"time"

	"github.com/sotto-relay/sotto/transport"
	"github.com/sotto-relay/sotto/transport/ws"
)

// A webServer is the HTTP side of a relay, on one listener: the upgrade to brep at
// every path but those of dialects that this version does not speak, probes, and
// a page for browsers.
type webServer struct {
	http.Server
	upgrade http.Handler
	page    *page // nil: a line of text
	*health
}

// newWebServer returns a server that is safe on the open internet: a client that
// is slow with its request, or long, is cut.
func newWebServer(h transport.Handler, o *ws.Options, page *page, health *health, log *slog.Logger) *webServer {
	w := &webServer{upgrade: ws.Handler(h, o), page: page, health: health}
	w.Server = http.Server{
		Handler:           http.HandlerFunc(w.serve),
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second,
		WriteTimeout:      10 * time.Second,
		IdleTimeout:       30 * time.Second,
		MaxHeaderBytes:    16 << 10,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
	return w
}

func (s *webServer) serve(w http.ResponseWriter, r *http.Request) {
	isUpgrade := r.Header.Get("Upgrade") != ""
	switch {
	case r.URL.Path == "/json" || r.URL.Path == "/blind":
		http.Error(w, "this version speaks brep only, at every other path", http.StatusNotFound)
	case isUpgrade || r.Method != http.MethodGet && r.Method != http.MethodHead:
		s.upgrade.ServeHTTP(w, r) // which refuses what is no upgrade
	case r.URL.Path == "/" && s.page != nil:
		s.page.ServeHTTP(w, r)
	case r.URL.Path == "/":
		answer(w, http.StatusOK, "This is a sotto relay: connect with a WebSocket client that speaks brep.")
	case r.URL.Path == "/healthz":
		s.healthz(w, r)
	case r.URL.Path == "/readyz":
		s.readyz(w, r)
	default:
		s.upgrade.ServeHTTP(w, r)
	}
}
