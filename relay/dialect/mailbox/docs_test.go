package mailbox

import (
	"context"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestDocs runs the commands of docs/mailbox.md, but for the first block, which
// starts a relay, and compares what they say with the blocks of JSON there.
func TestDocs(t *testing.T) {
	for _, tool := range []string{"bash", "curl", "openssl"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("THE DOCUMENTATION IS NOT RUN: there is no %s", tool)
		}
	}
	page, err := os.ReadFile("../../../docs/mailbox.md")
	require.NoError(t, err)
	var script strings.Builder
	for _, block := range regexp.MustCompile("(?ms)^```sh\n(.*?)^```$").FindAllSubmatch(page, -1)[1:] {
		script.Write(block[1])
		script.WriteString("echo\n") // answers end without a line feed
	}
	var want []string
	for _, block := range regexp.MustCompile("(?ms)^```json\n(.*?)^```$").FindAllSubmatch(page, -1) {
		// Times, keys and ids are others each time.
		line := regexp.MustCompile(`"(expires|sender|id)":"[^"]*"|("timestamp":)\d+`).ReplaceAllString(strings.TrimSpace(string(block[1])), "$1$2*")
		want = append(want, line)
	}
	require.Len(t, want, 3)

	r := newRealRig(t)
	require.Contains(t, script.String(), "RELAY=http://127.0.0.1:8080\n")
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-euo", "pipefail", "-c", strings.Replace(script.String(), "127.0.0.1:8080", r.addr, 1))
	cmd.Dir = t.TempDir()
	cmd.Stderr = &lockedBuffer{}
	out, err := cmd.Output()
	require.NoError(t, err, "%s", cmd.Stderr)
	var got []string
	for line := range strings.Lines(string(out)) {
		if line = strings.TrimSpace(line); line != "" {
			got = append(got, regexp.MustCompile(`"(expires|sender|id)":"[^"]*"|("timestamp":)\d+`).ReplaceAllString(line, "$1$2*"))
		}
	}
	assert.Equal(t, want, got)
	assert.Zero(t, r.server.Stats().Held)
}
