// Package transporttest is the conformance suite of [transport.Conn]: what every
// medium must do, and what it may claim to do besides.
//
// It imports nothing but package transport, so that a medium of one's own can be
// tested with it. It does not test what a medium does with malformed input, nor
// how a connection comes about.
package transporttest

import (
	"bytes"
	"errors"
	"io"
	"os"
	"testing"
	"time"

	"github.com/sotto-relay/sotto/transport"
)

// Traits are what a medium lacks.
type Traits struct {
	NoKinds bool // everything arrives as Binary
	NoCodes bool // close codes and reasons do not arrive: io.EOF does
	NoEmpty bool // there are no messages of no bytes
	NoSkip  bool // a message over the read limit ends the Conn

	// Datagrams are messages of at most 16 KiB that are lost when nobody takes them,
	// and a peer is not told of the end. Tests of the opposite are skipped.
	Datagrams bool
}

// Run tests a medium. dial returns the two ends of a new connection; Run closes
// both. Every test runs in both directions. The connection must take 5 messages
// or 5,000 bytes that nobody reads, and not 200 MB.
func Run(t *testing.T, traits Traits, dial func(t *testing.T) (a, b transport.Conn)) {
	const stream = true // not for datagrams
	tests := []struct {
		name   string
		run    func(t *testing.T, traits Traits, a, b transport.Conn)
		stream bool
	}{
		{"Messages", testMessages, !stream},
		{"Echo", testEcho, !stream},
		{"Batch", testBatch, stream},
		{"Retain", testRetain, !stream},
		{"Validity", testValidity, !stream},
		{"TryWrite", testTryWrite, stream},
		{"Resume", testResume, stream},
		{"Dry", testDry, !stream},
		{"ReadDeadline", testReadDeadline, !stream},
		{"WriteDeadline", testWriteDeadline, stream},
		{"ReadLimit", testReadLimit, !stream},
		{"ReadLimitEnds", testReadLimitEnds, !stream},
		{"CloseCode", testCloseCode, stream},
		{"CloseUnblocks", testCloseUnblocks, stream},
		{"CloseConcurrently", testCloseConcurrently, !stream},
		{"CloseDuringTraffic", testCloseDuringTraffic, stream},
	}
	for _, test := range tests {
		if test.stream && traits.Datagrams {
			continue
		}
		for _, turned := range []bool{false, true} {
			name := test.name + "/forth"
			if turned {
				name = test.name + "/back"
			}
			t.Run(name, func(t *testing.T) {
				a, b := dial(t)
				if turned {
					a, b = b, a
				}
				defer a.Close(transport.CloseNormal, "")
				defer b.Close(transport.CloseNormal, "")
				watchdog := time.AfterFunc(20*time.Second, func() {
					t.Error("the test hangs: closing the connection")
					a.Close(transport.CloseNormal, "")
					b.Close(transport.CloseNormal, "")
				})
				defer watchdog.Stop()
				test.run(t, traits, a, b)
			})
		}
	}
}

// A letter is a message with its kind.
type letter struct {
	kind transport.Kind
	body []byte
}

func (traits Traits) letter(k transport.Kind, size int) letter {
	const prime = "abcdefghijklmnopqrstuvwxyz0123456789-" // 37 bytes: no buffer's size is a multiple
	body := bytes.Repeat([]byte(prime), size/len(prime)+1)[:size]
	if traits.NoKinds {
		k = transport.Binary
	}
	return letter{k, body}
}

// send writes messages of one kind, calling Write as often as it takes.
func send(c transport.Conn, k transport.Kind, msgs ...[]byte) error {
	for len(msgs) > 0 {
		n, err := c.Write(k, msgs)
		if err != nil {
			return err
		}
		msgs = msgs[n:]
	}
	return nil
}

func mustSend(t *testing.T, c transport.Conn, letters ...letter) {
	t.Helper()
	for _, l := range letters {
		if err := send(c, l.kind, l.body); err != nil {
			t.Fatalf("Write of %d bytes: %v", len(l.body), err)
		}
	}
}

func mustRead(t *testing.T, c transport.Conn, want ...letter) {
	t.Helper()
	for i, w := range want {
		k, b, err := c.Read()
		if err != nil {
			t.Fatalf("Read %d of %d: %v", i, len(want), err)
		}
		if k != w.kind || !bytes.Equal(b, w.body) {
			t.Fatalf("Read %d of %d: kind %d, %d bytes %.20q…; want kind %d, %d bytes %.20q…",
				i, len(want), k, len(b), b, w.kind, len(w.body), w.body)
		}
	}
}

// start runs f and returns how to wait for its error. The test must do so.
func start(f func() error) (wait func() error) {
	done := make(chan error, 1)
	go func() { done <- f() }()
	return func() error { return <-done }
}

// readFails checks that Read fails, though there may be messages before.
func readFails(c transport.Conn) error {
	for {
		_, _, err := c.Read()
		if err != nil && !errors.Is(err, transport.ErrTooLarge) {
			return err
		}
	}
}

func isTimeout(err error) bool { return errors.Is(err, os.ErrDeadlineExceeded) }

// isClosed says whether err is what a close with a code is reported as.
func (traits Traits) isClosed(err error, code uint16, reason string) bool {
	if traits.NoCodes {
		return errors.Is(err, io.EOF)
	}
	said, ok := errors.AsType[*transport.CloseError](err)
	return ok && said.Code == code && said.Reason == reason
}
