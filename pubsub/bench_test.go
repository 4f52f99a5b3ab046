package pubsub

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/sotto-relay/sotto/internal/race"
)

// mixed returns different filters, a third each without wildcards, with + and
// with #.
func mixed(n int) []string {
	filters := make([]string, n)
	for i := range filters {
		dev := i / 3
		region, site := dev%100, dev/100%100
		switch i % 3 {
		case 0:
			filters[i] = fmt.Sprintf("region%d/site%d/dev%d/temp", region, site, dev)
		case 1:
			filters[i] = fmt.Sprintf("region%d/+/dev%d/temp", region, dev)
		case 2:
			filters[i] = fmt.Sprintf("region%d/site%d/dev%d/#", region, site, dev)
		}
	}
	return filters
}

// topics returns topics that three of n mixed filters match each.
func topics(n int) []string {
	topics := make([]string, 1<<16)
	for i := range topics {
		dev := rand.IntN(n / 3)
		topics[i] = fmt.Sprintf("region%d/site%d/dev%d/temp", dev%100, dev/100%100, dev)
	}
	return topics
}

// hostile returns filters of 32 levels that no topic of as tells apart before its
// last one.
func hostile(n int) []string {
	filters := make([]string, n)
	for i := range filters {
		levels := make([]string, 32)
		for j := range levels {
			levels[j] = []string{"+", "a"}[i*0x9e3779b1>>j&1]
		}
		levels[31] = "b"
		filters[i] = strings.Join(levels, "/")
	}
	return filters
}

// fill subscribes to all filters, seven a subscriber.
func fill(filters []string) *Tree[int] {
	t := NewTree[int]()
	for i, f := range filters {
		t.Subscribe(i/7, f, nil)
	}
	return t
}

// heap returns the bytes on the heap after a collection.
func heap() int {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}

func TestMemory(t *testing.T) {
	if race.Enabled {
		t.Skip("long, and nothing in it is concurrent")
	}
	n := size(1_000_000)
	filters := mixed(n)
	before := heap()
	tree := fill(filters)
	each := (heap() - before) / n
	t.Logf("%d B a subscription", each)
	assert.Less(t, each, 200)
	for i := range n {
		if i%20 != 0 {
			tree.Unsubscribe(i/7, filters[i])
		}
	}
	taken := heap() - before
	t.Logf("%d B for a twentieth", taken)
	assert.Less(t, taken, n*200/8)
	for i := range n {
		tree.UnsubscribeAll(i / 7)
	}
	assert.Less(t, heap()-before, 100_000)
	runtime.KeepAlive(filters)
}

func TestNoAllocations(t *testing.T) {
	tree := fill(mixed(3000))
	for i := range 100 {
		tree.Subscribe(-i-1, "#", nil)
		tree.Subscribe(-i-1, "+/+/+/temp", nil)
	}
	names := topics(3000)
	var hits []Hit[int]
	i := 0
	match := func() {
		hits, _ = tree.Match(hits[:0], names[i%len(names)])
		i++
	}
	match()
	assert.GreaterOrEqual(t, len(hits), 100)
	if race.Enabled {
		t.Skip("sync.Pool drops at random under the race detector")
	}
	assert.Zero(t, int(testing.AllocsPerRun(1000, match)))
}

func BenchmarkMatch(b *testing.B) {
	for _, n := range []int{1000, 100_000, 1_000_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			filters := mixed(n)
			before := heap()
			t := fill(filters)
			each := float64(heap()-before) / float64(n)
			runtime.KeepAlive(filters)
			names := topics(n)
			var hits []Hit[int]
			b.ReportAllocs()
			b.ResetTimer()
			for i := range b.N {
				hits, _ = t.Match(hits[:0], names[i%len(names)])
			}
			b.StopTimer()
			b.ReportMetric(each, "B/subscription")
			runtime.KeepAlive(t)
		})
	}
}

// As many nodes as so many filters can make a match visit.
func BenchmarkHostile(b *testing.B) {
	for _, n := range []int{100, 2000, 100_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			t := fill(hostile(n))
			topic := strings.Repeat("a/", 31) + "a"
			var hits []Hit[int]
			b.ReportAllocs()
			b.ResetTimer()
			for range b.N {
				hits, _ = t.Match(hits[:0], topic)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/filter")
		})
	}
}

func BenchmarkSubscribe(b *testing.B) {
	filters := mixed(1_000_000)
	t := fill(filters)
	b.ReportAllocs()
	b.ResetTimer()
	for i := range b.N {
		j := i % len(filters)
		t.Unsubscribe(j/7, filters[j])
		t.Subscribe(j/7, filters[j], nil)
	}
}

// Matches while a million subscriptions come and go.
func BenchmarkMatchMeanwhile(b *testing.B) {
	const n = 1_000_000
	filters := mixed(n)
	t := NewTree[int]()
	var changes atomic.Int64
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i, f := range filters {
			t.Subscribe(i/7, f, nil)
			changes.Add(1)
		}
		for i := range n {
			t.UnsubscribeAll(i / 7)
			changes.Add(1)
		}
	}()
	names := topics(n)
	var hits []Hit[int]
	var longest time.Duration
	b.ResetTimer()
	for i := 0; ; i++ {
		select {
		case <-done:
			b.ReportMetric(float64(longest.Microseconds()), "longest-us")
			b.ReportMetric(float64(i)/b.Elapsed().Seconds(), "matches/s")
			b.ReportMetric(float64(changes.Load())/b.Elapsed().Seconds(), "changes/s")
			return
		default:
		}
		start := time.Now()
		hits, _ = t.Match(hits[:0], names[i%len(names)])
		longest = max(longest, time.Since(start))
	}
}

func BenchmarkRetained(b *testing.B) {
	const n = 100_000
	r := NewRetained[int]()
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("region%d/site%d/dev%d/temp", i%100, i/100%100, i)
		r.Set(names[i], i)
	}
	b.Run("get", func(b *testing.B) {
		b.ReportAllocs()
		for i := range b.N {
			_, _ = r.Get(names[i*7919%n])
		}
	})
	b.Run("set", func(b *testing.B) {
		b.ReportAllocs()
		for i := range b.N {
			r.Clear(names[i*7919%n])
			r.Set(names[i*7919%n], i)
		}
	})
	b.Run("all", func(b *testing.B) { // of a filter that matches little
		var topics []string
		for range b.N {
			for next := "a"; next != ""; {
				topics, next = r.Topics(topics[:0], "+/+/dev1/temp", next, 256)
			}
		}
	})
}
