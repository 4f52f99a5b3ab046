package pubsub

import (
	"flag"
	"math/rand/v2"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

var full = flag.Bool("full", false, "run tests at full size")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// size returns n, or a tenth of it unless all is to be tested.
func size(n int) int {
	if *full {
		return n
	}
	return n / 10
}

// naive is the definition of a match, level by level.
func naive(filter, topic string) bool {
	return naiveLevels(strings.Split(filter, "/"), strings.Split(topic, "/"))
}

func naiveLevels(f, t []string) bool {
	switch {
	case len(f) == 0:
		return len(t) == 0
	case f[0] == "#":
		return true
	case len(t) == 0 || f[0] != "+" && f[0] != t[0]:
		return false
	}
	return naiveLevels(f[1:], t[1:])
}

// A source makes names at random of which many match.
type source struct{ *rand.Rand }

func newSource(seed uint64) source { return source{rand.New(rand.NewPCG(seed, 0))} }

func (r source) topic() string {
	levels := make([]string, 1+r.IntN(5))
	for i := range levels {
		levels[i] = []string{"a", "a", "b", "ab", "-", ""}[r.IntN(6)]
	}
	if len(levels) == 1 && levels[0] == "" {
		return "a"
	}
	return strings.Join(levels, "/")
}

func (r source) filter() string {
	levels := strings.Split(r.topic(), "/")
	for i := range levels {
		if r.IntN(3) == 0 {
			levels[i] = "+"
		}
	}
	if r.IntN(4) == 0 {
		levels[len(levels)-1] = "#"
	}
	return strings.Join(levels, "/")
}
