package pubsub

import (
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// all goes through what a filter matches in steps.
func (r *Retained[V]) all(filter string, look int) (topics []string) {
	next := ""
	for {
		if topics, next = r.Topics(topics, filter, next, look); next == "" {
			return topics
		}
	}
}

func TestRetainedRandom(t *testing.T) {
	r := newSource(1)
	kept, m := NewRetained[int](), map[string]int{}
	for i := range size(40_000) {
		topic := r.topic()
		if r.IntN(3) > 0 {
			kept.Set(topic, i)
			m[topic] = i
		} else {
			kept.Clear(topic)
			delete(m, topic)
		}
		topic = r.topic()
		v, ok := kept.Get(topic)
		want, there := m[topic]
		require.Equal(t, there, ok)
		require.Equal(t, want, v)
		if i%10 == 0 {
			f := r.filter()
			var want []string
			for topic := range m {
				if naive(f, topic) {
					want = append(want, topic)
				}
			}
			slices.Sort(want)
			require.Equal(t, want, kept.all(f, 1+r.IntN(20)), "%q", f)
		}
	}
}

// A long list in bounded steps, with changes between them.
func TestRetainedSteps(t *testing.T) {
	const n = 12_500
	kept := NewRetained[int]()
	for i := range n {
		kept.Set(fmt.Sprintf("a/%05d", (i*7919)%n), i)
	}
	for _, block := range kept.topics.blocks {
		require.LessOrEqual(t, len(block), blockSize)
	}
	kept.Set("a", 0)
	kept.Set("a!", 0)
	kept.Set("b", 0)
	assert.Len(t, kept.all("#", 100), n+3)
	assert.Len(t, kept.all("a/#", 100), n+1)
	assert.Len(t, kept.all("a/+", 100), n)
	assert.Equal(t, []string{"a/00500"}, kept.all("a/00500", 1))
	assert.Empty(t, kept.all("a/x", 1))
	assert.Equal(t, []string{"a", "a!", "b"}, kept.all("+", 7))

	first, next := kept.Topics(nil, "a/#", "", 3)
	assert.Equal(t, []string{"a", "a/00000"}, first) // and a! was looked at
	assert.Equal(t, "a/00001", next)
	kept.Clear("a/00001") // where it stands
	kept.Set("a/00000x", 0)
	kept.Set("a/00001x", 0)
	second, next := kept.Topics(nil, "a/#", next, 2)
	assert.Equal(t, []string{"a/00001x", "a/00002"}, second)
	assert.Equal(t, "a/00003", next)
	for i := range n {
		kept.Clear(fmt.Sprintf("a/%05d", i))
		kept.Clear(fmt.Sprintf("a/%05d", i))
	}
	assert.Equal(t, []string{"a", "a!", "a/00000x", "a/00001x", "b"}, kept.all("#", 1))
	for _, topic := range kept.all("#", 100) {
		kept.Clear(topic)
	}
	assert.Empty(t, kept.topics.blocks)
	assert.Equal(t, index[string, *value[int]]{}, kept.values)
}

func TestRetainedConcurrent(t *testing.T) {
	kept := NewRetained[int]()
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			for i := range 300 {
				topic := fmt.Sprint(w, "/", i%100)
				kept.Set(topic, i)
				v, ok := kept.Get(topic)
				assert.True(t, ok)
				assert.Equal(t, i, v)
				assert.True(t, slices.IsSorted(kept.all("#", 16)))
				kept.Clear(topic)
			}
		})
	}
	wg.Wait()
	assert.Empty(t, kept.all("#", 10))
}
