package main

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/sotto-relay/sotto/crypto"
	"github.com/sotto-relay/sotto/relay/client"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A process is the program with pipes.
type process struct {
	t     *testing.T
	cmd   *exec.Cmd
	in    io.WriteCloser
	out   *bufio.Scanner
	lines []string
}

func start(t *testing.T, binary, home string, args ...string) *process {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	p := &process{t: t, cmd: exec.CommandContext(ctx, binary, args...)}
	p.cmd.Env = []string{"HOME=" + home, "XDG_CONFIG_HOME=" + home}
	p.cmd.Stderr = new(bytes.Buffer)
	var err error
	p.in, err = p.cmd.StdinPipe()
	require.NoError(t, err)
	out, err := p.cmd.StdoutPipe()
	require.NoError(t, err)
	p.out = bufio.NewScanner(out)
	require.NoError(t, p.cmd.Start())
	t.Cleanup(func() {
		cancel()
		_ = p.cmd.Wait()
	})
	return p
}

func (p *process) write(line string) {
	p.t.Helper()
	_, err := io.WriteString(p.in, line+"\n")
	require.NoError(p.t, err)
}

// expect reads until a line matches, and returns what its groups do.
func (p *process) expect(pattern string) []string {
	p.t.Helper()
	re := regexp.MustCompile(pattern)
	for p.out.Scan() {
		p.lines = append(p.lines, p.out.Text())
		if m := re.FindStringSubmatch(p.out.Text()); m != nil {
			return m[1:]
		}
	}
	_ = p.cmd.Wait()
	require.FailNow(p.t, "no line like "+pattern, "%s\n%s", strings.Join(p.lines, "\n"), p.cmd.Stderr)
	return nil
}

// end ends standard input and expects exit code 0.
func (p *process) end() {
	p.t.Helper()
	require.NoError(p.t, p.in.Close())
	for p.out.Scan() {
		p.lines = append(p.lines, p.out.Text())
	}
	require.NoError(p.t, p.cmd.Wait(), "%s\n%s", strings.Join(p.lines, "\n"), p.cmd.Stderr)
	time.Sleep(time.Second) // nothing says when the relay has seen it
}

func TestConversation(t *testing.T) {
	home := t.TempDir()
	binary := filepath.Join(home, "chat")
	out, err := exec.CommandContext(t.Context(), "go", "build", "-o", binary, ".").CombinedOutput()
	require.NoError(t, err, string(out))

	host := start(t, binary, home, "-wait=0")
	host.expect(`^  fingerprint: (\w+ ){5}\w+$`)
	command := host.expect(`^go run ./examples/chat (-join ws://127\.0\.0\.1:\d+ -to [0-9a-f]{64})$`)
	host.write("is there somebody?")
	host.expect("not sent: nobody has written yet")

	guest := start(t, binary, home, append([]string{"-wait=0"}, strings.Fields(command[0])...)...)
	guest.write("hello host")
	guest.expect("^  handed$")
	address := host.expect(`somebody is here.* ([0-9a-f]{64})$`)[0]
	host.expect("^" + address[:8] + ": hello host$")
	host.write("hello guest")
	host.expect("^  handed$")
	guest.expect(": hello guest$")
	guest.write("/quit")
	guest.end()

	host.write("are you away?")
	host.expect("^  stored until they are back$")

	guest = start(t, binary, home, append([]string{"-wait=0"}, strings.Fields(command[0])...)...)
	guest.expect(": are you away\\?$")
	guest.write("back")
	host.expect("^" + address[:8] + ": back$")
	guest.expect("^  handed$")
	guest.end()

	host.write("nobody will read this")
	host.expect("^  stored until they are back$")
	require.NoError(t, host.in.Close())
	host.expect("nobody has come for them: 1$")
	assert.Error(t, host.cmd.Wait(), "one line had nobody to go to")
}

func TestArguments(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("HOME", dir)
	t.Setenv("XDG_CONFIG_HOME", dir)
	x25519, err := crypto.GenerateX25519()
	require.NoError(t, err)
	for name, o := range map[string]options{
		"the address is short":         {to: "ab"},
		"the address is upper case":    {to: strings.Repeat("AB", 32)},
		"the address is an X25519 key": {to: x25519.Public().String()},
		"the name leads elsewhere":     {name: "../host"},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Error(t, run(t.Context(), o, &room{in: strings.NewReader(""), out: io.Discard}))
		})
	}
}

// TestScript holds that a line is sent before the end of the input ends the
// program, and that one that cannot be sent fails it.
func TestScript(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("HOME", dir)
	t.Setenv("XDG_CONFIG_HOME", dir)
	id, err := crypto.GenerateIdentity()
	require.NoError(t, err)
	for _, c := range []struct {
		name, to, in, want string
		fails              bool
	}{
		{"stored", id.String(), "one\n\ntwo", "stored until they are back\n  stored until they are back\n* messages that are lost", false},
		{"who", id.String(), "/who\n", "* you write to " + id.String(), false},
		{"quit", id.String(), "/quit\nunsent\n", "connected", false},
		{"unknown command", id.String(), "/help\n", "there are /who and /quit", false},
		{"nobody", "", "one\n", "not sent: nobody has written yet", true},
		{"weak key", "01" + strings.Repeat("0", 62), "one\n", "not sent: client: recipient", true},
		{"too long", id.String(), strings.Repeat("x", 2<<20), "not sent: bufio", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			var out bytes.Buffer
			err := run(t.Context(), options{to: c.to}, &room{in: strings.NewReader(c.in), out: &out})
			assert.Equal(t, c.fails, err != nil, "%v", err)
			assert.Contains(t, out.String(), c.want)
		})
	}
}

func TestHear(t *testing.T) {
	id, err := crypto.GenerateIdentity()
	require.NoError(t, err)
	from := id.Public()
	for _, c := range []struct {
		name   string
		letter client.Letter
		want   string
	}{
		{"text", client.Letter{Type: crypto.Text, Data: []byte("hé"), Protection: client.ProtectionSealed}, from.String()[:8] + ": hé\n"},
		{"terminal controls", client.Letter{Type: crypto.Text, Data: []byte("a\x1b[2J\nb\u202ec\u009b"), Protection: client.ProtectionSealed},
			from.String()[:8] + ": a\uFFFD[2J\uFFFDb\uFFFDc\uFFFD\n"},
		{"not sealed", client.Letter{Type: crypto.Text, Data: []byte("x"), Protection: client.ProtectionSigned}, "* a message that is no sealed text is not shown\n"},
		{"a file", client.Letter{Type: crypto.File, Data: []byte("x"), Protection: client.ProtectionSealed}, "* a message that is no sealed text is not shown\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var out bytes.Buffer
			r := &room{out: &out, peer: from}
			c.letter.From = from
			require.NoError(t, r.hear(t.Context(), &c.letter))
			assert.Equal(t, c.want, out.String())
		})
	}
}
