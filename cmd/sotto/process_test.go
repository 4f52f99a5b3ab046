package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestProcesses runs the program as its users do.
func TestProcesses(t *testing.T) {
	dir := t.TempDir()
	binary := filepath.Join(dir, "sotto")
	out, err := exec.CommandContext(t.Context(), "go", "build", "-o", binary, ".").CombinedOutput()
	require.NoError(t, err, string(out))
	command := func(who string, args ...string) *exec.Cmd {
		cmd := exec.CommandContext(t.Context(), binary, args...)
		cmd.Env = []string{"HOME=" + filepath.Join(dir, who), "XDG_CONFIG_HOME=" + filepath.Join(dir, who)}
		cmd.Stderr = new(bytes.Buffer)
		return cmd
	}
	output := func(cmd *exec.Cmd) string {
		t.Helper()
		out, err := cmd.Output()
		require.NoError(t, err, "%s", cmd.Stderr)
		return string(out)
	}

	ready := filepath.Join(dir, "ready")
	relay := command("relay", "serve", "--listen", "ws://127.0.0.1:0", "--ready", ready)
	require.NoError(t, relay.Start())
	url, _ := awaitReady(t, ready)

	address := output(command("bob", "id"))[len("address      "):][:64]
	send := command("ann", "send", "--relay", url, address)
	send.Stdin = bytes.NewBufferString("see you at noon\n")
	assert.Contains(t, output(send), "stored for "+address[:8])
	assert.Regexp(t, `^[0-9a-f]{8} \(.*\): see you at noon\n$`, output(command("bob", "recv", "--relay", url, idle)))

	require.NoError(t, relay.Process.Signal(syscall.SIGTERM))
	require.NoError(t, relay.Wait(), "%s", relay.Stderr)
	assert.Contains(t, relay.Stderr.(*bytes.Buffer).String(), "ended")

	late := command("ann", "send", "--relay", url, "-m", "x", address)
	require.Error(t, late.Run())
	assert.Equal(t, exitFailed, late.ProcessState.ExitCode())
	_, err = os.Stat(ready)
	assert.NoError(t, err)
}
