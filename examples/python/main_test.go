package main

import (
	"bytes"
	"context"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestExchange(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if _, err := python(ctx); err != nil {
		t.Skip("SKIPPED:", err)
	}
	var out bytes.Buffer
	require.NoError(t, run(ctx, &out))
	assert.Equal(t, `Go hears: grüße aus Python
Python hears: greetings from Go
Python hears: who are you?
Python has told that it has m1
`, out.String())
}

var fenced = regexp.MustCompile("(?ms)^```python\n(.*?)^```$")

// TestPage: the Python of the page about the dialect stands to the letter in client.py.
func TestPage(t *testing.T) {
	page, err := os.ReadFile("../../docs/json.md")
	require.NoError(t, err)
	blocks := fenced.FindAllStringSubmatch(string(page), -1)
	require.NotEmpty(t, blocks)
	for _, block := range blocks {
		assert.True(t, strings.Contains(string(client), block[1]), "client.py does not have\n%s", block[1])
	}
}
