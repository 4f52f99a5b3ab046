package main

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sotto-relay/sotto/crypto"
	"github.com/sotto-relay/sotto/frame"
	"github.com/sotto-relay/sotto/inbox"
	"github.com/sotto-relay/sotto/relay"
	"github.com/sotto-relay/sotto/relay/dialect/brep"
	"github.com/sotto-relay/sotto/transport"
)

// TestEveryLimitHasAName sets all and looks for a field that is still zero. What
// a dialect does not use needs no name.
func TestEveryLimitHasAName(t *testing.T) {
	l := newLimits()
	for _, entry := range limitTable() {
		value := "40"
		switch entry.at(l).(type) {
		case *time.Duration:
			value = "40s"
		case *bool:
			value = "true"
		}
		require.NoError(t, l.set(entry.name, value), entry.name)
	}
	unnamed := func(of any, but ...string) {
		v := reflect.ValueOf(of)
		for i := range v.NumField() {
			name := v.Type().Field(i).Name
			assert.Equal(t, slices.Contains(but, name), v.Field(i).IsZero(), "%T.%s", of, name)
		}
	}
	unnamed(l.relay, "Unmetered", "Dialects")
	unnamed(*l.dialects["brep"], "MessageBytes", "Aliases", "TopicBytes", "TopicLevels", "SenderTotal", "OutboxMessages", "OutboxBytes")
	unnamed(*l.dialects["json"], "UnreadyBytes", "Aliases", "SenderTotal", "OutboxMessages", "OutboxBytes", "ControlBytes")
	unnamed(*l.dialects["blind"], "MessageBytes", "UnreadyBytes", "ReadyTimeout", "GroupMembers", "Subscriptions", "Matches", "TopicBytes", "TopicLevels",
		"InboxMessages", "InboxBytes", "InboxPerSender", "SenderTotal", "InboxTTL", "DropOldest", "ControlBytes")
}

func TestParseLimits(t *testing.T) {
	l, err := parseLimits("on", []string{"brep-payload-bytes=1000", "brep-inbox-ttl=1h", "write-timeout=2s", "brep-byte-burst=1120", "brep-rate=0.5"})
	require.NoError(t, err)
	assert.Equal(t, relay.DialectLimits{
		MessageBytes: 1120, InboxTTL: time.Hour, ByteBurst: 1120, MessageRate: 0.5,
	}, l.relay.Dialects["brep"])
	l.relay.Dialects = nil
	assert.Equal(t, relay.Limits{WriteTimeout: 2 * time.Second}, l.relay)

	l, err = parseLimits("on", []string{"blind-frame-bytes=1000", "json-datagram-bytes=500"})
	require.NoError(t, err)
	assert.Equal(t, 1001, l.relay.Dialects["blind"].MessageBytes)
	assert.Equal(t, 500, l.datagram.MaxDatagram)
	assert.Equal(t, 500, l.json.DatagramBytes)

	l, err = parseLimits("off", []string{"brep-rate=7"})
	require.NoError(t, err)
	assert.True(t, l.relay.Unmetered)
	assert.Equal(t, 1_000_000, l.datagram.SourceRate)
	assert.Equal(t, relay.DialectLimits{MessageRate: 7}, l.relay.Dialects["brep"])

	_, err = parseLimits("off", []string{"brep-payload-bytes=100000000"})
	require.NoError(t, err, "no rate, no burst")
}

// TestOutboxLimits has somebody not read: what exceeds the outbox is stored.
func TestOutboxLimits(t *testing.T) {
	for setting, stored := range map[string]bool{"outbox-messages=3": true, "outbox-bytes=1000": true, "outbox-bytes=1000000": false} {
		l, err := parseLimits("on", []string{setting})
		require.NoError(t, err)
		identity, err := crypto.GenerateIdentity()
		require.NoError(t, err)
		srv := &relay.Server{Inbox: inbox.NewMemory(nil), Limits: l.relay, Logger: slog.New(slog.DiscardHandler)}
		dial := func(context.Context) (transport.Conn, error) { return srv.Dial(brep.Dialect{Identity: identity}), nil }
		ids := make([]*crypto.Identity, 2)
		for i := range ids {
			ids[i], err = crypto.GenerateIdentity()
			require.NoError(t, err)
		}
		ann, err := login(t.Context(), dial, ids[0], nil)
		require.NoError(t, err)
		conn, err := dial(t.Context())
		require.NoError(t, err)
		frozen, err := brep.Connect(t.Context(), conn, &brep.ClientOptions{Identity: ids[1]})
		require.NoError(t, err)
		var last frame.ReceiptStatus
		for range 200 { // more than a pipe holds
			id, err := ann.send(t.Context(), ids[1].Public(), "x")
			require.NoError(t, err)
			receipt, err := ann.receipt(t.Context(), id)
			require.NoError(t, err)
			last = receipt.Status
		}
		assert.Equal(t, stored, last == frame.ReceiptStored, setting)
		ann.close()
		_ = frozen.Close()
		require.NoError(t, srv.Close())
	}
}

// TestLimitsPage holds the page of limits to the code: names, defaults and
// meanings are those of the program, and the tests that it names exist.
func TestLimitsPage(t *testing.T) {
	text, err := os.ReadFile("../../docs/limits.md")
	require.NoError(t, err)
	rows := regexp.MustCompile("(?m)^\\| `?([^|`]+?)`? \\| `?([^|`]+?)`? \\| ([^|]+?) \\| ([^|]+?) \\|$").FindAllStringSubmatch(string(text), -1)
	require.NotEmpty(t, rows)
	var shown [][3]string
	test := regexp.MustCompile("^`([a-z0-9/]+)`: (Test[A-Za-z0-9]+)$")
	for _, row := range rows {
		if strings.HasPrefix(row[0], "| `") {
			shown = append(shown, [3]string{row[1], row[2], row[3]})
		}
		if row[4] == "test" || strings.HasPrefix(row[4], "-") {
			continue
		}
		for named := range strings.SplitSeq(row[4], ", ") {
			m := test.FindStringSubmatch(named)
			require.NotNil(t, m, "%s: %q names no test", row[1], named)
			assert.True(t, hasTest(t, m[1], m[2]), "%s: %s has no %s", row[1], m[1], m[2])
		}
	}
	var want [][3]string
	defaults := defaultLimits()
	for _, l := range limitTable() {
		want = append(want, [3]string{l.name, l.value(defaults), l.meaning})
	}
	assert.Equal(t, want, shown)
}

func hasTest(t *testing.T, dir, name string) bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("../..", dir, "*_test.go"))
	require.NoError(t, err)
	for _, f := range files {
		text, err := os.ReadFile(f)
		require.NoError(t, err)
		if strings.Contains(string(text), "\nfunc "+name+"(t *testing.T)") {
			return true
		}
	}
	return false
}
