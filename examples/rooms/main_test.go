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
	assert.Equal(t, `ann comes in, and is one of 1
bob comes in, and is one of 2
eve comes in, and is one of 3
bob hears ann: is anybody here?
eve hears ann: (something that is not sealed with our key)
ann hears bob: we are, ann
eve hears bob: (something that is not sealed with our key)
`, out.String())
}

func TestPrintable(t *testing.T) {
	assert.Equal(t, "a\uFFFD[2J\uFFFDb", printable("a\x1b[2J\u202eb"))
}
