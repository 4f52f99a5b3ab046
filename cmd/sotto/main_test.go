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
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/sotto-relay/sotto/crypto"
)

// TestMain is the program itself in processes that tests start.
func TestMain(m *testing.M) {
	if os.Getenv(beProgram) != "" {
		main()
	}
	goleak.VerifyTestMain(m)
}

const beProgram = "TEST_AS_PROGRAM"

// How long to wait for what other goroutines do, and how often to look.
const (
	wait = time.Minute
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
	if slices.Contains(args, "recv") {
		time.Sleep(readAcks)
	}
	return result{code, out.String(), errOut.String()}
}

// readAcks is for the relay to read what recv acknowledged last, before another one comes.
const readAcks = 100 * time.Millisecond

// A running program.
type running struct {
	t           *testing.T
	key, url    string // of the relay; of its last listener
	ready       readiness
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

func start(t *testing.T, args ...string) *running { return startIn(t, nil, args...) }

func startIn(t *testing.T, env environment, args ...string) *running {
	t.Helper()
	return startWith(t, strings.NewReader(""), env, args...)
}

func startWith(t *testing.T, stdin io.Reader, env environment, args ...string) *running {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	r := &running{t: t, cancel: cancel, done: make(chan int, 1)}
	r.out.w, r.errOut.w = &r.out.buf, &r.errOut.buf
	go func() {
		r.done <- run(ctx, append([]string{"sotto"}, args...), stdin, &r.out, &r.errOut, env.lookup)
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
	r.ready = awaitReady(t, file)
	r.key, r.url = r.ready.Key, r.ready.Listeners[len(r.ready.Listeners)-1].URL
	return r
}

func awaitReady(t *testing.T, file string) (ready readiness) {
	t.Helper()
	require.Eventually(t, func() bool { _, err := os.Stat(file); return err == nil }, wait, tick)
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &ready))
	return ready
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
	file, _ := person(t)
	other, err := crypto.LoadIdentity(file)
	require.NoError(t, err)
	key := other.Public()
	pairing := crypto.Pairing{Key: key, Host: "relay.example", Path: "/brep", TLS: true, Relay: key}
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
		{"serve --listen :8080", "no URL such as ws://"},
		{"serve --listen ws://127.0.0.1:0%zz", "no URL such as ws://"},
		{"serve --listen udp://127.0.0.1:0?dialect=json", "takes nothing after a [?]"},
		{"serve --quarantine", "give --data a directory"},
		{"serve --contacts-strict", "give --contacts a file, or open"},
		{"serve --json-in-use never", "--json-in-use is reject or share or takeover, not"},
		{"serve --blind-rotate never", "--blind-rotate is open or subscriber, not"},
		{"serve --listen wss://127.0.0.1:0", "TLS needs [?]cert=FILE&key=FILE, or [?]acme=DOMAIN"},
		{"serve --listen tls://127.0.0.1:0?dialect=brep", "TLS needs"},
		{"serve --listen wss://127.0.0.1:0?cert=c", "needs both"},
		{"serve --listen tls://127.0.0.1:0?key=k", "needs both"},
		{"serve --listen wss://127.0.0.1:0?cert=c&key=k&acme=a.example", "exclude each other"},
		{"serve --listen wss://127.0.0.1:0?cert=c&key=k&cache=d", "[?]cache= is for [?]acme="},
		{"serve --listen wss://127.0.0.1:0?cert=&key=k", "[?]cert= has no value"},
		{"serve --listen wss://127.0.0.1:0?cert=c&cert=d&key=k", "[?]cert= is there more than once"},
		{"serve --listen wss://127.0.0.1:0?crt=c&key=k", "no [?]crt=; the nearest is [?]cert="},
		{"serve --listen wss://127.0.0.1:0?acme=*.example.org", "is no domain"},
		{"serve --listen wss://127.0.0.1:0?acme=127.0.0.1", "is no domain"},
		{"serve --listen wss://127.0.0.1:0?acme=localhost", "is no domain"},
		{"serve --listen wss://127.0.0.1:0?cert=%zz", "not NAME=VALUE"},
		{"serve --listen ws://127.0.0.1:0?cert=c", "ws:// takes no [?]cert="},
		{"serve --listen tcp://127.0.0.1:0?dialect=blind", `tcp:// speaks brep, json, not "blind"`},
		{"serve --listen tcp://127.0.0.1:0?root=brep", "tcp:// takes no [?]root="},
		{"serve --listen tcp://127.0.0.1:0?dialect=brep&dialect=brep", "more than once"},
		{"serve --listen tcp://127.0.0.1", "tcp://HOST:PORT"},
		{"serve --listen tcp://127.0.0.1:0/x", "tcp://HOST:PORT"},
		{"serve --listen tcp://127.0.0.1:65536", "ports end at 65535"},
		{"serve --listen tcp://127.0.0.1:port", "no URL such as"},
		{"serve --trusted-proxy 10.0.0.0/33", "no CIDR"},
		{"serve --trusted-proxy proxy.example", "no CIDR"},
		{"serve --trusted-proxy 10.0.0.1/8", "write 10.0.0.0/8, or an address"},
		{"serve --trusted-proxy ::/0", "would believe everybody"},
		{"serve --proxy-protocol", "give --trusted-proxy"},
		{"serve --metrics 9090", "not HOST:PORT"},
		{"serve --metrics 127.0.0.1:port", "not HOST:PORT"},
		{"serve --metrics 127.0.0.1:70000", "not HOST:PORT"},
		{"serve --allow-cleartext=perhaps", "allow-cleartext"},
		{"serve --listen ws://127.0.0.1", "ws://HOST:PORT"},
		{"serve --listen ws://u:secret@127.0.0.1:0", "ws://HOST:PORT"},
		{"serve --listen ws://127.0.0.1:0/brep", "ws://HOST:PORT"},
		{"serve --listen ws://127.0.0.1:0?root=mailbox", `ws:// speaks brep, json, blind, not "mailbox"`},
		{"serve --listen ws://127.0.0.1:0?pge=x", `no [?]pge=; the nearest is [?]page=`},
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
		{"serve --origin *", "without --origin any page may connect"},
		{"serve --origin https://*.example.org", "neither a host nor an origin"},
		{"serve --log-level loud", "debug, info, warn or error"},
		{"serve --log-format xml", "text or json"},
		{"id extra", "takes no argument"},
		{"id --pairing", "--pairing wants --relay"},
		{"id --pairing --relay tcp://h:1", "no room for tcp://"},
		{"id --pairing --relay ws://h --timeout 0s", "leaves no time"},
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
		{"send --until soon " + to, `handed, stored or read, not "soon"`},
		{"send --until queued " + to, "handed, stored or read"},
		{"send sotto://" + to, "no pairing string .* in quotes"},
		{"send --relay ws://h " + pairing.String(), "is at the relay wss://relay.example/brep, and --relay is another"},
		{"send --relay ws://u:secret@h " + pairing.String(), "--relay is another"},
		{"send --ca x " + strings.Replace(pairing.String(), "tls=1", "tls=0", 1), "--ca is for wss:// and tls://, and the relay has neither"},
		{"send --relay-key " + to + " " + pairing.String(), "its relay has the key " + key.String() + ", and --relay-key is another"},
		{"send --relay tcp://h " + to, "tcp://HOST:PORT"},
		{"send --relay tcp://h:1/x " + to, "tcp://HOST:PORT"},
		{"send --relay tcp://h:1?cert=x " + to, "tcp://HOST:PORT"},
		{"send --ca x --relay ws://h " + to, "--ca is for wss:// and tls://"},
		{"doctor", "wants one argument"},
		{"doctor ws://h ws://h", "wants one argument"},
		{"doctor h:80", "no URL of a relay"},
		{"doctor --timeout 0s ws://h", "leaves no time"},
		{"doctor --relay-key ab ws://h", "--relay-key"},
		{"doctor --ca x ws://h", "--ca is for"},
		{"bench", "wants one argument"},
		{"bench --local ws://h", "--local needs no URL"},
		{"bench --local --ca x", "--local needs neither"},
		{"bench --pairs 0 --local", "from 1 to 250"},
		{"bench --pairs 251 --local", "from 1 to 250"},
		{"bench --size 15 --local", "from 16 to"},
		{"bench --size 2000000 --local", "from 16 to"},
		{"bench --duration 0s --local", "above 0"},
		{"bench --duration 1h --local", "above 0 and up to 10m"},
		{"bench --count -1 --local", "less than nothing"},
		{"bench --relay-key ab ws://h", "--relay-key"},
		{"recv extra", "takes no argument"},
		{"pub", "TOPIC is missing"},
		{"pub a/+", "a topic is UTF-8 without"},
		{"pub a\xff", "a topic is UTF-8 without"},
		{"pub a two words", "put it in quotes"},
		{"pub -m x a y", "-m and TEXT exclude each other"},
		{"pub --clear-retained a x", "takes no text"},
		{"pub --clear-retained -m x a", "takes no text"},
		{"pub --timeout 0s a x", "leaves no time"},
		{"chat", "wants one argument"},
		{"chat a b", "wants one argument"},
		{"chat --key a --new-key b c", "exclude each other"},
		{"chat a\x1b", "no name of a room"},
		{"sub", "FILTER is missing"},
		{"sub a b/#/c", `"b/#/c" is none`},
		{"sub a+", `"a[+]" is none`},
		{"sub --count -1 a", "less than nothing"},
		{"mesh peers --timeout 0s", "leaves no time"},
		{"mesh find --timeout -1s " + to, "leaves no time"},
		{"recv --idle 0s", "above 0"},
		{"recv --max-file much", `--max-file: "much" is no size such as 500K, 20M or 1G`},
		{"recv --max-dir -1", `--max-dir: "-1" is no size`},
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

// TestHelp holds that every command has help, of lines that fit a terminal.
func TestHelp(t *testing.T) {
	commands := [][]string{{"--help"}, {"serve", "--help-limits"}}
	for _, cmd := range (&program{}).command().Commands {
		commands = append(commands, []string{cmd.Name, "--help"})
		for _, verb := range cmd.Commands {
			commands = append(commands, []string{cmd.Name, verb.Name, "--help"})
		}
		for line := range strings.Lines(cmd.Description) {
			assert.LessOrEqual(t, utf8.RuneCountInString(line), 92, line)
		}
	}
	commands = append(commands, []string{"--version"})
	for _, args := range commands {
		r := sotto(t, args...)
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
