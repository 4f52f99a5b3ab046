package main

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/urfave/cli/v3"

	"github.com/sotto-relay/sotto/crypto"
	"github.com/sotto-relay/sotto/frame"
	"github.com/sotto-relay/sotto/relay/client"
	"github.com/sotto-relay/sotto/relay/dialect/brep"
)

func (p *program) recvCommand() *cli.Command {
	return &cli.Command{
		Name:  "recv",
		Usage: "show what has come",
		Description: "Shows the messages that wait for you, and ends when nothing has come for --idle.\n" +
			"The relay keeps each until it has been shown or saved; what went into a pipe counts\n" +
			"as shown, whether or not the program at its other end has read it.\n" +
			"Each begins with the sender's first digits and fingerprint, and how it was protected\n" +
			"unless it was sealed. Control characters are escaped, and lines after the first\n" +
			"indented. Files are saved in --dir under names that are not taken; of those that are\n" +
			"too large for a message nothing is written before --max-file has been asked, and what\n" +
			"is not whole when recv ends goes on with the next one.",
		Flags: append(p.clientFlags(),
			p.boolFlag("follow", "go on until interrupted or another login with this identity, and connect again when the relay is lost"),
			p.stringFlag("dir", "", "`DIR` for files, made when the first comes (default sotto/files where configuration is kept)"),
			p.stringFlag("max-file", "1G", "the largest file to save, in bytes or with K, M or G behind it, as `SIZE`; 0 for none"),
			p.stringFlag("max-dir", "8G", "how large --dir may become by such files, as `SIZE`"),
			p.durationFlag("idle", 2*time.Second, "`TIME` without a message after which it ends, unless with --follow"),
			p.durationFlag("timeout", 30*time.Second, "`TIME` to wait for the login, unless with --follow, or for more of a file"),
		),
		Action: func(ctx context.Context, cmd *cli.Command) error {
			r, err := p.parseRecv(cmd)
			if err != nil {
				return usage(ctx, cmd, err, true)
			}
			return failed(r.run(ctx))
		},
	}
}

// A collection is what recv was asked for.
type collection struct {
	*account
	follow        bool
	dir           string // or empty
	maxFile       int64
	maxDir        int64
	idle, timeout time.Duration
	json          bool

	large   arrivals
	unsaved int // files that could not be saved
}

func (p *program) parseRecv(cmd *cli.Command) (*collection, error) {
	if cmd.Args().Present() {
		return nil, fmt.Errorf("recv takes no argument, such as %q", cmd.Args().First())
	}
	a, err := p.parseAccount(cmd, "--relay", cmd.String("relay"))
	if err != nil {
		return nil, err
	}
	r := &collection{
		account: a,
		follow:  cmd.Bool("follow"),
		dir:     cmd.String("dir"),
		idle:    cmd.Duration("idle"),
		timeout: cmd.Duration("timeout"),
		json:    cmd.Bool("json"),
	}
	if r.maxFile, err = parseSize(cmd.String("max-file")); err != nil {
		return nil, fmt.Errorf("--max-file: %w", err)
	}
	if r.maxDir, err = parseSize(cmd.String("max-dir")); err != nil {
		return nil, fmt.Errorf("--max-dir: %w", err)
	}
	if r.idle <= 0 || r.timeout <= 0 {
		return nil, errors.New("--idle and --timeout have to be above 0")
	}
	return r, nil
}

func (r *collection) run(interrupt context.Context) error {
	ctx, cancel := context.WithCancelCause(interrupt)
	defer cancel(nil)
	login := ctx
	if !r.follow {
		var stop context.CancelFunc
		login, stop = context.WithTimeout(ctx, r.timeout)
		defer stop()
	}
	if err := r.findDir(); err != nil {
		return err
	}
	r.large.shown = progress{p: r.p, json: r.json}
	r.files = r.filePolicy()
	c, hangUp, err := r.connect(login, cancel, func(bool) bool { return r.follow }, false)
	switch {
	case err != nil && r.follow && interrupt.Err() != nil:
		return nil // as it ends
	case err != nil:
		return err
	}
	err = r.read(ctx, c)
	ended := c.Err()
	if ended == nil && interrupt.Err() == nil {
		ended = ctx.Err() // because the relay was lost
	}
	hangUp()
	if err = errors.Join(err, r.end()); err != nil {
		return err
	}
	var relayErr *brep.RelayError
	switch {
	case errors.As(ended, &relayErr) && relayErr.Code == frame.CodeReplaced:
		return errors.New("another program has logged in with this identity, as sotto send and sotto recv do, and is brought what comes from now on; each needs its own")
	case ended != nil:
		return r.explain(ctx, ended)
	case r.unsaved > 0:
		return fmt.Errorf("%d of the files could not be saved; the relay keeps them for the next sotto recv", r.unsaved)
	case r.large.failed > 0:
		return fmt.Errorf("%d of the files have failed, and have to be sent again", r.large.failed)
	}
	return nil
}

// read shows letters until ctx or the client ends, or nothing comes any more.
func (r *collection) read(ctx context.Context, c *client.Client) error {
	if r.follow {
		return r.each(ctx, c, func() {})
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	quiet := time.AfterFunc(r.idle, stop)
	defer quiet.Stop()
	shown := func() { quiet.Reset(r.patienceNow()) }
	r.large.onStep(shown)
	return r.each(ctx, c, shown)
}

// each shows letters until the client or ctx ends. The error is one of showing.
func (r *collection) each(ctx context.Context, c *client.Client, shown func()) (failed error) {
	_ = c.Handle(ctx, func(_ context.Context, l *client.Letter) error {
		defer shown()
		err := r.show(l)
		if !errors.Is(err, client.ErrLater) {
			failed = err
		}
		return err
	})
	return failed
}

// show prints a letter, and saves it if it is a file.
func (r *collection) show(l *client.Letter) error {
	path := ""
	if l.Type == crypto.File {
		var err error
		if int64(len(l.Data)) > r.maxFile {
			err = errors.New("it is larger than --max-file")
		} else {
			path, err = r.save(l)
		}
		if err != nil {
			r.unsaved++
			r.p.complain("a file from %v, %q, cannot be saved, and stays at the relay: %v", l.From, l.Name, err)
			return client.ErrLater
		}
	}
	r.p.clear()
	if r.json {
		return writeJSON(r.p.stdout, newRecord(l, path))
	}
	protection := ""
	if l.Protection != client.ProtectionSealed {
		protection = " [" + l.Protection.String() + "]"
	}
	text := indented(l.Text())
	if path != "" {
		text = fmt.Sprintf("file of %d bytes, saved as %s", len(l.Data), printable(path))
	}
	_, err := fmt.Fprintf(r.p.stdout, "%.8v (%s)%s: %s\n", l.From, l.From.Fingerprint(), protection, text)
	return err
}

// A record is a letter in JSON. It has either text, if it is UTF-8, or data, or
// name and path.
type record struct {
	From       string `json:"from"`
	ID         string `json:"id"`
	Type       string `json:"type"`
	Protection string `json:"protection"`
	Text       string `json:"text,omitempty"`
	Data       []byte `json:"data,omitempty"` // base64
	Name       string `json:"name,omitempty"`
	Path       string `json:"path,omitempty"`
	Bytes      int    `json:"bytes"`
}

func newRecord(l *client.Letter, path string) *record {
	rec := &record{
		From:       l.From.String(),
		ID:         hex.EncodeToString(l.ID[:]),
		Protection: l.Protection.String(),
		Bytes:      len(l.Data),
	}
	switch l.Type {
	case crypto.File:
		rec.Type, rec.Name, rec.Path = "file", l.Name, path
		return rec
	case crypto.Text:
		rec.Type = "text"
	case crypto.JSON:
		rec.Type = "json"
	default:
		rec.Type = "raw"
	}
	if utf8.Valid(l.Data) {
		rec.Text = l.Text()
	} else {
		rec.Data = l.Data
	}
	return rec
}
