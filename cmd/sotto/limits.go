package main

import (
	"fmt"
	"io"
	"math"
	"reflect"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/sotto-relay/sotto/frame"
	"github.com/sotto-relay/sotto/relay"
	"github.com/sotto-relay/sotto/relay/dialect/blind"
	"github.com/sotto-relay/sotto/relay/dialect/jsonmsg"
	"github.com/sotto-relay/sotto/transport/udp"
)

// limits are what --limit and --limits set, by name. Zero means the default.
type limits struct {
	relay    relay.Limits
	dialects map[string]*relay.DialectLimits
	datagram udp.Options
	json     jsonmsg.Dialect // but for what the limits of the relay say
	blind    blind.Dialect   // likewise

	// Instead of MessageBytes, which count the frame's header and the channel too.
	brepPayload, blindFrame int
}

func newLimits() *limits {
	l := &limits{dialects: make(map[string]*relay.DialectLimits)}
	for _, d := range dialects {
		l.dialects[d.Name()] = new(relay.DialectLimits)
	}
	return l
}

// defaultLimits are those of package relay and of the dialects.
func defaultLimits() *limits {
	l := &limits{relay: relay.Limits{}.WithDefaults(), dialects: make(map[string]*relay.DialectLimits)}
	for _, d := range dialects {
		of := l.relay.ForDialect(d)
		l.dialects[d.Name()] = &of
	}
	l.brepPayload = l.dialects["brep"].MessageBytes - frame.BrepHeaderSize
	l.blindFrame = l.dialects["blind"].MessageBytes - blindChannel
	l.datagram = udp.Options{SourceRate: 50, PaceRate: 50, IdleTimeout: 5 * time.Minute}
	l.json = jsonmsg.Dialect{NameBytes: frame.MaxName, DatagramBytes: 16 << 10, Aliases: 1_000_000, AliasesPerSource: 1_000, AliasTTL: 90 * 24 * time.Hour}
	l.blind = blind.Dialect{KeyBytes: blind.DefaultKeyBytes, Grace: blind.DefaultGrace}
	return l
}

// blindChannel is what stands before a frame of blind, in bytes.
const blindChannel = 1

// parseLimits reads the values of --limits and --limit.
func parseLimits(all string, settings []string) (*limits, error) {
	l := newLimits()
	switch all {
	case "on":
	case "off":
		const none = 1_000_000 // to package udp
		l.relay = relay.MaxLimits()
		l.datagram = udp.Options{SourceRate: none, PaceRate: none}
	default:
		return nil, fmt.Errorf("--limits is on or off, not %q", all)
	}
	for _, s := range settings {
		name, value, ok := strings.Cut(s, "=")
		if !ok {
			return nil, fmt.Errorf("--limit wants NAME=VALUE, not %q", s)
		}
		if err := l.set(name, value); err != nil {
			return nil, err
		}
	}
	if l.brepPayload > 0 {
		l.dialects["brep"].MessageBytes = frame.BrepHeaderSize + l.brepPayload
	}
	if l.blindFrame > 0 {
		l.dialects["blind"].MessageBytes = l.blindFrame + blindChannel
	}
	l.datagram.MaxDatagram = l.json.DatagramBytes
	l.relay.Dialects = make(map[string]relay.DialectLimits)
	for name, of := range l.dialects {
		l.relay.Dialects[name] = *of
	}
	return l, checkBursts(l.relay)
}

// checkBursts refuses a burst that the largest message would never pass.
func checkBursts(l relay.Limits) error {
	l = l.WithDefaults()
	for _, d := range dialects {
		if of := l.ForDialect(d); of.ByteRate > 0 && of.MessageBytes > of.ByteBurst {
			return fmt.Errorf("--limit %s-byte-burst is %d, and has to be %d at least, or the largest message never passes", d.Name(), of.ByteBurst, of.MessageBytes)
		}
	}
	return nil
}

func (l *limits) set(name, value string) error {
	table := limitTable()
	names := make([]string, 0, len(table))
	for _, t := range table {
		if t.name != name {
			names = append(names, t.name)
			continue
		}
		if want := parseLimit(t.at(l), value); want != "" {
			return fmt.Errorf("--limit %s wants %s, not %q", name, want, value)
		}
		return nil
	}
	return fmt.Errorf("--limit %s is unknown; the nearest is %s, and sotto serve --help-limits lists all", name, nearest(name, names))
}

// parseLimit sets what at points to, or returns what it wants. Zero is no value:
// to a server it means the default.
func parseLimit(at any, value string) (want string) {
	var ok bool
	switch at := at.(type) {
	case *int:
		n, err := strconv.ParseInt(value, 10, 32)
		*at, ok = int(n), err == nil && n > 0
		want = "a whole number from 1 to 2147483647"
	case *int64:
		n, err := strconv.ParseInt(value, 10, 64)
		*at, ok = n, err == nil && n > 0
		want = "a whole number from 1"
	case *float64:
		x, err := strconv.ParseFloat(value, 64)
		*at, ok = x, err == nil && x > 0 && !math.IsInf(x, 0)
		want = "a number above 0"
	case *time.Duration:
		d, err := time.ParseDuration(value)
		*at, ok = d, err == nil && d > 0
		want = "a time above 0, such as 10s or 168h"
	case *bool:
		b, err := strconv.ParseBool(value)
		*at, ok = b, err == nil
		want = "true or false"
	}
	if ok {
		return ""
	}
	return want
}

// helpLimits lists the limits.
func helpLimits(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "NAME\tDEFAULT\tMEANING")
	defaults := defaultLimits()
	for _, l := range limitTable() {
		fmt.Fprintf(t, "%s\t%s\t%s\n", l.name, l.value(defaults), l.meaning)
	}
	return t.Flush()
}

// value returns the text of a limit's value.
func (l *limit) value(of *limits) string {
	value := reflect.ValueOf(l.at(of)).Elem().Interface()
	if x, ok := value.(float64); ok {
		return strconv.FormatFloat(x, 'f', -1, 64)
	}
	return fmt.Sprint(value)
}
