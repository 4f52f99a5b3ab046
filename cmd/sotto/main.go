// Sotto is a relay for end-to-end encrypted messages that can read none of them,
// and a client of one.
//
//	sotto serve              relays on ws://127.0.0.1:8080, from memory
//	sotto inbox VERB DIR     looks after the store of a relay that is stopped
//	sotto id                 shows your address, which it makes first if need be
//	sotto send TO [FILE…]    sends text (-m, or standard input) or files
//	sotto recv               shows what has come
//	sotto pub TOPIC [TEXT]   publishes text to a topic
//	sotto sub FILTER…        shows what is published
//	sotto chat ROOM          talks in a room
//	sotto mesh VERB          asks a relay about other relays
//	sotto doctor URL         checks a relay from outside
//	sotto bench URL          measures a relay, or one of its own with --local
//
// It is a thin program over the packages of this module; see sotto COMMAND
// --help for the flags. Each flag can be given in the environment too, --log-level
// as SOTTO_LOG_LEVEL, and those of serve in the file of --config; the flag wins, then
// the environment. One that may be repeated takes a list with commas there.
//
// The exit code is 0, 2 for wrong usage and 1 for what failed at run time, with
// one line on standard error that says what, and what to do. Standard output is
// for people, and has one JSON value a line with --json. What strangers sent is
// never written to it raw: control characters are escaped.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/urfave/cli/v3"
)

func main() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() { // lives as long as the program
		<-signals
		cancel()
		<-signals
		os.Exit(exitFailed)
	}()
	os.Exit(run(ctx, os.Args, os.Stdin, os.Stdout, os.Stderr, os.LookupEnv))
}

const (
	exitFailed = 1
	exitUsage  = 2
)

// A program is one run, with what it may use of the process. Its output may be
// written to by several goroutines.
type program struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	env            func(string) (string, bool)
	terminal       bool        // stderr is one
	bar            atomic.Bool // there is a progress bar on it
	settings       settings    // of serve
}

// run runs the command that args, with the program's name first, stand for, and
// returns the exit code. The end of ctx ends it: serve drains, and recv shows what
// it has.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer, env func(string) (string, bool)) int {
	p := &program{
		stdin: stdin, stdout: &syncWriter{w: stdout}, stderr: &syncWriter{w: stderr},
		env: env, terminal: isTerminal(stderr),
	}
	err := p.command().Run(ctx, args)
	var failed *runError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &failed):
		p.complain("%v", failed.err)
		return exitFailed
	}
	p.complain("%v", err)
	return exitUsage
}

// command returns the commands and flags. Commands of one run share nothing with
// those of another.
func (p *program) command() *cli.Command {
	root := &cli.Command{
		Name:            "sotto",
		Usage:           "a blind relay for end-to-end encrypted messages, and its client",
		Version:         version(),
		Writer:          p.stdout,
		ErrWriter:       p.stderr,
		HideHelpCommand: true,
		ExitErrHandler:  func(context.Context, *cli.Command, error) {}, // run decides
		OnUsageError:    usage,
		Action: func(_ context.Context, cmd *cli.Command) error {
			const commands = "the commands are serve, inbox, id, send, recv, pub, sub, chat, mesh, doctor and bench; see sotto --help"
			if name := cmd.Args().First(); name != "" {
				return fmt.Errorf("there is no command %q: %s", name, commands)
			}
			return errors.New("a command is missing: " + commands)
		},
		Commands: []*cli.Command{
			p.serveCommand(), p.inboxCommand(), p.idCommand(),
			p.sendCommand(), p.recvCommand(), p.pubCommand(), p.subCommand(), p.chatCommand(),
			p.meshCommand(), p.doctorCommand(), p.benchCommand(),
		},
	}
	for _, cmd := range root.Commands {
		for _, c := range append([]*cli.Command{cmd}, cmd.Commands...) {
			c.OnUsageError = usage
			c.CommandNotFound = helpAnyway
		}
	}
	return root
}

// helpAnyway shows the help of a command that --help was given to behind an
// argument, which the library takes for the name of a command then.
func helpAnyway(_ context.Context, cmd *cli.Command, _ string) {
	if len(cmd.Commands) > 0 {
		_ = cli.ShowSubcommandHelp(cmd)
		return
	}
	cli.HelpPrinter(cmd.Root().Writer, cli.CommandHelpTemplate, cmd)
}

func usage(_ context.Context, cmd *cli.Command, err error, _ bool) error {
	return fmt.Errorf("%w; see %s --help", err, cmd.FullName())
}

// A runError is one that is not due to wrong usage.
type runError struct{ err error }

func (e *runError) Error() string { return e.err.Error() }

func (e *runError) Unwrap() error { return e.err }

var errInterrupted = errors.New("interrupted")

// failed makes a runError of err, unless that is nil.
func failed(err error) error {
	if err == nil {
		return nil
	}
	return &runError{err}
}

// complain writes a line for the user to standard error. What it says may come
// from afar.
func (p *program) complain(format string, args ...any) {
	p.clear()
	fmt.Fprintf(p.stderr, "sotto: %s\n", printable(fmt.Sprintf(format, args...)))
}

// isTerminal says whether somebody may be looking at what is written to w.
func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// fromEnv is the environment's value for a flag.
type fromEnv struct {
	key    string
	lookup func(string) (string, bool)
}

func (e *fromEnv) Lookup() (string, bool) { return e.lookup(e.key) }

func (e *fromEnv) String() string { return "environment variable " + e.key }

func (e *fromEnv) GoString() string { return e.String() }

// IsFromEnv and Key have the help show the name.
func (e *fromEnv) IsFromEnv() bool { return true }

func (e *fromEnv) Key() string { return e.key }

// A syncWriter may be used by several goroutines.
type syncWriter struct {
	mu sync.Mutex
	w  io.Writer
}

func (s *syncWriter) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.w.Write(b)
}
