package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/sotto-relay/sotto/crypto"
)

func (p *program) doctorCommand() *cli.Command {
	return &cli.Command{
		Name:      "doctor",
		Usage:     "check a relay from outside",
		ArgsUsage: "URL",
		Description: "Checks step by step whether clients can use a relay, with two identities made for\n" +
			"the purpose, and says what to do where something is wrong: each line is ok, warn or\n" +
			"FAIL. It leaves nothing behind; a key that is new here is not remembered.",
		Flags: []cli.Flag{
			p.relayKeyFlag(),
			p.caFlag(),
			p.knownRelaysFlag(),
			p.durationFlag("timeout", 10*time.Second, "`TIME` that each check may take"),
			p.boolFlag("json", "print JSON, one value a line"),
		},
		Action: func(ctx context.Context, cmd *cli.Command) error {
			e, err := p.parseDoctor(cmd)
			if err != nil {
				return usage(ctx, cmd, err, true)
			}
			return failed(e.run(ctx))
		},
	}
}

// An examination is what doctor was asked for, and what it has found so far.
type examination struct {
	*remote
	p        *program
	relayKey *crypto.PublicKey
	known    string // a file, or empty
	timeout  time.Duration
	json     bool

	findings, failures int
	written            error // of standard output

	// What one check finds and the next ones build on.
	ann, ben *patient
}

func (p *program) parseDoctor(cmd *cli.Command) (*examination, error) {
	if cmd.NArg() != 1 {
		return nil, errors.New("doctor wants one argument, the URL of a relay")
	}
	r, err := parseRemote("URL", cmd.Args().First(), cmd.String("ca"))
	if err != nil {
		return nil, err
	}
	e := &examination{
		remote: r, p: p, known: cmd.String("known-relays"), json: cmd.Bool("json"),
	}
	if e.relayKey, err = parseRelayKey(cmd); err != nil {
		return nil, err
	}
	e.timeout, err = timeout(cmd)
	return e, err
}

// A finding is the result of a check.
type finding struct {
	Check  string `json:"check"`
	Status string `json:"status"` // ok, warn or FAIL
	Text   string `json:"text"`
	Advice string `json:"advice,omitempty"` // what to do
}

func (e *examination) report(f finding) {
	e.findings++
	if f.Status == statusFail {
		e.failures++
	}
	if e.written != nil {
		return
	}
	if e.json {
		e.written = writeJSON(e.p.stdout, f)
		return
	}
	text := f.Text
	if f.Advice != "" {
		text += ": " + f.Advice
	}
	_, e.written = fmt.Fprintf(e.p.stdout, "%-4s  %-9s  %s\n", f.Status, f.Check, printable(text))
}

const (
	statusOK   = "ok"
	statusWarn = "warn"
	statusFail = "FAIL"
)

// A check returns what it has found. After one that says stop the later ones
// make no sense.
type check struct {
	name string
	run  func(*examination, context.Context) (status, text, advice string)
	stop bool // if it fails
	skip func(*examination) bool
}

func (e *examination) checks() []check {
	notTLS := func(e *examination) bool { return !e.isTLS() }
	notWeb := func(e *examination) bool { return !e.isWeb() }
	return []check{
		{name: "name", run: (*examination).checkName, stop: true},
		{name: "connect", run: (*examination).checkConnect, stop: true},
		{name: "tls", run: (*examination).checkTLS, stop: true},
		{name: "expiry", run: (*examination).checkExpiry, skip: notTLS},
		{name: "clock", run: (*examination).checkClock, skip: notWeb},
		{name: "ready", run: (*examination).checkReady, skip: notWeb},
		{name: "login", run: (*examination).checkLogin, stop: true},
		{name: "key", run: (*examination).checkKey},
		{name: "live", run: (*examination).checkLive},
		{name: "inbox", run: (*examination).checkInbox},
		{name: "request", run: (*examination).checkRequest},
		{name: "ack", run: (*examination).checkAck},
		{name: "card", run: (*examination).checkCard},
		{name: "topic", run: (*examination).checkTopic},
		{name: "close", run: (*examination).checkClose},
	}
}

func (e *examination) run(ctx context.Context) error {
	known, err := knownRelays(e.known)
	if err != nil {
		return err
	}
	e.known = known
	defer e.discharge()
	for _, c := range e.checks() {
		if c.skip != nil && c.skip(e) {
			continue
		}
		bound, cancel := context.WithTimeout(ctx, e.timeout)
		status, text, advice := c.run(e, bound)
		cancel()
		if ctx.Err() != nil {
			return errInterrupted
		}
		e.report(finding{c.name, status, text, advice})
		if status == statusFail && c.stop {
			break
		}
	}
	switch {
	case e.written != nil:
		return e.written
	case e.failures > 0:
		return fmt.Errorf("%d of %d checks failed", e.failures, e.findings)
	}
	return nil
}

// discharge closes what the checks have opened.
func (e *examination) discharge() {
	for _, p := range []*patient{e.ann, e.ben} {
		if p != nil {
			p.close()
		}
	}
}
