package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/urfave/cli/v3"

	"github.com/sotto-relay/sotto/crypto"
)

func (p *program) idCommand() *cli.Command {
	return &cli.Command{
		Name:  "id",
		Usage: "show your address and fingerprint",
		Description: "Shows the identity in a file, and makes it if there is none. Others write to the\n" +
			"address; the fingerprint is for comparing it over the telephone.",
		Flags: []cli.Flag{
			p.identityFlag(),
			p.boolFlag("json", "print JSON"),
		},
		Action: func(ctx context.Context, cmd *cli.Command) error {
			if cmd.Args().Present() {
				return usage(ctx, cmd, fmt.Errorf("id takes no argument, such as %q", cmd.Args().First()), true)
			}
			return failed(p.showIdentity(cmd.String("identity"), cmd.Bool("json")))
		},
	}
}

func (p *program) identityFlag() cli.Flag {
	return p.stringFlag("identity", "", "`FILE` of your identity (default sotto/identity where configuration is kept)")
}

func (p *program) showIdentity(file string, asJSON bool) error {
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
		}{key.String(), key.Fingerprint(), file})
	}
	_, err = fmt.Fprintf(p.stdout, "address      %v\nfingerprint  %s\nfile         %s\n", key, key.Fingerprint(), printable(file))
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
