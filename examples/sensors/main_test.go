package main

import (
	"bytes"
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestPlay(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	var out bytes.Buffer
	require.NoError(t, play(ctx, &out))
	assert.Equal(t, `the dashboard subscribes to home/+/temperature
"home/cellar/temperature" was "11.0"
"home/kitchen/temperature" was "20.9"
the dashboard subscribes to #
"garden/gate" was "closed"
"home/cellar/temperature" was "11.0"
"home/kitchen/temperature" was "20.9"
"home/kitchen/window" was "open"
somebody opens the gate
"garden/gate" is "open"
`, out.String())
}

func TestDialer(t *testing.T) {
	for _, good := range []string{"ws://h/json", "wss://h", "tcp://h:1", "udp://h:1"} {
		dial, err := dialer(good)
		require.NoError(t, err, good)
		assert.NotNil(t, dial)
	}
	for _, bad := range []string{"http://h", "h:1", "%"} {
		_, err := dialer(bad)
		assert.Error(t, err, bad)
	}
}
