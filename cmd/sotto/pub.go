package main

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"time"
	"unicode/utf8"

	"github.com/urfave/cli/v3"

	"github.com/sotto-relay/sotto/pubsub"
	"github.com/sotto-relay/sotto/relay/client"
)

func (p *program) pubCommand() *cli.Command {
	return &cli.Command{
		Name:      "pub",
		Usage:     "publish to a topic",
		ArgsUsage: "TOPIC [TEXT]",
		Description: "Publishes TEXT, or that of -m, or else what standard input has without its last line\n" +
			"break, to all who are subscribed to TOPIC just now, signed with your identity, and\n" +
			"waits for the relay's receipt. Relays can read it. With --retain the relay keeps it,\n" +
			"instead of what it kept before, for those who subscribe later.",
		Flags: append(p.clientFlags(),
			p.messageFlag(),
			p.boolFlag("retain", "keep it as the topic's value; an empty one clears that"),
			p.boolFlag("clear-retained", "clear the topic's value"),
			p.durationFlag("timeout", 30*time.Second, "`TIME` to wait for a connection and the receipt"),
		),
		Action: func(ctx context.Context, cmd *cli.Command) error {
			n, err := p.parsePub(cmd)
			if err != nil {
				return usage(ctx, cmd, err, true)
			}
			return failed(n.run(ctx))
		},
	}
}

// A notice is what pub was asked for.
type notice struct {
	*account
	topic   string
	text    *string // nil: from standard input
	retain  bool
	json    bool
	timeout time.Duration
}

func (p *program) parsePub(cmd *cli.Command) (*notice, error) {
	a, err := p.parseAccount(cmd, "--relay", cmd.String("relay"))
	if err != nil {
		return nil, err
	}
	n := &notice{
		account: a, topic: cmd.Args().First(), text: message(cmd), retain: cmd.Bool("retain"),
		json: cmd.Bool("json"),
	}
	switch {
	case !cmd.Args().Present():
		return nil, errors.New("TOPIC is missing: what to publish to")
	case !isName(n.topic) || !anyLength.ValidTopic(n.topic):
		return nil, fmt.Errorf("TOPIC: %q is none: a topic is UTF-8 without + and #", n.topic)
	case cmd.NArg() > 2:
		return nil, errors.New("TEXT is one argument: put it in quotes")
	case cmd.NArg() == 2 && n.text != nil:
		return nil, errors.New("-m and TEXT exclude each other")
	case cmd.NArg() == 2:
		text := cmd.Args().Get(1)
		n.text = &text
	}
	if cmd.Bool("clear-retained") {
		if n.text != nil {
			return nil, errors.New("--clear-retained takes no text")
		}
		n.text, n.retain = new(string), true
	}
	n.timeout, err = timeout(cmd)
	return n, err
}

// anyLength leaves it to the relay how long topics and filters may be.
var anyLength = pubsub.Limits{Bytes: math.MaxUint16, Levels: math.MaxUint16}

// isName says whether a topic, a filter or a room is something at all, and text.
func isName(s string) bool { return s != "" && utf8.ValidString(s) }

func (n *notice) run(ctx context.Context) error {
	if n.text == nil {
		text, err := n.p.readStdin(ctx)
		if err != nil {
			return err
		}
		n.text = &text
	}
	var options []client.SendOption
	switch {
	case n.retain:
		options = append(options, client.Retain())
	case *n.text == "":
		return errors.New("the text is empty, and nothing was published: to clear what is retained, give --clear-retained")
	}
	return n.briefly(ctx, n.timeout, false, func(ctx context.Context, c *client.Client) error {
		receipt, err := c.Publish(ctx, n.topic, []byte(*n.text), options...)
		if errors.Is(err, client.ErrTooLarge) {
			return tooLarge("the text")
		}
		if err != nil {
			return n.explain(ctx, err)
		}
		return n.print(receipt)
	})
}

func (n *notice) print(r client.Receipt) error {
	did := "published"
	switch {
	case n.retain && *n.text == "":
		did = "cleared"
	case n.retain:
		did = "published and retained"
	}
	if n.json {
		return writeJSON(n.p.stdout, struct {
			Topic    string `json:"topic"`
			ID       string `json:"id"`
			Status   string `json:"status"`
			Retained bool   `json:"retained"`
			Bytes    int    `json:"bytes"`
		}{n.topic, hex.EncodeToString(r.ID[:]), r.Status.String(), n.retain, len(*n.text)})
	}
	_, err := fmt.Fprintf(n.p.stdout, "%s: %s\n", printable(n.topic), did)
	return err
}
