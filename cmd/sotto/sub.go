package main

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"sync"
	"unicode/utf8"

	"github.com/urfave/cli/v3"

	"github.com/sotto-relay/sotto/relay/client"
)

func (p *program) subCommand() *cli.Command {
	return &cli.Command{
		Name:      "sub",
		Usage:     "show what is published",
		ArgsUsage: "FILTER…",
		Description: "Shows what is published to the topics that match, first what the relay has retained,\n" +
			"until it is interrupted. In a FILTER, + is any one level of a topic (a/+/c), and # at\n" +
			"the end any number (a/#); what matches several is shown for each.\n" +
			"Each begins with the publisher's first digits and fingerprint, and the topic. Control\n" +
			"characters are escaped, and lines after the first indented. A line that begins with\n" +
			"gap says where some may be missing: nothing is kept for those who are away or slow.\n" +
			"An identity is logged in once at a relay: this ends a recv --follow with the same.",
		Flags: append(p.clientFlags(),
			p.intFlag("count", 0, "`NUMBER` of publications after which it ends (default never)"),
		),
		Action: func(ctx context.Context, cmd *cli.Command) error {
			w, err := p.parseSub(cmd)
			if err != nil {
				return usage(ctx, cmd, err, true)
			}
			return failed(w.run(ctx))
		},
	}
}

// A watch is what sub was asked for.
type watch struct {
	*account
	filters []string
	count   int // 0: no end
	json    bool

	mu    sync.Mutex
	shown int
}

func (p *program) parseSub(cmd *cli.Command) (*watch, error) {
	a, err := p.parseAccount(cmd, "--relay", cmd.String("relay"))
	if err != nil {
		return nil, err
	}
	w := &watch{account: a, filters: cmd.Args().Slice(), count: cmd.Int("count"), json: cmd.Bool("json")}
	if len(w.filters) == 0 {
		return nil, errors.New("FILTER is missing: the topics to listen to; '#' is all")
	}
	for _, f := range w.filters {
		if !isName(f) || !anyLength.ValidFilter(f) {
			return nil, fmt.Errorf("FILTER: %q is none: + is a level by itself, and # the last one", f)
		}
	}
	if w.count < 0 {
		return nil, fmt.Errorf("--count %d is less than nothing", w.count)
	}
	return w, nil
}

func (w *watch) run(ctx context.Context) error { return w.patiently(ctx, w.listen) }

// listen shows what is published until enough is shown, or ctx or the client ends.
func (w *watch) listen(ctx context.Context, c *client.Client) error {
	var showing sync.WaitGroup
	defer showing.Wait()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	ends := make(chan error, len(w.filters))
	for _, filter := range w.filters {
		s, err := c.Subscribe(ctx, filter)
		if err != nil {
			return w.explain(ctx, err)
		}
		showing.Go(func() { ends <- w.showAll(ctx, s, filter) })
	}
	return <-ends
}

func (w *watch) showAll(ctx context.Context, s *client.Subscription, filter string) error {
	for p, err := range s.Messages(ctx) {
		if err != nil {
			return w.explain(ctx, err)
		}
		if enough, err := w.show(p, filter); enough || err != nil {
			return err
		}
	}
	return nil
}

// show prints a publication, or a gap, and says whether it was the last. It is
// called by several goroutines.
func (w *watch) show(p *client.Publication, filter string) (enough bool, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.count > 0 && w.shown == w.count {
		return true, nil
	}
	if !p.Gap {
		w.shown++
	}
	enough = w.count > 0 && w.shown == w.count
	return enough, w.print(p, filter)
}

func (w *watch) print(p *client.Publication, filter string) error {
	switch {
	case w.json && p.Gap:
		return writeJSON(w.p.stdout, struct {
			Filter string `json:"filter"`
			Gap    bool   `json:"gap"`
		}{filter, true})
	case w.json:
		return writeJSON(w.p.stdout, struct {
			Filter   string `json:"filter"`
			Topic    string `json:"topic"`
			Retained bool   `json:"retained"`
			signedText
		}{filter, p.Topic, p.Retained, newSignedText(p)})
	case p.Gap:
		_, err := fmt.Fprintf(w.p.stdout, "gap in %s: here some may be missing\n", printable(filter))
		return err
	}
	retained := ""
	if p.Retained {
		retained = " [retained]"
	}
	_, err := fmt.Fprintf(w.p.stdout, "%.8v (%s)%s %s: %s\n",
		p.From, p.From.Fingerprint(), retained, printable(p.Topic), indented(string(p.Data)))
	return err
}

// A signedText is what somebody has published, in JSON: either text, if it is
// UTF-8, or data.
type signedText struct {
	From  string `json:"from"`
	ID    string `json:"id"`
	Text  string `json:"text,omitempty"`
	Data  []byte `json:"data,omitempty"` // base64
	Bytes int    `json:"bytes"`
}

func newSignedText(p *client.Publication) signedText {
	s := signedText{From: p.From.String(), ID: hex.EncodeToString(p.ID[:]), Bytes: len(p.Data)}
	if utf8.Valid(p.Data) {
		s.Text = string(p.Data)
	} else {
		s.Data = p.Data
	}
	return s
}
