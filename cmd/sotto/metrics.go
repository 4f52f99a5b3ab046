package main

import (
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/sotto-relay/sotto/inbox/disk"
	"github.com/sotto-relay/sotto/mesh"
	"github.com/sotto-relay/sotto/relay"
	"github.com/sotto-relay/sotto/relay/metrics"
)

// parseMetrics checks the value of --metrics.
func parseMetrics(address string) error {
	if address == "" {
		return nil
	}
	_, port, err := net.SplitHostPort(address)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	if err != nil {
		return fmt.Errorf("--metrics %q is not HOST:PORT, such as 127.0.0.1:9090", address)
	}
	return nil
}

// openMetrics opens the listener of --metrics; nil if there is none. What is to
// be seen there is for operators: profiles show how the process works.
func (s *service) openMetrics() (net.Listener, error) {
	if s.metrics == "" {
		return nil, nil
	}
	l, err := net.Listen("tcp", s.metrics)
	if err != nil {
		return nil, fmt.Errorf("cannot listen on --metrics %s: %w; choose another address, or end what is there", s.metrics, err)
	}
	if !isLoopback(l.Addr()) {
		s.log.Warn("other machines reach the metrics and profiles, without a password: give --metrics a loopback address, or let a firewall keep strangers out",
			"metrics", l.Addr())
	}
	return l, nil
}

// newMetricsServer returns the server of the operator's listener. Unlike those of
// the relay it answers until the end of a drain. m may be nil.
func newMetricsServer(srv *relay.Server, m *mesh.Mesh, h *health, log *slog.Logger) *http.Server {
	registry := prometheus.NewRegistry()
	registry.MustRegister(metrics.New(srv), collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	if h.store != nil {
		registry.MustRegister(storeMetrics(h.store)...)
	}
	if m != nil {
		registry.MustRegister(meshMetrics(m)...)
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{MaxRequestsInFlight: 4}))
	mux.HandleFunc("GET /healthz", h.healthz)
	mux.HandleFunc("GET /readyz", h.readyz)
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	mux.HandleFunc("GET /debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	return &http.Server{
		Handler:           mux,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second,
		WriteTimeout:      2 * time.Minute, // a profile takes as long as it is asked to
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    16 << 10,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
}

// storeMetrics are those of the store, which the relay does not know as such.
func storeMetrics(db *disk.DB) []prometheus.Collector {
	gauge := func(name, help string, is func() bool) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 {
			if is() {
				return 1
			}
			return 0
		})
	}
	return []prometheus.Collector{
		gauge("sotto_store_full", "1 while the store has no room for new messages.", db.Full),
		gauge("sotto_store_failed", "1 once the store has failed: the relay has to be restarted when the disk is well.",
			func() bool { return db.Err() != nil }),
		prometheus.NewCounterFunc(prometheus.CounterOpts{Name: "sotto_store_damaged_total",
			Help: "How many times something in the store was found damaged, and left out."},
			func() float64 { return float64(db.Damaged()) }),
	}
}

func isLoopback(a net.Addr) bool {
	t, ok := a.(*net.TCPAddr)
	return ok && t.IP.IsLoopback()
}
