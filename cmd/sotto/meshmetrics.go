package main

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/sotto-relay/sotto/mesh"
)

// meshMetrics are those of the mesh, which the relay does not know as such.
func meshMetrics(m *mesh.Mesh) []prometheus.Collector {
	var all []prometheus.Collector
	gauge := func(name, help string, value func(*mesh.Stats) int) {
		all = append(all, prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "sotto_mesh_" + name, Help: help},
			func() float64 { s := m.Stats(); return float64(value(&s)) }))
	}
	counter := func(name, help string, labels prometheus.Labels, value func(*mesh.Stats) uint64) {
		all = append(all, prometheus.NewCounterFunc(prometheus.CounterOpts{Name: "sotto_mesh_" + name, Help: help, ConstLabels: labels},
			func() float64 { s := m.Stats(); return float64(value(&s)) }))
	}
	gauge("links", "Other relays that are linked now.", func(s *mesh.Stats) int { return s.Links })
	gauge("relays", "Other relays in the directory.", func(s *mesh.Stats) int { return s.Relays })
	gauge("clients_attached", "Clients here that other relays can find.", func(s *mesh.Stats) int { return s.Attached })
	gauge("clients_owned", "Clients of any relay that this one, as an owner, can say something of.", func(s *mesh.Stats) int { return s.Owned })
	gauge("clients_with_mail", "Clients that are not here and have mail here.", func(s *mesh.Stats) int { return s.MailFor })
	gauge("clients_looked_for", "Clients that are being looked for now.", func(s *mesh.Stats) int { return s.Searching })
	gauge("waiting_bytes", "Messages for clients that are being looked for, in bytes.", func(s *mesh.Stats) int { return s.Waiting })
	gauge("cached_places", "Clients of which the location cache says where they are, or that they are nowhere.", func(s *mesh.Stats) int { return s.Cached })

	const cache = "Messages for clients that are not here, by what the location cache had: hit or miss."
	counter("cache_total", cache, prometheus.Labels{"result": "hit"}, func(s *mesh.Stats) uint64 { return s.CacheHits })
	counter("cache_total", cache, prometheus.Labels{"result": "miss"}, func(s *mesh.Stats) uint64 { return s.CacheMisses })
	counter("lookups_total", "Times that a client was looked for.", nil, func(s *mesh.Stats) uint64 { return s.Lookups })
	const ended = "Lookups that ended, by result: found or missing. Others ended since the client came here."
	counter("lookups_ended_total", ended, prometheus.Labels{"result": "found"}, func(s *mesh.Stats) uint64 { return s.Found })
	counter("lookups_ended_total", ended, prometheus.Labels{"result": "missing"}, func(s *mesh.Stats) uint64 { return s.Missing })
	counter("queries_total", "Lookups for which all linked relays were asked.", nil, func(s *mesh.Stats) uint64 { return s.Queries })
	counter("messages_carried_total", "Messages sent to another relay.", nil, func(s *mesh.Stats) uint64 { return s.Carried })
	counter("messages_not_here_total", "Of those, messages for clients that were not there any more.", nil, func(s *mesh.Stats) uint64 { return s.NotHere })
	return all
}
