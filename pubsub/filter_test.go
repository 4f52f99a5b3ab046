package pubsub

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestVectors(t *testing.T) {
	b, err := os.ReadFile("testdata/topics.json")
	require.NoError(t, err)
	var v struct {
		Matches []struct {
			Filter, Topic string
			Match         bool
		}
		Filters []struct {
			Filter string
			Valid  bool
		}
		Topics []struct {
			Topic string
			Valid bool
		}
	}
	require.NoError(t, json.Unmarshal(b, &v))
	require.NotEmpty(t, v.Matches)
	require.NotEmpty(t, v.Filters)
	require.NotEmpty(t, v.Topics)
	for _, c := range v.Matches {
		assert.Equal(t, c.Match, Match(c.Filter, c.Topic), "%q %q", c.Filter, c.Topic)
		assert.Equal(t, c.Match, treeMatches(c.Filter, c.Topic), "%q %q", c.Filter, c.Topic)
		assert.Equal(t, c.Match, retainedMatches(c.Filter, c.Topic), "%q %q", c.Filter, c.Topic)
	}
	for _, c := range v.Filters {
		assert.Equal(t, c.Valid, Limits{}.ValidFilter(c.Filter), "%q", c.Filter)
	}
	for _, c := range v.Topics {
		assert.Equal(t, c.Valid, Limits{}.ValidTopic(c.Topic), "%q", c.Topic)
	}
}

func treeMatches(filter, topic string) bool {
	t := NewTree[int]()
	t.Subscribe(1, filter, nil)
	hits, _ := t.Match(nil, topic)
	return len(hits) > 0
}

func retainedMatches(filter, topic string) bool {
	r := NewRetained[int]()
	r.Set(topic, 1)
	topics, _ := r.Topics(nil, filter, "", 10)
	return len(topics) > 0
}

func TestMatch(t *testing.T) {
	for _, c := range []struct {
		filter, topic string
		match         bool
	}{
		{"home/#", "home", true},
		{"home/#", "home/a", true},
		{"home/#", "home/a/b", true},
		{"home/#", "homes", false},
		{"home/#", "home2/a", false},
		{"a/+/b", "a//b", true},
		{"a/+/b", "a/b", false},
		{"+/a", "/a", true},
		{"a/+", "a/", true},
		{"a/+", "a", false},
		{"+", "/", false},
		{"+/+", "/", true},
		{"/#", "/", true},
		{"/#", "/a", true},
		{"/#", "a", false},
		{"//#", "/", true},
		{"+/#", "a", true},
		{"+/+/#", "a", false},

		// $ is not special.
		{"#", "$SYS/load", true},
		{"+/load", "$SYS/load", true},
		{"$SYS/#", "$SYS/load", true},

		// Bytes are compared: neither case nor normalization is looked at.
		{"a", "A", false},
		{"\u00e9", "e\u0301", false},
		{"\u00e9/+", "\u00e9/\ufffe", true},
		{"a\x01b", "a\x01b", true},
		{"\uff0b", "a", false}, // a full-width + is no wildcard
		{"\uff03", "a", false},
		{"a/\uff03", "a/\uff03", true},
	} {
		assert.True(t, Limits{}.ValidFilter(c.filter), "%q", c.filter)
		assert.True(t, Limits{}.ValidTopic(c.topic), "%q", c.topic)
		assert.Equal(t, c.match, naive(c.filter, c.topic), "%q %q", c.filter, c.topic)
		assert.Equal(t, c.match, Match(c.filter, c.topic), "%q %q", c.filter, c.topic)
		assert.Equal(t, c.match, treeMatches(c.filter, c.topic), "%q %q", c.filter, c.topic)
		assert.Equal(t, c.match, retainedMatches(c.filter, c.topic), "%q %q", c.filter, c.topic)
	}
}

func TestValid(t *testing.T) {
	for _, c := range []struct {
		name          string
		filter, topic bool
	}{
		{"a", true, true},
		{"", false, false},
		{"/", true, true},
		{"$SYS", true, true},
		{"#/a", false, false},
		{"a#", false, false},
		{"a/b#", false, false},
		{"a/#/", false, false},
		{"##", false, false},
		{"++", false, false},
		{"a+/b", false, false},
		{"+a/b", false, false},
		{"+#", false, false},
		{"+/#", true, false},
		{"+/+", true, false},
		{"a/+/", true, false},
		{"a\x00b", false, false},
		{"a/\x00", false, false},
		{"\uff0b\uff03", true, true},
		{strings.Repeat("x", 512), true, true},
		{strings.Repeat("x", 513), false, false},
		{strings.Repeat("/", 31), true, true},
		{strings.Repeat("/", 32), false, false},
		{strings.Repeat("+/", 31) + "#", true, false},
		{strings.Repeat("+/", 32) + "#", false, false},
	} {
		assert.Equal(t, c.filter, Limits{}.ValidFilter(c.name), "%q", c.name)
		assert.Equal(t, c.topic, Limits{}.ValidTopic(c.name), "%q", c.name)
	}
	l := Limits{Bytes: 5, Levels: 2}
	for name, valid := range map[string]bool{"abcde": true, "abcdef": false, "a/b": true, "a/b/c": false} {
		assert.Equal(t, valid, l.ValidFilter(name), name)
		assert.Equal(t, valid, l.ValidTopic(name), name)
	}
}

func TestMatchRandom(t *testing.T) {
	r := newSource(1)
	matches := 0
	n := size(1_000_000)
	for range n {
		f, topic := r.filter(), r.topic()
		want := naive(f, topic)
		require.Equal(t, want, Match(f, topic), "%q %q", f, topic)
		if want {
			matches++
		}
	}
	assert.Greater(t, matches, n/20)
	assert.Less(t, matches, n/2)
}

func FuzzMatch(f *testing.F) {
	for _, s := range []string{"a/b", "+/b/#", "#", "a//b", "/", "+", "\x00", "a+", strings.Repeat("a/", 40)} {
		f.Add(s, "a/b")
		f.Add("a/#", s)
	}
	var others []string
	for r := newSource(2); len(others) < 20; {
		others = append(others, r.filter())
	}
	f.Fuzz(func(t *testing.T, filter, topic string) {
		var l Limits
		if !l.ValidFilter(filter) || !l.ValidTopic(topic) {
			return
		}
		require.NotContains(t, topic, "+")
		require.NotContains(t, topic, "#")
		for i, level := range strings.Split(filter, "/") {
			require.Less(t, i, MaxLevels)
			if strings.ContainsAny(level, "+#") {
				require.Len(t, level, 1)
			}
		}
		want := naive(filter, topic)
		require.Equal(t, want, Match(filter, topic))
		require.Equal(t, want, retainedMatches(filter, topic))
		tree := NewTree[string]()
		for _, o := range others {
			tree.Subscribe(o, o, nil)
		}
		tree.Subscribe(filter, filter, nil)
		hits, _ := tree.Match(nil, topic)
		found := false
		for _, h := range hits {
			require.True(t, naive(h.Filter, topic), "%q", h.Filter)
			found = found || h.Subscriber == filter
		}
		require.Equal(t, want, found)
		tree.UnsubscribeAll(filter)
		require.Nil(t, tree.filter(filter))
		checkTrie(t, tree)
	})
}
