package main

import (
	"fmt"
	"net/http"
	"sync/atomic"

	"github.com/sotto-relay/sotto/inbox/disk"
	"github.com/sotto-relay/sotto/relay"
)

// health answers probes: /healthz, whether the process is to be left alone, and
// /readyz, whether new connections should be sent to it.
type health struct {
	draining atomic.Bool
	load     func() relay.Tier
	store    *disk.DB // nil: in memory
}

func (h *health) healthz(w http.ResponseWriter, _ *http.Request) {
	answer(w, http.StatusOK, "ok")
}

func (h *health) readyz(w http.ResponseWriter, _ *http.Request) {
	switch {
	case h.draining.Load():
		answer(w, http.StatusServiceUnavailable, "draining")
	case h.load() == relay.Overloaded:
		answer(w, http.StatusServiceUnavailable, "overloaded")
	case h.store != nil && h.store.Err() != nil:
		answer(w, http.StatusServiceUnavailable, "the store has failed")
	case h.store != nil && h.store.Full(): // which holds up nobody who is connected
		answer(w, http.StatusOK, "ready, but the store is full")
	default:
		answer(w, http.StatusOK, "ready")
	}
}

func answer(w http.ResponseWriter, status int, line string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(status)
	fmt.Fprintln(w, line)
}
