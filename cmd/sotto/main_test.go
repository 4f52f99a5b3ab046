package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/sotto-relay/sotto/crypto"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// How long to wait for what other goroutines do, and how often to look.
const (
	wait = 10 * time.Second
	tick = 5 * time.Millisecond
)

// home gives the test a configuration directory of its own, and returns it.
func home(t *testing.T) string {
	dir := t.TempDir()
	t.Setenv("HOME", dir)
	t.Setenv("XDG_CONFIG_HOME", dir)
	return filepath.Join(dir, "sotto")
}

// A result is what a run ended with.
type result struct {
	code        int
	out, errOut string
}

type environment map[string]string

func (e environment) lookup(key string) (string, bool) {
	v, ok := e[key]
	return v, ok
}

func sotto(t *testing.T, args ...string) result { return sottoIn(t, "", nil, args...) }

func sottoIn(t *testing.T, stdin string, env environment, args ...string) result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	var out, errOut bytes.Buffer
	code := run(ctx, append([]string{"sotto"}, args...), strings.NewReader(stdin), &out, &errOut, env.lookup)
	return result{code, out.String(), errOut.String()}
}

// A running program.
type running struct {
	t           *testing.T
	key, url    string
	cancel      context.CancelFunc
	done        chan int
	out, errOut syncBuffer
}

// A syncBuffer may be read while it is written to.
type syncBuffer struct {
	syncWriter
	buf bytes.Buffer
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

func start(t *testing.T, args ...string) *running {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	r := &running{t: t, cancel: cancel, done: make(chan int, 1)}
	r.out.w, r.errOut.w = &r.out.buf, &r.errOut.buf
	go func() {
		r.done <- run(ctx, append([]string{"sotto"}, args...), strings.NewReader(""), &r.out, &r.errOut, environment{}.lookup)
	}()
	t.Cleanup(func() { r.end() })
	return r
}

// end interrupts the program and returns its exit code.
func (r *running) end() int {
	r.cancel()
	code := <-r.done
	r.done <- code
	return code
}

// wants waits until what is written matches.
func (r *running) wants(b *syncBuffer, pattern string) {
	r.t.Helper()
	re := regexp.MustCompile(pattern)
	require.Eventually(r.t, func() bool { return re.MatchString(b.String()) }, wait, tick, pattern)
}

// serve starts a relay and returns when it accepts connections.
func serve(t *testing.T, args ...string) *running {
	t.Helper()
	file := filepath.Join(t.TempDir(), "ready")
	r := start(t, append([]string{"serve", "--listen", "ws://127.0.0.1:0", "--ready", file}, args...)...)
	r.url, r.key = awaitReady(t, file)
	return r
}

func awaitReady(t *testing.T, file string) (url, key string) {
	t.Helper()
	require.Eventually(t, func() bool { _, err := os.Stat(file); return err == nil }, wait, tick)
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	var ready struct {
		Key       string
		Listeners []struct{ URL string }
	}
	require.NoError(t, json.Unmarshal(text, &ready))
	return ready.Listeners[len(ready.Listeners)-1].URL, ready.Key
}

// person makes an identity and returns its file and address.
func person(t *testing.T) (file, address string) {
	t.Helper()
	id, err := crypto.GenerateIdentity()
	require.NoError(t, err)
	file = filepath.Join(t.TempDir(), "identity")
	require.NoError(t, id.Save(file))
	return file, id.String()
}

func TestWrongUsage(t *testing.T) {
	home(t)
	_, to := person(t)
	x25519, err := crypto.GenerateX25519()
	require.NoError(t, err)
	for _, c := range []struct{ args, want string }{
		{"", "a command is missing"},
		{"srve", `no command "srve"`},
		{"\x1b[2J", `no command`},
		{"serve now", `takes no argument, such as "now"`},
		{"serve --listn ws://127.0.0.1:0", "not defined: -listn"},
		{"serve --listen", "needs an argument"},
		{"serve --listen=", "--listen"},
		{"serve --listen 127.0.0.1:8080", "no URL such as ws://"},
		{"serve --listen http://127.0.0.1:8080", "no URL such as ws://"},
		{"serve --listen wss://127.0.0.1:0", "ws:// only"},
		{"serve --listen tcp://127.0.0.1:0", "ws:// only"},
		{"serve --listen udp://127.0.0.1:0", "ws:// only"},
		{"serve --listen ws://127.0.0.1", "ws://HOST:PORT"},
		{"serve --listen ws://u:secret@127.0.0.1:0", "ws://HOST:PORT"},
		{"serve --listen ws://127.0.0.1:0/brep", "ws://HOST:PORT"},
		{"serve --listen ws://127.0.0.1:0?root=json", `brep only, not "json"`},
		{"serve --listen ws://127.0.0.1:0?page=x", `[?]root=brep only`},
		{"serve --limit brep-rat=1", "nearest is brep-rate"},
		{"serve --limit handshake-time=1s", "nearest is handshake-timeout"},
		{"serve --limit brep-rate", "wants NAME=VALUE"},
		{"serve --limit brep-rate=0", "a number above 0"},
		{"serve --limit brep-rate=NaN", "a number above 0"},
		{"serve --limit brep-rate=+Inf", "a number above 0"},
		{"serve --limit brep-burst=-1", "a whole number"},
		{"serve --limit brep-burst=1.5", "a whole number"},
		{"serve --limit brep-inbox-bytes=9223372036854775808", "a whole number"},
		{"serve --limit brep-inbox-ttl=7", "a time above 0"},
		{"serve --limit brep-inbox-drop-oldest=maybe", "true or false"},
		{"serve --limit brep-byte-burst=1000", "has to be 4194424 at least"},
		{"serve --limits none", "on or off"},
		{"serve --drain -1s", "in the past"},
		{"serve --drain soon", "drain"},
		{"serve --origin https://example.org/path", "neither a host nor an origin"},
		{"serve --origin a@b", "neither a host nor an origin"},
		{"serve --log-level loud", "debug, info, warn or error"},
		{"serve --log-format xml", "text or json"},
		{"id extra", "takes no argument"},
		{"send", "TO is missing"},
		{"send ab", "64 hexadecimal digits"},
		{"send " + to[:63], "64 hexadecimal digits"},
		{"send " + strings.ToUpper(to), "lower case"},
		{"send 0x" + to, "64 hexadecimal digits"},
		{"send " + x25519.Public().String(), "X25519"},
		{"send " + strings.Repeat("0", 64), "no valid Ed25519 key"},
		{"send --clear --signed " + to, "exclude each other"},
		{"send --clear " + to + " main.go", "loses the names of files"},
		{"send --relay http://127.0.0.1 " + to, "no URL of a relay"},
		{"send --relay ws:// " + to, "no URL of a relay"},
		{"send --relay ws://u:secret@h " + to, "no URL of a relay"},
		{"send --relay-key ab " + to, "--relay-key"},
		{"send --timeout 0s " + to, "leaves no time"},
		{"recv extra", "takes no argument"},
		{"recv --idle 0s", "above 0"},
	} {
		t.Run(c.args, func(t *testing.T) {
			r := sotto(t, strings.Fields(c.args)...)
			assert.Equal(t, exitUsage, r.code)
			assert.Empty(t, r.out)
			assert.Regexp(t, "^sotto: .*"+c.want+".*--help\n$", r.errOut)
			assert.NotContains(t, r.errOut, "secret")
			assert.NotContains(t, r.errOut, "\x1b")
		})
	}
}

func TestEnvironment(t *testing.T) {
	home(t)
	env := environment{"SOTTO_LOG_LEVEL": "loud", "SOTTO_LIMIT": "brep-rate=1,brep-rat=2"}
	r := sottoIn(t, "", env, "serve")
	assert.Equal(t, exitUsage, r.code)
	assert.Contains(t, r.errOut, `not "loud"`)

	r = sottoIn(t, "", env, "serve", "--log-level", "info")
	assert.Contains(t, r.errOut, "nearest is brep-rate", "the flag wins, and a list has commas")

	bad := maps.Clone(env)
	bad["SOTTO_DRAIN"] = "soon"
	r = sottoIn(t, "", bad, "serve")
	assert.Equal(t, exitUsage, r.code)
	assert.Contains(t, r.errOut, "SOTTO_DRAIN")
}

func TestHelp(t *testing.T) {
	for _, args := range []string{"--help", "serve --help", "id --help", "send --help", "recv --help", "serve --help-limits"} {
		r := sotto(t, strings.Fields(args)...)
		assert.Zero(t, r.code, args)
		assert.NotEmpty(t, r.out, args)
		assert.Empty(t, r.errOut, args)
	}
}

func TestID(t *testing.T) {
	config := home(t)
	made := sotto(t, "id")
	require.Zero(t, made.code, made.errOut)
	assert.Regexp(t, `^address      [0-9a-f]{64}\nfingerprint  (\w+ ){5}\w+\nfile         .*/sotto/identity\n$`, made.out)
	assert.Equal(t, made, sotto(t, "id"))
	info, err := os.Stat(config)
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o700), info.Mode().Perm())

	var shown struct{ Address, Fingerprint, File string }
	require.NoError(t, json.Unmarshal([]byte(sotto(t, "id", "--json").out), &shown))
	assert.Contains(t, made.out, shown.Address)
	assert.Contains(t, made.out, shown.Fingerprint)
	assert.Equal(t, filepath.Join(config, "identity"), shown.File)

	require.NoError(t, os.Chmod(shown.File, 0o644))
	r := sotto(t, "id")
	assert.Equal(t, exitFailed, r.code)
	assert.Contains(t, r.errOut, "chmod 600")
}

// TestStdinIsLeft holds that an interrupted send does not wait for its input.
func TestStdinIsLeft(t *testing.T) {
	home(t)
	_, to := person(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	in, keep := io.Pipe()
	defer keep.Close()
	var errOut bytes.Buffer
	assert.Equal(t, exitFailed, run(ctx, []string{"sotto", "send", to}, in, io.Discard, &errOut, environment{}.lookup))
	assert.Contains(t, errOut.String(), "interrupted, and nothing was sent")
}
