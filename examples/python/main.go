// Python is an exchange between a client in Python, client.py, and one in Go, in both
// directions, over a relay on TCP: libsodium on one side, Go's cryptography on the
// other.
//
//	go run ./examples/python
//
// runs to its end by itself. It needs python3 with PyNaCl (python3-nacl in Debian), and
// says so if that is not there.
package main

import (
	"bufio"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/sotto-relay/sotto/inbox"
	"github.com/sotto-relay/sotto/relay"
	"github.com/sotto-relay/sotto/relay/dialect/jsonmsg"
	"github.com/sotto-relay/sotto/transport"
	"github.com/sotto-relay/sotto/transport/tcp"
)

//go:embed client.py
var client []byte

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	err := run(ctx, os.Stdout)
	if errors.Is(err, errNoPyNaCl) {
		fmt.Println("SKIPPED: no exchange with Python:", err)
		return
	}
	if err != nil {
		log.Fatal(err)
	}
}

var errNoPyNaCl = errors.New("there is no python3 with PyNaCl (Debian: apt-get install python3-nacl)")

// python returns a Python that has PyNaCl.
func python(ctx context.Context) (string, error) {
	for _, name := range []string{"/usr/bin/python3", "python3"} {
		if exec.CommandContext(ctx, name, "-c", "import nacl.public").Run() == nil {
			return name, nil
		}
	}
	return "", errNoPyNaCl
}

func run(ctx context.Context, out io.Writer) error {
	name, err := python(ctx)
	if err != nil {
		return err
	}
	srv := &relay.Server{Inbox: inbox.NewMemory(nil), Logger: slog.New(slog.DiscardHandler)}
	defer srv.Close()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	go func() { _ = srv.Serve(tcp.NewListener(l, jsonmsg.Framing{}, nil), jsonmsg.Dialect{}) }() // until Close
	dial := tcp.Dialer(l.Addr().String(), jsonmsg.Framing{}, nil)

	for _, way := range []func(context.Context, io.Writer, transport.Dialer, func(...string) *process) error{pythonWrites, goWrites} {
		start := func(args ...string) *process { return start(ctx, name, l.Addr().String(), args...) }
		if err := way(ctx, out, dial, start); err != nil {
			return err
		}
	}
	return nil
}

// pythonWrites has Python write first, to somebody who may not be there yet, and Go
// answer.
func pythonWrites(ctx context.Context, out io.Writer, dial transport.Dialer, start func(...string) *process) error {
	py := start("--to", "go", "--text", "grüße aus Python")
	defer py.end()
	c, err := jsonmsg.Connect(ctx, dial, &jsonmsg.ClientOptions{Address: "go"})
	if err != nil {
		return err
	}
	defer c.Close()
	m, err := receive(ctx, c)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "Go hears: %s\n", m.Data)
	if err := c.Ack(ctx, m); err != nil {
		return err
	}
	if err := c.Send(ctx, m.From, "", []byte("greetings from Go")); err != nil {
		return err
	}
	if err := py.expect("ack", "go"); err != nil {
		return err
	}
	if err := py.expect("deliver", "go greetings from Go"); err != nil {
		return err
	}
	fmt.Fprintln(out, "Python hears: greetings from Go")
	return py.end()
}

// goWrites has Go write first, to an address that is the hash of a key, and Python
// tell that it has the message.
func goWrites(ctx context.Context, out io.Writer, dial transport.Dialer, start func(...string) *process) error {
	py := start()
	defer py.end()
	address, _, _ := strings.Cut(py.registered, " ")
	c, err := jsonmsg.Connect(ctx, dial, &jsonmsg.ClientOptions{Address: "go"})
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.Send(ctx, address, "m1", []byte("who are you?")); err != nil {
		return err
	}
	if err := py.expect("deliver", "go who are you?"); err != nil {
		return err
	}
	fmt.Fprintln(out, "Python hears: who are you?")
	for event, err := range c.Events(ctx) {
		if err != nil {
			return err
		}
		if ack, ok := event.(*jsonmsg.Ack); ok && ack.ID == "m1" {
			fmt.Fprintln(out, "Python has told that it has m1")
			break
		}
	}
	return py.end()
}

// receive waits for a message.
func receive(ctx context.Context, c *jsonmsg.Client) (*jsonmsg.Message, error) {
	for event, err := range c.Events(ctx) {
		switch e := event.(type) {
		case nil:
			return nil, err
		case *jsonmsg.Message:
			return e, nil
		case *jsonmsg.Unreadable:
			return nil, fmt.Errorf("unreadable: %w", e.Err)
		}
	}
	return nil, ctx.Err()
}

// A process is client.py.
type process struct {
	cmd        *exec.Cmd
	out        *bufio.Scanner
	errors     strings.Builder
	registered string // its address and key
	failed     error
}

// start starts client.py, and waits until it is registered.
func start(ctx context.Context, name, relay string, args ...string) *process {
	args = append([]string{"-c", string(client), "--relay", relay, "--wait", "1"}, args...)
	p := &process{cmd: exec.CommandContext(ctx, name, args...)}
	p.cmd.Stderr = &p.errors
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		p.failed = err
		return p
	}
	p.out = bufio.NewScanner(out)
	if p.failed = p.cmd.Start(); p.failed != nil {
		return p
	}
	if p.failed = p.expect("registered", ""); p.failed == nil {
		p.registered = strings.TrimPrefix(p.out.Text(), "registered ")
	}
	return p
}

// expect reads a line that says what, and then begins with rest. It passes over those
// that something is queued.
func (p *process) expect(what, rest string) error {
	if p.failed != nil {
		return p.failed
	}
	for p.out.Scan() && strings.HasPrefix(p.out.Text(), "queued ") {
	}
	if line := p.out.Text(); !strings.HasPrefix(line, what+" "+rest) {
		return fmt.Errorf("%q from Python, and not %q %q: %s", line, what, rest, &p.errors)
	}
	return nil
}

// end waits for the end. It may be called again.
func (p *process) end() error {
	if p.failed == nil && p.cmd.ProcessState == nil {
		for p.out.Scan() {
		}
		if err := p.cmd.Wait(); err != nil {
			p.failed = fmt.Errorf("client.py: %w: %s", err, &p.errors)
		}
	}
	return p.failed
}
