package chaos

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sotto-relay/sotto/crypto"
	"github.com/sotto-relay/sotto/inbox/disk"
	"github.com/sotto-relay/sotto/internal/freeport"
	"github.com/sotto-relay/sotto/relay"
	"github.com/sotto-relay/sotto/relay/dialect/brep"
	"github.com/sotto-relay/sotto/transport/tcp"
	"github.com/sotto-relay/sotto/transport/ws"
)

const relayEnv = "SOTTO_CHAOS_RELAY" // its directory

// A victim is a relay in a process of its own, on a directory and two ports that
// it keeps through all its lives.
type victim struct {
	t        *testing.T
	dir      string
	ws, tcp  string // host:port
	key      crypto.PublicKey
	cmd      *exec.Cmd
	stdin    io.WriteCloser
	stdout   *bufio.Reader
	lifetime int // how many it had
}

func newVictim(t *testing.T) *victim {
	v := &victim{t: t, dir: t.TempDir(), ws: freeport.Address(t), tcp: freeport.Address(t)}
	id, err := crypto.LoadOrCreateIdentity(filepath.Join(v.dir, "identity"))
	require.NoError(t, err)
	v.key = id.Public()
	v.start()
	t.Cleanup(v.kill)
	return v
}

func (v *victim) start() {
	v.cmd = exec.Command(os.Args[0])
	v.cmd.Env = append(os.Environ(), relayEnv+"="+v.dir+" "+v.ws+" "+v.tcp)
	v.cmd.Stderr = os.Stderr
	var err error
	v.stdin, err = v.cmd.StdinPipe()
	require.NoError(v.t, err)
	out, err := v.cmd.StdoutPipe()
	require.NoError(v.t, err)
	v.stdout = bufio.NewReader(out)
	require.NoError(v.t, v.cmd.Start())
	line, err := v.stdout.ReadString('\n')
	require.NoError(v.t, err)
	require.Equal(v.t, "ready\n", line)
	v.lifetime++
}

func (v *victim) kill() {
	_ = v.cmd.Process.Kill()
	_ = v.cmd.Wait()
}

// end has the relay end by itself, and returns what it counted.
func (v *victim) end() (st relay.Stats) {
	require.NoError(v.t, v.stdin.Close())
	require.NoError(v.t, json.NewDecoder(v.stdout).Decode(&st))
	require.NoError(v.t, v.cmd.Wait())
	return st
}

// relayMain is the process. It says when it listens, serves until its standard
// input ends, and tells what it has counted.
func relayMain(what string) error {
	f := strings.Fields(what)
	dir := f[0]
	id, err := crypto.LoadIdentity(filepath.Join(dir, "identity"))
	if err != nil {
		return err
	}
	db, err := disk.Open(filepath.Join(dir, "inbox"), nil)
	if err != nil {
		return err
	}
	dialect := brep.Dialect{Identity: id, RequireV2: true, Durable: true}
	limits := relay.MaxLimits()
	limits.Dialects = map[string]relay.DialectLimits{dialect.Name(): {InboxMessages: 1e6, InboxBytes: 1 << 40, InboxPerSender: 1e6}}
	srv := &relay.Server{Inbox: db.Inbox(), State: db.State(), Limits: limits, Logger: slog.New(slog.DiscardHandler)}

	overWS, err := net.Listen("tcp", f[1])
	if err != nil {
		return err
	}
	overTCP, err := net.Listen("tcp", f[2])
	if err != nil {
		return err
	}
	web := &http.Server{Handler: ws.Handler(srv.Speak(dialect), nil)}
	go func() { _ = web.Serve(overWS) }()
	go func() { _ = srv.Serve(tcp.NewListener(overTCP, dialect.Framing(), nil), dialect) }()
	fmt.Println("ready")

	_, _ = io.Copy(io.Discard, os.Stdin)
	_ = web.Close()
	err = srv.Close()
	return errors.Join(err, json.NewEncoder(os.Stdout).Encode(srv.Stats()), db.Close())
}
