package metrics

import (
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sotto-relay/sotto/relay"
)

// A Collector is a [prometheus.Collector] of one server. It may be collected
// concurrently.
type Collector struct {
	stats   func() relay.Stats
	load    func() relay.Tier
	plain   []plain
	dropped *prometheus.Desc
	ignored *prometheus.Desc
	ended   *prometheus.Desc
	turned  *prometheus.Desc
	tier    *prometheus.Desc
}

// plain is a metric without labels.
type plain struct {
	desc  *prometheus.Desc
	kind  prometheus.ValueType
	value func(*relay.Stats) float64
}

var _ prometheus.Collector = (*Collector)(nil)

// New returns the Collector of s, for a registry of the program's.
func New(s *relay.Server) *Collector {
	return &Collector{
		stats: s.Stats,
		load:  s.Load,
		plain: []plain{
			counter("messages_received_total",
				"Messages read from connections, whatever became of them.",
				func(s *relay.Stats) float64 { return float64(s.Messages) }),
			counter("messages_accepted_total",
				"Copies of messages, one per recipient, that the relay took on.",
				func(s *relay.Stats) float64 { return float64(s.Accepted) }),
			counter("messages_found_total",
				"Messages that were in the inbox when the server started.",
				func(s *relay.Stats) float64 { return float64(s.Found) }),
			counter("messages_delivered_total",
				"Copies of messages written to a recipient's connection.",
				func(s *relay.Stats) float64 { return float64(s.Delivered) }),
			counter("messages_expired_total",
				"Messages that expired unread in the inbox.",
				func(s *relay.Stats) float64 { return float64(s.Expired) }),
			counter("messages_refused_total",
				"Messages refused at the door, with an answer to the sender. They are not among the accepted.",
				func(s *relay.Stats) float64 { return float64(s.Refused) }),
			gauge("messages_held",
				"Messages that the relay holds now: queued for connections, on their way to the inbox, and in it.",
				func(s *relay.Stats) float64 { return float64(s.Held) }),
			gauge("messages_unaccounted",
				"accepted + found - delivered - expired - dropped - held. "+
					"Differs from 0 only for moments, while messages move; a value that stays is a bug in the relay.",
				func(s *relay.Stats) float64 { return float64(unaccounted(s)) }),
			gauge("connections",
				"Connections that are open, logged in or not.",
				func(s *relay.Stats) float64 { return float64(s.Sessions) }),
		},
		dropped: desc("messages_dropped_total",
			"Accepted copies of messages that were lost, by reason. slow: a publication made room for a newer one; "+
				"gone: the connection ended and nothing stores it; evicted: the oldest of a full inbox; "+
				"repeat: the inbox had it already; refused: the inbox refused to take it back; "+
				"erased: its recipient had the inbox erased.",
			"reason"),
		ignored: desc("ignored_total",
			"What dialects dropped or ignored without an answer, by dialect and kind. It is not among the messages.",
			"dialect", "kind"),
		ended: desc("connections_ended_total",
			"Connections that were open and ended, by the code that their peer was told. none: the peer went.",
			"code"),
		turned: desc("connections_turned_away_total",
			"Connections closed before anything was read, by code: blocked, over a limit of connections, or during a shutdown.",
			"code"),
		tier: desc("load_tier",
			"How loaded the process is. 0: normal; 1: degraded; 2: overloaded, nobody can log in."),
	}
}

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("sotto_"+name, help, labels, nil)
}

func counter(name, help string, value func(*relay.Stats) float64) plain {
	return plain{desc(name, help), prometheus.CounterValue, value}
}

func gauge(name, help string, value func(*relay.Stats) float64) plain {
	return plain{desc(name, help), prometheus.GaugeValue, value}
}

// unaccounted is the difference between the sides of the balance (relay.Stats).
// It is exact, where a difference of floats above 2^53 would not be.
func unaccounted(s *relay.Stats) int64 {
	return int64(s.Accepted+s.Found-s.Delivered-s.Expired-s.Dropped) - s.Held
}

// Describe sends the descriptions of all metrics.
func (c *Collector) Describe(ch chan<- *prometheus.Desc) {
	for _, m := range c.plain {
		ch <- m.desc
	}
	ch <- c.dropped
	ch <- c.ignored
	ch <- c.ended
	ch <- c.turned
	ch <- c.tier
}

// Collect sends the metrics as the server has them now.
func (c *Collector) Collect(ch chan<- prometheus.Metric) {
	s := c.stats()
	for _, m := range c.plain {
		ch <- prometheus.MustNewConstMetric(m.desc, m.kind, m.value(&s))
	}
	for _, by := range []struct {
		desc   *prometheus.Desc
		counts map[string]uint64
	}{{c.dropped, s.DroppedBy}, {c.ended, s.Ended}, {c.turned, s.Turned}} {
		for label, n := range by.counts {
			ch <- prometheus.MustNewConstMetric(by.desc, prometheus.CounterValue, float64(n), label)
		}
	}
	for what, n := range s.Ignored {
		dialect, kind, _ := strings.Cut(strings.ToValidUTF8(what, "?"), ": ") // labels have to be UTF-8
		ch <- prometheus.MustNewConstMetric(c.ignored, prometheus.CounterValue, float64(n), dialect, kind)
	}
	ch <- prometheus.MustNewConstMetric(c.tier, prometheus.GaugeValue, float64(c.load()))
}
