package main

import (
	"bytes"
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestRun(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	var out bytes.Buffer
	require.NoError(t, run(ctx, &out))
	http.DefaultClient.CloseIdleConnections()
	assert.Equal(t, `ann writes to bob, who is away: stored
the service says: hello, 1 are connected to the relay
bob comes, and reads: "see you at noon" (sealed)
`, out.String())
}
