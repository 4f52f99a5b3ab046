package main

import (
	"bytes"
	"crypto/tls"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// process returns the program as a process of its own, not started, with a home
// and environment of its own.
func process(t *testing.T, home string, env []string, args ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), self, args...)
	cmd.Env = append([]string{
		beProgram + "=1", "HOME=" + home, "XDG_CONFIG_HOME=" + home,
		"GORACE=atexit_sleep_ms=0", // the race detector would have each process end a second later
	}, env...)
	cmd.Stderr = new(bytes.Buffer)
	return cmd
}

// TestProcesses runs the program as its users do.
func TestProcesses(t *testing.T) {
	dir := t.TempDir()
	command := func(who string, args ...string) *exec.Cmd {
		return process(t, filepath.Join(dir, who), nil, args...)
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
	url := awaitReady(t, ready).Listeners[0].URL

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
	_, err := os.Stat(ready)
	assert.NoError(t, err)
}

// TestSignals has a service manager watch: files are replaced, SIGHUP makes them
// count for the next handshake, and SIGTERM drains.
func TestSignals(t *testing.T) {
	dir := t.TempDir()
	ready, page := filepath.Join(dir, "ready"), filepath.Join(dir, "page.html")
	require.NoError(t, os.WriteFile(page, []byte("<p>old"), 0o600))
	cert := newCert(t, dir, "first", time.Hour)
	manager, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: filepath.Join(dir, "notify"), Net: "unixgram"})
	require.NoError(t, err)
	defer manager.Close()
	hears := func(want ...string) {
		t.Helper()
		require.NoError(t, manager.SetReadDeadline(time.Now().Add(wait)))
		b := make([]byte, 4096)
		n, err := manager.Read(b)
		require.NoError(t, err, want)
		for _, w := range want {
			assert.Contains(t, strings.Split(string(b[:n]), "\n"), w)
		}
	}

	relay := process(t, dir, []string{"NOTIFY_SOCKET=" + filepath.Join(dir, "notify")}, "serve", "--ready", ready,
		"--listen", "wss://127.0.0.1:0"+cert.params()+"&page="+page, "--listen", "tls://127.0.0.1:0"+cert.params())
	require.NoError(t, relay.Start())
	hears("READY=1", "STATUS=relaying")
	var hosts []string
	for _, l := range awaitReady(t, ready).Listeners {
		_, host, _ := strings.Cut(l.URL, "://")
		hosts = append(hosts, host)
	}
	shown := func(host string) string {
		c, err := tls.Dial("tcp", host, &tls.Config{InsecureSkipVerify: true})
		require.NoError(t, err)
		defer c.Close()
		return c.ConnectionState().PeerCertificates[0].Subject.CommonName
	}
	reload := func() {
		require.NoError(t, relay.Process.Signal(syscall.SIGHUP))
		hears("RELOADING=1")
		hears("READY=1")
	}
	before, err := tls.Dial("tcp", hosts[1], &tls.Config{InsecureSkipVerify: true})
	require.NoError(t, err)
	defer before.Close()

	require.NoError(t, os.WriteFile(cert.key, []byte("damaged"), 0o600))
	reload()
	assert.Equal(t, "first", shown(hosts[0]), "what was before stays in use")

	second := newCert(t, dir, "second", time.Hour)
	require.NoError(t, os.Rename(second.cert, cert.cert))
	require.NoError(t, os.Rename(second.key, cert.key))
	require.NoError(t, os.WriteFile(page, []byte("<p>new"), 0o600))
	reload()
	for _, host := range hosts {
		assert.Equal(t, "second", shown(host))
	}
	_, body := request(t, "GET", "https://"+hosts[0]+"/")
	assert.Equal(t, "<p>new", body)

	require.NoError(t, before.SetReadDeadline(time.Now().Add(wait)))
	_, err = before.Read(make([]byte, 1))
	assert.NoError(t, err, "those who are connected stay so")
	require.NoError(t, relay.Process.Signal(syscall.SIGTERM))
	hears("STOPPING=1", "EXTEND_TIMEOUT_USEC=35000000")
	require.NoError(t, relay.Wait(), "%s", relay.Stderr)
	log := relay.Stderr.(*bytes.Buffer).String()
	assert.Equal(t, 2, strings.Count(log, "what was before stays in use"), log)
	assert.NotContains(t, log, "cannot tell")
}

// TestHangupAtStart has a SIGHUP come while the relay opens its files: it reloads
// when it is ready.
func TestHangupAtStart(t *testing.T) {
	dir := t.TempDir()
	contacts, ready := filepath.Join(dir, "contacts"), filepath.Join(dir, "ready")
	if err := exec.CommandContext(t.Context(), "mkfifo", contacts).Run(); err != nil {
		t.Skip("no named pipes here: ", err)
	}
	relay := process(t, dir, nil, "serve", "--listen", "ws://127.0.0.1:0", "--contacts", contacts, "--ready", ready)
	require.NoError(t, relay.Start())
	pipe, err := os.OpenFile(contacts, os.O_WRONLY, 0) // waits until the relay opens it
	require.NoError(t, err)
	require.NoError(t, relay.Process.Signal(syscall.SIGHUP))
	require.NoError(t, os.Remove(contacts))
	require.NoError(t, os.WriteFile(contacts, nil, 0o600)) // for the reload
	require.NoError(t, pipe.Close())
	awaitReady(t, ready)
	require.NoError(t, relay.Process.Signal(syscall.SIGTERM))
	require.NoError(t, relay.Wait(), "%s", relay.Stderr)
}

// TestLogIsGone takes the reader of the log away, as when tee is killed: the relay
// goes on, and drains when it is told to.
func TestLogIsGone(t *testing.T) {
	dir := t.TempDir()
	ready := filepath.Join(dir, "ready")
	reader, log, err := os.Pipe()
	require.NoError(t, err)
	relay := process(t, dir, nil, "serve", "--listen", "ws://127.0.0.1:0", "--ready", ready)
	relay.Stderr = log
	require.NoError(t, relay.Start())
	require.NoError(t, log.Close())
	url := awaitReady(t, ready).Listeners[0].URL
	require.NoError(t, reader.Close())
	require.NoError(t, relay.Process.Signal(syscall.SIGHUP)) // which is logged
	status, _ := request(t, "GET", "http"+strings.TrimPrefix(url, "ws")+"/healthz")
	assert.Equal(t, 200, status)
	require.NoError(t, relay.Process.Signal(syscall.SIGTERM))
	require.NoError(t, relay.Wait())
}

// TestNotify tries the sockets that a service manager may name.
func TestNotify(t *testing.T) {
	file := filepath.Join(t.TempDir(), "socket")
	for _, name := range []string{file, "@sotto-test-" + filepath.Base(t.TempDir()) + t.Name()} {
		l, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: name, Net: "unixgram"})
		require.NoError(t, err)
		defer l.Close()
		p := &program{env: environment{"NOTIFY_SOCKET": name}.lookup}
		require.NoError(t, p.notify("READY=1", "STATUS=x"))
		b := make([]byte, 100)
		n, err := l.Read(b)
		require.NoError(t, err)
		assert.Equal(t, "READY=1\nSTATUS=x", string(b[:n]))
	}
	assert.NoError(t, (&program{env: environment{}.lookup}).notify("READY=1"))
	assert.NoError(t, (&program{env: environment{"NOTIFY_SOCKET": ""}.lookup}).notify("READY=1"))

	r := startIn(t, environment{"NOTIFY_SOCKET": "/no/such/socket"}, "serve", "--listen", "ws://127.0.0.1:0")
	r.wants(&r.errOut, "cannot tell the service manager")
	assert.Zero(t, r.end(), "it goes on without")
}
