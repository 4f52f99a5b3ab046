package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/sotto-relay/sotto/crypto"
)

func (p *program) idCommand() *cli.Command {
	return &cli.Command{
		Name:  "id",
		Usage: "show your address and fingerprint",
		Description: "Shows the identity in a file, and makes it if there is none. Others write to the\n" +
			"address; the fingerprint is for comparing it over the telephone.\n" +
			"With --pairing it shows a text that says, beside the address, where the relay is, its\n" +
			"key, and that there is a card, with which more is sealed; sotto send takes it for TO.\n\n" +
			"Any command that connects makes a state for the identity with --state, a directory\n" +
			"beside its file, and from then on all of them use it, one at a time: messages without\n" +
			"a receipt are kept and sent by the next command, what was shown once is not shown\n" +
			"again, the cards of contacts are remembered, and keys that others seal to are erased\n" +
			"in time. It belongs to the identity: without it what was sealed to its keys is lost.",
		Flags: append(p.clientFlags(),
			p.boolFlag("pairing", "log in at --relay, and show a text with which others find you there"),
			p.durationFlag("timeout", 30*time.Second, "`TIME` to wait for the relay, with --pairing"),
		),
		Action: func(ctx context.Context, cmd *cli.Command) error {
			if cmd.Args().Present() {
				return usage(ctx, cmd, fmt.Errorf("id takes no argument, such as %q", cmd.Args().First()), true)
			}
			if !cmd.Bool("pairing") {
				return failed(p.showIdentity(cmd.String("identity"), "", cmd.Bool("json")))
			}
			m, err := p.parseMeeting(cmd)
			if err != nil {
				return usage(ctx, cmd, err, true)
			}
			return failed(m.run(ctx))
		},
	}
}

func (p *program) identityFlag() cli.Flag {
	return p.stringFlag("identity", "", "`FILE` of your identity (default sotto/identity where configuration is kept)")
}

// showIdentity shows it with a pairing string, unless that is empty.
func (p *program) showIdentity(file, pairing string, asJSON bool) error {
	file, err := identityPath(file)
	if err != nil {
		return err
	}
	id, err := crypto.LoadOrCreateIdentity(file)
	if err != nil {
		return err
	}
	key := id.Public()
	if asJSON {
		return writeJSON(p.stdout, struct {
			Address     string `json:"address"`
			Fingerprint string `json:"fingerprint"`
			File        string `json:"file"`
			Pairing     string `json:"pairing,omitempty"`
		}{key.String(), key.Fingerprint(), file, pairing})
	}
	_, err = fmt.Fprintf(p.stdout, "address      %v\nfingerprint  %s\nfile         %s\n", key, key.Fingerprint(), printable(file))
	if pairing != "" && err == nil {
		_, err = fmt.Fprintf(p.stdout, "pairing      %s\n", pairing)
	}
	return err
}

// identityPath returns file, or the default one.
func identityPath(file string) (string, error) {
	if file != "" {
		return file, nil
	}
	file, err := configFile("identity")
	if err != nil {
		return "", fmt.Errorf("%w; give --identity a file", err)
	}
	return file, nil
}

// configFile returns the path of a file of ours, in a directory that exists.
func configFile(name string) (string, error) {
	dir, err := os.UserConfigDir()
	if err != nil {
		return "", err
	}
	dir = filepath.Join(dir, "sotto")
	return filepath.Join(dir, name), os.MkdirAll(dir, 0o700)
}

// loadIdentity loads the identity of a client. Only at the default place is one
// made: where a file was named and is missing, the name is more likely wrong.
func (p *program) loadIdentity(named string) (*crypto.Identity, error) {
	file, err := identityPath(named)
	if err != nil {
		return nil, err
	}
	id, err := crypto.LoadIdentity(file)
	if !errors.Is(err, fs.ErrNotExist) {
		return id, err
	}
	if named != "" {
		return nil, fmt.Errorf("there is no identity file %s: correct --identity, or make one with sotto id --identity %[1]s", file)
	}
	if id, err = crypto.LoadOrCreateIdentity(file); err == nil {
		p.complain("made your identity, %s; your address is %v", file, id)
	}
	return id, err
}
