package main

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/urfave/cli/v3"

	"github.com/sotto-relay/sotto/crypto"
	"github.com/sotto-relay/sotto/relay/client"
)

// maxContent is a little more than what fits in a frame: what is longer is not
// read.
const maxContent = 4 << 20

func (p *program) sendCommand() *cli.Command {
	message := p.stringFlag("message", "", "`TEXT` to send")
	message.Aliases = []string{"m"}
	return &cli.Command{
		Name:      "send",
		Usage:     "send text or files",
		ArgsUsage: "TO [FILE…]",
		Description: "Sends text, from -m or else from standard input, or files to the address TO, sealed\n" +
			"so that only its holder can read them, and prints the relay's receipt: handed to the\n" +
			"recipient's connection, or stored for the recipient. Messages have up to 4 MiB.\n" +
			"What waits for you is left to recv. But an identity is logged in once at a relay:\n" +
			"to send with one ends a recv --follow with the same.",
		Flags: append(p.clientFlags(),
			message,
			p.boolFlag("signed", "sign only: relays can read it"),
			p.boolFlag("clear", "neither seal nor sign; not for files"),
			p.durationFlag("timeout", 30*time.Second, "`TIME` to wait for a connection and the receipts"),
		),
		Action: func(ctx context.Context, cmd *cli.Command) error {
			s, err := p.parseSend(cmd)
			if err != nil {
				return usage(ctx, cmd, err, true)
			}
			return failed(s.run(ctx))
		},
	}
}

// A shipment is what send was asked for.
type shipment struct {
	*account
	to      crypto.PublicKey
	text    *string // nil: none; see stdin
	stdin   bool    // text comes from there
	files   []string
	options []client.SendOption
	json    bool
	timeout time.Duration
}

func (p *program) parseSend(cmd *cli.Command) (*shipment, error) {
	a, err := p.parseAccount(cmd)
	if err != nil {
		return nil, err
	}
	s := &shipment{account: a, json: cmd.Bool("json"), timeout: cmd.Duration("timeout")}
	if !cmd.Args().Present() {
		return nil, errors.New("TO is missing: the address to send to")
	}
	if s.to, err = parseKey(cmd.Args().First()); err != nil {
		return nil, fmt.Errorf("TO: %w", err)
	}
	s.files = cmd.Args().Tail()
	if cmd.IsSet("message") {
		text := cmd.String("message")
		s.text = &text
	}
	s.stdin = s.text == nil && len(s.files) == 0
	switch isClear, isSigned := cmd.Bool("clear"), cmd.Bool("signed"); {
	case isClear && isSigned:
		return nil, errors.New("--clear and --signed exclude each other")
	case isClear && len(s.files) > 0:
		return nil, errors.New("--clear loses the names of files: use --signed, or neither")
	case isClear:
		s.options = append(s.options, client.Clear())
	case isSigned:
		s.options = append(s.options, client.Signed())
	}
	if s.timeout <= 0 {
		return nil, fmt.Errorf("--timeout %v leaves no time", s.timeout)
	}
	return s, nil
}

// An item is one message to send.
type item struct {
	kind, name string // kind is text or file
	content    client.Content
}

func (s *shipment) run(ctx context.Context) error {
	items, err := s.load(ctx) // all, before anything is sent
	if err != nil {
		return err
	}
	ctx, stop := context.WithTimeout(ctx, s.timeout)
	defer stop()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	c, err := s.connect(ctx, cancel, func(loggedIn bool) bool { return loggedIn })
	if err != nil {
		return err
	}
	defer c.Close()
	for _, it := range items {
		receipt, err := c.Send(ctx, s.to, it.content, s.options...)
		if errors.Is(err, client.ErrTooLarge) {
			return tooLarge(it.name)
		}
		if err != nil {
			return s.explain(ctx, err)
		}
		if err := s.print(it, receipt); err != nil {
			return err
		}
	}
	return nil
}

// load reads everything that is to be sent.
func (s *shipment) load(ctx context.Context) ([]item, error) {
	var items []item
	if s.stdin {
		text, err := s.readStdin(ctx)
		if err != nil {
			return nil, err
		}
		s.text = &text
	}
	if s.text != nil {
		switch {
		case *s.text == "":
			return nil, errors.New("the text is empty, and nothing was sent")
		case !utf8.ValidString(*s.text):
			return nil, errors.New("the text is not UTF-8: send it as a file")
		}
		items = append(items, item{"text", "the text", client.Text(*s.text)})
	}
	for _, file := range s.files {
		data, err := readFile(file)
		if err != nil {
			return nil, err
		}
		name := filepath.Base(file)
		if !crypto.SafeFileName(name) {
			return nil, fmt.Errorf("%s has a name that recipients refuse: rename it", file)
		}
		items = append(items, item{"file", name, client.File(name, data)})
	}
	return items, nil
}

// readStdin reads the text. A read cannot be interrupted: if ctx ends first, it
// goes on until the program has ended.
func (s *shipment) readStdin(ctx context.Context) (string, error) {
	type result struct {
		text []byte
		err  error
	}
	read := make(chan result, 1)
	go func() {
		text, err := io.ReadAll(io.LimitReader(s.p.stdin, maxContent+1))
		read <- result{text, err}
	}()
	select {
	case <-ctx.Done():
		return "", errors.New("interrupted, and nothing was sent")
	case r := <-read:
		if len(r.text) > maxContent {
			return "", tooLarge("standard input")
		}
		return strings.TrimSuffix(string(r.text), "\n"), r.err
	}
}

func readFile(path string) ([]byte, error) {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return nil, fmt.Errorf("cannot send: %w", err)
	case info.IsDir():
		return nil, fmt.Errorf("%s is a directory: pack it into a file", path)
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%s is no regular file", path)
	case info.Size() > maxContent:
		return nil, tooLarge(path)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("cannot send: %w", err)
	}
	return data, nil
}

func tooLarge(what string) error {
	return fmt.Errorf("%s is too large: a message has 4 MiB at most, sealed and padded, and this version sends none in parts", what)
}

func (s *shipment) print(it item, r client.Receipt) error {
	if s.json {
		out := struct {
			To     string `json:"to"`
			ID     string `json:"id"`
			Status string `json:"status"`
			Type   string `json:"type"`
			Name   string `json:"name,omitempty"`
		}{s.to.String(), hex.EncodeToString(r.ID[:]), r.Status.String(), it.kind, ""}
		if it.kind == "file" {
			out.Name = it.name
		}
		return writeJSON(s.p.stdout, out)
	}
	what := map[client.Status]string{
		client.Handed: "handed to a connection of",
		client.Stored: "stored for",
	}[r.Status]
	if what == "" {
		what = r.Status.String() + " for"
	}
	_, err := fmt.Fprintf(s.p.stdout, "%s: %s %.8v (%s)\n", printable(it.name), what, s.to, s.to.Fingerprint())
	return err
}
