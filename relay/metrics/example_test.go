package metrics_test

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sotto-relay/sotto/relay"
	"github.com/sotto-relay/sotto/relay/metrics"
)

// The program has a registry and serves it, with promhttp.HandlerFor say.
func ExampleNew() {
	srv := &relay.Server{}
	defer srv.Close()
	registry := prometheus.NewRegistry()
	registry.MustRegister(metrics.New(srv))

	families, err := registry.Gather()
	if err != nil {
		fmt.Println(err)
	}
	for _, f := range families {
		fmt.Println(f.GetName(), f.GetType())
	}
	// Output:
	// sotto_connections GAUGE
	// sotto_connections_ended_total COUNTER
	// sotto_connections_turned_away_total COUNTER
	// sotto_load_tier GAUGE
	// sotto_messages_accepted_total COUNTER
	// sotto_messages_delivered_total COUNTER
	// sotto_messages_dropped_total COUNTER
	// sotto_messages_expired_total COUNTER
	// sotto_messages_found_total COUNTER
	// sotto_messages_held GAUGE
	// sotto_messages_received_total COUNTER
	// sotto_messages_refused_total COUNTER
	// sotto_messages_unaccounted GAUGE
}
