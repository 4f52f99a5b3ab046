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
	"github.com/sotto-relay/sotto/relay/dialect/brep"
)

// limits are what --limit and --limits set, by name. Zero means the default.
type limits struct {
	relay       relay.Limits
	brep        relay.DialectLimits
	brepPayload int // instead of brep.MessageBytes, which counts the header too
}

// A limit has a name of the specs; at returns a pointer to its value.
type limit struct {
	name, meaning string
	at            func(*limits) any
}

var limitTable = [...]limit{
	{"brep-payload-bytes", "payload of one frame", func(l *limits) any { return &l.brepPayload }},
	{"brep-rate", "messages a second and connection", func(l *limits) any { return &l.brep.MessageRate }},
	{"brep-burst", "messages at once, beyond the rate", func(l *limits) any { return &l.brep.MessageBurst }},
	{"brep-byte-rate", "bytes a second and connection", func(l *limits) any { return &l.brep.ByteRate }},
	{"brep-byte-burst", "bytes at once, beyond the rate", func(l *limits) any { return &l.brep.ByteBurst }},
	{"brep-connections", "connections of one source at a time", func(l *limits) any { return &l.brep.SourceConnections }},
	{"brep-connect-rate", "new connections a second, shared between sources", func(l *limits) any { return &l.brep.ConnectRate }},
	{"brep-inbox-messages", "messages kept for one recipient", func(l *limits) any { return &l.brep.InboxMessages }},
	{"brep-inbox-bytes", "bytes kept for one recipient", func(l *limits) any { return &l.brep.InboxBytes }},
	{"brep-inbox-per-sender", "messages kept from one sender to one recipient", func(l *limits) any { return &l.brep.InboxPerSender }},
	{"brep-inbox-ttl", "how long a message is kept", func(l *limits) any { return &l.brep.InboxTTL }},
	{"brep-inbox-drop-oldest", "at a full inbox drop the oldest, instead of refusing the new one", func(l *limits) any { return &l.brep.DropOldest }},
	{"brep-unready-bytes", "one message before the login", func(l *limits) any { return &l.brep.UnreadyBytes }},
	{"handshake-timeout", "from the start of a connection to the login", func(l *limits) any { return &l.brep.ReadyTimeout }},
	{"unready-connections", "connections that have not logged in, at a time", func(l *limits) any { return &l.relay.Unready }},
	{"takeover-burst", "sessions that may replace one another at an address in a row", func(l *limits) any { return &l.relay.TakeoverBurst }},
	{"takeover-interval", "between those that do after that", func(l *limits) any { return &l.relay.TakeoverInterval }},
	{"write-timeout", "how long a write may make no progress before the connection is cut", func(l *limits) any { return &l.relay.WriteTimeout }},
	{"outbox-messages", "messages that wait in memory for one connection, before they go to the inbox", func(l *limits) any { return &l.relay.OutboxMessages }},
	{"outbox-bytes", "bytes of them", func(l *limits) any { return &l.relay.OutboxBytes }},
	{"window-messages", "messages that a session may have been handed and not acknowledged, where its client does", func(l *limits) any { return &l.relay.WindowMessages }},
	{"window-bytes", "bytes of them", func(l *limits) any { return &l.relay.WindowBytes }},
	{"control-bytes", "replies that wait for one connection, before it is cut", func(l *limits) any { return &l.relay.ControlBytes }},
	{"flush-bytes", "how much of a backlog is in memory at a time", func(l *limits) any { return &l.relay.FlushBytes }},
	{"groups", "groups that one connection may join", func(l *limits) any { return &l.relay.Groups }},
	{"purge-interval", "between purges of what has expired", func(l *limits) any { return &l.relay.PurgeInterval }},
	{"hook-timeout", "how long a policy may think", func(l *limits) any { return &l.relay.HookTimeout }},
}

// defaultLimits are those of package relay (see its Limits and DialectLimits) and
// of the dialect.
func defaultLimits() *limits {
	l := &limits{
		relay: relay.Limits{
			WriteTimeout:     30 * time.Second,
			OutboxMessages:   1024,
			OutboxBytes:      1 << 20,
			WindowMessages:   256,
			WindowBytes:      8 << 20,
			ControlBytes:     64 << 10,
			FlushBytes:       256 << 10,
			Groups:           4096,
			PurgeInterval:    time.Minute,
			HookTimeout:      5 * time.Second,
			TakeoverBurst:    10,
			TakeoverInterval: 2 * time.Second,
			Unready:          10_000,
		},
		brep: brep.Dialect{}.Limits(),
	}
	l.brep.SourceConnections, l.brep.ConnectRate = 1000, 500
	l.brepPayload = l.brep.MessageBytes - frame.BrepHeaderSize
	return l
}

// parseLimits reads the values of --limits and --limit.
func parseLimits(all string, settings []string) (relay.Limits, error) {
	var l limits
	switch all {
	case "on":
	case "off":
		l.relay = relay.MaxLimits()
	default:
		return relay.Limits{}, fmt.Errorf("--limits is on or off, not %q", all)
	}
	for _, s := range settings {
		name, value, ok := strings.Cut(s, "=")
		if !ok {
			return relay.Limits{}, fmt.Errorf("--limit wants NAME=VALUE, not %q", s)
		}
		if err := l.set(name, value); err != nil {
			return relay.Limits{}, err
		}
	}
	if l.brepPayload > 0 {
		l.brep.MessageBytes = frame.BrepHeaderSize + l.brepPayload
	}
	if err := l.check(); err != nil {
		return relay.Limits{}, err
	}
	l.relay.Dialects = map[string]relay.DialectLimits{brep.Dialect{}.Name(): l.brep}
	return l.relay, nil
}

// check refuses a burst that the largest message would never pass.
func (l *limits) check() error {
	if l.relay.Unmetered && l.brep.ByteRate == 0 {
		return nil
	}
	base := brep.Dialect{}.Limits()
	size, burst := base.MessageBytes, base.ByteBurst
	if l.brep.MessageBytes > 0 {
		size = l.brep.MessageBytes
	}
	if l.brep.ByteBurst > 0 {
		burst = l.brep.ByteBurst
	}
	if size > burst {
		return fmt.Errorf("--limit brep-byte-burst is %d, and has to be %d at least, or a frame with brep-payload-bytes never passes", burst, size)
	}
	return nil
}

func (l *limits) set(name, value string) error {
	names := make([]string, 0, len(limitTable))
	for _, t := range limitTable {
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
	for _, l := range limitTable {
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
