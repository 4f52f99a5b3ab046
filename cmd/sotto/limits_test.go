package main

import (
	"reflect"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sotto-relay/sotto/relay"
)

// TestEveryLimitHasAName sets all and looks for a field that is still zero.
func TestEveryLimitHasAName(t *testing.T) {
	var l limits
	for _, entry := range limitTable {
		value := "40"
		switch entry.at(&l).(type) {
		case *time.Duration:
			value = "40s"
		case *bool:
			value = "true"
		}
		require.NoError(t, l.set(entry.name, value), entry.name)
	}
	for _, set := range []any{l.relay, l.brep} {
		v := reflect.ValueOf(set)
		for i := range v.NumField() {
			switch name := v.Type().Field(i).Name; name {
			case "Unmetered", "Dialects", "MessageBytes": // --limits, and by way of limits
			default:
				assert.False(t, v.Field(i).IsZero(), "%T.%s has no name", set, name)
			}
		}
	}
	d := reflect.ValueOf(*defaultLimits())
	for _, field := range []string{"relay", "brep"} {
		v := d.FieldByName(field)
		for i := range v.NumField() {
			switch name := v.Type().Field(i).Name; name {
			case "Unmetered", "Dialects", "DropOldest":
			default:
				assert.False(t, v.Field(i).IsZero(), "%s.%s has no default", field, name)
			}
		}
	}
}

func TestParseLimits(t *testing.T) {
	l, err := parseLimits("on", []string{"brep-payload-bytes=1000", "brep-inbox-ttl=1h", "write-timeout=2s", "brep-byte-burst=1120", "brep-rate=0.5"})
	require.NoError(t, err)
	assert.Equal(t, relay.Limits{
		WriteTimeout: 2 * time.Second,
		Dialects: map[string]relay.DialectLimits{"brep": {
			MessageBytes: 1120, InboxTTL: time.Hour, ByteBurst: 1120, MessageRate: 0.5,
		}},
	}, l)

	l, err = parseLimits("off", []string{"brep-rate=7"})
	require.NoError(t, err)
	assert.True(t, l.Unmetered)
	assert.Equal(t, relay.DialectLimits{MessageRate: 7}, l.Dialects["brep"])

	_, err = parseLimits("off", []string{"brep-payload-bytes=100000000"})
	require.NoError(t, err, "no rate, no burst")
}
