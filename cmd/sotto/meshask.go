package main

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/sotto-relay/sotto/crypto"
	"github.com/sotto-relay/sotto/frame"
	"github.com/sotto-relay/sotto/handshake"
)

// meshCommand asks a relay what it tells clients of the mesh.
func (p *program) meshCommand() *cli.Command {
	verb := func(name, what, args, description string, parse func(*inquiry, []string) (ask func(context.Context, *patient) error, err error), more ...cli.Flag) *cli.Command {
		return &cli.Command{
			Name: name, Usage: what, ArgsUsage: args, Description: description,
			Flags: slices.Concat(more, []cli.Flag{
				p.stringFlag("relay", defaultRelay, "`URL` of the relay: ws://, wss://, tcp:// or tls://"),
				p.relayKeyFlag(),
				p.caFlag(),
				p.knownRelaysFlag(),
				p.durationFlag("timeout", 20*time.Second, "`TIME` to wait for the relay"),
				p.boolFlag("json", "print JSON, one value a line"),
			}),
			Action: func(ctx context.Context, cmd *cli.Command) error {
				q, err := p.parseInquiry(cmd)
				if err != nil {
					return usage(ctx, cmd, err, true)
				}
				ask, err := parse(q, cmd.Args().Slice())
				if err != nil {
					return usage(ctx, cmd, err, true)
				}
				return failed(q.run(ctx, ask))
			},
		}
	}
	return &cli.Command{
		Name:  "mesh",
		Usage: "ask a relay about other relays",
		Description: "Asks with an identity made for the purpose, if none is given, and remembers nothing.\n" +
			"More is among the metrics of a relay: see serve --metrics.",
		Commands: []*cli.Command{
			verb("peers", "list the relays that a relay is linked with", "",
				"Lists the key and address of the relay itself, if it was given --advertise, and of those\n"+
					"that it is linked with now. Those that have told no address are not among them.",
				(*inquiry).parsePeers),
			verb("find", "ask where a client is connected", "KEY",
				"KEY is the client's, as sotto id shows it. With the identity of the relay itself, which\n"+
					"its operator has (serve --identity, or identity in the directory of --data), the relay\n"+
					"looks for the client at the others too, as it does for messages. Strangers hear of this\n"+
					"relay alone, and only if it was given --presence-queries: else it is not found, whatever\n"+
					"is true.",
				(*inquiry).parseFind,
				p.stringFlag("identity", "", "`FILE` of the relay's own identity, to ask as its operator")),
		},
		Action: func(ctx context.Context, cmd *cli.Command) error {
			return usage(ctx, cmd, errors.New("mesh wants one of peers and find"), true)
		},
	}
}

// An inquiry is what mesh was asked for.
type inquiry struct {
	*account
	json    bool
	timeout time.Duration
}

func (p *program) parseInquiry(cmd *cli.Command) (*inquiry, error) {
	a, err := p.parseAccount(cmd, "--relay", cmd.String("relay"))
	if err != nil {
		return nil, err
	}
	q := &inquiry{account: a, json: cmd.Bool("json")}
	q.timeout, err = timeout(cmd)
	return q, err
}

// run has a relay asked.
func (q *inquiry) run(ctx context.Context, ask func(context.Context, *patient) error) error {
	known, err := knownRelays(q.known)
	if err != nil {
		return err
	}
	q.known = known
	ctx, cancel := context.WithTimeout(ctx, q.timeout)
	defer cancel()
	err = q.logIn(ctx, ask)
	if err != nil {
		err = cmp.Or(ctx.Err(), err)
	}
	return q.explain(ctx, err)
}

func (q *inquiry) logIn(ctx context.Context, ask func(context.Context, *patient) error) error {
	id, err := q.asker()
	if err != nil {
		return err
	}
	dial, err := q.dialer()
	if err != nil {
		return err
	}
	expect, err := handshake.Expect(q.relayKey, handshake.NewFileTrust(q.known), q.address)
	if err != nil {
		return err
	}
	p, err := login(ctx, dial, id, expect)
	if err != nil {
		return err
	}
	defer p.close()
	return ask(ctx, p)
}

// asker returns the identity to ask with.
func (q *inquiry) asker() (*crypto.Identity, error) {
	if q.identity == "" {
		return crypto.GenerateIdentity()
	}
	return crypto.LoadIdentity(q.identity)
}

func (q *inquiry) parsePeers(args []string) (func(context.Context, *patient) error, error) {
	if len(args) > 0 {
		return nil, fmt.Errorf("mesh peers takes no argument, such as %q", args[0])
	}
	return q.peers, nil
}

func (q *inquiry) parseFind(args []string) (func(context.Context, *patient) error, error) {
	if len(args) != 1 {
		return nil, errors.New("mesh find wants one argument, the KEY of a client")
	}
	key, err := parseKey(args[0])
	if err != nil {
		return nil, fmt.Errorf("KEY: %w", err)
	}
	return func(ctx context.Context, p *patient) error { return q.find(ctx, p, key) }, nil
}

// peers shows the relays that a relay tells of.
func (q *inquiry) peers(ctx context.Context, p *patient) error {
	answer, err := p.nodeInfo(ctx, frame.NodeInfo{Subtype: frame.NodeInfoRequestServers}, frame.NodeInfoResponseServers)
	if err != nil {
		return err
	}
	for _, s := range answer.Servers {
		self := crypto.PublicKey(s.Key) == p.relay().Key
		if q.json {
			err = writeJSON(q.p.stdout, struct {
				Key     string `json:"key"`
				Address string `json:"address"`
				Self    bool   `json:"self"` // it is the relay that was asked
			}{hex.EncodeToString(s.Key[:]), s.Address, self})
		} else {
			line := hex.EncodeToString(s.Key[:]) + "  " + printable(s.Address)
			if self {
				line += "  (itself)"
			}
			_, err = fmt.Fprintln(q.p.stdout, line)
		}
		if err != nil {
			return err
		}
	}
	if len(answer.Servers) == 0 {
		q.p.complain("the relay at %s tells of none: it is linked with none that has an address, and has told none of its own (serve --advertise)", q.address)
	}
	return nil
}

// find shows whether a client is connected.
func (q *inquiry) find(ctx context.Context, p *patient, key crypto.PublicKey) error {
	answer, err := p.nodeInfo(ctx, frame.NodeInfo{Subtype: frame.NodeInfoQueryClient, Client: key}, frame.NodeInfoQueryResponse)
	if err != nil {
		return err
	}
	if q.json {
		relay := ""
		if answer.Found {
			relay = hex.EncodeToString(answer.Relay[:])
		}
		return writeJSON(q.p.stdout, struct {
			Key   string `json:"key"`
			Found bool   `json:"found"`
			Relay string `json:"relay,omitempty"`
		}{key.String(), answer.Found, relay})
	}
	text := "not found"
	if answer.Found {
		text = "found at the relay " + hex.EncodeToString(answer.Relay[:])
	}
	_, err = fmt.Fprintln(q.p.stdout, text)
	return err
}
