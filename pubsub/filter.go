package pubsub

import "strings"

// Bounds of topics and filters where Limits says nothing.
const (
	MaxBytes  = 512
	MaxLevels = 32
)

// Limits bound topics and filters. Zero fields stand for MaxBytes and MaxLevels.
type Limits struct {
	Bytes  int
	Levels int // '#' counts as one
}

// ValidTopic says whether something may be published to a topic: a name within
// the limits, without '+', '#' and NUL.
func (l Limits) ValidTopic(topic string) bool {
	return l.fits(topic) && !strings.ContainsAny(topic, "+#")
}

// ValidFilter says whether a filter may be subscribed to: a name within the
// limits, without NUL, in which '+' and '#' are whole levels and '#' is the last.
func (l Limits) ValidFilter(filter string) bool {
	if !l.fits(filter) {
		return false
	}
	for more := true; more; {
		var level string
		level, filter, more = strings.Cut(filter, "/")
		if strings.ContainsAny(level, "+#") && level != "+" && (level != "#" || more) {
			return false
		}
	}
	return true
}

func (l Limits) fits(name string) bool {
	bytes, levels := MaxBytes, MaxLevels
	if l.Bytes > 0 {
		bytes = l.Bytes
	}
	if l.Levels > 0 {
		levels = l.Levels
	}
	return name != "" && len(name) <= bytes && strings.Count(name, "/") < levels && strings.IndexByte(name, 0) < 0
}

// Match says whether a filter matches a topic. Both are valid.
func Match(filter, topic string) bool {
	path, levels, rest := cut(filter)
	if !levels {
		return true
	}
	_, more, ok := consume(path, topic)
	return ok && (rest || !more)
}

// cut returns the levels of a filter before a # at its end. There are none before
// a # alone.
func cut(filter string) (path string, levels, rest bool) {
	if filter == "#" {
		return "", false, true
	}
	path, rest = strings.CutSuffix(filter, "/#")
	return path, true, rest
}

// consume takes levels, any of which may be +, from the front of a topic. It
// returns those behind them, if they match.
func consume(levels, topic string) (below string, more, ok bool) {
	i := 0
	for j := range len(levels) {
		switch {
		case levels[j] == '+':
			for i < len(topic) && topic[i] != '/' {
				i++
			}
		case i == len(topic) || topic[i] != levels[j]:
			return "", false, false
		default:
			i++
		}
	}
	switch {
	case i == len(topic):
		return "", false, true
	case topic[i] == '/':
		return topic[i+1:], true, true
	}
	return "", false, false
}

// isExact says whether a filter matches itself only.
func isExact(filter string) bool { return !strings.ContainsAny(filter, "+#") }
