// Package metrics shows the counters of a relay.Server to Prometheus. It is the
// only package that links the Prometheus client.
//
// The program owns the registry and serves it; a [Collector] starts nothing and
// is read when the registry is. Two servers in one process go into one registry
// with a label each, by prometheus.WrapRegistererWith.
//
// Labels are reasons and fixed words of dialects, never keys, addresses or
// topics: the number of series does not grow with the number of peers.
//
// The metrics of messages count copies, one a recipient, and add up (in a moment
// at which nothing moves):
//
//	accepted + found = delivered + expired + dropped + held
package metrics
