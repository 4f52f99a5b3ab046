package relaytest_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sotto-relay/sotto/relay"
	"github.com/sotto-relay/sotto/relay/relaytest"
	"github.com/sotto-relay/sotto/transport"
)

// lines is a dialect of one line of text a message, with ways to get it wrong.
//
//	I am NAME      answered "hello"
//	to NAME TEXT   the recipient gets "TEXT"
type lines struct {
	fault string
}

func (lines) Name() string                { return "lines" }
func (lines) Limits() relay.DialectLimits { return relay.DialectLimits{} }

func (d lines) NewSession(p *relay.Port) (relay.Session, error) {
	return &linesSession{port: p, fault: d.fault}, nil
}

func (d lines) Render(buf []byte, form uint8, m *relay.Message) (transport.Kind, []byte, error) {
	if d.fault == "render from the start" && len(buf) > 0 {
		buf = buf[:0]
	}
	return transport.Text, append(buf, m.Data...), nil
}

type linesSession struct {
	port  *relay.Port
	fault string
	named bool
}

var errLine = &relay.Refusal{Code: relay.CodeMalformed}

func (s *linesSession) Receive(_ context.Context, k transport.Kind, msg []byte) error {
	verb, rest, _ := strings.Cut(string(msg), " ")
	name, text, _ := strings.Cut(rest, " ")
	switch {
	case k != transport.Text:
		return errLine
	case verb == "I" && !s.named:
		s.named = true
		return s.port.Claim(relay.Claim{
			Address: relay.Address{Realm: 1, Name: text}, Greeting: []byte("hello"), Kind: transport.Text,
			InUse: map[bool]relay.InUse{true: relay.Share}[s.fault == "share"],
		})
	case verb == "to" && s.named:
		return s.send(msg, name, len(msg)-len(text))
	}
	if s.fault == "panic" {
		panic("what is that?")
	}
	return errLine
}

func (s *linesSession) send(msg []byte, to string, at int) error {
	m := &relay.Message{To: relay.Address{Realm: 1, Name: to}, Data: msg[at:]}
	switch s.fault {
	case "keep":
		s.port.After(time.Millisecond, func() { s.port.Send(m) })
		return nil
	case "wait":
		time.Sleep(time.Millisecond)
	case "goroutine":
		go func() { time.Sleep(time.Hour) }()
	case "drop":
		if bytes.HasSuffix(msg, []byte("7")) {
			return nil
		}
	case "twice":
		s.port.Send(m)
	case "ephemeral":
		m.Ephemeral = true
	case "hang up":
		if s.port.Send(m).Status == relay.Refused {
			return errors.New("refused")
		}
		return nil
	}
	s.port.Send(m)
	return nil
}

func (s *linesSession) Close(error) {}

func linesConfig(fault string) relaytest.DialectConfig {
	return relaytest.DialectConfig{
		Dialect: lines{fault},
		Login: func(c transport.Conn, name string) error {
			if _, err := c.Write(transport.Text, [][]byte{[]byte("I am " + name)}); err != nil {
				return err
			}
			_, msg, err := c.Read()
			if err == nil && string(msg) != "hello" {
				err = errors.New("no hello")
			}
			return err
		},
		Message: func(from, to, text string) (transport.Kind, []byte) {
			return transport.Text, []byte("to " + to + " " + text)
		},
		Text: func(_ transport.Kind, msg []byte) (string, bool) { return string(msg), string(msg) != "hello" },
	}
}

const faultVariable = "RELAYTEST_FAULT"

// TestLines tests a dialect that is right, and, when TestFaultyDialects has it
// run, one that is not.
func TestLines(t *testing.T) {
	relaytest.TestDialect(t, linesConfig(os.Getenv(faultVariable)))
}

// The suite finds what it is there to find.
func TestFaultyDialects(t *testing.T) {
	if testing.Short() {
		t.Skip("runs the test binary again")
	}
	for fault, want := range map[string]string{
		"keep":                  `heard "\xa5\xa5`,
		"wait":                  "Receive waited for something",
		"panic":                 "Receive panicked",
		"goroutine":             "a goroutine of its own",
		"drop":                  "FAIL: TestLines/Live",
		"twice":                 "FAIL: TestLines/Live",
		"ephemeral":             "FAIL: TestLines/Absent",
		"hang up":               "FAIL: TestLines/AbsentWithoutInbox",
		"render from the start": "Render changed what was in the buffer",
		"share":                 "the older session of the address is still there",
	} {
		t.Run(fault, func(t *testing.T) {
			t.Parallel()
			cmd := exec.Command(os.Args[0], "-test.run=^TestLines$", "-test.timeout=30s")
			cmd.Env = append(os.Environ(), faultVariable+"="+fault)
			out, err := cmd.CombinedOutput()
			var exit *exec.ExitError
			require.ErrorAs(t, err, &exit, "the suite found nothing wrong")
			assert.Contains(t, string(out), want)
		})
	}
}
