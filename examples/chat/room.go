package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/sotto-relay/sotto/crypto"
	"github.com/sotto-relay/sotto/handshake"
	"github.com/sotto-relay/sotto/relay/client"
	"github.com/sotto-relay/sotto/transport/ws"
)

// A room is where two talk.
type room struct {
	in   io.Reader
	out  io.Writer
	self crypto.PublicKey
	sent sync.WaitGroup // lines whose end is not known yet

	mu     sync.Mutex
	peer   crypto.PublicKey // zero: nobody yet
	failed error            // why a line was not sent, the last one
}

// chat talks until the input has ended and wait has passed, /quit, or ctx ends.
func (r *room) chat(ctx context.Context, id *crypto.Identity, url string, wait time.Duration) error {
	c, err := client.New(ctx, &client.Config{
		Identity: id,
		Dial:     ws.Dialer(url, nil),
		Logger:   slog.New(slog.DiscardHandler),
		Trace: &client.Trace{
			Connected: func(handshake.Relay) { r.say("* connected to the relay") },
			Disconnected: func(err error, in time.Duration) {
				r.say("* no connection to the relay (%s); trying again in %v", printable(err.Error()), in.Round(time.Millisecond))
			},
			Settled: r.settled,
		},
	})
	if err != nil {
		return err
	}
	defer c.Close()
	ctx, leave := context.WithCancel(ctx)
	defer leave()
	heard := make(chan error, 1)
	go func() { heard <- c.Handle(ctx, r.hear) }()
	lines := make(chan string)
	go r.read(ctx, lines) // a read cannot be interrupted: it ends with the program

	var leaving <-chan time.Time
	for {
		select {
		case line, more := <-lines:
			if more && line != "/quit" {
				r.speak(ctx, c, line)
				continue
			}
			if more {
				wait = 0
			}
			lines = nil
			r.awaitReceipts(ctx)
			leaving = time.After(wait)
		case <-leaving:
			leave()
		case err := <-heard:
			ended := ctx.Err() == nil
			_ = c.Close() // fails what has no receipt
			if ended {
				return err
			}
			r.mu.Lock()
			defer r.mu.Unlock()
			return r.failed
		}
	}
}

// read sends the lines of the input, and closes lines at its end.
func (r *room) read(ctx context.Context, lines chan<- string) {
	defer close(lines)
	const longest = 1 << 20
	s := bufio.NewScanner(r.in)
	for s.Buffer(nil, longest); s.Scan(); {
		select {
		case lines <- s.Text():
		case <-ctx.Done():
			return
		}
	}
	if err := s.Err(); err != nil {
		r.fail(err)
	}
}

// speak sends a line, or does what it says.
func (r *room) speak(ctx context.Context, c *client.Client, line string) {
	r.mu.Lock()
	peer := r.peer
	r.mu.Unlock()
	switch {
	case strings.TrimSpace(line) == "":
	case line == "/who":
		r.introduce("you are", r.self)
		r.introduce("you write to", peer)
	case strings.HasPrefix(line, "/"):
		r.say("* there are /who and /quit")
	case peer == crypto.PublicKey{}:
		r.fail(errors.New("nobody has written yet, and there is no -to"))
	default:
		r.sent.Add(1)
		if _, err := c.Send(ctx, peer, client.Text(line), client.NoWait()); err != nil {
			r.settled(peer, client.Receipt{}, err)
		}
	}
}

// settled says what has become of a line.
func (r *room) settled(_ crypto.PublicKey, receipt client.Receipt, err error) {
	defer r.sent.Done()
	switch {
	case err != nil:
		r.fail(err)
	case receipt.Status == client.Stored:
		r.say("  stored until they are back")
	default:
		r.say("  %v", receipt.Status)
	}
}

// awaitReceipts waits for the end of all lines, though not for ever.
func (r *room) awaitReceipts(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	go func() {
		r.sent.Wait() // at the latest, the client is closed
		cancel()
	}()
	<-ctx.Done()
}

// hear shows a letter. Whoever writes first is whom we write to.
func (r *room) hear(_ context.Context, l *client.Letter) error {
	r.mu.Lock()
	before := r.peer
	if before == (crypto.PublicKey{}) {
		r.peer = l.From
	}
	r.mu.Unlock()
	switch before {
	case l.From:
	case crypto.PublicKey{}:
		r.introduce("somebody is here, and you write to them now:", l.From)
	default:
		r.introduce("from somebody else:", l.From)
	}
	if l.Type != crypto.Text || l.Protection != client.ProtectionSealed {
		r.say("* a message that is no sealed text is not shown")
		return nil
	}
	r.say("%.8v: %s", l.From, printable(l.Text()))
	return nil
}

func (r *room) introduce(what string, key crypto.PublicKey) {
	r.say("* %s %v\n  fingerprint: %s", what, key, key.Fingerprint())
}

func (r *room) fail(err error) {
	r.say("  not sent: %s", printable(err.Error()))
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failed = fmt.Errorf("not everything was sent: %w", err)
}

// say writes a line. It may be called by any goroutine.
func (r *room) say(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	fmt.Fprintf(r.out, format+"\n", args...)
}

// printable replaces what could command a terminal, or fake a line of ours.
func printable(s string) string {
	return strings.Map(func(c rune) rune {
		if unicode.IsPrint(c) {
			return c
		}
		return '\uFFFD'
	}, s)
}
