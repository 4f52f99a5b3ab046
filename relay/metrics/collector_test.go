package metrics

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/sotto-relay/sotto/relay"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// of returns a Collector of fixed numbers.
func of(s relay.Stats, tier relay.Tier) *Collector {
	c := New(new(relay.Server))
	c.stats = func() relay.Stats { return s }
	c.load = func() relay.Tier { return tier }
	return c
}

// text returns the metrics without HELP and TYPE, by name.
func text(t *testing.T, c *Collector) map[string]string {
	t.Helper()
	reg := prometheus.NewPedanticRegistry()
	require.NoError(t, reg.Register(c))
	families, err := reg.Gather()
	require.NoError(t, err)
	values := make(map[string]string)
	for _, f := range families {
		for _, m := range f.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, l.GetName()+"="+l.GetValue())
			}
			name := strings.Join(append([]string{f.GetName()}, labels...), " ")
			values[name] = fmt.Sprint(m.GetCounter().GetValue() + m.GetGauge().GetValue())
		}
	}
	return values
}

func TestValues(t *testing.T) {
	s := relay.Stats{
		Accepted: 100, Found: 20, Delivered: 60, Expired: 5, Dropped: 15, Held: 40,
		DroppedBy: map[string]uint64{"slow": 10, "gone": 5},
		Refused:   7,
		Ignored:   map[string]uint64{"brep: unknown type": 3, "brep: NODE_INFO": 2, "odd": 1, "\xff: \xfe": 4},
		Turned:    map[string]uint64{"denied": 8, "overloaded": 0},
		Ended:     map[string]uint64{"none": 6},
		Sessions:  9, Messages: 150,
	}
	assert.Equal(t, map[string]string{
		"sotto_messages_received_total":                       "150",
		"sotto_messages_accepted_total":                       "100",
		"sotto_messages_found_total":                          "20",
		"sotto_messages_delivered_total":                      "60",
		"sotto_messages_expired_total":                        "5",
		"sotto_messages_refused_total":                        "7",
		"sotto_messages_held":                                 "40",
		"sotto_messages_unaccounted":                          "0",
		"sotto_messages_dropped_total reason=slow":            "10",
		"sotto_messages_dropped_total reason=gone":            "5",
		"sotto_ignored_total dialect=brep kind=unknown type":  "3",
		"sotto_ignored_total dialect=brep kind=NODE_INFO":     "2",
		"sotto_ignored_total dialect=odd kind=":               "1",
		"sotto_ignored_total dialect=? kind=?":                "4",
		"sotto_connections":                                   "9",
		"sotto_connections_ended_total code=none":             "6",
		"sotto_connections_turned_away_total code=denied":     "8",
		"sotto_connections_turned_away_total code=overloaded": "0",
		"sotto_load_tier":                                     "2",
	}, text(t, of(s, relay.Overloaded)))
}

// TestUnaccounted: a copy too many or too few is seen, however many there were.
func TestUnaccounted(t *testing.T) {
	const many = 1 << 60
	for want, s := range map[string]relay.Stats{
		"0":  {Accepted: many + 3, Delivered: many, Dropped: 1, Expired: 1, Held: 1},
		"1":  {Accepted: many, Found: 4, Delivered: many + 3},
		"-1": {Accepted: many, Found: 2, Delivered: many + 3},
		"2":  {Accepted: 1, Held: -1},
	} {
		assert.Equal(t, want, text(t, of(s, relay.Normal))["sotto_messages_unaccounted"])
	}
}

// TestEveryField: what Stats counts is shown, or named here with the reason.
func TestEveryField(t *testing.T) {
	not := map[string]string{"Dropped": "the sum of DroppedBy, and in messages_unaccounted"}
	zero := text(t, of(relay.Stats{}, relay.Normal))
	delete(zero, "sotto_messages_unaccounted")
	for _, f := range reflect.VisibleFields(reflect.TypeFor[relay.Stats]()) {
		var s relay.Stats
		switch v := reflect.ValueOf(&s).Elem().FieldByIndex(f.Index); v.Interface().(type) {
		case uint64:
			v.SetUint(5)
		case int, int64:
			v.SetInt(5)
		case map[string]uint64:
			v.Set(reflect.ValueOf(map[string]uint64{"a: b": 5}))
		default:
			t.Fatalf("%s: a new type of field", f.Name)
		}
		got := text(t, of(s, relay.Normal))
		delete(got, "sotto_messages_unaccounted")
		_, hidden := not[f.Name]
		assert.Equal(t, hidden, reflect.DeepEqual(zero, got), f.Name)
	}
}

func TestConventions(t *testing.T) {
	c := of(relay.Stats{DroppedBy: map[string]uint64{"slow": 1}, Ignored: map[string]uint64{"brep: NODE_INFO": 1}}, relay.Normal)
	problems, err := testutil.CollectAndLint(c)
	require.NoError(t, err)
	assert.Empty(t, problems)
	require.NoError(t, testutil.CollectAndCompare(c, strings.NewReader(`
# HELP sotto_connections Connections that are open, logged in or not.
# TYPE sotto_connections gauge
sotto_connections 0
# HELP sotto_messages_received_total Messages read from connections, whatever became of them.
# TYPE sotto_messages_received_total counter
sotto_messages_received_total 0
`), "sotto_connections", "sotto_messages_received_total"))
}

// TestTwoServers: they share a registry by a label.
func TestTwoServers(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	for _, name := range []string{"a", "b"} {
		require.NoError(t, prometheus.WrapRegistererWith(prometheus.Labels{"server": name}, reg).Register(New(new(relay.Server))))
	}
	n, err := testutil.GatherAndCount(reg, "sotto_connections")
	require.NoError(t, err)
	assert.Equal(t, 2, n)
}

// TestReasons holds that the help of a metric explains every reason there is.
func TestReasons(t *testing.T) {
	srv := new(relay.Server)
	defer srv.Close()
	reasons := srv.Stats().DroppedBy
	assert.NotEmpty(t, reasons)
	for reason := range reasons {
		assert.Contains(t, New(srv).dropped.String(), reason+": ")
	}
}
