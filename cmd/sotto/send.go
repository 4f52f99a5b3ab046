package main

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/urfave/cli/v3"

	"github.com/sotto-relay/sotto/crypto"
	"github.com/sotto-relay/sotto/relay/client"
)

func (p *program) sendCommand() *cli.Command {
	return &cli.Command{
		Name:      "send",
		Usage:     "send text or files",
		ArgsUsage: "TO [FILE…]",
		Description: "Sends text, from -m or else from standard input, or files to TO, an address or a\n" +
			"pairing string (sotto id --pairing), sealed so that only its holder can read them, and\n" +
			"prints the receipt: handed to the recipient's connection or stored for the recipient,\n" +
			"which is the relay's word, or read, which the recipient has signed.\n" +
			"A file that is too large for a message (4 MiB) is sent in parts, while the recipient\n" +
			"is there to accept it; interrupted, the same command goes on where it was. With a\n" +
			"state (--state) what has no receipt in time is kept, and sent by the next command\n" +
			"with this identity and relay.\n" +
			"What waits for you is left to recv. But an identity is logged in once at a relay:\n" +
			"to send with one ends a recv --follow with the same.",
		Flags: append(p.clientFlags(),
			p.messageFlag(),
			p.stringFlag("until", "", "wait for this `RECEIPT`: handed, stored or read (default the first)"),
			p.boolFlag("forget-card", "forget which card TO had, as if it were somebody new"),
			p.boolFlag("signed", "sign only: relays can read it"),
			p.boolFlag("clear", "neither seal nor sign; not for files"),
			p.durationFlag("timeout", 30*time.Second, "`TIME` to wait for a connection and the receipts, or for a part to be taken"),
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
	pairing *crypto.Pairing // nil: TO was an address
	forget  bool
	until   client.Status // 0: the first receipt
	text    *string       // nil: none; see stdin
	stdin   bool          // text comes from there
	files   []string
	options []client.SendOption
	signed  bool
	json    bool
	timeout time.Duration
}

func (p *program) parseSend(cmd *cli.Command) (*shipment, error) {
	s := &shipment{forget: cmd.Bool("forget-card"), json: cmd.Bool("json")}
	if !cmd.Args().Present() {
		return nil, errors.New("TO is missing: the address to send to")
	}
	if err := s.parseTo(p, cmd, cmd.Args().First()); err != nil {
		return nil, err
	}
	if until := cmd.String("until"); until != "" {
		for s.until = client.Handed; s.until.String() != until; s.until++ {
			if s.until == client.Read {
				return nil, fmt.Errorf("--until is handed, stored or read, not %q", until)
			}
		}
		s.options = append(s.options, client.Until(s.until))
	}
	s.files = cmd.Args().Tail()
	s.text = message(cmd)
	s.stdin = s.text == nil && len(s.files) == 0
	switch isClear, isSigned := cmd.Bool("clear"), cmd.Bool("signed"); {
	case isClear && isSigned:
		return nil, errors.New("--clear and --signed exclude each other")
	case isClear && len(s.files) > 0:
		return nil, errors.New("--clear loses the names of files: use --signed, or neither")
	case isClear:
		s.options = append(s.options, client.Clear())
	case isSigned:
		s.signed = true
		s.options = append(s.options, client.Signed())
	}
	var err error
	s.timeout, err = timeout(cmd)
	return s, err
}

// parseTo reads an address, which is at --relay, or a pairing string.
func (s *shipment) parseTo(p *program, cmd *cli.Command, to string) (err error) {
	relay := cmd.String("relay")
	if !strings.HasPrefix(to, "sotto:") {
		if s.account, err = p.parseAccount(cmd, "--relay", relay); err != nil {
			return err
		}
		if s.to, err = parseKey(to); err != nil {
			return fmt.Errorf("TO: %w", err)
		}
		return nil
	}
	pairing, err := crypto.ParsePairing(to)
	if err != nil {
		return fmt.Errorf("TO: %q is no pairing string as sotto id --pairing shows it: is it whole, and in quotes?", to)
	}
	s.to, s.pairing = pairing.Key, &pairing
	if s.account, err = p.parseAccount(cmd, "the relay", pairing.URL()); err != nil {
		return err
	}
	switch {
	case cmd.IsSet("relay") && strings.TrimSuffix(relay, "/") != strings.TrimSuffix(s.address, "/"):
		return fmt.Errorf("%v is at the relay %s, and --relay is another: leave that out, or give the address alone", s.to, s.address)
	case pairing.Relay == (crypto.PublicKey{}):
	case s.relayKey != nil && *s.relayKey != pairing.Relay:
		return fmt.Errorf("its relay has the key %v, and --relay-key is another", pairing.Relay)
	default:
		s.relayKey = &pairing.Relay
	}
	return nil
}

// An item is one message to send.
type item struct {
	kind, name string // kind is text or file
	content    client.Content
	path       string // of a file
	large      bool   // it is not in content, and is sent in parts
}

func (s *shipment) run(ctx context.Context) error {
	items, err := s.load(ctx) // all, before anything is sent
	if err != nil {
		return err
	}
	return s.briefly(ctx, s.timeout, true, func(ctx context.Context, c *client.Client) error {
		if err := s.prepare(ctx, c); err != nil {
			return s.explain(ctx, err)
		}
		for i, it := range items {
			if err := s.send(ctx, c, it); err != nil {
				return fmt.Errorf("%w%s", err, rest(items[i+1:]))
			}
		}
		return nil
	})
}

// rest says what was not sent, if anything.
func rest(items []item) string {
	if len(items) == 0 {
		return ""
	}
	return fmt.Sprintf("; from %s on nothing was sent", items[0].name)
}

// prepare tells the client what is known of the recipient.
func (s *shipment) prepare(ctx context.Context, c *client.Client) error {
	if s.forget {
		if err := c.Forget(ctx, s.to); err != nil {
			return err
		}
	}
	if s.pairing == nil {
		return nil
	}
	return c.Pair(ctx, *s.pairing)
}

// send sends an item, and prints its receipt.
func (s *shipment) send(ctx context.Context, c *client.Client, it item) error {
	if it.large {
		return s.sendParts(ctx, c, it)
	}
	receipt, err := s.keepOr(ctx, c, func(ctx context.Context) (client.Receipt, error) {
		return c.Send(ctx, s.to, it.content, s.options...)
	})
	switch {
	case errors.Is(err, client.ErrTooLarge) && it.path != "" && !s.signed:
		return s.sendParts(ctx, c, it)
	case errors.Is(err, client.ErrTooLarge):
		return tooLarge(it.name)
	case s.until > client.Handed && errors.Is(context.Cause(ctx), context.DeadlineExceeded):
		return fmt.Errorf("%s was not %v within --timeout; it may have arrived or not", it.name, s.until)
	case err != nil:
		return s.explain(ctx, err)
	}
	return s.print(it, receipt)
}

// load reads everything that is to be sent.
func (s *shipment) load(ctx context.Context) ([]item, error) {
	var items []item
	if s.stdin {
		text, err := s.p.readStdin(ctx)
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
		items = append(items, item{kind: "text", name: "the text", content: client.Text(*s.text)})
	}
	for _, file := range s.files {
		it, err := s.loadFile(file)
		if err != nil {
			return nil, err
		}
		items = append(items, it)
	}
	return items, nil
}

// loadFile reads a file, unless it is large.
func (s *shipment) loadFile(path string) (item, error) {
	it := item{kind: "file", name: filepath.Base(path), path: path}
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return it, fmt.Errorf("cannot send: %w", err)
	case info.IsDir():
		return it, fmt.Errorf("%s is a directory: pack it into a file", path)
	case !info.Mode().IsRegular():
		return it, fmt.Errorf("%s is no regular file", path)
	case !crypto.SafeFileName(it.name):
		return it, fmt.Errorf("%s has a name that recipients refuse: rename it", path)
	case info.Size() > maxContent && s.signed:
		return it, tooLarge(path)
	case info.Size() > maxContent:
		it.large = true
		return it, nil
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return it, fmt.Errorf("cannot send: %w", err)
	}
	it.content = client.File(it.name, data)
	return it, nil
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
		client.Read:   "read by",
	}[r.Status]
	switch {
	case what == "":
		what = r.Status.String() + " for"
	case it.kind == "file" && r.Status == client.Read:
		what = "received by"
	}
	_, err := fmt.Fprintf(s.p.stdout, "%s: %s %.8v (%s)\n", printable(it.name), what, s.to, s.to.Fingerprint())
	return err
}
