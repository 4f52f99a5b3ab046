package pubsub

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sotto-relay/sotto/internal/race"
)

// A model is the subscriptions of a tree, by subscriber.
type model map[int]map[string]bool

func (m model) match(topic string) (subscribers []int) {
	for s, filters := range m {
		for f := range filters {
			if naive(f, topic) {
				subscribers = append(subscribers, s)
				break
			}
		}
	}
	slices.Sort(subscribers)
	return subscribers
}

// compare checks a match against the model.
func (m model) compare(t *testing.T, tree *Tree[int], topic string) {
	t.Helper()
	hits, _ := tree.Match(nil, topic)
	var got []int
	for _, h := range hits {
		require.True(t, m[h.Subscriber][h.Filter], "%d does not have %q", h.Subscriber, h.Filter)
		require.True(t, naive(h.Filter, topic), "%q does not match %q", h.Filter, topic)
		got = append(got, h.Subscriber)
	}
	slices.Sort(got)
	require.Equal(t, m.match(topic), got, "%q", topic)
}

// checkTrie checks what keeps the number of nodes, and so the time of a match, in
// proportion to the number of filters.
func checkTrie[S comparable](t *testing.T, tree *Tree[S]) {
	t.Helper()
	for c := range tree.wild.root.children() {
		checkNode(t, c)
	}
}

func checkNode(t *testing.T, n *node) {
	t.Helper()
	ends, children := 0, 0
	for _, f := range []*filter{n.here, n.rest} {
		if f != nil {
			ends++
			require.True(t, f.subs.one > 0 != (f.subs.many != nil), "%q has no subscribers", f.text)
		}
	}
	for c := range n.children() {
		children++
		checkNode(t, c)
	}
	require.True(t, ends > 0 || children > 1, "%q is superfluous", n.label)
}

func (n *node) children() func(func(*node) bool) {
	return func(yield func(*node) bool) {
		if n.plus != nil && !yield(n.plus) {
			return
		}
		if n.kids != nil {
			for s := range n.kids.all() {
				if !yield(s) {
					return
				}
			}
		}
	}
}

// count returns the nodes below n.
func (n *node) count() (nodes int) {
	for c := range n.children() {
		nodes += 1 + c.count()
	}
	return nodes
}

func checkEmpty[S comparable](t *testing.T, tree *Tree[S]) {
	t.Helper()
	assert.Equal(t, node{}, tree.wild.root)
	assert.Equal(t, index[string, *filter]{}, tree.exact)
	assert.Equal(t, index[S, *subscriber[S]]{}, tree.roster.ids)
	assert.Empty(t, tree.roster.pieces)
}

func TestTreeRandom(t *testing.T) {
	if race.Enabled {
		t.Skip("long, and nothing in it is concurrent")
	}
	for seed := range uint64(2) {
		r := newSource(seed)
		tree, m := NewTree[int](), model{}
		for i := range size(30_000) {
			s, f := r.IntN(50), r.filter()
			switch {
			case r.IntN(3) > 0:
				tree.Subscribe(s, f, nil)
				if m[s] == nil {
					m[s] = map[string]bool{}
				}
				m[s][f] = true
			case r.IntN(10) > 0:
				require.Equal(t, m[s][f], tree.Has(s, f))
				require.Equal(t, m[s][f], tree.Unsubscribe(s, f))
				require.False(t, tree.Has(s, f))
				delete(m[s], f)
			default:
				tree.UnsubscribeAll(s)
				delete(m, s)
			}
			require.Equal(t, len(m[s]), tree.Count(s))
			m.compare(t, tree, r.topic())
			if i%100 == 0 {
				checkTrie(t, tree)
			}
		}
		for s := range 50 {
			tree.UnsubscribeAll(s)
			checkTrie(t, tree)
		}
		checkEmpty(t, tree)
	}
}

// Pairs of filters and topics, the filters all in one tree.
func TestTreePairs(t *testing.T) {
	r := newSource(7)
	tree, m := NewTree[int](), model{}
	for i := range 1000 {
		f := r.filter()
		tree.Subscribe(i, f, nil)
		m[i] = map[string]bool{f: true}
	}
	for range size(1000) {
		m.compare(t, tree, r.topic())
	}
}

// One result a subscriber, however many of its filters match, and one
// subscription however often it was made (case TO-08).
func TestOverlap(t *testing.T) {
	tree := NewTree[string]()
	for _, f := range []string{"a/#", "a/+", "a/b", "#", "a/#"} {
		tree.Subscribe("x", f, nil)
		tree.Subscribe("y", f, nil)
	}
	assert.Equal(t, 4, tree.Count("x"))
	hits, _ := tree.Match(nil, "a/b")
	require.Len(t, hits, 2)
	assert.NotEqual(t, hits[0].Subscriber, hits[1].Subscriber)
	assert.True(t, tree.Unsubscribe("x", "a/#"))
	assert.False(t, tree.Unsubscribe("x", "a/#"))
	assert.False(t, tree.Unsubscribe("x", "other"))
	assert.False(t, tree.Unsubscribe("nobody", "a/b"))
	tree.UnsubscribeAll("nobody")
	for _, f := range []string{"a/+", "a/b", "#"} {
		assert.True(t, tree.Unsubscribe("x", f))
	}
	hits, _ = tree.Match(nil, "a/b")
	require.Len(t, hits, 1)
	assert.Equal(t, "y", hits[0].Subscriber)
	assert.Zero(t, tree.Count("x"))
}

// A name that is kept does not keep the memory that it was a part of, nor follow
// it when that is used again.
func TestBorrowedNames(t *testing.T) {
	tree, kept := NewTree[int](), NewRetained[int]()
	for _, name := range []string{"a/b", "+/b", "a/#"} {
		buf := []byte(name)
		tree.Subscribe(1, unsafeString(buf), nil)
		kept.Set(unsafeString(buf), 1)
		clear(buf)
		assert.True(t, tree.Has(1, name))
		_, ok := kept.Get(name)
		assert.True(t, ok)
	}
}

// A node that outlives the filter it was made for does not keep its text.
func TestBranchesOwnTheirLabels(t *testing.T) {
	tree := NewTree[int]()
	for i, f := range []string{"a/b/+", "a/+", "a/c/#"} {
		tree.Subscribe(i, f, nil)
	}
	kids := tree.wild.root.kids
	require.Equal(t, 1, kids.n)
	label := kids.only().label
	require.Equal(t, "a", label)
	for i := range 3 {
		hits, _ := tree.Match(nil, []string{"a/b/x", "a/x", "a/c"}[i])
		for _, h := range hits {
			assert.NotSame(t, unsafe.StringData(h.Filter), unsafe.StringData(label))
		}
	}
}

// Those who come and go take no more room than are there at a time.
func TestRosterReuse(t *testing.T) {
	tree := NewTree[int]()
	tree.Subscribe(-1, "a", nil)
	for i := range 2000 {
		tree.Subscribe(i, "+", nil)
		if i >= 10 {
			tree.UnsubscribeAll(i - 10)
		}
	}
	assert.Equal(t, id(12), tree.roster.last)
	hits, _ := tree.Match(nil, "a")
	assert.Len(t, hits, 11)
}

// As many nodes as there can be: two a filter.
func TestHostile(t *testing.T) {
	tree := NewTree[int]()
	filters := hostile(5000)
	for i, f := range filters {
		require.True(t, Limits{}.ValidFilter(f))
		tree.Subscribe(i, f, nil)
	}
	checkTrie(t, tree)
	assert.LessOrEqual(t, tree.wild.root.count(), 2*len(filters))
	hits, _ := tree.Match(nil, strings.Repeat("a/", 31)+"b")
	assert.Len(t, hits, len(filters))
	hits, _ = tree.Match(nil, strings.Repeat("a/", 31)+"a")
	assert.Empty(t, hits)
	for i := range filters {
		tree.UnsubscribeAll(i)
	}
	checkEmpty(t, tree)
}

// Many subscribers of one filter, and many filters with one parent.
func TestWide(t *testing.T) {
	if race.Enabled {
		t.Skip("long, and nothing in it is concurrent")
	}
	const n = 20_000
	tree := NewTree[int]()
	for i := range n {
		tree.Subscribe(i, "all/+", nil)
		tree.Subscribe(i, fmt.Sprint("dev", i, "/#"), nil)
		tree.Subscribe(i, fmt.Sprint("dev", i), nil)
	}
	hits, _ := tree.Match(nil, "all/x")
	assert.Len(t, hits, n)
	for i := range n {
		hits, _ = tree.Match(hits[:0], fmt.Sprint("dev", i))
		require.Len(t, hits, 1)
		require.Equal(t, i, hits[0].Subscriber)
	}
	for i := range n - 1 {
		tree.UnsubscribeAll((i + 1) * 7919 % n) // all but 0
	}
	hits, _ = tree.Match(nil, "all/x")
	assert.Equal(t, []Hit[int]{{0, "all/+"}}, hits)
	tree.UnsubscribeAll(0)
	checkEmpty(t, tree)
}

// The order that Subscribe promises: what then does comes before the first match,
// and all matches from its version on see the subscription.
func TestVersions(t *testing.T) {
	tree := NewTree[int]()
	for i := range 4 { // that are always there
		tree.Subscribe(1000+i, []string{"t", "+", "#", "t/#"}[i], nil)
	}
	var wg sync.WaitGroup
	var told [100]atomic.Bool
	var since [100]atomic.Uint64
	for i := range told {
		wg.Go(func() {
			filter := []string{"t", "+", "#", "t/#"}[i%4]
			v := tree.Subscribe(i, filter, func() { told[i].Store(true) })
			since[i].Store(v)
		})
	}
	for range 4 {
		wg.Go(func() {
			var hits []Hit[int]
			for range 200 {
				var sure []int
				for i := range since {
					if since[i].Load() > 0 {
						sure = append(sure, i)
					}
				}
				var version uint64
				hits, version = tree.Match(hits[:0], "t")
				found := make(map[int]bool)
				for _, h := range hits {
					assert.False(t, found[h.Subscriber], "once each")
					found[h.Subscriber] = true
					assert.True(t, h.Subscriber >= 1000 || told[h.Subscriber].Load())
				}
				for i := range 4 {
					assert.True(t, found[1000+i])
				}
				for _, i := range sure {
					assert.True(t, found[i])
				}
				for i := range since {
					if v := since[i].Load(); v > 0 && v <= version {
						assert.True(t, found[i])
					} else if v > 0 {
						assert.False(t, found[i])
					}
				}
			}
		})
	}
	wg.Wait()
	assert.Less(t, tree.Subscribe(1, "t", nil), tree.Subscribe(1, "t", nil), "also when it is there")
}

func TestConcurrent(t *testing.T) {
	tree := NewTree[int]()
	tree.Subscribe(-1, "a/#", nil)
	var wg sync.WaitGroup
	for s := range 8 {
		wg.Go(func() {
			r := newSource(uint64(s))
			for range 500 {
				tree.Subscribe(s, r.filter(), nil)
				hits, _ := tree.Match(nil, "a/b")
				assert.True(t, slices.ContainsFunc(hits, func(h Hit[int]) bool { return h.Subscriber == -1 }))
				tree.Unsubscribe(s, r.filter())
				if r.IntN(50) == 0 {
					tree.UnsubscribeAll(s)
				}
			}
			tree.UnsubscribeAll(s)
		})
	}
	wg.Wait()
	tree.UnsubscribeAll(-1)
	checkEmpty(t, tree)
}
