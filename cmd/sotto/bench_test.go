package main

import (
	"encoding/json"
	"math/rand/v2"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sotto-relay/sotto/transport"
	"github.com/sotto-relay/sotto/transport/ws"
)

func benchJSON(t *testing.T, args ...string) benchResult {
	t.Helper()
	got := sotto(t, append([]string{"bench", "--json"}, args...)...)
	require.Zero(t, got.code, got.errOut)
	assert.Empty(t, got.errOut, "no terminal, no progress")
	var r benchResult
	require.NoError(t, json.Unmarshal([]byte(got.out), &r))
	return r
}

func TestBench(t *testing.T) {
	home(t)
	r := benchJSON(t, "--local", "--pairs", "2", "--duration", "200ms", "--size", "1000")
	assert.Positive(t, r.Received)
	assert.Equal(t, r.Sent, r.Received)
	assert.Zero(t, r.Rate)
	assert.Greater(t, r.PerSecond, 200., "not paced")
	assert.InDelta(t, r.PerSecond*1000/1e6, r.Megabytes, 0.01)
	assert.True(t, 0 < r.P50 && r.P50 <= r.P90 && r.P90 <= r.P99 && r.P99 <= r.P999 && r.P999 <= r.Max, "%+v", r)

	r = benchJSON(t, "--local", "--pairs", "3", "--count", "7", "--duration", "5s")
	assert.EqualValues(t, 21, r.Received)
	assert.Less(t, r.Seconds, 5., "done when all are")

	relay := serve(t)
	r = benchJSON(t, relay.url, "--pairs", "1", "--count", "5", "--size", "16")
	assert.EqualValues(t, 5, r.Received)
	assert.Equal(t, 100., r.Rate, "half of what the relay takes")
	_, other := person(t)
	got := sotto(t, "bench", relay.url, "--relay-key", other)
	assert.Equal(t, exitFailed, got.code)
	assert.Contains(t, got.errOut, "pair 1 of 4")

	got = sotto(t, "bench", "--local", "--duration", "50ms")
	require.Zero(t, got.code, got.errOut)
	assert.Regexp(t, `(?m)^latency ms  p50 \d+\.\d{3}`, got.out)
}

// TestBenchLoses holds that what does not arrive is said.
func TestBenchLoses(t *testing.T) {
	relay := serve(t, "--limit", "brep-rate=1", "--limit", "brep-burst=10")
	got := sotto(t, "bench", relay.url, "--pairs", "1", "--count", "50", "--duration", "2s")
	assert.Equal(t, exitFailed, got.code)
	assert.Regexp(t, `\d+ messages did not arrive`, got.errOut)
}

// TestBenchInterrupted interrupts it at some moment, and while it connects.
func TestBenchInterrupted(t *testing.T) {
	some, connecting := make(chan struct{}), make(chan struct{}, 10)
	time.AfterFunc(100*time.Millisecond, func() { close(some) })
	silent := httptest.NewServer(ws.Handler(transport.HandlerFunc(func(c transport.Conn) {
		connecting <- struct{}{}
		_, _, _ = c.Read()
	}), nil))
	defer silent.Close()
	for target, when := range map[string]chan struct{}{
		"--local": some, "ws://" + silent.Listener.Addr().String(): connecting,
	} {
		r := start(t, "bench", "--duration", "1m", target)
		<-when
		assert.Equal(t, exitFailed, r.end(), target)
		assert.Equal(t, "sotto: interrupted\n", r.errOut.String(), target)
	}
}

// TestHistogram compares it with the sorted sample.
func TestHistogram(t *testing.T) {
	var whole, half histogram
	var sample []time.Duration
	for i := range 20_000 {
		d := time.Duration(rand.Uint64() >> (1 + rand.UintN(62)))
		sample = append(sample, d)
		if i%2 == 0 {
			whole.add(d)
		} else {
			half.add(d)
		}
	}
	whole.merge(&half)
	slices.Sort(sample)
	for _, q := range []float64{0, 0.001, 0.25, 0.5, 0.9, 0.99, 0.999, 1} {
		want := sample[max(int(q*float64(len(sample)))-1, 0)]
		got := whole.quantile(q)
		assert.GreaterOrEqual(t, got, want, q)
		assert.LessOrEqual(t, float64(got), float64(want)*33/32+1, q)
	}
	assert.Equal(t, sample[len(sample)-1], whole.max)
	assert.Zero(t, new(histogram).quantile(0.5))
	var edges histogram
	for _, d := range []time.Duration{-1, 0, 1<<63 - 1} {
		edges.add(d)
	}
	assert.Zero(t, edges.quantile(0.6))
	for i := range len(edges.buckets) {
		assert.Equal(t, i, bucket(top(i)))
	}
}
