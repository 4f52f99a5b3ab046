package main

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/sotto-relay/sotto/inbox"
	"github.com/sotto-relay/sotto/inbox/disk"
	"github.com/sotto-relay/sotto/relay"
)

// inboxCommand looks after the store of a relay that is stopped. What messages
// hold is never shown.
func (p *program) inboxCommand() *cli.Command {
	asJSON := func() cli.Flag { return p.boolFlag("json", "print JSON") }
	verb := func(name, what, args string, least, most int, f func(*storeAdmin, context.Context) error) *cli.Command {
		return &cli.Command{
			Name: name, Usage: what, ArgsUsage: args, Flags: []cli.Flag{asJSON()},
			Action: func(ctx context.Context, cmd *cli.Command) error {
				given := cmd.Args().Slice()
				if len(given) < least || len(given) > most {
					return usage(ctx, cmd, fmt.Errorf("inbox %s wants %s", name, args), true)
				}
				s := &storeAdmin{program: p, asJSON: cmd.Bool("json")}
				if len(given) > 1 {
					to, err := parseAddress(given[1])
					if err != nil {
						return usage(ctx, cmd, fmt.Errorf("TO: %w", err), true)
					}
					s.to = &to
				}
				return failed(s.withStore(given[0], func() error { return f(s, ctx) }))
			},
		}
	}
	return &cli.Command{
		Name:  "inbox",
		Usage: "look after the store of a relay that is stopped",
		Description: "DIR is what was given to serve --data; no relay may run on it. TO is a recipient as\n" +
			"ls shows it: brep:KEY, json:ADDRESS, mailbox:KEY. What messages hold is never shown.",
		Commands: []*cli.Command{
			verb("ls", "list the recipients", "DIR", 1, 1, (*storeAdmin).list),
			verb("show", "list the messages of a recipient", "DIR TO", 2, 2, (*storeAdmin).show),
			verb("purge", "delete the messages of a recipient, or what has expired of all", "DIR [TO]", 1, 2, (*storeAdmin).purge),
			verb("compact", "give the space of what was deleted back", "DIR", 1, 1, (*storeAdmin).compact),
			verb("check", "read everything and compare checksums", "DIR", 1, 1, (*storeAdmin).check),
		},
		Action: func(ctx context.Context, cmd *cli.Command) error {
			return usage(ctx, cmd, errors.New("inbox wants one of ls, show, purge, compact and check"), true)
		},
	}
}

// A storeAdmin answers an operator.
type storeAdmin struct {
	*program
	to     *inbox.Address // nil: none was named
	asJSON bool
	db     *disk.DB
}

// storeDir is where the store is in the directory of --data.
func storeDir(data string) string { return filepath.Join(data, "store") }

// withStore calls f with the store open.
func (s *storeAdmin) withStore(data string, f func() error) (err error) {
	dir := storeDir(data)
	if _, err := os.Stat(dir); err != nil {
		return fmt.Errorf("there is no store in %s: %w", data, err)
	}
	if s.db, err = disk.Open(dir, &disk.Options{Existing: true}); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.db.Close()) }()
	return f()
}

// print writes v as JSON, or in words.
func (s *storeAdmin) print(v any, words string) error {
	if s.asJSON {
		return writeJSON(s.stdout, v)
	}
	_, err := fmt.Fprintln(s.stdout, words)
	return err
}

// table writes rows for people, or each of them as JSON.
func table[T any](s *storeAdmin, head string, rows []T, row func(T) (asJSON any, asText string)) error {
	w := tabwriter.NewWriter(s.stdout, 0, 0, 2, ' ', 0)
	if !s.asJSON {
		fmt.Fprintln(w, head)
	}
	for _, r := range rows {
		asJSON, asText := row(r)
		if !s.asJSON {
			fmt.Fprintln(w, asText)
		} else if err := writeJSON(s.stdout, asJSON); err != nil {
			return err
		}
	}
	return w.Flush()
}

func (s *storeAdmin) list(ctx context.Context) error {
	all, err := s.db.Recipients(ctx)
	if err != nil {
		return err
	}
	type row struct {
		To       string    `json:"to"`
		Messages int       `json:"messages"`
		Bytes    int64     `json:"bytes"`
		Oldest   time.Time `json:"oldest"`
	}
	return table(s, "TO\tMESSAGES\tBYTES\tOLDEST", all, func(r disk.Recipient) (any, string) {
		to := showAddress(r.Address)
		return row{to, r.Messages, r.Bytes, r.Oldest.UTC()}, fmt.Sprintf("%s\t%d\t%d\t%s", printable(to), r.Messages, r.Bytes, stamp(r.Oldest))
	})
}

func (s *storeAdmin) show(ctx context.Context) error {
	all, err := s.db.Messages(ctx, *s.to)
	if err != nil {
		return err
	}
	type row struct {
		Number  uint64     `json:"number"`
		From    string     `json:"from"`
		Bytes   int        `json:"bytes"`
		Stored  time.Time  `json:"stored"`
		Expires *time.Time `json:"expires,omitempty"`
	}
	return table(s, "NUMBER\tFROM\tBYTES\tSTORED\tEXPIRES", all, func(m disk.Message) (any, string) {
		r := row{Number: m.Seq, From: showAddress(m.From), Bytes: m.Bytes, Stored: m.Stored.UTC()}
		expires := "never"
		if !m.Expires.IsZero() {
			utc := m.Expires.UTC()
			r.Expires, expires = &utc, stamp(utc)
		}
		return r, fmt.Sprintf("%d\t%s\t%d\t%s\t%s", m.Seq, printable(r.From), m.Bytes, stamp(m.Stored), expires)
	})
}

func (s *storeAdmin) purge(ctx context.Context) error {
	deleted, err := s.remove(ctx)
	if err != nil {
		return err
	}
	return s.print(struct {
		Deleted int `json:"deleted"`
	}{deleted}, fmt.Sprintf("%d messages deleted", deleted))
}

// remove deletes the messages of the recipient, or what has expired of all.
func (s *storeAdmin) remove(ctx context.Context) (deleted int, err error) {
	if s.to != nil {
		return s.db.Remove(ctx, *s.to)
	}
	const batch = 1000
	for n := batch; n == batch; deleted += n {
		if n, err = s.db.Inbox().Purge(ctx, batch, nil); err != nil {
			return deleted, err
		}
	}
	return deleted, nil
}

func (s *storeAdmin) compact(ctx context.Context) error { return s.db.Compact(ctx) }

func (s *storeAdmin) check(ctx context.Context) error {
	c, err := s.db.Check(ctx)
	if err != nil {
		return err
	}
	err = s.print(struct {
		Messages int      `json:"messages"`
		Bytes    int64    `json:"bytes"`
		Values   int      `json:"values"`
		Damaged  []string `json:"damaged,omitempty"`
	}{c.Messages, c.Bytes, c.Values, c.Damaged},
		strings.Join(append([]string{fmt.Sprintf("%d messages of %d bytes and %d values are sound", c.Messages, c.Bytes, c.Values)}, c.Damaged...), "\n"))
	if err == nil && len(c.Damaged) > 0 {
		err = errors.New("the store is damaged: restore a backup, or start serve with --quarantine")
	}
	return err
}

// A namedRealm has inboxes.
type namedRealm struct {
	realm relay.Realm
	name  string
	isKey bool // shown in hex
}

var realms = [...]namedRealm{
	{relay.RealmBrep, "brep", true},
	{relay.RealmJSON, "json", false},
	{relay.RealmMailbox, "mailbox", true},
}

func showAddress(a inbox.Address) string {
	for _, r := range realms {
		if r.realm == a.Realm && r.isKey {
			return r.name + ":" + hex.EncodeToString([]byte(a.Name))
		} else if r.realm == a.Realm {
			return r.name + ":" + a.Name
		}
	}
	return fmt.Sprintf("%d:%x", a.Realm, a.Name)
}

func parseAddress(text string) (inbox.Address, error) {
	realm, name, _ := strings.Cut(text, ":")
	i := slices.IndexFunc(realms[:], func(r namedRealm) bool { return r.name == realm })
	if i < 0 || name == "" {
		return inbox.Address{}, fmt.Errorf("%q is no recipient, such as json:alice", text)
	}
	a := inbox.Address{Realm: realms[i].realm, Name: name}
	if realms[i].isKey {
		key, err := hex.DecodeString(name)
		if err != nil || len(key) != 32 {
			return a, fmt.Errorf("%s is followed by a key of 64 hex digits, not %q", realm, name)
		}
		a.Name = string(key)
	}
	return a, nil
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }
