package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	"github.com/urfave/cli/v3"

	"github.com/sotto-relay/sotto/crypto"
	"github.com/sotto-relay/sotto/relay/client"
)

func (p *program) chatCommand() *cli.Command {
	return &cli.Command{
		Name:      "chat",
		Usage:     "talk in a room",
		ArgsUsage: "ROOM",
		Description: "Joins a room, which is there as long as somebody is in it, sends each line of standard\n" +
			"input to the others, signed with your identity, and shows what they say, until the\n" +
			"input ends. The relay can read it, unless all have the file of --key: one makes it\n" +
			"with --new-key, and gives it to the others in a safe way. Lines that begin with a\n" +
			"slash are commands: /who tells how many were there when you came, /quit leaves, and\n" +
			"//text says /text.\n" +
			"Nothing is kept for those who are away: a line that begins with gap says where the\n" +
			"connection was lost. An identity is logged in once at a relay: this ends a\n" +
			"recv --follow with the same.",
		Flags: append(p.clientFlags(),
			p.stringFlag("key", "", "`FILE` with the key of the room: what is said is sealed with it"),
			p.stringFlag("new-key", "", "as --key, but make the key and `FILE`"),
		),
		Action: func(ctx context.Context, cmd *cli.Command) error {
			v, err := p.parseChat(cmd)
			if err != nil {
				return usage(ctx, cmd, err, true)
			}
			return failed(v.run(ctx))
		},
	}
}

// A visit to a room is what chat was asked for.
type visit struct {
	*account
	room           string
	newKey, oldKey string // files, or empty
	json           bool

	key *crypto.GroupKey // nil: none
}

func (p *program) parseChat(cmd *cli.Command) (*visit, error) {
	a, err := p.parseAccount(cmd, "--relay", cmd.String("relay"))
	if err != nil {
		return nil, err
	}
	v := &visit{account: a, room: cmd.Args().First(), newKey: cmd.String("new-key"), oldKey: cmd.String("key"), json: cmd.Bool("json")}
	switch {
	case cmd.NArg() != 1:
		return nil, errors.New("chat wants one argument, the name of a room")
	case !isName(v.room) || strings.ContainsFunc(v.room, unicode.IsControl):
		return nil, fmt.Errorf("ROOM: %q is no name of a room: it is UTF-8 without control characters", v.room)
	}
	if v.newKey != "" && v.oldKey != "" {
		return nil, errors.New("--key and --new-key exclude each other")
	}
	return v, nil
}

func (v *visit) run(ctx context.Context) error {
	if err := v.loadKey(); err != nil {
		return err
	}
	return v.patiently(ctx, v.stay)
}

// stay says what is typed and shows what is said, until the input, ctx or the
// client ends.
func (v *visit) stay(ctx context.Context, c *client.Client) error {
	room, err := c.JoinRoom(ctx, v.room)
	if err != nil {
		return v.explain(ctx, err)
	}
	who := "the relay"
	if v.key != nil {
		who = "who has the key"
	}
	v.p.complain("in the room %s with %s; %s can read what is said", v.room, others(room), who)
	var hearing sync.WaitGroup
	defer hearing.Wait()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	deaf := make(chan error, 1)
	hearing.Go(func() { deaf <- v.hear(ctx, room) })
	lines := v.p.lines(ctx)
	for {
		select {
		case err := <-deaf:
			return err
		case l, more := <-lines:
			if !more || l.text == "/quit" {
				return nil
			}
			if err := v.take(ctx, room, l); err != nil {
				return err
			}
		}
	}
}

// others returns how many others there were when we joined, in words.
func others(room *client.Room) string {
	switch n := room.Members() - 1; n {
	case 0:
		return "nobody else"
	case 1:
		return "1 other"
	default:
		return fmt.Sprintf("%d others", n)
	}
}

// take does what a line says. The error is one of the program's end.
func (v *visit) take(ctx context.Context, room *client.Room, l line) error {
	text, isCommand := strings.CutPrefix(l.text, "/")
	switch {
	case l.err != nil:
		return fmt.Errorf("standard input: %w", l.err)
	case l.text == "":
		return nil
	case !utf8.ValidString(l.text):
		v.p.complain("that line is not UTF-8, and was not sent")
		return nil
	case l.text == "/who":
		v.p.complain("%s when you came", others(room))
		return nil
	case !isCommand:
		return v.say(ctx, room, l.text)
	case strings.HasPrefix(text, "/"):
		return v.say(ctx, room, text)
	}
	v.p.complain("there is no command %s: the commands are /who and /quit, and //text says /text", l.text)
	return nil
}

// say sends a text, for which it waits for a connection.
func (v *visit) say(ctx context.Context, room *client.Room, text string) error {
	sealed, err := v.seal(text)
	if err == nil {
		_, err = room.Send(ctx, sealed)
	}
	var refused *client.RefusedError
	switch {
	case errors.Is(err, client.ErrTooLarge), errors.As(err, &refused):
		v.p.complain("that line was not sent: %v", err)
	case err != nil:
		return v.explain(ctx, err)
	}
	return nil
}

// hear shows what the others say.
func (v *visit) hear(ctx context.Context, room *client.Room) error {
	for m, err := range room.Messages(ctx) {
		if err != nil {
			return v.explain(ctx, err)
		}
		if v.open(m) != nil {
			v.p.complain("what %.8v said was dropped: it is not sealed with this key", m.From)
			continue
		}
		if err := v.print(m); err != nil {
			return err
		}
	}
	return nil
}

func (v *visit) print(m *client.Publication) error {
	switch {
	case v.json && m.Gap:
		return writeJSON(v.p.stdout, struct {
			Room string `json:"room"`
			Gap  bool   `json:"gap"`
		}{v.room, true})
	case v.json:
		return writeJSON(v.p.stdout, struct {
			Room string `json:"room"`
			signedText
		}{v.room, newSignedText(m)})
	case m.Gap:
		_, err := fmt.Fprintln(v.p.stdout, "gap: what was said here may be missing")
		return err
	}
	_, err := fmt.Fprintf(v.p.stdout, "%.8v (%s): %s\n", m.From, m.From.Fingerprint(), indented(string(m.Data)))
	return err
}
