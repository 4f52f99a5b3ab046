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

func TestRun(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var out bytes.Buffer
	require.NoError(t, run(ctx, &out))
	assert.Equal(t, `oak is up
elm is up
fir is up
ann, at oak, writes to bob, at elm: handed
bob reads: "hello from oak" (sealed)
elm is down
ann writes to bob: stored
elm is up again
bob comes to oak, where his mail is
bob reads: "are you there?" (sealed)
`, out.String())
}
